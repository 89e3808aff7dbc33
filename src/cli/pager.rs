//! A pager for listings on a terminal, as in git: $ARMSNAP_PAGER, $PAGER, or less.
//!
//! Standard output, and standard error if it is a terminal, go to the pager until it is dropped.
//! On systems other than Unix, listings are never paged.

#[cfg(unix)]
pub use unix::{Pager, abandon};

#[cfg(unix)]
mod unix {
    use std::env;
    use std::fs::File;
    use std::io::{self, IsTerminal, Write};
    use std::os::fd::{AsFd, OwnedFd};
    use std::process::{Child, Command, Stdio};
    use std::sync::{Mutex, PoisonError};

    /// The running pager, and the original standard output and standard error.
    static RUNNING: Mutex<Option<(Child, OwnedFd, OwnedFd)>> = Mutex::new(None);

    /// Takes the running pager, if there is one.
    fn take_running() -> Option<(Child, OwnedFd, OwnedFd)> {
        RUNNING
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take()
    }

    /// A running pager. Dropping it waits until the user leaves it.
    #[derive(Debug)]
    pub struct Pager(());

    impl Pager {
        /// Starts the pager, if standard output is a terminal and the user wants one.
        pub fn start() -> io::Result<Option<Self>> {
            if !io::stdout().is_terminal() {
                return Ok(None);
            }
            let chosen = ["ARMSNAP_PAGER", "PAGER"].into_iter().find_map(env::var_os);
            let installed = || super::super::tool::find("less").is_some();
            let Some(pager) = chosen.or_else(|| installed().then(|| "less".into())) else {
                return Ok(None);
            };
            if pager.is_empty() || pager == "cat" {
                return Ok(None);
            }
            let before = io::stdout().as_fd().try_clone_to_owned()?;
            let before_errors = io::stderr().as_fd().try_clone_to_owned()?;
            // The user's own setting is a shell command with options.
            let mut command = Command::new("sh");
            command.arg("-c").arg(pager).stdin(Stdio::piped());
            for (name, value) in [("LESS", "FRX"), ("LV", "-c")] {
                if env::var_os(name).is_none() {
                    command.env(name, value);
                }
            }
            let mut child = command.spawn()?;
            if let Some(pipe) = child.stdin.take() {
                if io::stderr().is_terminal() {
                    rustix::stdio::dup2_stderr(&pipe)?;
                }
                rustix::stdio::dup2_stdout(&pipe)?;
            }
            *RUNNING.lock().unwrap_or_else(PoisonError::into_inner) =
                Some((child, before, before_errors));
            Ok(Some(Self(())))
        }
    }

    impl Drop for Pager {
        fn drop(&mut self) {
            if io::stdout().flush().is_err() {
                // The user left the pager: output that it did not read must not reach the terminal.
                discard_output();
                let _ = io::stdout().flush();
            }
            if let Some((mut child, out, errors)) = take_running() {
                let _ = rustix::stdio::dup2_stdout(&out);
                let _ = rustix::stdio::dup2_stderr(&errors);
                let _ = child.wait();
            }
        }
    }

    /// Discards further output, and waits until the user leaves the pager. Called when the process
    /// is interrupted.
    pub fn abandon() {
        if let Some((mut child, ..)) = take_running() {
            discard_output();
            let _ = child.wait();
        }
    }

    /// Redirects standard output and standard error to the null device.
    fn discard_output() {
        if let Ok(nowhere) = File::options().write(true).open("/dev/null") {
            let _ = rustix::stdio::dup2_stdout(&nowhere);
            let _ = rustix::stdio::dup2_stderr(&nowhere);
        }
    }
}

#[cfg(not(unix))]
mod other {
    /// Never runs.
    #[derive(Debug)]
    pub struct Pager(std::convert::Infallible);

    impl Pager {
        /// Starts nothing.
        #[allow(clippy::unnecessary_wraps, reason = "as on Unix")]
        pub const fn start() -> std::io::Result<Option<Self>> {
            Ok(None)
        }
    }

    /// Does nothing.
    pub const fn abandon() {}
}
#[cfg(not(unix))]
pub use other::{Pager, abandon};
