//! The memory of cores: their dumps (section 3.2.3), and other memory that they see.
//!
//! [`Dumps`] finds the bytes of dumps by address and address space. `shared.rs` supplies memory of
//! other cores where this core has none, [`translated`] supplies physical memory at virtual
//! addresses.

pub(super) mod dumps;
mod physical;
pub mod translated;

use self::dumps::read;
use self::translated::{Process, Translated};
use super::changed::{Changed, PastCode};
use super::model::Device;
use super::note::MemoryNote;
use super::read::OpenSnapshot;
use super::shared::Others;
use super::straight::{self, Straight};
use crate::mapped::Mapped;
use armsnap_arch::arch::Space;
use armsnap_arch::quantity::Address;
use std::sync::Arc;

pub use self::dumps::{Dumps, Origin, Region};

/// The memory of one core or memory space.
#[derive(Debug)]
pub struct CoreMemory {
    dumps: Dumps,
    changed: Arc<Changed>,
    straight: Straight,
    /// Memory of other cores for addresses without a region.
    others: Option<Others>,
    /// Physical memory, and the tables through which the core sees it.
    translated: Option<Box<Translated>>,
}

/// The memory that a past state of a core selects; the default is the halted state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Moment {
    /// The version of changed code.
    pub version: Option<u32>,
    /// The tables of low addresses.
    pub process: Process,
}

impl CoreMemory {
    /// Creates the memory in the dumps of `device`. Dumps whose file is missing, or whose space has
    /// an unknown name, are left out: the reader's notes and `check` report them.
    pub fn new(loaded: &OpenSnapshot, device: &Device) -> Self {
        let mut dumps = Dumps::empty(loaded.dump_files());
        dumps.add(device);
        let file = straight::file(device);
        let bytes = file.and_then(|file| loaded.file(&device.place.file, file).ok());
        Self {
            dumps,
            changed: Arc::clone(&loaded.changed),
            straight: bytes.map_or_else(Straight::default, |bytes| Straight::read(&bytes)),
            others: None,
            translated: None,
        }
    }

    /// Adds memory for addresses without a dump or an earlier addition. `why` describes it in
    /// [`Self::regions`].
    pub fn add_region(&mut self, address: Address, bytes: Mapped, space: Space, why: &str) {
        self.dumps.add_region(address, bytes, space, why);
    }

    /// Shares the memory of other cores of the architecture with the core at index `device` of the
    /// device list. Memory added to the core takes precedence, even if it is added later.
    pub fn share(&mut self, loaded: &OpenSnapshot, device: usize) {
        let pools = loaded.pools();
        self.others = pools.and_then(|pools| Others::of(&loaded.snapshot, pools, device));
    }

    /// Returns a note on the memory of other cores visible to the core in `space`.
    pub fn sharing(&self, space: Space) -> Option<MemoryNote> {
        self.others.as_ref()?.note(&self.dumps, space)
    }

    /// Returns a note on the memory of other cores used so far.
    pub fn taken_from_others(&self) -> Option<MemoryNote> {
        self.others.as_ref()?.taken_note()
    }

    /// Returns all regions, in order of precedence.
    pub fn regions(&self) -> impl ExactSizeIterator<Item = &Region> {
        self.dumps.regions()
    }

    /// Returns the longest run of known bytes from `address` in one region; may be empty.
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
        self.dumps.get(address, space).unwrap_or_else(|| {
            let end = self.dumps.next(address, space);
            let others = self.others.as_ref();
            others.map_or(&[], |others| others.slice(address, end, space))
        })
    }

    /// Returns the bytes of code from `address` that ran at a past moment, as far as changed code
    /// and the tables of processes are known; otherwise empty.
    pub fn code(&self, moment: Moment, address: Address, space: Space) -> &[u8] {
        let slice = || self.slice_of(moment.process, address, space);
        let Some(version) = moment.version.filter(|_| !self.changed.is_empty()) else {
            return slice();
        };
        match self.changed.code(version, address.0) {
            PastCode::Known(code) => code,
            PastCode::Unknown => &[],
            PastCode::Unchanged => {
                let bytes = slice();
                let steady = self.changed.steady(address.0).min(bytes.len() as u64);
                &bytes[..steady as usize]
            }
        }
    }

    /// Returns whether the instruction at `address`, whose bytes are not known, is known not to
    /// change the flow.
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
            // Recorded versions cannot be truncated.
            match version.map(|version| self.changed.code(version, at.0)) {
                Some(PastCode::Known(_) | PastCode::Unknown) => count,
                Some(PastCode::Unchanged) | None => {
                    self.remaining_of(moment.process, at, space, count)
                }
            }
        };
        read(address, out, |at| self.code(moment, at, space), remaining)
    }

    /// Returns the code that changed while the trace was made.
    pub fn changed(&self) -> &Changed {
        &self.changed
    }

    /// Returns the first address after `address` at which a region visible in `space` starts. With
    /// translation it may be an earlier address, but no byte before it is known.
    pub fn next(&self, address: Address, space: Space) -> Option<Address> {
        let own = self.dumps.next(address, space);
        let others = self.others.as_ref();
        let others = others.and_then(|others| others.next(address, space));
        let next = own.into_iter().chain(others).min();
        let translated = self.translated.as_ref();
        let translated = translated.and_then(|all| all.next(address, next, space));
        translated.or(next)
    }

    /// Returns how many of `wanted` bytes from `address` are known in one region and still in its
    /// file.
    fn remaining(&self, address: Address, space: Space, wanted: usize) -> usize {
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
        let own = self.dumps.remaining(address, space, wanted);
        own.unwrap_or_else(|| {
            let others = self.others.as_ref();
            others.map_or(0, |others| others.remaining(address, space, wanted))
        })
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
