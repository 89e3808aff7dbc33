//! Waiting for live trace, until Ctrl-C or until nobody reads the output.

#[cfg(unix)]
pub use unix::Waiting;

#[cfg(unix)]
mod unix {
    use super::super::super::output::Output;
    use super::super::super::signals;
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    use rustix::io::Errno;
    use std::fs::File;
    use std::io::{self, ErrorKind, PipeReader};
    use std::os::fd::OwnedFd;
    use std::time::Duration;

    /// Waits for trace.
    pub struct Waiting {
        /// Closed on Ctrl-C.
        interrupted: PipeReader,
        /// The output, if it may be a pipe.
        output: Option<OwnedFd>,
    }

    impl Waiting {
        /// From here on, Ctrl-C ends the trace instead of the program.
        pub fn new(output: &Output) -> io::Result<Self> {
            Ok(Self {
                interrupted: signals::interruption()?,
                output: output.descriptor()?,
            })
        }

        /// Waits until the other end of a pipe is closed, instead of Ctrl-C.
        #[cfg(test)]
        pub const fn until(interrupted: PipeReader) -> Self {
            let output = None;
            Self {
                interrupted,
                output,
            }
        }

        /// Returns whether a file can be read without waiting.
        #[allow(clippy::unused_self, reason = "not on all systems")]
        pub fn has_input(&self, file: &File) -> io::Result<bool> {
            let mut waits = [PollFd::new(file, PollFlags::IN)];
            Ok(poll(&mut waits, Some(&Timespec::default()))? > 0)
        }

        /// Waits until a file can be read. Returns whether to continue: `false` after Ctrl-C.
        ///
        /// # Errors
        ///
        /// If nobody reads the output any more.
        pub fn for_input(&self, file: &File) -> io::Result<bool> {
            self.wait(Some(file), None)
        }

        /// Waits for some time, or until Ctrl-C. Fails as [`for_input`](Self::for_input).
        pub fn pause(&self, time: Duration) -> io::Result<()> {
            self.wait(None, Some(time)).map(drop)
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
    use super::super::super::output::Output;
    use std::fs::File;
    use std::io;
    use std::time::Duration;

    /// Waits for trace. Ctrl-C ends the program.
    pub struct Waiting;

    #[allow(clippy::unnecessary_wraps, clippy::unused_self, reason = "as on Unix")]
    impl Waiting {
        /// Creates it.
        pub const fn new(_: &Output) -> io::Result<Self> {
            Ok(Self)
        }

        /// Not known, and used only after Ctrl-C.
        pub const fn has_input(&self, _: &File) -> io::Result<bool> {
            Ok(false)
        }

        /// Does not wait: reading does.
        pub const fn for_input(&self, _: &File) -> io::Result<bool> {
            Ok(true)
        }

        /// Waits for some time.
        pub fn pause(&self, time: Duration) -> io::Result<()> {
            std::thread::sleep(time);
            Ok(())
        }
    }
}
#[cfg(not(unix))]
pub use other::Waiting;
