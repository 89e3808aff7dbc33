//! The processes that write a file, where `/proc` shows them (Linux).

use armsnap::mapped::Identity;
use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::path::{Path, PathBuf};

/// The processes that have a file open for writing, by their directories in `/proc`.
#[derive(Debug, Default)]
pub struct Writers(Vec<PathBuf>);

impl Writers {
    /// Returns whether every process that was seen to write the file has closed it. Those of other
    /// users are not seen.
    pub fn have_closed(&mut self, file: &File) -> bool {
        let (Ok(file), Some(name)) = (Identity::of(file), name(file)) else {
            return false;
        };
        let file = (&*name, &file);
        let were_there = self.are_known();
        self.0.retain(|process| writes(process, file));
        if self.0.is_empty() {
            let processes = processes();
            self.0 = processes.filter(|other| writes(other, file)).collect();
        }
        were_there && !self.are_known()
    }

    /// Returns whether processes are known that write the file.
    pub const fn are_known(&self) -> bool {
        !self.0.is_empty()
    }
}

/// The name of an open file, without its directory: containers may have another path to it.
#[cfg(unix)]
fn name(file: &File) -> Option<OsString> {
    use std::os::fd::AsRawFd;
    let link = format!("/proc/self/fd/{}", file.as_raw_fd());
    Some(fs::read_link(link).ok()?.file_name()?.to_owned())
}

/// Not known.
#[cfg(not(unix))]
const fn name(_: &File) -> Option<OsString> {
    None
}

/// The other processes.
fn processes() -> impl Iterator<Item = PathBuf> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| {
        let number: u32 = entry.file_name().to_str()?.parse().ok()?;
        (number != std::process::id()).then(|| entry.path())
    })
}

/// Whether a process has a file open for writing.
fn writes(process: &Path, (name, file): (&OsStr, &Identity)) -> bool {
    let open = fs::read_dir(process.join("fd")).into_iter().flatten();
    open.flatten().any(|open| {
        let path = open.path();
        // Accessing the other files takes longer, and may block.
        let has_name = fs::read_link(&path).is_ok_and(|link| link.file_name() == Some(name));
        let is_it = has_name && Identity::at(&path).is_ok_and(|other| other.is_file(file));
        is_it && is_for_writing(&process.join("fdinfo").join(open.file_name())).unwrap_or(false)
    })
}

/// Reads the mode of an open file (`proc_pid_fdinfo(5)`).
fn is_for_writing(info: &Path) -> Option<bool> {
    const ACCESS_MODE: u32 = 0o3;
    const READ_ONLY: u32 = 0;
    let text = fs::read_to_string(info).ok()?;
    let flags = text.lines().find_map(|line| line.strip_prefix("flags:"))?;
    let flags = u32::from_str_radix(flags.trim(), 8).ok()?;
    Some(flags & ACCESS_MODE != READ_ONLY)
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;
    use std::process::{Command, Stdio};

    #[test]
    fn a_writer_is_seen_until_it_ends() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let mut writers = Writers::default();
        // This process has it open for writing, and does not count.
        assert!(!writers.have_closed(file.as_file()));
        assert!(writers.0.is_empty());
        let mut writer = Command::new("cat")
            .stdin(Stdio::piped())
            .stdout(File::options().append(true).open(file.path()).unwrap())
            .spawn()
            .unwrap();
        let mut reader = Command::new("cat")
            .stdin(File::open(file.path()).unwrap())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        assert!(!writers.have_closed(file.as_file()));
        assert_eq!(
            writers.0,
            [Path::new("/proc").join(writer.id().to_string())]
        );
        assert!(!writers.have_closed(file.as_file()));
        drop(writer.stdin.take());
        writer.wait().unwrap();
        assert!(writers.have_closed(file.as_file()));
        reader.wait().unwrap();
    }
}
