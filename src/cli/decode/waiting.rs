//! Waiting for trace that arrives, until Ctrl-C or until nobody reads the output.

#[cfg(unix)]
pub use unix::Waiting;

#[cfg(unix)]
mod unix {
    use super::super::super::signals;
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    use rustix::io::Errno;
    use std::fs::File;
    use std::io::{self, ErrorKind, PipeReader};
    use std::os::fd::{AsFd, OwnedFd};
    use std::time::Duration;

    /// Waits for trace.
    pub struct Waiting {
        /// Closed on Ctrl-C.
        interrupted: PipeReader,
        /// Standard output, if the results go there.
        output: Option<OwnedFd>,
    }

    impl Waiting {
        /// From here on, Ctrl-C ends the trace instead of the program.
        pub fn new(to_standard_output: bool) -> io::Result<Self> {
            let output = to_standard_output.then(|| io::stdout().as_fd().try_clone_to_owned());
            Ok(Self {
                interrupted: signals::interruption()?,
                output: output.transpose()?,
            })
        }

        /// Waits until a file can be read. Returns whether to continue: `false` after Ctrl-C.
        ///
        /// # Errors
        ///
        /// If nobody reads the output any more.
        pub fn for_input(&self, file: &File) -> io::Result<bool> {
            self.wait(Some(file), None)
        }

        /// Waits for some time. Returns whether to continue, and fails, as
        /// [`for_input`](Self::for_input).
        pub fn pause(&self, time: Duration) -> io::Result<bool> {
            self.wait(None, Some(time))
        }

        fn wait(&self, file: Option<&File>, time: Option<Duration>) -> io::Result<bool> {
            let time = time.and_then(|time| Timespec::try_from(time).ok());
            let mut waits = vec![PollFd::new(&self.interrupted, PollFlags::IN)];
            // Only its end is reported.
            let output = self.output.iter();
            waits.extend(output.map(|output| PollFd::new(output, PollFlags::empty())));
            waits.extend(file.map(|file| PollFd::new(file, PollFlags::IN)));
            while let Err(error) = poll(&mut waits, time.as_ref()) {
                if error != Errno::INTR {
                    return Err(error.into());
                }
            }
            if !waits[0].revents().is_empty() {
                return Ok(false);
            }
            let gone = PollFlags::ERR | PollFlags::HUP;
            if self.output.is_some() && waits[1].revents().intersects(gone) {
                return Err(ErrorKind::BrokenPipe.into());
            }
            Ok(true)
        }
    }
}

#[cfg(not(unix))]
mod other {
    use std::fs::File;
    use std::io;
    use std::time::Duration;

    /// Waits for trace. Ctrl-C ends the program.
    pub struct Waiting;

    #[allow(clippy::unnecessary_wraps, clippy::unused_self, reason = "as on Unix")]
    impl Waiting {
        /// Creates it.
        pub const fn new(_: bool) -> io::Result<Self> {
            Ok(Self)
        }

        /// Does not wait: reading does.
        pub const fn for_input(&self, _: &File) -> io::Result<bool> {
            Ok(true)
        }

        /// Waits for some time.
        pub fn pause(&self, time: Duration) -> io::Result<bool> {
            std::thread::sleep(time);
            Ok(true)
        }
    }
}
#[cfg(not(unix))]
pub use other::Waiting;
