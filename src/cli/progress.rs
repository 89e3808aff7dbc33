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

/// How many of something there are, where nobody knows how many there will be. The line goes
/// away when this is dropped.
pub struct Counter {
    what: &'static str,
    began: Instant,
    visible: bool,
    bar: Option<ProgressBar>,
}

impl Counter {
    /// None so far.
    pub fn new(what: &'static str) -> Self {
        Self {
            what,
            began: Instant::now(),
            visible: std::io::stderr().is_terminal(),
            bar: None,
        }
    }

    /// So many by now.
    pub fn at(&mut self, count: u64) {
        let elapsed = self.began.elapsed();
        if !self.visible || elapsed < PATIENCE {
            return;
        }
        let bar = self.bar.get_or_insert_with(|| {
            let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
            bar.with_style(
                ProgressStyle::with_template("{spinner} {msg}")
                    .unwrap_or_else(|_| ProgressStyle::default_spinner()),
            )
        });
        let millions = count as f64 / 1e6;
        let each = millions / elapsed.as_secs_f64();
        bar.set_message(format!(
            "{millions:.1} million {} ({each:.1} million/s)",
            self.what
        ));
        bar.tick();
    }
}

impl Drop for Counter {
    fn drop(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}
