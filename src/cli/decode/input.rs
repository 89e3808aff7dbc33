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
/// The same if none are known and none appear.
const RARE_CHECK: Duration = Duration::from_secs(8);
/// How many bytes that have already arrived are read after Ctrl-C: a pipe holds no more by default.
const AFTER_INTERRUPTION: usize = 1 << 20;

/// Live trace. Reading it waits for more, and ends with the trace or on Ctrl-C.
pub struct Input {
    /// The files that are not read completely.
    files: VecDeque<(PathBuf, File)>,
    /// Whether the last file may grow.
    grows: bool,
    bytes: u64,
    waiting: Waiting,
    writers: Writers,
    /// When the writers were last checked, and how long afterwards they are checked again.
    checked: Option<Instant>,
    interval: Duration,
    /// Whether the writers have closed the file. What they wrote before may not have been read.
    is_closed: bool,
    /// After Ctrl-C: how many bytes may be read.
    left: Option<usize>,
}

impl Input {
    /// [Standard input](standard_input). If it is a file, and `follow` is set, it may grow.
    pub fn standard(file: File, follow: bool, waiting: Waiting) -> io::Result<Self> {
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
            checked: None,
            interval: CHECK,
            is_closed: false,
            left: None,
        }
    }

    /// Returns the number of bytes read.
    pub const fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Returns whether everything has been read.
    pub fn has_ended(&self) -> bool {
        self.files.is_empty()
    }

    /// Checks whether the file that may grow is still written.
    fn check(&mut self) -> io::Result<()> {
        let Some((path, file)) = self.files.front_mut() else {
            return Ok(());
        };
        let (read, length) = (file.stream_position()?, file.metadata()?.len());
        if length < read {
            let text = format!("was cut from {read} to {length} bytes while it was read");
            return Err(named(path, &io::Error::other(text)));
        }
        if self.checked.is_some_and(|at| at.elapsed() < self.interval) {
            return Ok(());
        }
        self.is_closed = self.writers.have_closed(file);
        self.checked = Some(Instant::now());
        self.interval = match self.writers.are_known() {
            true => CHECK,
            false => RARE_CHECK.min(self.interval * 2),
        };
        Ok(())
    }

    /// Counts bytes that were read. Somebody wrote them.
    fn count(&mut self, count: usize) {
        self.bytes += count as u64;
        self.interval = CHECK;
        if let Some(left) = &mut self.left {
            *left -= count;
        }
    }
}

impl Read for Input {
    /// Returns 0 at the end of each file; after the last one, [`has_ended`](Self::has_ended).
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        while let Some((path, file)) = self.files.front_mut() {
            if self.left.is_none() && !self.waiting.for_input(file)? {
                self.left = Some(AFTER_INTERRUPTION);
            }
            let most = self.left.unwrap_or(usize::MAX).min(bytes.len());
            if self.left.is_some() && (most == 0 || !self.waiting.has_input(file)?) {
                break;
            }
            match file.read(&mut bytes[..most]) {
                Ok(0) => {}
                Ok(count) => {
                    self.count(count);
                    return Ok(count);
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) => return Err(named(path, &error)),
            }
            if self.files.len() > 1 {
                self.files.pop_front();
                return Ok(0);
            }
            if !self.grows || self.is_closed || self.left.is_some() {
                break;
            }
            self.check()?;
            if !self.is_closed {
                self.waiting.pause(PAUSE)?;
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
pub fn standard_input() -> io::Result<File> {
    use std::os::fd::AsFd;
    Ok(io::stdin().as_fd().try_clone_to_owned()?.into())
}

/// Standard input without a buffer.
#[cfg(windows)]
pub fn standard_input() -> io::Result<File> {
    use std::os::windows::io::AsHandle;
    Ok(io::stdin().as_handle().try_clone_to_owned()?.into())
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;
    use std::io::Write;
    use std::process::{Command, Stdio};
    use std::sync::mpsc::channel;

    /// The bytes up to the end.
    #[track_caller]
    fn rest(mut input: Input) -> Vec<u8> {
        let (sender, receiver) = channel();
        std::thread::spawn(move || {
            let mut bytes = Vec::new();
            input.read_to_end(&mut bytes).unwrap();
            sender.send(bytes)
        });
        let bytes = receiver.recv_timeout(Duration::from_secs(20));
        bytes.expect("the end in time")
    }

    #[test]
    fn bytes_written_just_before_the_file_is_closed_are_read() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let mut writer = Command::new("cat")
            .stdin(Stdio::piped())
            .stdout(File::options().append(true).open(file.path()).unwrap())
            .spawn()
            .unwrap();
        let (interrupted, _writer) = io::pipe().unwrap();
        let waiting = Waiting::until(interrupted);
        let mut input = Input::growing(vec![file.path().to_owned()], waiting).unwrap();
        input.check().unwrap();
        assert!(!input.is_closed);
        // The end has been reached here; the writer goes on before it is checked.
        writer.stdin.take().unwrap().write_all(b"more").unwrap();
        writer.wait().unwrap();
        input.checked = None;
        input.check().unwrap();
        assert!(input.is_closed);
        assert_eq!(rest(input), b"more");
    }

    #[test]
    fn bytes_that_arrived_before_an_interruption_are_read() {
        let (interrupted, interruption) = io::pipe().unwrap();
        let (reader, mut writer) = io::pipe().unwrap();
        let file = std::os::fd::OwnedFd::from(reader).into();
        let input = Input::standard(file, false, Waiting::until(interrupted)).unwrap();
        writer.write_all(&[7; 50_000]).unwrap();
        drop(interruption);
        assert_eq!(rest(input), [7; 50_000]);
        drop(writer);
    }

    #[test]
    fn a_file_that_nobody_writes_is_checked_rarely() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let (interrupted, _writer) = io::pipe().unwrap();
        let waiting = Waiting::until(interrupted);
        let mut input = Input::growing(vec![file.path().to_owned()], waiting).unwrap();
        for _ in 0..5 {
            input.checked = None;
            input.check().unwrap();
        }
        assert_eq!(input.interval, RARE_CHECK);
        input.count(1);
        assert_eq!(input.interval, CHECK);
    }
}
