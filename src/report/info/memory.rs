//! The memory that a device's dumps hold, by space and address: the dump that wins where two
//! overlap, neighbours of one file joined, and what is missing.

use std::collections::BTreeMap;

use super::{Hex, RegionInfo};
use crate::arch::Space;
use crate::snapshot::Loaded;
use crate::snapshot::memory::{CoreMemory, Origin};
use crate::snapshot::model::{Device, Dump};

/// What is at some addresses of a space.
struct Piece<'a> {
    /// In order of the names; `None` where a dump names a space that does not exist.
    space: Option<Space>,
    first: u64,
    /// `None`: how far it goes is not known.
    last: Option<u64>,
    dump: &'a Dump,
    missing: Option<String>,
}

/// The memory map of a device.
pub(super) fn regions(loaded: &Loaded, device: &Device) -> Vec<RegionInfo> {
    let memory = CoreMemory::new(loaded, device);
    let mut pieces = Vec::new();
    let mut there = vec![0; device.dumps.len()];
    let mut taken: BTreeMap<Space, Taken> = BTreeMap::new();
    for region in memory.regions() {
        let Origin::Dump(index) = region.origin else {
            continue;
        };
        let Some(dump) = device.dumps.get(index) else {
            continue;
        };
        there[index] = region.length;
        let taken = taken.entry(region.space).or_default();
        let last = region.address.0.saturating_add(region.length - 1);
        for (first, last) in taken.take(region.address.0, last) {
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

/// The part of a dump that is not there, if `there` bytes of it are.
fn missing_part<'a>(loaded: &Loaded, dump: &'a Dump, there: u64) -> Option<Piece<'a>> {
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

/// Neighbours from one file as one region.
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

/// The addresses of a space that some dump has filled: first address, last address; neither
/// overlapping nor touching.
#[derive(Clone, Debug, Default)]
pub(crate) struct Taken(BTreeMap<u64, u64>);

impl Taken {
    /// Takes `first..=last`; gives the parts that nobody had.
    pub(crate) fn take(&mut self, first: u64, last: u64) -> Vec<(u64, u64)> {
        // What overlaps or touches becomes one with the new range.
        let mut union = (first, last);
        let reach = last.saturating_add(1);
        let before = self.0.range(..first).next_back();
        let before = before.filter(|(_, end)| end.saturating_add(1) >= first);
        let after = self.0.range(first..=reach);
        let met: Vec<(u64, u64)> = before
            .into_iter()
            .chain(after)
            .map(|(&a, &b)| (a, b))
            .collect();
        let mut free = Vec::new();
        let mut next = Some(first);
        for &(begin, end) in &met {
            self.0.remove(&begin);
            union = (union.0.min(begin), union.1.max(end));
            if let Some(at) = next
                && begin > at
                && at <= last
            {
                free.push((at, (begin - 1).min(last)));
            }
            next = next.and_then(|at| end.checked_add(1).map(|after| after.max(at)));
        }
        if let Some(at) = next
            && at <= last
        {
            free.push((at, last));
        }
        self.0.insert(union.0, union.1);
        free
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn free_parts_at_the_ends_of_the_address_space() {
        let mut taken = Taken::default();
        assert_eq!(taken.take(u64::MAX, u64::MAX), [(u64::MAX, u64::MAX)]);
        assert_eq!(taken.take(0, 0), [(0, 0)]);
        assert_eq!(taken.take(0, u64::MAX), [(1, u64::MAX - 1)]);
        assert_eq!(taken.take(0, u64::MAX), []);
        assert_eq!(taken.0.len(), 1);
    }

    proptest! {
        /// Against a bitmap of a small address space.
        #[test]
        fn first_come_first_served(ranges in proptest::collection::vec((0u64..64, 0u64..24), 1..20)) {
            let mut taken = Taken::default();
            let mut owner = vec![None; 100];
            for (index, &(first, length)) in ranges.iter().enumerate() {
                for (first, last) in taken.take(first, first + length) {
                    prop_assert!(first <= last);
                    for at in first..=last {
                        prop_assert_eq!(owner[at as usize].replace(index), None);
                    }
                }
                for at in first..=first + length {
                    prop_assert!(owner[at as usize].is_some());
                }
            }
        }
    }
}
