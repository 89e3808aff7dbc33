//! The trace that the Linux kernel keeps when it panics: a reserved memory region, and beside it a
//! `struct tmc_crash_metadata` (Linux, `drivers/hwtracing/coresight/coresight-tmc.h`).
//!
//! The region is the buffer of an ETR, or a copy of the buffer of an ETF: a ring.
//! `/dev/crash_tmc_*` returns its valid bytes, the oldest first. Checksums cover the metadata and
//! the whole region.

use crate::import::fields::Fields;
use crate::import::note::{CrashNote, Note, RawNote};
use crate::import::{ImportError, imported};
use armsnap_snapshot::mapped::Mapped;
use std::path::Path;

/// The size of the structure in bytes, and the first byte that its own checksum covers.
const LENGTH: usize = 96;
const CHECKED_FROM: usize = 4;
/// The major version that is known, in the upper half.
const VERSION: u32 = 1;
/// TMC STS.Full: the buffer has wrapped (ARM DDI 0461B, 3.3.2).
const FULL: u32 = 1;

/// The metadata of the region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Metadata {
    checksum: u32,
    /// The size of the region in bytes.
    size: u64,
    /// The offset of the oldest byte, and the number of valid bytes.
    offset: u64,
    length: u64,
}

impl Metadata {
    fn read(bytes: &[u8]) -> Result<Self, String> {
        let Some(bytes) = bytes.get(..LENGTH) else {
            return Err(format!(
                "{} bytes: expected the {LENGTH} of a tmc_crash_metadata",
                bytes.len()
            ));
        };
        let mut words = Fields::new(bytes, false);
        let mut word = || words.u32().unwrap_or(0);
        let (own, checksum, version, valid) = (word(), word(), word(), word());
        let (words_of_ram, status) = (word(), word());
        if version >> 16 != VERSION {
            return Err(format!(
                "is no tmc_crash_metadata of a version that is known: version {}.{}, expected {VERSION}.0",
                version >> 16,
                version & 0xFFFF
            ));
        }
        let found = checksum_of(&[&bytes[CHECKED_FROM..]]);
        if own != found {
            return Err(format!(
                "the metadata is damaged: its checksum is {own:#010x}, expected {found:#010x}"
            ));
        }
        if valid == 0 {
            return Err("is marked as not valid: the kernel kept no trace".to_owned());
        }
        let mut addresses = Fields::new(&bytes[40..], false);
        let mut address = || addresses.u64().unwrap_or(0);
        let (read, write, start) = (address(), address(), address());
        let size = u64::from(words_of_ram) * 4;
        let offset = read.wrapping_sub(start);
        // For the copy of an ETF's buffer there are no addresses.
        let length = match status & FULL != 0 || (read, write, start) == (0, 0, 0) {
            true => size,
            false => write.wrapping_sub(read),
        };
        if offset > size || length > size {
            return Err(format!(
                "its pointers are not within the {size} bytes of the buffer: RRP {read:#x}, RWP \
                 {write:#x}, DBA {start:#x}"
            ));
        }
        Ok(Self {
            checksum,
            size,
            offset,
            length,
        })
    }
}

/// Linux's `crc32_le` from 0: the reflected CRC-32 (0xEDB88320) without inversions.
fn checksum_of(parts: &[&[u8]]) -> u32 {
    // The crate keeps its sum inverted.
    let mut hasher = crc32fast::Hasher::new_with_initial(!0);
    for part in parts {
        hasher.update(part);
    }
    !hasher.finalize()
}

/// Returns the trace in a region, or in bytes read from `/dev/crash_tmc_*`, the oldest byte first.
///
/// # Errors
///
/// If the metadata is damaged, or does not match the bytes.
pub fn trace(
    path: &Path,
    bytes: Mapped,
    metadata: &Path,
    notes: &mut Vec<Note>,
) -> Result<Mapped, ImportError> {
    let known = Metadata::read(&imported::map(metadata)?);
    let known = known.map_err(|text| ImportError::input(metadata, text))?;
    let mut say = |note| {
        let path = path.to_owned();
        notes.push(RawNote::Crash { path, note }.into());
    };
    let there = bytes.len() as u64;
    let (size, offset) = (known.size as usize, known.offset as usize);
    if there < known.size {
        if there != known.length {
            return Err(ImportError::input(
                path,
                format!(
                    "{there} bytes: expected the {} of the reserved region, or the {} that are valid in \
                     it",
                    known.size, known.length
                ),
            ));
        }
        say(CrashNote::NotChecked {
            of: known.size,
            bytes: there,
        });
        return Ok(bytes);
    }
    let region = bytes.get(..size).unwrap_or(&[]);
    let (after, before) = region.split_at(offset.min(size));
    if checksum_of(&[region]) == known.checksum {
        say(CrashNote::Region {
            bytes: known.length,
            from: offset,
        });
    } else if there == known.size && checksum_of(&swapped(region, offset)) == known.checksum {
        say(CrashNote::Ordered);
        return Ok(bytes);
    } else {
        say(CrashNote::Damaged {
            checksum: checksum_of(&[region]),
            expected: known.checksum,
        });
    }
    let mut out = Vec::with_capacity(known.length as usize);
    out.extend_from_slice(before);
    out.extend_from_slice(after);
    out.truncate(known.length as usize);
    Ok(out.into())
}

/// The region in its original order, restored from `read`, which starts with the byte at `offset`.
fn swapped(read: &[u8], offset: usize) -> [&[u8]; 2] {
    let (from_offset, from_start) = read.split_at(read.len() - offset.min(read.len()));
    [from_start, from_offset]
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A CRC-32 computed by its definition, bit by bit.
    fn by_bits(bytes: &[u8]) -> u32 {
        bytes.iter().fold(0, |sum, &byte| {
            (0..8).fold(sum ^ u32::from(byte), |sum, _| match sum & 1 {
                1 => sum >> 1 ^ 0xEDB8_8320,
                _ => sum >> 1,
            })
        })
    }

    #[test]
    fn the_checksum_is_that_of_linux() {
        assert_eq!(checksum_of(&[b"123456789"]), by_bits(b"123456789"));
        assert_eq!(checksum_of(&[b"1234", b"56789"]), by_bits(b"123456789"));
        assert_eq!(checksum_of(&[]), 0);
    }
}
