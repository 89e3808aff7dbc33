//! How far work of more than a second has come, on standard error if that is a terminal.

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::io::IsTerminal;
use std::time::{Duration, Instant};

/// Work that is done sooner shows nothing.
const PATIENCE: Duration = Duration::from_secs(1);

/// Bytes done of all bytes. The bar goes away when this is dropped.
pub struct Progress {
    total: u64,
    began: Instant,
    visible: bool,
    bar: Option<ProgressBar>,
}

impl Progress {
    /// None of `total` bytes is done.
    pub fn new(total: u64) -> Self {
        Self {
            total,
            began: Instant::now(),
            visible: std::io::stderr().is_terminal(),
            bar: None,
        }
    }

    /// So many bytes are done of `total`, which may be another than before: of the next stage.
    pub fn of(&mut self, done: u64, total: u64) {
        if self.total != total {
            self.total = total;
            if let Some(bar) = &self.bar {
                bar.reset();
                bar.set_length(total);
            }
        }
        self.at(done);
    }

    /// So many bytes are done.
    pub fn at(&mut self, done: u64) {
        if !self.visible || self.began.elapsed() < PATIENCE {
            return;
        }
        let bar = self.bar.get_or_insert_with(|| {
            let bar = ProgressBar::with_draw_target(Some(self.total), ProgressDrawTarget::stderr());
            let form = "{wide_bar} {bytes}/{total_bytes} {bytes_per_sec} {eta}";
            bar.with_style(
                ProgressStyle::with_template(form).unwrap_or_else(|_| ProgressStyle::default_bar()),
            )
        });
        bar.set_position(done);
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}
