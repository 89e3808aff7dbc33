//! The memory of a machine: its RAM without zero pages.
//!
//! The emulator's monitor writes ranges of memory, as the core sees them, to files much faster
//! than the GDB server sends them.

use super::Session;
use super::image::Image;
use crate::record::Error;
use crate::record::note::Note;
use crate::record::snapshot_files::{Ram, SavedRegion, fit};
use armsnap_arch::arch::Architecture;
use armsnap_snapshot::mapped;
use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::ops::Range;

/// The unit that is saved or left out.
const PAGE: u64 = 1 << 12;

/// The maximum number of zero pages saved between others, to limit the number of regions.
const BRIDGED: u64 = 16 * PAGE;

static ZEROS: [u8; BRIDGED as usize] = [0; BRIDGED as usize];

/// The number of bytes written by one command of the monitor, which must reply in time.
const PIECE: u64 = 1 << 26;

/// The size saved around a stack pointer in a range that QEMU does not list as RAM.
const STACK: u64 = 4 * PAGE;

/// The system control space of a Cortex-M, from which GDB learns how exceptions stack.
const CONTROL_SPACE: Range<u64> = 0xe000_e000..0xe000_f000;

/// Reads up to `most` bytes of memory; a note names what is left out. `stacks` holds the stack
/// pointers.
pub(super) fn read(
    session: &mut Session,
    image: &Image,
    stacks: &[u64],
    most: u64,
) -> Result<Vec<SavedRegion>, Error> {
    let tree = session.emulator.remote.monitor("info mtree -f")?;
    let mut ranges = ranges(&tree);
    let mut wanted: Vec<Range<u64>> = image.segments.iter().map(pages).collect();
    wanted.extend(stacks.iter().map(|stack| {
        let page = stack & !(PAGE - 1);
        page.saturating_sub(PAGE)..page.saturating_add(PAGE)
    }));
    // Memory behind a protection controller is not among the ranges.
    for range in &wanted {
        if !ranges
            .iter()
            .any(|r| r.start <= range.start && range.end <= r.end)
        {
            ranges.push(range.start..range.end.saturating_add(STACK));
        }
    }
    let mut regions = Vec::new();
    let mut done: Vec<Range<u64>> = Vec::new();
    for range in ranges {
        let overlaps = |there: &Range<u64>| there.start < range.end && range.start < there.end;
        if range.is_empty() || done.iter().any(overlaps) {
            continue;
        }
        region(session, "memsave", &range, &wanted, &mut regions)?;
        done.push(range);
    }
    if session.architecture == Architecture::MProfile {
        let length = (CONTROL_SPACE.end - CONTROL_SPACE.start) as usize;
        let bytes = session
            .emulator
            .remote
            .memory(CONTROL_SPACE.start, length)?;
        if !bytes.is_empty() {
            regions.push(SavedRegion {
                address: CONTROL_SPACE.start,
                bytes: bytes.into(),
            });
        }
    }
    regions.sort_by_key(|region| region.address);
    let mut fitting = regions.iter().map(SavedRegion::range).collect();
    session.emulator.notes.extend(fit(&mut fitting, most));
    regions.retain(|region| fitting.contains(&region.range()));
    Ok(regions)
}

/// Reads up to `most` bytes of physical memory; a note names what is left out.
pub(super) fn physical(session: &mut Session, most: u64) -> Result<Option<Ram>, Error> {
    let tree = session.emulator.remote.monitor("info mtree -f")?;
    let mut regions = Vec::new();
    for range in ranges(&tree) {
        region(session, "pmemsave", &range, &[], &mut regions)?;
    }
    let mut fitting = regions.iter().map(SavedRegion::range).collect();
    session.emulator.notes.extend(fit(&mut fitting, most));
    regions.retain(|region| fitting.contains(&region.range()));
    regions.sort_by_key(|region| region.address);
    if regions.is_empty() {
        return Ok(None);
    }
    let path = session.emulator.directory.path().join("ram.bin");
    let mut file = BufWriter::new(File::create(&path)?);
    for region in &regions {
        file.write_all(&region.bytes)?;
    }
    file.flush()?;
    Ok(Some(Ram {
        bytes: mapped::map(&path)?,
        pieces: regions.iter().map(SavedRegion::range).collect(),
    }))
}

fn pages(range: &Range<u64>) -> Range<u64> {
    let end = range.end.checked_next_multiple_of(PAGE).unwrap_or(u64::MAX);
    (range.start & !(PAGE - 1))..end
}

/// Returns the RAM visible to the first core, from QEMU's memory tree.
fn ranges(tree: &str) -> Vec<Range<u64>> {
    let mut best: Vec<Range<u64>> = Vec::new();
    for view in tree.split("FlatView #").skip(1) {
        let name = |name: &str| view.contains(&format!(" AS \"{name}\","));
        let of_core = name("cpu-memory-0") || name("cpu-secure-memory-0");
        if !of_core && !name("memory") {
            continue;
        }
        let mut names = BTreeSet::new();
        // Memory visible at several addresses is saved at the first one.
        let found: Vec<Range<u64>> = view
            .lines()
            .filter_map(ram)
            .filter(|(_, name)| names.insert(*name))
            .map(|(range, _)| range)
            .collect();
        if of_core || best.is_empty() {
            best = found;
        }
        if of_core {
            break;
        }
    }
    best
}

/// `0000000040000000-0000000047ffffff (prio 0, ram): mach-virt.ram`.
fn ram(line: &str) -> Option<(Range<u64>, &str)> {
    let (range, rest) = line.trim().split_once(' ')?;
    let kinds = [", ram): ", ", rom): "];
    let (_, name) = kinds.iter().find_map(|kind| rest.split_once(kind))?;
    let (first, last) = range.split_once('-')?;
    let hex = |text| u64::from_str_radix(text, 16).ok();
    Some((hex(first)?..hex(last)?.checked_add(1)?, name))
}

/// Saves a range with commands of the monitor. Adds the parts of it that are not zero or are wanted in
/// any case, up to the first that cannot be saved.
fn region(
    session: &mut Session,
    save: &str,
    range: &Range<u64>,
    wanted: &[Range<u64>],
    regions: &mut Vec<SavedRegion>,
) -> Result<(), Error> {
    let file = |name: &str| {
        let name = format!("{name}_{:x}", range.start);
        session.emulator.directory.path().join(name)
    };
    let (path, piece) = (file("memory"), file("piece"));
    let mut out = BufWriter::new(File::create(&path)?);
    let mut kept: Vec<Range<u64>> = Vec::new();
    let mut start = range.start;
    while start < range.end {
        let length = PIECE.min(range.end - start);
        let command = format!("{save} {start:#x} {length:#x} \"{}\"", piece.display());
        let output = session.emulator.remote.monitor(&command)?;
        let bytes = match mapped::map(&piece) {
            Ok(bytes) if output.trim().is_empty() => bytes,
            _ => {
                session.emulator.notes.push(Note::UnsavedMemory {
                    address: start,
                    reason: output.trim().to_owned(),
                });
                break;
            }
        };
        for (index, page) in bytes.chunks(PAGE as usize).enumerate() {
            let begin = start + index as u64 * PAGE;
            let end = begin + page.len() as u64;
            if mapped::is_zero(page) && !wanted.iter().any(|w| w.start < end && begin < w.end) {
                continue;
            }
            match kept.last_mut().filter(|last| begin - last.end <= BRIDGED) {
                Some(last) => {
                    out.write_all(&ZEROS[..(begin - last.end) as usize])?;
                    last.end = end;
                }
                None => kept.push(begin..end),
            }
            out.write_all(page)?;
        }
        drop(bytes);
        std::fs::remove_file(&piece)?;
        start += length;
    }
    out.into_inner().map_err(io::IntoInnerError::into_error)?;
    if kept.is_empty() {
        return Ok(());
    }
    let bytes = mapped::map(&path)?;
    let mut at = 0;
    for range in kept {
        let end = at + (range.end - range.start) as usize;
        regions.push(SavedRegion {
            address: range.start,
            bytes: bytes.part(at..end),
        });
        at = end;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ram_of_a_memory_tree() {
        let tree = "FlatView #0\n AS \"I/O\", root: io\n Root memory region: io\n  \
            0000000000000000-00000000ffffffff (prio 0, ram): other\nFlatView #1\n \
            AS \"memory\", root: system\n AS \"cpu-memory-0\", root: system\n  \
            0000000000000000-0000000003ffffff (prio 0, romd): virt.flash0\n  \
            0000000008000000-0000000008000fff (prio 0, i/o): gic_dist\n  \
            0000000040000000-0000000047ffffff (prio 0, ram): mach-virt.ram\n  \
            0000000048000000-000000004fffffff (prio 0, ram): mach-virt.ram\n";
        let ram = 0x4000_0000..0x4800_0000;
        assert_eq!(ranges(tree), std::slice::from_ref(&ram));
        assert_eq!(ranges("nonsense FlatView #"), []);
        assert_eq!(super::ram("x-y (prio 0, ram): z"), None);
    }
}
