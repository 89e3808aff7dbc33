//! The memory of a stopped program.
//!
//! The emulator's process also contains mappings of its own. The program's are those that the
//! emulator's GDB server can read.

use super::{Error, Session};
use crate::record::note::Note;
use crate::record::process::{self, Mapping, PAGE};
use crate::record::snapshot_files::{SavedRegion, fit};
use armsnap_snapshot::leftovers::in_private;
use armsnap_snapshot::mapped;
use std::fs::{self, File};
use std::io::{self, Seek, SeekFrom, Write};
use std::ops::Range;
use std::path::PathBuf;

/// When memory is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Moment {
    /// Before the first instruction.
    Start,
    /// When the recording ends.
    End,
}

/// Reads up to `most` bytes of memory; at the end, a note names what is left out.
pub(super) fn read(
    session: &mut Session,
    most: u64,
    moment: Moment,
) -> Result<Vec<SavedRegion>, Error> {
    let notes = session.emulator.notes.len();
    let mut ranges = ranges(session)?;
    session.emulator.notes.extend(fit(&mut ranges, most));
    if moment == Moment::Start {
        session.emulator.notes.truncate(notes);
    }
    let ranges = joined(ranges);
    let path = |session: &Session, range: &Range<u64>| path(session, range, moment);
    let regions = ranges.iter().map(|range| {
        let path = path(session, range);
        copy(session, range, path)
    });
    let regions: Result<Vec<SavedRegion>, Error> = regions.collect();
    if regions.is_err() {
        // The end of the trace may need the space.
        for range in &ranges {
            let _ = fs::remove_file(path(session, range));
        }
    }
    let mut regions = regions?;
    regions.retain(|region| !region.bytes.is_empty());
    Ok(regions)
}

/// Returns the path of the file for a range.
fn path(session: &Session, range: &Range<u64>, moment: Moment) -> PathBuf {
    let moment = match moment {
        Moment::Start => "start",
        Moment::End => "memory",
    };
    let name = format!("{moment}_{:x}.bin", range.start);
    session.emulator.directory.path().join(name)
}

/// Returns the program's ranges of memory, from the host's mappings.
fn ranges(session: &mut Session) -> Result<Vec<Range<u64>>, Error> {
    let mut ranges = Vec::new();
    for mapping in process::mappings(session.emulator.pid())? {
        if let Some(range) = range(session, &mapping) {
            ranges.extend(guest_ranges(session, range)?);
        }
    }
    Ok(ranges)
}

/// Returns where the program would find a mapping; `None` if it cannot read it.
pub(super) fn range(session: &Session, mapping: &Mapping) -> Option<Range<u64>> {
    let highest = if session.program.is_64bit {
        1 << 52
    } else {
        1 << 32
    };
    let start = mapping.start.wrapping_sub(session.base);
    let length = mapping.end - mapping.start;
    let reachable = mapping.readable && start < highest && length <= highest - start;
    reachable.then(|| start..start + length)
}

/// Joins adjacent ranges.
fn joined(ranges: Vec<Range<u64>>) -> Vec<Range<u64>> {
    let mut joined: Vec<Range<u64>> = Vec::new();
    for range in ranges {
        match joined.last_mut().filter(|last| last.end == range.start) {
            Some(last) => last.end = range.end,
            None => joined.push(range),
        }
    }
    joined
}

/// Returns the parts of a mapping that belong to the program. The host may merge adjacent mappings
/// of the program and of the emulator.
pub(super) fn guest_ranges(
    session: &mut Session,
    range: Range<u64>,
) -> Result<Vec<Range<u64>>, Error> {
    /// The maximum number of pages checked one by one.
    const MOST: u64 = 1 << 14;
    let middle = (range.start + (range.end - range.start) / 2) & !(PAGE - 1);
    let mut known = Vec::new();
    for address in [range.start, middle, range.end - PAGE] {
        known.push(is_readable(session, address)?);
    }
    let pages = (range.end - range.start) / PAGE;
    if known.iter().all(|&known| known) {
        return Ok(vec![range]);
    }
    if known.iter().all(|&known| !known) {
        return Ok(Vec::new());
    }
    if pages > MOST {
        session.emulator.notes.push(Note::MixedMemory { range });
        return Ok(Vec::new());
    }
    let mut ranges = Vec::new();
    for page in 0..pages {
        let start = range.start + page * PAGE;
        if is_readable(session, start)? {
            ranges.push(start..start + PAGE);
        }
    }
    Ok(joined(ranges))
}

/// Returns whether the program can read an address. If a mapped file has been truncated, its missing
/// part is tested only through the operating system: the emulator would be ended by SIGBUS.
fn is_readable(session: &mut Session, address: u64) -> Result<bool, Error> {
    if let Some(memory) = &session.memory
        && memory.read(address.wrapping_add(session.base), &mut [0]) == 0
    {
        return Ok(false);
    }
    Ok(!session.emulator.remote.memory(address, 1)?.is_empty())
}

/// Copies a range to a file with holes for zeros.
fn copy(session: &mut Session, range: &Range<u64>, path: PathBuf) -> Result<SavedRegion, Error> {
    let fault = |error: io::Error| in_private(&path, &error);
    let mut file = File::create_new(&path).map_err(fault)?;
    let mut at = range.start;
    let mut piece = vec![0; 1 << 16];
    while at < range.end {
        let wanted = (range.end - at).min(piece.len() as u64) as usize;
        let count = match &session.memory {
            Some(memory) => memory.read(at.wrapping_add(session.base), &mut piece[..wanted]),
            None => {
                let bytes = session.emulator.remote.memory(at, wanted)?;
                piece[..bytes.len()].copy_from_slice(&bytes);
                bytes.len()
            }
        };
        if mapped::is_zero(&piece[..count]) {
            file.seek(SeekFrom::Current(count as i64)).map_err(fault)?;
        } else {
            file.write_all(&piece[..count]).map_err(fault)?;
        }
        at += count as u64;
        if count < wanted {
            break;
        }
    }
    let length = at - range.start;
    file.set_len(length).map_err(fault)?;
    fill_holes(&file, length).map_err(fault)?;
    drop(file);
    Ok(SavedRegion {
        address: range.start,
        bytes: mapped::map(&path).map_err(fault)?,
    })
}

/// Allocates the space of a file's holes on a file system in memory, where reading them takes space. Without
/// space, the mapped file could not be read, and this would be noticed too late.
#[cfg(target_os = "linux")]
fn fill_holes(file: &File, length: u64) -> io::Result<()> {
    use rustix::fs::{FallocateFlags, fallocate, fstatfs};
    /// `TMPFS_MAGIC` of linux/magic.h.
    const IN_MEMORY: i64 = 0x0102_1994;
    if length > 0 && fstatfs(file)?.f_type as i64 == IN_MEMORY {
        fallocate(file, FallocateFlags::empty(), 0, length)?;
    }
    Ok(())
}

/// On other systems, nothing is known about the file system.
#[cfg(not(target_os = "linux"))]
fn fill_holes(_: &File, _: u64) -> io::Result<()> {
    Ok(())
}
