//! Programs (ELF files) in a snapshot, next to it, or named by the user.
//!
//! Reads loadable segments and compares them with memory; independent of devices and debuggers.

use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};

use object::read::elf::{ElfFile, FileHeader};
use object::{Endianness, Object, ObjectSegment};

use super::build_attributes;
use crate::mapped::{self, Mapped};
use armsnap_arch::arch::Architecture;
pub use armsnap_arch::arch::Machine;

/// Maximum number of differing ranges that a comparison lists; it counts all of them.
const MAX_RANGES: usize = 16;

/// Why a file cannot be used as a program.
#[derive(Debug, thiserror::Error)]
pub enum ElfError {
    /// The file cannot be read.
    #[error("{}: {error}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The system's error.
        error: io::Error,
    },
    /// The file is not an ELF file, or is damaged.
    #[error("{}: expected an ELF file: {reason}", path.display())]
    Malformed {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        reason: String,
    },
}

/// A part of an ELF file that is loaded into memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Segment {
    /// Virtual address of the first byte.
    pub address: u64,
    /// Its bytes in the file; the memory after them is cleared at load time and is not in the file.
    pub file: Range<usize>,
    /// Whether the program may change it, so that memory may differ from the file.
    pub writable: bool,
}

impl Segment {
    /// Returns the address after its last byte in the file.
    pub fn end(&self) -> u64 {
        self.address.saturating_add(self.file.len() as u64)
    }
}

/// A mapped ELF file.
#[derive(Clone, Debug)]
pub struct Elf {
    /// Its absolute path.
    pub path: PathBuf,
    /// The machine it is for.
    pub machine: Machine,
    /// Whether code and data are little-endian.
    pub little_endian: bool,
    /// Its loadable segments with bytes in the file, in file order.
    pub segments: Vec<Segment>,
    /// The offset of the load address from the addresses in the file: not 0 for a
    /// position-independent program.
    pub offset: u64,
    /// Whether its build attributes name an M-profile architecture, if they name a profile.
    pub m_profile: Option<bool>,
    bytes: Mapped,
}

impl Elf {
    /// Maps and reads an ELF file.
    ///
    /// # Errors
    ///
    /// Returns an error if the file cannot be read or is not an ELF file.
    pub fn open(path: &Path) -> Result<Self, ElfError> {
        let absolute = dunce::canonicalize(path).map_err(|error| io_error(path, error))?;
        let bytes = mapped::map(&absolute).map_err(|error| io_error(path, error))?;
        Self::read(absolute, bytes).map_err(|error| match error {
            ElfError::Malformed { reason, .. } => ElfError::Malformed {
                path: path.to_owned(),
                reason,
            },
            error => error,
        })
    }

    /// Reads the bytes of an ELF file named `path`.
    ///
    /// # Errors
    ///
    /// Returns an error if they are not an ELF file.
    pub fn read(path: PathBuf, bytes: Mapped) -> Result<Self, ElfError> {
        let malformed = |reason: &str| ElfError::Malformed {
            path: path.clone(),
            reason: reason.to_owned(),
        };
        if !is_elf(&bytes) {
            return Err(malformed(
                "its first bytes are not 7f 45 4c 46; name the program that the linker wrote",
            ));
        }
        let file = object::File::parse(&*bytes).map_err(|error| malformed(&error.to_string()))?;
        let segments = file
            .segments()
            .filter_map(|segment| {
                let (offset, size) = segment.file_range();
                let start = usize::try_from(offset).ok()?.min(bytes.len());
                let end = start.saturating_add(usize::try_from(size).ok()?);
                let file = start..end.min(bytes.len());
                let writable = matches!(segment.flags(),
                    object::SegmentFlags::Elf { p_flags, .. } if p_flags.0 & object::elf::PF_W.0 != 0);
                (!file.is_empty()).then_some(Segment {
                    address: segment.address(),
                    file,
                    writable,
                })
            })
            .collect();
        let machine = match file.architecture() {
            object::Architecture::Aarch64 => Machine::AArch64,
            object::Architecture::Arm => Machine::Arm,
            _ => Machine::Other,
        };
        let little_endian = file.is_little_endian();
        let m_profile = build_attributes::is_m_profile(&file);
        Ok(Self {
            path,
            machine,
            little_endian,
            segments,
            offset: 0,
            m_profile,
            bytes,
        })
    }

    /// Returns whether it may run in a state of this architecture.
    pub fn fits(&self, architecture: Architecture) -> bool {
        let m_profile = match architecture {
            Architecture::MProfile => true,
            Architecture::AArch64 | Architecture::AArch32 => false,
        };
        self.machine == architecture.machine() && self.m_profile.is_none_or(|own| own == m_profile)
    }

    /// Returns the name of its architecture for messages.
    pub fn architecture_name(&self) -> &'static str {
        match (self.machine, self.m_profile) {
            (Machine::AArch64, _) => "AArch64",
            (Machine::Arm, Some(true)) => "Arm of the M-profile",
            (Machine::Arm, Some(false)) => "Arm of the A- or R-profile",
            (Machine::Arm, None) => "Arm",
            (Machine::Other, _) => "another machine than Arm",
        }
    }

    /// Returns the program as loaded `offset` bytes after the addresses in the file.
    pub fn moved(mut self, offset: u64) -> Self {
        for segment in &mut self.segments {
            segment.address = segment.address.wrapping_add(offset);
        }
        self.offset = self.offset.wrapping_add(offset);
        self
    }

    /// Returns the page of the first executable segment, in addresses of the file; 0 if there is
    /// none.
    pub fn text_base(&self) -> u64 {
        let Ok(file) = object::File::parse(self.bytes()) else {
            return 0;
        };
        let mut segments = file.segments();
        let code = segments.find(|segment| {
            matches!(segment.flags(),
                object::SegmentFlags::Elf { p_flags, .. } if p_flags.0 & object::elf::PF_X.0 != 0)
        });
        code.map_or(0, |segment| segment.address() & !0xfff)
    }

    /// Returns the build-id: a hash that identifies the file among all builds (`NT_GNU_BUILD_ID`).
    pub fn build_id(&self) -> Option<Vec<u8>> {
        let file = object::File::parse(self.bytes()).ok()?;
        Some(file.build_id().ok()??.to_owned())
    }

    /// Returns whether the file names itself for its loaders, as shared libraries and dynamic
    /// linkers do.
    pub fn is_library(&self) -> bool {
        let name = match object::File::parse(self.bytes()) {
            Ok(object::File::Elf64(file)) => soname(&file),
            Ok(object::File::Elf32(file)) => soname(&file),
            _ => None,
        };
        name.is_some()
    }

    /// Returns whether another file is from the same build: their build-ids or all their bytes are
    /// equal.
    pub fn is_build_of(&self, other: &Self) -> bool {
        let id = self.build_id();
        id.is_some() && id == other.build_id() || self.bytes() == other.bytes()
    }

    /// Returns the whole file.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Returns the whole file, as a shared mapping.
    pub const fn whole(&self) -> &Mapped {
        &self.bytes
    }

    /// Returns the number of bytes that are still in the file: all, unless it was truncated.
    pub fn remaining(&self) -> usize {
        self.bytes.remaining()
    }

    /// Returns the bytes of a segment.
    pub fn segment_bytes(&self, segment: &Segment) -> &[u8] {
        self.bytes.get(segment.file.clone()).unwrap_or(&[])
    }

    /// Returns the bytes of a segment, as a shared mapping.
    pub fn mapped(&self, segment: &Segment) -> Mapped {
        self.bytes.part(segment.file.clone())
    }

    /// Returns the bytes in the file from an address to the end of its segment.
    pub fn slice(&self, address: u64) -> Option<&[u8]> {
        self.segments.iter().find_map(|segment| {
            let from = address.checked_sub(segment.address)?;
            let rest = self
                .segment_bytes(segment)
                .get(usize::try_from(from).ok()?..)?;
            (!rest.is_empty()).then_some(rest)
        })
    }

    /// Compares the segments with memory, at most `limit` bytes of it.
    ///
    /// `memory` returns the bytes from an address, or the number of bytes to skip.
    pub fn compare<'m>(
        &self,
        limit: u64,
        mut memory: impl FnMut(u64) -> Result<&'m [u8], u64>,
    ) -> Comparison {
        let mut result = Comparison::default();
        for segment in &self.segments {
            let bytes = self.segment_bytes(segment);
            let mut at = 0_usize;
            while at < bytes.len() && result.compared < limit {
                let address = segment.address.wrapping_add(at as u64);
                match memory(address) {
                    Ok(known) if !known.is_empty() => {
                        let room = usize::try_from(limit - result.compared).unwrap_or(usize::MAX);
                        let count = known.len().min(bytes.len() - at).min(room);
                        result.add(address, segment.writable, &bytes[at..at + count], known);
                        at += count;
                    }
                    Ok(_) => at += 1,
                    Err(gap) => {
                        let gap = usize::try_from(gap.max(1)).unwrap_or(usize::MAX);
                        at = at.saturating_add(gap);
                    }
                }
            }
        }
        result
    }
}

fn io_error(path: &Path, error: io::Error) -> ElfError {
    ElfError::Io {
        path: path.to_owned(),
        error,
    }
}

/// Returns the name that a library gives itself for its loaders (`DT_SONAME`).
pub fn soname<E: FileHeader<Endian = Endianness>>(file: &ElfFile<'_, E>) -> Option<String> {
    let table = file.elf_dynamic_table().ok()?;
    let entry = table
        .iter()
        .find(|entry| entry.tag == object::elf::DT_SONAME)?;
    let name = table.string(entry).ok()?;
    Some(String::from_utf8_lossy(name).into_owned())
}

/// Returns whether bytes start like an ELF file.
pub fn is_elf(bytes: &[u8]) -> bool {
    bytes.starts_with(b"\x7fELF")
}

/// The result of comparing a program with memory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Comparison {
    /// Bytes present in both.
    pub compared: u64,
    /// Compared bytes that differ in read-only segments.
    pub differing: u64,
    /// Compared bytes that differ in writable segments, as is normal.
    pub changed: u64,
    /// The first address ranges of the bytes counted in `differing`.
    pub ranges: Vec<Range<u64>>,
}

impl Comparison {
    /// Returns whether the memory contains the program: at least nine of ten bytes agree.
    ///
    /// Some may differ, because a segment can contain both code and changed data.
    pub fn matches(&self) -> bool {
        self.compared > 0 && self.agreeing() >= self.compared - self.compared / 10
    }

    /// Returns the number of bytes that agree.
    pub fn agreeing(&self) -> u64 {
        self.compared - self.differing - self.changed
    }

    fn add(&mut self, address: u64, writable: bool, file: &[u8], memory: &[u8]) {
        self.compared += file.len() as u64;
        for (i, (a, b)) in file.iter().zip(memory).enumerate() {
            if a == b {
                continue;
            }
            if writable {
                self.changed += 1;
                continue;
            }
            self.differing += 1;
            let at = address.wrapping_add(i as u64);
            let known = self.ranges.len();
            match self.ranges.last_mut() {
                Some(last) if last.end == at => last.end = at.wrapping_add(1),
                _ if known < MAX_RANGES => self.ranges.push(at..at.wrapping_add(1)),
                _ => {}
            }
        }
    }
}

#[cfg(test)]
#[path = "../../../../tests/support/small_elf.rs"]
pub(crate) mod small_elf;

#[cfg(test)]
mod tests {
    use super::small_elf::small_elf;
    use super::*;
    use std::io::Write;

    fn open(bytes: &[u8]) -> Result<Elf, ElfError> {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(bytes).unwrap();
        Elf::open(file.path())
    }

    #[test]
    fn segments_are_read() {
        let elf = open(&small_elf(&[1, 2, 3, 4], &[5, 6])).unwrap();
        assert_eq!(elf.machine, Machine::AArch64);
        assert!(elf.little_endian);
        assert_eq!(elf.slice(0x1002), Some(&[3, 4][..]));
        assert_eq!(elf.slice(0x2001), Some(&[6][..]));
        assert_eq!(elf.slice(0x1004), None);
        assert_eq!(elf.slice(0x2002), None, "cleared memory is not in the file");
    }

    #[test]
    fn memory_is_compared_where_there_is_some() {
        let elf = open(&small_elf(&[1, 2, 3, 4, 5, 6, 7, 8], &[9; 8])).unwrap();
        let dump: &[u8] = &[1, 2, 0, 0, 5, 0];
        let result = elf.compare(u64::MAX, |address| match address {
            0x1000..0x1006 => Ok(&dump[(address - 0x1000) as usize..]),
            0x2000 => Ok(&[0]),
            _ => Err(1),
        });
        assert_eq!(result.compared, 7);
        assert_eq!(result.differing, 3);
        assert_eq!(result.changed, 1);
        assert_eq!(result.ranges, [0x1002..0x1004, 0x1005..0x1006]);
        assert!(!result.matches());
        let nothing = elf.compare(u64::MAX, |_| Err(u64::MAX));
        assert!(!nothing.matches());
        let same = elf.compare(4, |address| {
            let dump: &[u8] = &[1, 2, 3, 4, 5, 6, 7, 8];
            dump.get((address.wrapping_sub(0x1000)) as usize..).ok_or(1)
        });
        assert_eq!(same.compared, 4);
        assert!(same.matches());
    }

    #[test]
    fn damaged_files_are_errors_or_harmless() {
        let good = small_elf(&[1; 64], &[2; 64]);
        assert!(open(b"hello").is_err());
        for end in 0..good.len() {
            let _ = open(&good[..end]);
        }
        for at in 0..64 + 2 * 56 {
            for value in [0, 0x7f, 0xff] {
                let mut bad = good.clone();
                bad[at] = value;
                if let Ok(elf) = open(&bad) {
                    let result = elf.compare(1000, |_| Err(3));
                    assert_eq!(result.compared, 0);
                }
            }
        }
    }
}
