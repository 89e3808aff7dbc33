//! The memory of a program that is stopped.
//!
//! The emulator's process has mappings of its own; those that its GDB server reads as the
//! program's are the program's.

use super::{Error, Session};
use crate::record::layout::{Region, left_out};
use crate::record::process;
use crate::record::remote::Remote;
use crate::snapshot::map;
use std::fs::File;
use std::io::{Seek, SeekFrom, Write};
use std::ops::Range;

const PAGE: u64 = 0x1000;

/// Reads up to `most` bytes of it; what is left out is noted.
pub(super) fn read(session: &mut Session, most: u64) -> Result<Vec<Region>, Error> {
    let mut left = most;
    let mut without = 0;
    let mut regions = Vec::new();
    for range in ranges(session)? {
        let length = range.end - range.start;
        if length > left {
            without += length;
            continue;
        }
        left -= length;
        let region = copy(session, &range)?;
        regions.extend((!region.bytes.is_empty()).then_some(region));
    }
    session.emulator.notes.extend(left_out(without, most));
    Ok(regions)
}

/// The program's ranges of memory, by address.
fn ranges(session: &mut Session) -> Result<Vec<Range<u64>>, Error> {
    let mut ranges: Vec<Range<u64>> = Vec::new();
    let highest = if session.program.is_64bit {
        1 << 52
    } else {
        1 << 32
    };
    for mapping in process::mappings(session.emulator.pid())? {
        let start = mapping.start.wrapping_sub(session.base);
        let length = mapping.end - mapping.start;
        if !mapping.readable || start >= highest || length > highest - start {
            continue;
        }
        for range in seen(&mut session.emulator.remote, start..start + length)? {
            match ranges.last_mut().filter(|last| last.end == range.start) {
                Some(last) => last.end = range.end,
                None => ranges.push(range),
            }
        }
    }
    Ok(ranges)
}

/// What of a mapping is the program's. Adjacent mappings of the program and of the emulator may
/// be one to the host.
fn seen(remote: &mut Remote, range: Range<u64>) -> Result<Vec<Range<u64>>, Error> {
    /// Pages of such a mapping that are looked at one by one.
    const MOST: u64 = 1 << 14;
    let middle = (range.start + (range.end - range.start) / 2) & !(PAGE - 1);
    let mut known = Vec::new();
    for address in [range.start, middle, range.end - PAGE] {
        known.push(!remote.memory(address, 1)?.is_empty());
    }
    let pages = (range.end - range.start) / PAGE;
    if known.iter().all(|&known| known) {
        return Ok(vec![range]);
    }
    if known.iter().all(|&known| !known) || pages > MOST {
        return Ok(Vec::new());
    }
    let mut ranges: Vec<Range<u64>> = Vec::new();
    for page in 0..pages {
        let start = range.start + page * PAGE;
        if remote.memory(start, 1)?.is_empty() {
            continue;
        }
        match ranges.last_mut().filter(|last| last.end == start) {
            Some(last) => last.end += PAGE,
            None => ranges.push(start..start + PAGE),
        }
    }
    Ok(ranges)
}

/// A range, to a file with holes where it is zero.
fn copy(session: &mut Session, range: &Range<u64>) -> Result<Region, Error> {
    let name = format!("memory_{:x}.bin", range.start);
    let path = session.emulator.directory.path().join(name);
    let mut file = File::create_new(&path)?;
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
        if piece[..count].iter().all(|&byte| byte == 0) {
            file.seek(SeekFrom::Current(count as i64))?;
        } else {
            file.write_all(&piece[..count])?;
        }
        at += count as u64;
        if count < wanted {
            break;
        }
    }
    file.set_len(at - range.start)?;
    drop(file);
    Ok(Region {
        address: range.start,
        bytes: map::map(&path)?,
    })
}
