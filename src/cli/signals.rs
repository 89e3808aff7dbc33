//! Signals that end the program: incomplete files are removed first.

use signal_hook::SigId;
use signal_hook::consts::SIGINT;
use std::io;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// Removes incomplete files on SIGINT, SIGTERM and SIGHUP before the signal ends the program. Windows has
/// no such signals; there the files remain until the next run removes them.
pub fn clean_up() -> io::Result<()> {
    #[cfg(unix)]
    unix::clean_up_on(&[SIGINT, unix::SIGTERM, unix::SIGHUP])?;
    Ok(())
}

/// Ignores Ctrl-C, which a debugger on the same terminal handles, until this is dropped.
#[derive(Debug)]
pub struct StaysAlive(SigId);

/// Ignores Ctrl-C in this process only: programs that it starts have the default. The other signals
/// are handled as in [`clean_up`].
pub fn stay_alive() -> io::Result<StaysAlive> {
    #[cfg(unix)]
    unix::clean_up_on(&[unix::SIGTERM, unix::SIGHUP])?;
    let pressed = Arc::new(AtomicBool::new(false));
    Ok(StaysAlive(signal_hook::flag::register(SIGINT, pressed)?))
}

impl Drop for StaysAlive {
    fn drop(&mut self) {
        signal_hook::low_level::unregister(self.0);
    }
}

#[cfg(unix)]
pub use unix::{before_the_end, interruption, not_ignored};

#[cfg(unix)]
mod unix {
    use signal_hook::consts::SIGINT;
    pub use signal_hook::consts::{SIGHUP, SIGTERM};
    use std::io::{self, PipeReader, PipeWriter};
    use std::sync::{Mutex, MutexGuard, PoisonError};

    /// Closed on Ctrl-C, which does not end the program then.
    static INTERRUPTION: Mutex<Option<PipeWriter>> = Mutex::new(None);

    fn interruption_writer() -> MutexGuard<'static, Option<PipeWriter>> {
        let writer = INTERRUPTION.lock();
        writer.unwrap_or_else(PoisonError::into_inner)
    }

    pub fn clean_up_on(signals: &[i32]) -> io::Result<()> {
        before_the_end(signals, || {
            armsnap::leftovers::remove_all();
            super::super::pager::abandon();
        })
    }

    /// Returns a pipe whose other end is closed on the next Ctrl-C, which does not end the program.
    /// Expects that [`clean_up`](super::clean_up) was called.
    pub fn interruption() -> io::Result<PipeReader> {
        let (reader, writer) = io::pipe()?;
        *interruption_writer() = Some(writer);
        Ok(reader)
    }

    /// Calls `clean_up` when one of these signals arrives, before the signal ends the program. A
    /// Ctrl-C that [`interruption`] waits for does not.
    pub fn before_the_end(
        signals: &[i32],
        clean_up: impl FnOnce() + Send + 'static,
    ) -> io::Result<()> {
        let handled = not_ignored(signals.iter().copied());
        let mut signals = signal_hook::iterator::Signals::new(handled)?;
        std::thread::spawn(move || {
            let mut signals = signals.forever();
            let ends = |&signal: &i32| signal != SIGINT || interruption_writer().take().is_none();
            if let Some(signal) = signals.find(ends) {
                clean_up();
                let _ = signal_hook::low_level::emulate_default_handler(signal);
            }
        });
        Ok(())
    }

    /// Returns the signals that this process does not ignore: ignored ones stay ignored (`nohup`).
    pub fn not_ignored(signals: impl IntoIterator<Item = i32>) -> impl Iterator<Item = i32> {
        let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
        let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
        let ignored = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
        let ignored = ignored.unwrap_or(0);
        let signals = signals.into_iter();
        signals.filter(move |signal| ignored >> (signal - 1) & 1 == 0)
    }
}
