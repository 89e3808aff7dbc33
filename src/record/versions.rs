//! Code that changed while the program ran, and the versions in which it was executed.
//!
//! A version is a number that the trace carries as the context ID. Everything that a core executes
//! under one number agrees with one state of memory, so a decoder knows the instructions. Code that
//! never changed belongs to all versions.
//!
//! Works on blocks, independent of the trace and the snapshot's files.

use super::blocks::{Block, NOT_IN_STREAM};
use super::traps;
use armsnap_snapshot::snapshot::changed::{Changed, Code, EVER};
use std::collections::{BTreeSet, HashMap};

/// The number of bytes of code stored together.
const CHUNK: u64 = 256;
const HALVES: usize = CHUNK as usize / 2;

/// The maximum number of versions.
const MAX_VERSIONS: u32 = 1 << 12;
/// The maximum number of halfwords of all versions.
const MAX_HALVES: usize = 1 << 22;
/// How many of the newest and of the oldest versions are tried before a new one is created.
const TRIED: usize = 32;

/// A version with unknown code.
const UNKNOWN: u32 = u32::MAX;
/// Marks a block that fits every version.
const ANY: u32 = u32::MAX - 1;

#[derive(Debug)]
struct Chunk {
    halves: [u16; HALVES],
    known: u128,
}

/// Halfwords of code as first executed.
#[derive(Debug, Default)]
struct InitialCode(HashMap<u64, Box<Chunk>>);

impl InitialCode {
    /// Returns the halfword at an address; stores `half` if it has none yet.
    fn add(&mut self, address: u64, half: u16) -> u16 {
        let chunk = self.0.entry(address / CHUNK).or_insert_with(|| {
            Box::new(Chunk {
                halves: [0; HALVES],
                known: 0,
            })
        });
        let at = (address % CHUNK / 2) as usize;
        if chunk.known & 1 << at == 0 {
            chunk.known |= 1 << at;
            chunk.halves[at] = half;
        }
        chunk.halves[at]
    }

    fn all(&self) -> impl Iterator<Item = (u64, u16)> {
        self.0.iter().flat_map(|(&index, chunk)| {
            let halves = (0_u64..).zip(chunk.halves);
            halves
                .filter(|(at, _)| chunk.known & 1 << at != 0)
                .map(move |(at, half)| (index * CHUNK + 2 * at, half))
        })
    }
}

/// A halfword whose contents changed.
#[derive(Clone, Copy, Debug)]
struct Contended {
    first: u16,
    /// Lower versions may have executed the first contents before the change was seen.
    since: u32,
}

/// The version of a block, or [`ANY`], valid while the number of contended halfwords is
/// `contended`.
#[derive(Clone, Copy, Debug)]
struct Checked {
    contended: usize,
    version: u32,
}

/// All versions of the code.
#[derive(Debug, Default)]
pub struct Versions {
    first: InitialCode,
    contended: HashMap<u64, Contended>,
    /// The contents of each version that differ from the first contents.
    own: Vec<HashMap<u64, u16>>,
    halves: usize,
    /// The cached version of each block, by ID.
    checked: Vec<Checked>,
    /// Whether the trace cannot carry versions.
    untraced: bool,
}

impl Versions {
    /// Starts with version 0. Unless `traced`, no others are created and changed code is unknown.
    pub fn new(traced: bool) -> Self {
        Self {
            own: vec![HashMap::new()],
            untraced: !traced,
            ..Self::default()
        }
    }

    /// Returns whether code changed and the trace carries versions.
    #[inline]
    pub fn matter(&self) -> bool {
        !self.contended.is_empty() && !self.untraced
    }

    /// Adds a translated block.
    pub fn define(&mut self, block: &Block) {
        let since = self.own.len() as u32;
        for (address, half) in halves(block) {
            let first = self.first.add(address, half);
            if first != half {
                let contended = Contended { first, since };
                self.contended.entry(address).or_insert(contended);
            }
        }
    }

    /// Returns the version in which a block is executed. `line` holds the preceding blocks of its
    /// straight line; `now` is the current version.
    #[inline]
    pub fn of<'b>(
        &mut self,
        now: u32,
        block: &'b Block,
        line: impl Iterator<Item = &'b Block> + Clone,
    ) -> u32 {
        let known = self.checked.get(block.id as usize);
        if let Some(checked) = known
            && checked.contended == self.contended.len()
            && (checked.version == ANY || checked.version == now)
        {
            return now;
        }
        self.choose(now, block, line)
    }

    #[cold]
    fn choose<'b>(
        &mut self,
        now: u32,
        block: &'b Block,
        line: impl Iterator<Item = &'b Block>,
    ) -> u32 {
        let mut all = self.contended_of(block);
        if all.is_empty() {
            self.check(block, ANY);
            return now;
        }
        for before in line {
            all.extend(self.contended_of(before));
        }
        let before = self.checked.get(block.id as usize);
        let before = before.map_or(now, |checked| checked.version);
        let all_versions = 0..self.own.len() as u32;
        let newest = all_versions.clone().rev().take(TRIED);
        let oldest = all_versions.take(TRIED);
        let mut candidates = [now, before].into_iter().chain(newest).chain(oldest);
        let version = candidates
            .find(|&version| self.fits(version, &all))
            .unwrap_or_else(|| self.begin());
        if let Some(own) = self.own.get_mut(version as usize) {
            let before = own.len();
            own.extend(all);
            self.halves += own.len() - before;
        }
        self.check(block, version);
        version
    }

    /// Creates an empty version, or returns [`UNKNOWN`] at the limit.
    fn begin(&mut self) -> u32 {
        let version = self.own.len() as u32;
        if version >= MAX_VERSIONS || self.halves >= MAX_HALVES {
            return UNKNOWN;
        }
        self.own.push(HashMap::new());
        version
    }

    fn contended_of(&self, block: &Block) -> Vec<(u64, u16)> {
        let halves = halves(block);
        halves
            .filter(|(address, _)| self.contended.contains_key(address))
            .collect()
    }

    fn check(&mut self, block: &Block, version: u32) {
        if block.id == NOT_IN_STREAM {
            return;
        }
        let index = block.id as usize;
        let checked = Checked {
            contended: self.contended.len(),
            version,
        };
        if index >= self.checked.len() {
            let never = Checked {
                contended: 0,
                version: UNKNOWN,
            };
            self.checked.resize(index + 1, never);
        }
        self.checked[index] = checked;
    }

    /// Returns whether halfwords do not contradict a version.
    fn fits(&self, version: u32, halves: &[(u64, u16)]) -> bool {
        let Some(own) = self.own.get(version as usize) else {
            return false;
        };
        halves.iter().all(|(address, half)| {
            let here = own.get(address).or_else(|| {
                let contended = self.contended.get(address)?;
                (version < contended.since).then_some(&contended.first)
            });
            here.is_none_or(|here| here == half)
        })
    }

    /// Returns the changed addresses and the code executed there. `there` reads memory at the end
    /// of the recording: code that is gone by then is included as well.
    pub fn changed(&self, there: impl Fn(u64) -> Option<u16>) -> Changed {
        let mut addresses = BTreeSet::new();
        let mut code = Vec::new();
        let mut add = |address: u64, versions: (u32, u32), half: u16| {
            code.push(Code {
                address,
                versions,
                bytes: half.to_le_bytes(),
            });
        };
        for (address, half) in self.first.all() {
            if !self.contended.contains_key(&address) && there(address) != Some(half) {
                addresses.insert(address);
                add(address, (0, EVER), half);
            }
        }
        addresses.extend(self.contended.keys());
        if !self.untraced {
            for (&address, contended) in &self.contended {
                add(address, (0, contended.since - 1), contended.first);
                for (version, own) in (0_u32..).zip(&self.own).skip(contended.since as usize) {
                    if let Some(&half) = own.get(&address) {
                        add(address, (version, version), half);
                    }
                }
            }
        }
        Changed::new(addresses, code, self.own.len() as u32)
    }
}

/// Returns the halfwords of a block, without the recording's own traps.
fn halves(block: &Block) -> impl Iterator<Item = (u64, u16)> {
    let trap = traps::trap(block.start.isa);
    let mut bytes = &block.bytes[..];
    let mut address = block.start.address.0;
    block.instructions.iter().flat_map(move |instruction| {
        let own;
        (own, bytes) = bytes.split_at(bytes.len().min(instruction.bytes.into()));
        let here = address;
        address = address.wrapping_add(own.len() as u64);
        let (pairs, _) = if own == trap {
            (&[][..], &[][..])
        } else {
            own.as_chunks()
        };
        (0_u64..)
            .zip(pairs)
            .map(move |(index, pair)| (here.wrapping_add(2 * index), u16::from_le_bytes(*pair)))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::blocks::{BlockTable, Sets};
    use crate::record::stream::Definition;
    use armsnap_arch::quantity::{Address, Isa};
    use armsnap_snapshot::snapshot::changed::PastCode;
    use armsnap_trace::encode::CodeAddress;

    const NOP: u32 = 0xd503_201f;
    const RET: u32 = 0xd65f_03c0;
    /// movz w0, #n
    fn movz(n: u32) -> u32 {
        0x5280_0000 | n << 5
    }

    #[derive(Default)]
    struct Guest {
        blocks: Vec<Block>,
    }

    impl Guest {
        /// Adds a block of these words.
        fn block(&mut self, versions: &mut Versions, address: u64, words: &[u32]) -> usize {
            let mut table = BlockTable::new(Sets::A64);
            let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
            table
                .add(&Definition {
                    id: 0,
                    address,
                    sizes: &vec![4; words.len()],
                    bytes: &bytes,
                    text: &[],
                    isa: None,
                })
                .unwrap();
            let mut block = table.get(0).unwrap().clone();
            block.id = self.blocks.len() as u32;
            assert_eq!(
                block.start,
                CodeAddress {
                    address: Address(address),
                    isa: Isa::A64
                }
            );
            versions.define(&block);
            self.blocks.push(block);
            self.blocks.len() - 1
        }

        fn run(&self, versions: &mut Versions, now: u32, block: usize) -> u32 {
            versions.of(now, &self.blocks[block], std::iter::empty())
        }
    }

    fn word(changed: &Changed, version: u32, address: u64) -> Option<u32> {
        let half = |address| {
            let bytes = changed.code(version, address).known()?;
            Some(u32::from(u16::from_le_bytes([bytes[0], bytes[1]])))
        };
        Some(half(address)? | half(address + 2)? << 16)
    }

    #[test]
    fn each_version_has_what_ran_in_it() {
        let mut versions = Versions::new(true);
        let mut guest = Guest::default();
        let caller = guest.block(&mut versions, 0x2000, &[NOP, RET]);
        let one = guest.block(&mut versions, 0x1000, &[movz(1), RET]);
        assert!(!versions.matter());
        let two = guest.block(&mut versions, 0x1000, &[movz(2), RET]);
        assert!(versions.matter());
        assert_eq!(guest.run(&mut versions, 0, caller), 0);
        assert_eq!(guest.run(&mut versions, 0, two), 1);
        assert_eq!(guest.run(&mut versions, 1, caller), 1);
        assert_eq!(guest.run(&mut versions, 1, one), 0, "it ran in version 0");
        assert_eq!(guest.run(&mut versions, 0, two), 1);
        let three = guest.block(&mut versions, 0x1000, &[movz(3), RET]);
        let other = guest.block(&mut versions, 0x3000, &[movz(7)]);
        assert_eq!(guest.run(&mut versions, 1, three), 2);
        assert_eq!(guest.run(&mut versions, 2, other), 2);
        // At the end of the recording, memory contains the last version, and 0x3000 is unmapped.
        let end = |address: u64| match address {
            0x1000 => Some(movz(3) as u16),
            0x3000.. => None,
            _ => Some(0),
        };
        let at_end = |address: u64| match address {
            0x2000 | 0x2004 => Some(if address == 0x2000 { NOP } else { RET } as u16),
            0x2002 | 0x2006 => Some((if address == 0x2002 { NOP } else { RET } >> 16) as u16),
            0x1004 => Some(RET as u16),
            0x1006 => Some((RET >> 16) as u16),
            0x1002 => Some((movz(3) >> 16) as u16),
            address => end(address),
        };
        let changed = versions.changed(at_end);
        for version in 0..3 {
            let half = changed.code(version, 0x1000).known().unwrap();
            assert_eq!(half, (movz(version + 1) as u16).to_le_bytes());
            assert_eq!(word(&changed, version, 0x3000), Some(movz(7)));
        }
        assert_eq!(
            changed.code(3, 0x1000),
            PastCode::Unknown,
            "unknown version"
        );
        assert_eq!(
            changed.code(0, 0x2000),
            PastCode::Unchanged,
            "it did not change"
        );
        assert_eq!(changed.ranges(), [(0x1000, 2), (0x3000, 4)]);
    }

    #[test]
    fn a_straight_line_belongs_to_one_version() {
        let mut versions = Versions::new(true);
        let mut guest = Guest::default();
        let begin = guest.block(&mut versions, 0x1000, &[movz(1)]);
        let end = guest.block(&mut versions, 0x1004, &[movz(2), RET]);
        let _ = guest.block(&mut versions, 0x1000, &[movz(3)]);
        let new_end = guest.block(&mut versions, 0x1004, &[movz(4), RET]);
        assert_eq!(guest.run(&mut versions, 0, begin), 0);
        assert_eq!(guest.run(&mut versions, 0, end), 0);
        assert_eq!(guest.run(&mut versions, 0, begin), 0);
        let line = [&guest.blocks[begin]];
        let version = versions.of(0, &guest.blocks[new_end], line.into_iter());
        assert_eq!(version, 1);
        let changed = versions.changed(|_| None);
        assert_eq!(word(&changed, 1, 0x1000), Some(movz(1)));
        assert_eq!(word(&changed, 1, 0x1004), Some(movz(4)));
    }

    #[test]
    fn without_versions_changed_code_is_unknown() {
        let mut versions = Versions::new(false);
        let mut guest = Guest::default();
        let one = guest.block(&mut versions, 0x1000, &[movz(1), RET]);
        guest.block(&mut versions, 0x1000, &[movz(2), RET]);
        assert!(!versions.matter());
        assert_eq!(guest.run(&mut versions, 0, one), 0);
        let changed = versions.changed(|_| None);
        assert_eq!(changed.code(0, 0x1000), PastCode::Unknown);
        assert_eq!(word(&changed, 0, 0x1004), Some(RET), "gone at the end");
    }

    #[test]
    fn the_number_of_versions_is_limited() {
        let mut versions = Versions::new(true);
        let mut guest = Guest::default();
        let mut now = 0;
        for n in 0..MAX_VERSIONS + 10 {
            let block = guest.block(&mut versions, 0x1000, &[movz(n), RET]);
            now = guest.run(&mut versions, now, block);
        }
        assert_eq!(now, UNKNOWN);
        let same = guest.block(&mut versions, 0x2000, &[RET]);
        assert_eq!(guest.run(&mut versions, now, same), UNKNOWN);
        assert_eq!(guest.run(&mut versions, now, 0), 0, "this one is known");
        let changed = versions.changed(|_| None);
        assert_eq!(changed.code(UNKNOWN, 0x1000), PastCode::Unknown);
        assert_eq!(word(&changed, UNKNOWN, 0x2000), Some(RET));
    }
}
