//! Progress of work longer than a second, on standard error if it is a terminal.

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::io::IsTerminal;
use std::time::{Duration, Instant};

/// The delay before progress is shown.
const PATIENCE: Duration = Duration::from_secs(1);

/// A progress bar of bytes. It is removed when this is dropped.
pub struct Progress {
    total: u64,
    began: Instant,
    visible: bool,
    bar: Option<ProgressBar>,
}

impl Progress {
    /// Creates a bar for `total` bytes.
    pub fn new(total: u64) -> Self {
        Self {
            total,
            began: Instant::now(),
            visible: std::io::stderr().is_terminal(),
            bar: None,
        }
    }

    /// Sets the number of bytes done and the total, which changes with each stage.
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

    /// Sets the number of bytes done.
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

/// A counter without a known total. The line is removed when this is dropped.
pub struct Counter {
    what: &'static str,
    began: Instant,
    visible: bool,
    bar: Option<ProgressBar>,
}

impl Counter {
    /// Creates a counter at zero.
    pub fn new(what: &'static str) -> Self {
        Self {
            what,
            began: Instant::now(),
            visible: std::io::stderr().is_terminal(),
            bar: None,
        }
    }

    /// Sets the count.
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
