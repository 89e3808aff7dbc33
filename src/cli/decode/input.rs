//! Trace that is decoded while it arrives: standard input, or files of which the last one grows.

use super::waiting::Waiting;
use super::writers::Writers;
use armsnap::mapped;
use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, ErrorKind, Read, Seek};
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// How often a file that has not grown is read again.
const PAUSE: Duration = Duration::from_millis(100);
/// How often the writers of a file that has not grown are checked.
const CHECK: Duration = Duration::from_secs(1);

/// Trace that arrives. Reading it waits for more, and ends with the trace or on Ctrl-C.
pub struct Input {
    /// The files that are not read completely.
    files: VecDeque<(PathBuf, File)>,
    /// Whether the last file may grow.
    grows: bool,
    bytes: u64,
    waiting: Waiting,
    writers: Writers,
    /// When the writers are checked again.
    check: Instant,
}

impl Input {
    /// Standard input. If it is a file, and `follow` is set, it may grow.
    pub fn standard(follow: bool, waiting: Waiting) -> io::Result<Self> {
        let file = standard_input()?;
        let grows = follow && file.metadata()?.is_file();
        let files = VecDeque::from([("standard input".into(), file)]);
        Ok(Self::new(files, grows, waiting))
    }

    /// Files that are read one after another; the last one may grow.
    pub fn growing(paths: Vec<PathBuf>, waiting: Waiting) -> io::Result<Self> {
        let open = |path: PathBuf| match mapped::open_input(&path) {
            Ok(file) => Ok((path, file)),
            Err(error) => Err(named(&path, &error)),
        };
        let files = paths.into_iter().map(open).collect::<io::Result<_>>()?;
        Ok(Self::new(files, true, waiting))
    }

    fn new(files: VecDeque<(PathBuf, File)>, grows: bool, waiting: Waiting) -> Self {
        Self {
            files,
            grows,
            bytes: 0,
            waiting,
            writers: Writers::default(),
            check: Instant::now(),
        }
    }

    /// Returns the number of bytes read.
    pub const fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Returns whether the trace ends here although its file may grow: nothing writes it any more.
    fn is_complete(&mut self) -> io::Result<bool> {
        let Some((path, file)) = self.files.front_mut() else {
            return Ok(true);
        };
        let (read, length) = (file.stream_position()?, file.metadata()?.len());
        if length < read {
            let text = format!("was cut from {read} to {length} bytes while it was read");
            return Err(named(path, &io::Error::other(text)));
        }
        if Instant::now() < self.check {
            return Ok(false);
        }
        self.check = Instant::now() + CHECK;
        Ok(self.writers.have_closed(file))
    }
}

impl Read for Input {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        let mut is_complete = false;
        while let Some((path, file)) = self.files.front_mut() {
            if !self.waiting.for_input(file)? {
                break;
            }
            match file.read(bytes) {
                Ok(0) => {}
                Ok(count) => {
                    self.bytes += count as u64;
                    return Ok(count);
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) => return Err(named(path, &error)),
            }
            if self.files.len() > 1 {
                self.files.pop_front();
                continue;
            }
            // What was written before the file was closed has been read after that.
            if !self.grows || is_complete {
                break;
            }
            is_complete = self.is_complete()?;
            if !is_complete && !self.waiting.pause(PAUSE)? {
                break;
            }
        }
        self.files.clear();
        Ok(0)
    }
}

/// Adds the name of an input to an error. The reader of the output is not the reason for it.
fn named(path: &std::path::Path, error: &io::Error) -> io::Error {
    io::Error::other(format!("{}: {error}", path.display()))
}

/// Standard input without a buffer.
#[cfg(unix)]
fn standard_input() -> io::Result<File> {
    use std::os::fd::AsFd;
    Ok(io::stdin().as_fd().try_clone_to_owned()?.into())
}

/// Standard input without a buffer.
#[cfg(windows)]
fn standard_input() -> io::Result<File> {
    use std::os::windows::io::AsHandle;
    Ok(io::stdin().as_handle().try_clone_to_owned()?.into())
}
