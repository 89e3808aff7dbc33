//! Mappings and memory of the emulator's process, through /proc.
//!
//! Independent of the contents of memory.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

/// The size of a page in bytes.
pub const PAGE: u64 = 0x1000;

/// A range of memory of a process (proc(5), /proc/pid/maps).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mapping {
    /// Its first address.
    pub start: u64,
    /// The address after it.
    pub end: u64,
    /// Whether it is readable.
    pub readable: bool,
    /// Whether what is written to it is shared with other mappings.
    pub shared: bool,
    /// The offset of its first byte in the file.
    pub offset: u64,
    /// The file; empty for memory without one.
    pub file: Option<PathBuf>,
}

/// The mappings of a process, by address.
pub fn mappings(pid: u32) -> io::Result<Vec<Mapping>> {
    let text = fs::read(format!("/proc/{pid}/maps"))?;
    let lines = text.split(|byte| *byte == b'\n');
    Ok(lines.filter_map(mapping).collect())
}

/// `start-end perms offset device inode file`. File names may contain any bytes.
fn mapping(line: &[u8]) -> Option<Mapping> {
    let mut fields = line.splitn(6, |byte| *byte == b' ');
    let mut text = || str::from_utf8(fields.next()?).ok();
    let (start, end) = text()?.split_once('-')?;
    let permissions = text()?;
    let offset = text()?;
    let is_file = fields.nth(1)? != b"0";
    let file = fields.next().unwrap_or_default().trim_ascii_start();
    let hex = |text| u64::from_str_radix(text, 16).ok();
    Some(Mapping {
        start: hex(start)?,
        end: hex(end)?,
        readable: permissions.starts_with('r'),
        shared: permissions.ends_with('s'),
        offset: hex(offset)?,
        // A file outside of the root directory has a name that does not start with a slash.
        file: (is_file || file.starts_with(b"/")).then(|| path(file)),
    })
}

/// A line break in a name is written as `\012`; everything else is unchanged.
fn path(written: &[u8]) -> PathBuf {
    const LINE_BREAK: &[u8] = b"\\012";
    let mut name = Vec::with_capacity(written.len());
    let mut rest = written;
    while let Some((first, others)) = rest.split_first() {
        let (byte, after) = match rest.strip_prefix(LINE_BREAK) {
            Some(after) => (b'\n', after),
            None => (*first, others),
        };
        name.push(byte);
        rest = after;
    }
    OsString::from_vec(name).into()
}

/// The memory of a child process.
#[derive(Debug)]
pub struct Memory(File);

impl Memory {
    /// Opens the memory for reading and writing.
    pub fn open(pid: u32) -> io::Result<Self> {
        let mut options = File::options();
        let file = options.read(true).write(true);
        file.open(format!("/proc/{pid}/mem")).map(Self)
    }

    /// Reads memory at `address` into `into`; returns the number of bytes read.
    pub fn read(&self, address: u64, into: &mut [u8]) -> usize {
        let mut done = 0;
        while done < into.len() {
            match self.0.read_at(&mut into[done..], address + done as u64) {
                Ok(count) if count > 0 => done += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                _ => break,
            }
        }
        done
    }

    /// Writes memory, even in read-only pages.
    pub fn write(&self, address: u64, bytes: &[u8]) -> io::Result<()> {
        self.0.write_all_at(bytes, address)
    }
}

/// The pages of a child process (Documentation/admin-guide/mm/pagemap.rst of Linux).
#[derive(Debug)]
pub struct PageMap(File);

impl PageMap {
    /// Opens the page map.
    pub fn open(pid: u32) -> io::Result<Self> {
        File::open(format!("/proc/{pid}/pagemap")).map(Self)
    }

    /// Returns the entries of the pages of a range: bit 63 and 62 if there is one, in memory or swapped out, and
    /// bit 61 if it is a page of a file, or shared.
    pub fn entries(&self, address: u64, length: u64) -> io::Result<Vec<u64>> {
        let mut bytes = vec![0; (length / PAGE * 8) as usize];
        self.0.read_exact_at(&mut bytes, address / PAGE * 8)?;
        let entries = bytes.as_chunks().0.iter();
        Ok(entries.map(|entry| u64::from_ne_bytes(*entry)).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_maps() {
        assert_eq!(
            mapping(b"00400000-00470000 r--p 00001000 fe:01 1234    /tmp/a b"),
            Some(Mapping {
                start: 0x40_0000,
                end: 0x47_0000,
                readable: true,
                shared: false,
                offset: 0x1000,
                file: Some("/tmp/a b".into()),
            })
        );
        let odd = mapping(b"1000-2000 r--p 0 fe:01 1  /tmp/\xff\\012 b ").unwrap();
        let name = OsString::from_vec(b"/tmp/\xff\n b ".to_vec());
        assert_eq!(odd.file, Some(name.into()));
        let own = mappings(std::process::id()).unwrap();
        assert!(own.len() > 5 && own.iter().all(|mapping| mapping.start < mapping.end));
        assert!(own.iter().any(|mapping| mapping.file.is_none()));
        assert_eq!(mapping(b"nonsense"), None);
    }
}
