//! The regions of memory that dumps contain, by address and address space.
//!
//! **Dumps and address spaces.** An address space is a set of translation regimes, see
//! `Space::regimes`; a dump serves a request if the two sets have a regime in common. A dump
//! without space therefore serves all requests; `S` serves EL1S, EL2S and EL3; `N` serves EL1N and
//! EL2; `H`, `EL2` and `EL2N` are the same; and an `EL2` dump serves a request for `N`, because a
//! core of which only the security state is known may be at EL2. Physical memory (`P`, `SP`, `NP`)
//! serves requests for physical memory and for `ANY`, never for a virtual address.
//!
//! **Where dumps overlap**, the first in file order wins, but dumps without a space or only for the
//! requested space come before dumps whose space also serves other requests (`H` before `N` for
//! EL2). Added regions come after all dumps.
//!
//! Files are mapped when first accessed.

use crate::mapped::Mapped;
use crate::snapshot::dump_files::DumpFiles;
use crate::snapshot::model::Device;
use armsnap_arch::arch::Space;
use armsnap_arch::quantity::Address;
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::OnceLock;

/// The origin of a region's bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// A dump of the device, by its index. A dump that represents an ELF file has several regions.
    Dump(usize),
    /// Added by armsnap, with the reason (an ELF file's segment).
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
struct VisibleRange {
    first: u64,
    last: u64,
    region: u32,
}

/// The regions of dumps and of added memory.
#[derive(Debug)]
pub struct Dumps {
    files: DumpFiles,
    regions: Vec<Region>,
    sources: Vec<Source>,
    /// By space, sorted by address; computed on first use.
    views: [OnceLock<Vec<VisibleRange>>; Space::ALL.len()],
}

impl Dumps {
    /// Creates empty memory; `files` are the files of the dumps that will be added.
    pub(in crate::snapshot) fn empty(files: DumpFiles) -> Self {
        Self {
            files,
            regions: Vec::new(),
            sources: Vec::new(),
            views: Default::default(),
        }
    }

    /// Adds the dumps of a device. Dumps whose file is missing, or whose space has an unknown name,
    /// are left out.
    pub(in crate::snapshot) fn add(&mut self, device: &Device) {
        self.add_seen_in(device, Some);
    }

    /// Adds those dumps for which `seen_in` returns a space, in which they are visible.
    pub(super) fn add_seen_in(
        &mut self,
        device: &Device,
        seen_in: impl Fn(Space) -> Option<Space>,
    ) {
        let files = self.files.clone();
        for (index, dump) in device.dumps.iter().enumerate() {
            let space = Space::parse(dump.space.as_deref().unwrap_or(""));
            let Some(space) = space.and_then(&seen_in) else {
                continue;
            };
            if let Some(elf) = files.elf_dump(dump) {
                for (segment, bytes) in elf.segments() {
                    let length = bytes.len() as u64;
                    let (address, source) = (Address(segment.address), Source::Bytes(bytes));
                    self.push(address, length, space, Origin::Dump(index), source);
                }
                continue;
            }
            let Ok(in_file) = files.length(&dump.place.file, &dump.file) else {
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

    /// Adds a region after everything else; `why` describes it.
    pub(super) fn add_region(&mut self, address: Address, bytes: Mapped, space: Space, why: &str) {
        let length = bytes.len() as u64;
        let origin = Origin::Added(why.to_owned());
        self.push(address, length, space, origin, Source::Bytes(bytes));
        self.views = Default::default();
    }

    fn push(&mut self, address: Address, length: u64, space: Space, origin: Origin, s: Source) {
        // A region may end at the last address; zero stands for 2^64.
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

    /// Returns all regions, in order of precedence.
    pub fn regions(&self) -> impl ExactSizeIterator<Item = &Region> {
        self.regions.iter()
    }

    /// Returns the longest run of known bytes from `address` in one region; may be empty.
    pub fn slice(&self, address: Address, space: Space) -> &[u8] {
        self.get(address, space).unwrap_or(&[])
    }

    /// Like [`Self::slice`]; `None` if no region contains the address.
    pub(super) fn get(&self, address: Address, space: Space) -> Option<&[u8]> {
        let piece = self.piece(address, space)?;
        let base = self.regions[piece.region as usize].address.0;
        let bytes = self.bytes(piece.region as usize);
        let from = usize::try_from(address.0 - base).unwrap_or(usize::MAX);
        let to = usize::try_from(piece.last - base).unwrap_or(usize::MAX - 1) + 1;
        Some(bytes.get(from..to.min(bytes.len())).unwrap_or(&[]))
    }

    /// Returns the first address after `address` at which bytes of another region, or bytes after a
    /// hole, start.
    pub fn next(&self, address: Address, space: Space) -> Option<Address> {
        let pieces = self.view(space);
        let after = pieces.partition_point(|piece| piece.first <= address.0);
        pieces.get(after).map(|piece| Address(piece.first))
    }

    /// Returns the piece that contains an address.
    fn piece(&self, address: Address, space: Space) -> Option<&VisibleRange> {
        let pieces = self.view(space);
        let after = pieces.partition_point(|piece| piece.first <= address.0);
        let piece = pieces.get(after.checked_sub(1)?)?;
        (piece.last >= address.0).then_some(piece)
    }

    /// Returns the region that supplies the byte at an address.
    pub(super) fn region(&self, address: Address, space: Space) -> Option<&Region> {
        Some(&self.regions[self.region_at(address, space)?])
    }

    /// Returns the index in [`Self::regions`] of the region that supplies the byte at an address.
    pub(in crate::snapshot) fn region_at(&self, address: Address, space: Space) -> Option<usize> {
        self.piece(address, space)
            .map(|piece| piece.region as usize)
    }

    /// Returns the addresses visible in `space`: first and last of each piece, ascending.
    pub(in crate::snapshot) fn extents(
        &self,
        space: Space,
    ) -> impl Iterator<Item = (u64, u64)> + '_ {
        let pieces = self.view(space).iter();
        pieces.map(|piece| (piece.first, piece.last))
    }

    /// Returns how many of `wanted` bytes from `address` are known in one region and still in its
    /// file; `None` if no region contains the address.
    pub(in crate::snapshot) fn remaining(
        &self,
        address: Address,
        space: Space,
        wanted: usize,
    ) -> Option<usize> {
        let piece = self.piece(address, space)?;
        let from = address.0 - self.regions[piece.region as usize].address.0;
        let bytes = self.mapped(piece.region as usize);
        let remaining = bytes.map_or(0, Mapped::remaining) as u64;
        let remaining = remaining.saturating_sub(from);
        Some(wanted.min(usize::try_from(remaining).unwrap_or(usize::MAX)))
    }

    /// Reads memory across adjacent regions. Returns the number of bytes before the first one that
    /// is not known or no longer in its file.
    pub fn read(&self, address: Address, space: Space, out: &mut [u8]) -> usize {
        read(
            address,
            out,
            |at| self.slice(at, space),
            |at, count| self.remaining(at, space, count).unwrap_or(0),
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
                    let file = self.files.file(from, written).ok()?;
                    let offset = usize::try_from(*offset).ok()?;
                    Some(file.part(offset..usize::MAX))
                });
                opened.as_ref()
            }
        }
    }

    fn view(&self, space: Space) -> &[VisibleRange] {
        self.views[space as usize].get_or_init(|| self.pieces(space))
    }

    /// Sweeps over the ends of all regions that serve `space`; between two neighbouring ends, the
    /// same region wins.
    fn pieces(&self, space: Space) -> Vec<VisibleRange> {
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
        let mut out: Vec<VisibleRange> = Vec::new();
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
            // Both addresses are before the last end, so they fit.
            let (first, last) = (address as u64, (next - 1) as u64);
            match out.last_mut() {
                Some(piece) if piece.region == region && piece.last.wrapping_add(1) == first => {
                    piece.last = last;
                }
                _ => out.push(VisibleRange {
                    first,
                    last,
                    region,
                }),
            }
        }
        out
    }
}

/// Whether a space is one of physical memory.
pub(in crate::snapshot) const fn is_physical(space: Space) -> bool {
    matches!(space, Space::P | Space::Sp | Space::Np)
}

/// Fills `out` from consecutive slices of memory; returns their total length.
pub(in crate::snapshot) fn read<'m>(
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
