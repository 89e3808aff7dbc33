//! The memory contained in a device's dumps, by address and address space (section 3.2.3).
//!
//! **Dumps and address spaces.** An address space is a set of translation regimes, see
//! `Space::regimes`; a dump serves a request if the two sets have a regime in common. So a dump
//! without space serves all; `S` serves EL1S, EL2S and EL3; `N` serves EL1N and EL2; `H`, `EL2` and
//! `EL2N` are the same; and an `EL2` dump serves a request for `N`, because a core of which only
//! the security state is known may be there. Physical memory (`P`, `SP`, `NP`) serves requests for
//! physical memory and for `ANY`, never a virtual address.
//!
//! **Where dumps overlap**, the first in file order wins, but dumps without a space or only for the
//! requested space come before dumps whose space also serves others (`H` before `N` for EL2). Added
//! regions come after all dumps.
//!
//! Files are mapped when first touched. `shared.rs` supplies memory of other cores where this
//! one has none, [`translated`] physical memory at virtual addresses.

mod physical;
pub mod translated;

use self::translated::{Process, Translated};
use super::changed::Changed;
use super::files::Files;
use super::model::Device;
use super::read::{OpenSnapshot, beside};
use super::shared::Others;
use super::straight::{self, Straight};
use crate::arch::Space;
use crate::mapped::Mapped;
use crate::quantity::Address;
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

/// The origin of a region's bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// A dump of the device, by its index. A dump that represents an ELF file has several regions.
    Dump(usize),
    /// Added by the program, with the reason (an ELF file's segment).
    Added(String),
}

/// A region of memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Region {
    /// First address.
    pub address: Address,
    /// The number of available bytes; fewer than declared if the file or the address space ends
    /// earlier.
    pub length: u64,
    /// Its space.
    pub space: Space,
    /// Its origin.
    pub origin: Origin,
}

#[derive(Debug)]
enum Source {
    File {
        from: PathBuf,
        written: String,
        offset: u64,
        bytes: OnceLock<Option<Mapped>>,
    },
    Bytes(Mapped),
}

/// A part of a region that is visible in a space; pieces do not overlap.
#[derive(Clone, Copy, Debug)]
struct Piece {
    first: u64,
    last: u64,
    region: u32,
}

/// The memory of one core or memory space.
#[derive(Debug)]
pub struct CoreMemory {
    files: Arc<dyn Files>,
    regions: Vec<Region>,
    sources: Vec<Source>,
    /// By space, sorted by address; computed on first use.
    views: [OnceLock<Vec<Piece>>; Space::ALL.len()],
    changed: Arc<Changed>,
    straight: Straight,
    /// Memory of other cores for addresses without a region.
    pub(super) others: Option<Others>,
    /// Physical memory, and the tables by which the core sees it.
    pub(super) translated: Option<Box<Translated>>,
}

/// What a past state of a core selects; the default is the halted state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Moment {
    /// The version of changed code.
    pub version: Option<u32>,
    /// The tables of low addresses.
    pub process: Process,
}

impl CoreMemory {
    /// The memory in the dumps of `device`. Dumps whose file is missing, or whose space has an
    /// unknown name, are left out: the reader's notes and `check` report them.
    pub fn new(loaded: &OpenSnapshot, device: &Device) -> Self {
        let mut out = Self::empty(loaded);
        out.add_dumps(loaded, device);
        let mut entries = device.other.iter();
        let file = entries.find(|(key, _)| key.eq_ignore_ascii_case(straight::ENTRY));
        let bytes = file.and_then(|(_, file)| loaded.file(&device.place.file, file).ok());
        out.straight = bytes.map_or_else(Straight::default, |bytes| Straight::read(&bytes));
        out
    }

    /// No memory.
    pub(super) fn empty(loaded: &OpenSnapshot) -> Self {
        Self {
            files: loaded.files(),
            regions: Vec::new(),
            sources: Vec::new(),
            views: Default::default(),
            changed: Arc::clone(&loaded.changed),
            straight: Straight::default(),
            others: None,
            translated: None,
        }
    }

    pub(super) fn add_dumps(&mut self, loaded: &OpenSnapshot, device: &Device) {
        self.add_dumps_of(loaded, device, Some);
    }

    /// Adds the dumps for which `seen_in` returns a space: the one in which they are visible.
    pub(super) fn add_dumps_of(
        &mut self,
        loaded: &OpenSnapshot,
        device: &Device,
        seen_in: impl Fn(Space) -> Option<Space>,
    ) {
        for (index, dump) in device.dumps.iter().enumerate() {
            let space = Space::parse(dump.space.as_deref().unwrap_or(""));
            let Some(space) = space.and_then(&seen_in) else {
                continue;
            };
            if let Some(elf) = loaded.elf_dump(dump) {
                for (segment, bytes) in elf.segments() {
                    let length = bytes.len() as u64;
                    let (address, source) = (Address(segment.address), Source::Bytes(bytes));
                    self.push(address, length, space, Origin::Dump(index), source);
                }
                continue;
            }
            let Ok(in_file) = loaded.length(&dump.place.file, &dump.file) else {
                continue;
            };
            let offset = dump.offset.unwrap_or(0);
            let there = in_file.saturating_sub(offset);
            let length = dump.length.unwrap_or(there).min(there);
            let source = Source::File {
                from: dump.place.file.clone(),
                written: dump.file.clone(),
                offset,
                bytes: OnceLock::new(),
            };
            self.push(
                Address(dump.address),
                length,
                space,
                Origin::Dump(index),
                source,
            );
        }
    }

    /// Adds memory for addresses without a dump or an earlier addition. `why` describes it in
    /// [`Self::regions`].
    pub fn add_region(&mut self, address: Address, bytes: Mapped, space: Space, why: &str) {
        let length = bytes.len() as u64;
        let origin = Origin::Added(why.to_owned());
        self.push(address, length, space, origin, Source::Bytes(bytes));
        self.views = Default::default();
    }

    fn push(&mut self, address: Address, length: u64, space: Space, origin: Origin, s: Source) {
        // A region may end at the last address; zero means 2^64 here.
        let room = address.0.wrapping_neg();
        let length = if room == 0 { length } else { length.min(room) };
        if length == 0 {
            return;
        }
        self.regions.push(Region {
            address,
            length,
            space,
            origin,
        });
        self.sources.push(s);
    }

    /// All regions, in order of precedence.
    pub fn regions(&self) -> impl ExactSizeIterator<Item = &Region> {
        self.regions.iter()
    }

    /// The longest run of known bytes from `address` in one region; may be empty.
    pub fn slice(&self, address: Address, space: Space) -> &[u8] {
        self.slice_of(Process::CURRENT, address, space)
    }

    fn slice_of(&self, process: Process, address: Address, space: Space) -> &[u8] {
        match &self.translated {
            None => self.untranslated(address, space),
            Some(translated) => self.through(translated, process, address, space),
        }
    }

    /// Like [`Self::slice`], without translation.
    fn untranslated(&self, address: Address, space: Space) -> &[u8] {
        let Some(piece) = self.piece(address, space) else {
            let end = self.next_piece(address, space);
            return self
                .others
                .as_ref()
                .map_or(&[], |others| others.slice(address, end, space));
        };
        let base = self.regions[piece.region as usize].address.0;
        let bytes = self.bytes(piece.region as usize);
        let from = usize::try_from(address.0 - base).unwrap_or(usize::MAX);
        let to = usize::try_from(piece.last - base).unwrap_or(usize::MAX - 1) + 1;
        bytes.get(from..to.min(bytes.len())).unwrap_or(&[])
    }

    /// Where the next piece after an address starts.
    fn next_piece(&self, address: Address, space: Space) -> Option<u64> {
        let pieces = self.view(space);
        let after = pieces.partition_point(|piece| piece.first <= address.0);
        pieces.get(after).map(|piece| piece.first)
    }

    /// The bytes of code from `address` that ran at a past moment, as far as code that changed
    /// during tracing, and the tables of processes, are known; otherwise empty.
    pub fn code(&self, moment: Moment, address: Address, space: Space) -> &[u8] {
        let slice = || self.slice_of(moment.process, address, space);
        let Some(version) = moment.version.filter(|_| !self.changed.is_empty()) else {
            return slice();
        };
        match self.changed.code(version, address.0) {
            Some(code) => code.unwrap_or(&[]),
            None => {
                let bytes = slice();
                let steady = self.changed.steady(address.0).min(bytes.len() as u64);
                &bytes[..steady as usize]
            }
        }
    }

    /// Whether the instruction at `address`, whose bytes are not known, is known not to change the flow.
    pub fn is_straight(&self, address: Address) -> bool {
        self.straight.contains(address.0)
    }

    /// Like [`Self::read`], at a past moment.
    pub fn read_code(
        &self,
        moment: Moment,
        address: Address,
        space: Space,
        out: &mut [u8],
    ) -> usize {
        let remaining = |at: Address, count| {
            let version = moment.version.filter(|_| !self.changed.is_empty());
            // Recorded versions are not cut.
            match version.and_then(|version| self.changed.code(version, at.0)) {
                Some(_) => count,
                None => self.remaining_of(moment.process, at, space, count),
            }
        };
        read(address, out, |at| self.code(moment, at, space), remaining)
    }

    /// Code that changed while the trace was made.
    pub fn changed(&self) -> &Changed {
        &self.changed
    }

    /// The piece that contains an address.
    fn piece(&self, address: Address, space: Space) -> Option<&Piece> {
        let pieces = self.view(space);
        let after = pieces.partition_point(|piece| piece.first <= address.0);
        let piece = pieces.get(after.checked_sub(1)?)?;
        (piece.last >= address.0).then_some(piece)
    }

    /// The first address after `address` at which a region visible in `space` starts. With
    /// translation it may be an earlier address, but no byte before it is known.
    pub fn next(&self, address: Address, space: Space) -> Option<Address> {
        let own = self.next_piece(address, space).map(Address);
        let others = self.others.as_ref();
        let others = others.and_then(|others| others.next(address, space));
        let translated = self.translated.as_ref();
        let translated = translated.and_then(|all| all.next(address, space));
        own.into_iter().chain(others).chain(translated).min()
    }

    /// The region that supplies the byte at an address.
    pub(super) fn region_at(&self, address: Address, space: Space) -> Option<usize> {
        self.piece(address, space)
            .map(|piece| piece.region as usize)
    }

    /// The addresses visible in `space`: first and last of each piece, ascending.
    pub(super) fn extents(&self, space: Space) -> impl Iterator<Item = (u64, u64)> + '_ {
        let pieces = self.view(space).iter();
        pieces.map(|piece| (piece.first, piece.last))
    }

    /// How many of `wanted` bytes from `address` are known in one region and still in its file.
    pub(super) fn remaining(&self, address: Address, space: Space, wanted: usize) -> usize {
        self.remaining_of(Process::CURRENT, address, space, wanted)
    }

    fn remaining_of(
        &self,
        process: Process,
        address: Address,
        space: Space,
        wanted: usize,
    ) -> usize {
        if let Some(translated) = &self.translated
            && !self.is_dumped(address, space, translated)
            && !translated.slice(process, address, space).is_empty()
        {
            return translated.remaining(process, address, space, wanted);
        }
        let Some(piece) = self.piece(address, space) else {
            let others = self.others.as_ref();
            return others.map_or(0, |others| others.remaining(address, space, wanted));
        };
        let from = address.0 - self.regions[piece.region as usize].address.0;
        let bytes = self.mapped(piece.region as usize);
        let remaining = bytes.map_or(0, Mapped::remaining) as u64;
        let remaining = remaining.saturating_sub(from);
        wanted.min(usize::try_from(remaining).unwrap_or(usize::MAX))
    }

    /// Reads memory across adjacent regions. Returns the number of bytes before the first one that
    /// is not known or no longer in its file.
    pub fn read(&self, address: Address, space: Space, out: &mut [u8]) -> usize {
        read(
            address,
            out,
            |at| self.slice(at, space),
            |at, count| self.remaining(at, space, count),
        )
    }

    fn bytes(&self, region: usize) -> &[u8] {
        self.mapped(region).map_or(&[], |bytes| bytes)
    }

    fn mapped(&self, region: usize) -> Option<&Mapped> {
        match &self.sources[region] {
            Source::Bytes(bytes) => Some(bytes),
            Source::File {
                from,
                written,
                offset,
                bytes,
            } => {
                let opened = bytes.get_or_init(|| {
                    let file = beside(from, written, |path| self.files.bytes(path)).ok()?;
                    let offset = usize::try_from(*offset).ok()?;
                    Some(file.part(offset..usize::MAX))
                });
                opened.as_ref()
            }
        }
    }

    fn view(&self, space: Space) -> &[Piece] {
        self.views[space as usize].get_or_init(|| self.pieces(space))
    }

    /// Sweeps over the ends of all regions that serve `space`; between two neighbouring ends the
    /// region that wins is the same.
    fn pieces(&self, space: Space) -> Vec<Piece> {
        // If any space is acceptable, a virtual address precedes the same physical one.
        let physical = |r: &Region| is_physical(r.space);
        // A core in Hyp mode sees dumps for `H` before those for `N`.
        let broader = |r: &Region| r.space != Space::Any && r.space.sees_beyond(space);
        let added = |r: &Region| matches!(r.origin, Origin::Added(_));
        let mut ends = Vec::new();
        let regions = self.regions.iter().zip(0_u32..);
        for (region, index) in regions.filter(|(r, _)| r.space.serves(space)) {
            let first = u128::from(region.address.0);
            let rank = (added(region), physical(region), broader(region), index);
            ends.push((first, rank));
            ends.push((first + u128::from(region.length), rank));
        }
        ends.sort_unstable();
        let mut open = BTreeSet::new();
        let mut out: Vec<Piece> = Vec::new();
        for (at, &(address, rank)) in ends.iter().enumerate() {
            // The second end of a region closes it.
            if !open.remove(&rank) {
                open.insert(rank);
            }
            let Some(&(next, _)) = ends.get(at + 1) else {
                break;
            };
            let Some(&(_, _, _, region)) = open.first().filter(|_| next > address) else {
                continue;
            };
            // Before the last end, so that both fit.
            let (first, last) = (address as u64, (next - 1) as u64);
            match out.last_mut() {
                Some(piece) if piece.region == region && piece.last.wrapping_add(1) == first => {
                    piece.last = last;
                }
                _ => out.push(Piece {
                    first,
                    last,
                    region,
                }),
            }
        }
        out
    }
}

pub(super) const fn is_physical(space: Space) -> bool {
    matches!(space, Space::P | Space::Sp | Space::Np)
}

/// Fills `out` from consecutive slices of memory; returns the number of bytes.
pub(super) fn read<'m>(
    address: Address,
    out: &mut [u8],
    slice: impl Fn(Address) -> &'m [u8],
    remaining: impl Fn(Address, usize) -> usize,
) -> usize {
    let mut done = 0;
    while done < out.len() {
        let Some(at) = address.0.checked_add(done as u64) else {
            break;
        };
        let bytes = slice(Address(at));
        let count = bytes.len().min(out.len() - done);
        if count == 0 {
            break;
        }
        out[done..done + count].copy_from_slice(&bytes[..count]);
        let remaining = remaining(Address(at), count);
        done += remaining;
        if remaining < count {
            break;
        }
    }
    done
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::snapshot::files::InMemory;
    use proptest::prelude::*;

    fn loaded(dumps: &str) -> OpenSnapshot {
        let mut files = InMemory::default();
        let mut file = |name: &str, bytes: Vec<u8>| {
            files.0.insert(name.into(), bytes.into());
        };
        file("snapshot.ini", b"[device_list]\na=a.ini".to_vec());
        let head = "[device]\nname=a\nclass=core\n";
        file("a.ini", format!("{head}{dumps}").into_bytes());
        file("x", (0..16).collect());
        file("y", (100..116).collect());
        OpenSnapshot::from_files(Arc::new(files), "snapshot.ini").unwrap()
    }

    #[test]
    fn the_exact_space_takes_precedence_over_a_broader_one() {
        let loaded = loaded(
            "[dump.n]\nfile=x\naddress=0x1000\nspace=N\n\
             [dump.h]\nfile=y\naddress=0x1000\nspace=H\n",
        );
        let mut memory = CoreMemory::new(&loaded, &loaded.snapshot.devices[0]);
        memory.add_region(Address(0x1000), vec![7; 32].into(), Space::El2N, "program");
        for (space, first) in [(Space::El2N, 100), (Space::El1N, 0), (Space::N, 0)] {
            assert_eq!(memory.slice(Address(0x1000), space)[0], first, "{space}");
        }
        assert_eq!(memory.slice(Address(0x1010), Space::H), [7; 16]);
    }

    #[test]
    fn lengths_offsets_and_neighbours() {
        let loaded = loaded(
            "[dump]\nfile=x\naddress=0x1000\nlength=4\noffset=2\n\
             [dump.b]\nfile=y\naddress=0x1004\n\
             [dump3]\nfile=x\naddress=0xfffffffffffffffe\n\
             [dump4]\nfile=none\naddress=0x1000\n\
             [dump5]\nfile=x\naddress=0x2000\nlength=99\noffset=8\n\
             [dump6]\nfile=x\naddress=0x3000\noffset=99\n",
        );
        let memory = CoreMemory::new(&loaded, &loaded.snapshot.devices[0]);
        let slice = |address| memory.slice(Address(address), Space::Any);
        assert_eq!(slice(0x1000), [2, 3, 4, 5]);
        assert_eq!(slice(0x1003), [5]);
        assert_eq!(slice(0x1004).len(), 16);
        assert!(slice(0x0FFF).is_empty());
        assert!(slice(0x1014).is_empty());
        assert_eq!(slice(u64::MAX), [1]);
        assert_eq!(slice(0x2000).len(), 8);
        let mut out = [0; 8];
        assert_eq!(memory.read(Address(0x1002), Space::Any, &mut out), 8);
        assert_eq!(out, [4, 5, 100, 101, 102, 103, 104, 105]);
        assert_eq!(memory.read(Address(u64::MAX - 1), Space::Any, &mut out), 2);
        assert_eq!(memory.regions().count(), 4);
    }

    #[test]
    fn the_first_dump_takes_precedence_over_later_ones_and_additions() {
        let loaded = loaded("[dump1]\nfile=x\naddress=4\nlength=4\n[dump2]\nfile=y\naddress=0\n");
        let mut memory = CoreMemory::new(&loaded, &loaded.snapshot.devices[0]);
        assert_eq!(memory.slice(Address(0), Space::N), [100, 101, 102, 103]);
        assert_eq!(memory.slice(Address(4), Space::N), [0, 1, 2, 3]);
        assert_eq!(memory.slice(Address(8), Space::N)[0], 108);
        memory.add_region(Address(8), vec![7; 16].into(), Space::Any, "segment");
        assert_eq!(memory.slice(Address(8), Space::N)[0], 108);
        assert_eq!(memory.slice(Address(16), Space::N), [7; 8]);
    }

    #[test]
    fn dumps_serve_the_spaces_of_their_regimes() {
        let serves = |dump: &str, wanted: &str| {
            Space::parse(dump)
                .unwrap()
                .serves(Space::parse(wanted).unwrap())
        };
        for (dump, wanted) in [
            ("S", "EL1S"),
            ("S", "EL2S"),
            ("s", "EL3"),
            ("N", "EL1N"),
            ("N", "el2"),
            ("H", "EL2"),
            ("EL2", "H"),
            ("EL2N", "EL2"),
            ("EL2", "N"),
            ("R", "EL1R"),
            ("", "ROOT"),
            ("ANY", "SP"),
            ("P", "NP"),
            ("EL3", "ANY"),
            ("P", "ANY"),
        ] {
            assert!(serves(dump, wanted), "{dump} {wanted}");
        }
        for (dump, wanted) in [
            ("S", "EL1N"),
            ("N", "EL3"),
            ("H", "EL1N"),
            ("S", "ROOT"),
            ("P", "N"),
            ("SP", "NP"),
            ("EL1N", "EL2"),
            ("N", "P"),
        ] {
            assert!(!serves(dump, wanted), "{dump} {wanted}");
        }
        assert_eq!(Space::parse("EL9"), None);
        for (index, space) in Space::ALL.into_iter().enumerate() {
            assert_eq!(space as usize, index);
            assert_eq!(Space::parse(space.name()), Some(space));
        }
    }

    #[test]
    fn spaces_are_separate() {
        let loaded =
            loaded("[dump1]\nfile=x\naddress=0\nspace=S\n[dump2]\nfile=y\naddress=0\nspace=N\n");
        let memory = CoreMemory::new(&loaded, &loaded.snapshot.devices[0]);
        assert_eq!(memory.slice(Address(0), Space::El3)[0], 0);
        assert_eq!(memory.slice(Address(0), Space::El2)[0], 100);
        assert_eq!(memory.slice(Address(0), Space::Any)[0], 0);
        assert!(memory.slice(Address(0), Space::Root).is_empty());
    }

    proptest! {
        #[test]
        fn pieces_agree_with_a_linear_search(
            regions in proptest::collection::vec((0_u64..40, 1_usize..12, 0_u8..3), 0..8),
            high: bool,
        ) {
            let base = if high { u64::MAX - 39 } else { 0 };
            let loaded = loaded("");
            let mut memory = CoreMemory::new(&loaded, &loaded.snapshot.devices[0]);
            let spaces = [Space::Any, Space::N, Space::S];
            for (index, &(address, length, space)) in regions.iter().enumerate() {
                let bytes = vec![index as u8; length];
                memory.add_region(Address(base + address), bytes.into(), spaces[space as usize], "");
            }
            for offset in 0..40 {
                for wanted in spaces {
                    let expected = regions.iter().position(|&(address, length, space)| {
                        let inside = (address..address + length as u64).contains(&offset);
                        inside && spaces[space as usize].serves(wanted)
                    });
                    let found = memory.slice(Address(base + offset), wanted).first();
                    prop_assert_eq!(found.map(|&b| usize::from(b)), expected);
                }
            }
        }
    }
}
