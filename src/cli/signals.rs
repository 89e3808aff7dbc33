//! Signals that end the program: files that are not complete are removed first.

use signal_hook::SigId;
use signal_hook::consts::SIGINT;
use std::io;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// Removes incomplete files on SIGINT, SIGTERM and SIGHUP before the signal ends the program. Windows has
/// no such signals; files stay until the next run removes them.
pub fn clean_up() -> io::Result<()> {
    #[cfg(unix)]
    unix::clean_up_on(&[SIGINT, unix::SIGTERM, unix::SIGHUP])?;
    Ok(())
}

/// Ignores Ctrl-C, which a debugger on the same terminal handles, until it is dropped.
#[derive(Debug)]
pub struct StaysAlive(SigId);

/// Ignores Ctrl-C in this process only: programs that it starts have the default. The other signals
/// are as in [`clean_up`].
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
mod unix {
    pub use signal_hook::consts::{SIGHUP, SIGTERM};
    use std::io;

    pub fn clean_up_on(signals: &[i32]) -> io::Result<()> {
        // Ignored signals stay ignored (`nohup`).
        let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
        let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
        let ignored = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
        let handled = |signal: &i32| ignored.unwrap_or(0) >> (signal - 1) & 1 == 0;
        let handled = signals.iter().filter(|signal| handled(signal));
        let mut signals = signal_hook::iterator::Signals::new(handled)?;
        std::thread::spawn(move || {
            if let Some(signal) = signals.forever().next() {
                armsnap::leftovers::remove_all();
                super::super::pager::abandon();
                let _ = signal_hook::low_level::emulate_default_handler(signal);
            }
        });
        Ok(())
    }
}
