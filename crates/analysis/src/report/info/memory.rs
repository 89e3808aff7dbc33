//! The memory that a device's dumps contain, by space and address: the prevailing dump where
//! several overlap, adjacent ranges of one file joined, and what is missing.

use std::collections::BTreeMap;

use super::{Hex, RegionInfo};
use armsnap_arch::arch::Space;
use armsnap_snapshot::snapshot::OpenSnapshot;
use armsnap_snapshot::snapshot::coverage::Coverage;
use armsnap_snapshot::snapshot::memory::{CoreMemory, Origin};
use armsnap_snapshot::snapshot::model::{Device, Dump};

/// The contents of some addresses of a space.
struct Piece<'a> {
    /// Sorted by name; `None` if a dump names a space that does not exist.
    space: Option<Space>,
    first: u64,
    /// `None` if the end is not known.
    last: Option<u64>,
    dump: &'a Dump,
    missing: Option<String>,
}

/// The memory map of a device.
pub(super) fn regions(loaded: &OpenSnapshot, device: &Device) -> Vec<RegionInfo> {
    let memory = CoreMemory::new(loaded, device);
    let mut pieces = Vec::new();
    let mut there = vec![0; device.dumps.len()];
    let mut covered: BTreeMap<Space, Coverage> = BTreeMap::new();
    for region in memory.regions() {
        let Origin::Dump(index) = region.origin else {
            continue;
        };
        let Some(dump) = device.dumps.get(index) else {
            continue;
        };
        there[index] = region.length;
        let covered = covered.entry(region.space).or_default();
        let last = region.address.0.saturating_add(region.length - 1);
        for (first, last) in covered.add(region.address.0, last) {
            pieces.push(Piece {
                space: Some(region.space),
                first,
                last: Some(last),
                dump,
                missing: None,
            });
        }
    }
    let missing = device.dumps.iter().zip(&there);
    pieces.extend(missing.filter_map(|(dump, &there)| missing_part(loaded, dump, there)));
    pieces.sort_by_key(|piece| (piece.space, piece.first));
    join(&pieces)
}

/// The missing part of a dump whose file has `there` bytes.
fn missing_part<'a>(loaded: &OpenSnapshot, dump: &'a Dump, there: u64) -> Option<Piece<'a>> {
    if loaded.elf_dump(dump).is_some() {
        return None;
    }
    let space = Space::parse(dump.space.as_deref().unwrap_or(""));
    let missing = match (space, loaded.length(&dump.place.file, &dump.file)) {
        (_, Err(problem)) => problem.to_string(),
        (None, _) => "there is no such space".to_owned(),
        (Some(_), Ok(_)) if dump.length.is_some_and(|length| length > there) => {
            "beyond the end of the file".to_owned()
        }
        (Some(_), Ok(_)) if there == 0 => "no bytes at this place of the file".to_owned(),
        (Some(_), Ok(_)) => return None,
    };
    let end = dump.length.filter(|&length| length > 0);
    Some(Piece {
        space,
        first: dump.address.checked_add(there)?,
        last: end.map(|length| dump.address.saturating_add(length - 1)),
        dump,
        missing: Some(missing),
    })
}

/// Joins adjacent ranges from one file into one region.
fn join(pieces: &[Piece<'_>]) -> Vec<RegionInfo> {
    let mut regions: Vec<RegionInfo> = Vec::new();
    for piece in pieces {
        let space = piece.dump.space.clone().filter(|space| !space.is_empty());
        let size = piece
            .last
            .map(|last| (last - piece.first).saturating_add(1));
        if let Some(before) = regions.last_mut()
            && before.space == space
            && before.file == piece.dump.file
            && before.missing == piece.missing
            && before.end.and_then(|end| end.value.checked_add(1)) == Some(piece.first)
            && let (Some(last), Some(size)) = (piece.last, size)
        {
            before.end = Some(Hex::address(last));
            before.size = before.size.map(|before| before.saturating_add(size));
            continue;
        }
        regions.push(RegionInfo {
            space,
            start: Hex::address(piece.first),
            end: piece.last.map(Hex::address),
            size,
            file: piece.dump.file.clone(),
            missing: piece.missing.clone(),
        });
    }
    regions
}
