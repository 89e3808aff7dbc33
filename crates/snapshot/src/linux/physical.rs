//! Virtual memory of a kernel, read from pieces of physical memory through the kernel's own tables.

use super::Memory;
use super::vmcoreinfo::Info;
use armsnap_arch::translation::{PhysicalMemory, Regime, World};

/// The maximum number of bytes read with one translation: the smallest page.
const PAGE: u64 = 4096;

/// Pieces of physical memory, sorted by address, which do not overlap.
#[derive(Debug)]
pub(super) struct Pieces<'b>(Vec<(u64, &'b [u8])>);

impl<'b> Pieces<'b> {
    /// Creates the pieces. Where several overlap, the first one counts.
    pub(super) fn new(mut pieces: Vec<(u64, &'b [u8])>) -> Self {
        pieces.sort_by_key(|piece| piece.0);
        let mut end = 0;
        pieces.retain_mut(|(address, bytes)| {
            let skipped = usize::try_from(end.max(*address) - *address).unwrap_or(usize::MAX);
            *address = end.max(*address);
            *bytes = bytes.get(skipped..).unwrap_or_default();
            let room = usize::try_from(u64::MAX - *address).unwrap_or(usize::MAX);
            *bytes = &bytes[..bytes.len().min(room.saturating_add(1))];
            end = address.saturating_add(bytes.len() as u64);
            !bytes.is_empty()
        });
        Self(pieces)
    }

    /// Reads memory; returns the number of known bytes from the address.
    fn read(&self, address: u64, out: &mut [u8]) -> usize {
        let mut known = 0;
        while known < out.len() {
            let Some(at) = address.checked_add(known as u64) else {
                break;
            };
            let after = self.0.partition_point(|piece| piece.0 <= at);
            let Some((begin, bytes)) = after.checked_sub(1).map(|index| self.0[index]) else {
                break;
            };
            let skipped = usize::try_from(at - begin).unwrap_or(usize::MAX);
            let rest = bytes.get(skipped..).unwrap_or_default();
            if rest.is_empty() {
                break;
            }
            let count = rest.len().min(out.len() - known);
            out[known..known + count].copy_from_slice(&rest[..count]);
            known += count;
        }
        known
    }
}

impl PhysicalMemory for Pieces<'_> {
    fn read(&self, address: u64, world: World, out: &mut [u8]) -> bool {
        world == World::NonSecure && Pieces::read(self, address, out) == out.len()
    }
}

/// A kernel whose physical memory is known.
#[derive(Debug)]
pub struct PhysicalKernel<'b> {
    pieces: Pieces<'b>,
    regime: Regime,
    image_offset: u64,
}

impl<'b> PhysicalKernel<'b> {
    /// Creates the kernel that VMCOREINFO describes, from pieces of memory with their physical
    /// addresses. Where several overlap, the first one counts. `None` if the tables are not known.
    pub fn new(pieces: Vec<(u64, &'b [u8])>, info: &Info) -> Option<Self> {
        Some(Self {
            pieces: Pieces::new(pieces),
            regime: info.tables().ok()?.regime()?,
            image_offset: info.image_offset()?,
        })
    }

    /// Returns the addresses of these bytes in the kernel's image.
    pub fn places(&self, bytes: &[u8]) -> impl Iterator<Item = u64> {
        let finder = memchr::memmem::Finder::new(bytes).into_owned();
        self.pieces.0.iter().flat_map(move |(address, memory)| {
            let offset = self.image_offset;
            let mut from = 0;
            let finder = finder.clone();
            std::iter::from_fn(move || {
                let place = from + finder.find(memory.get(from..)?)?;
                from = place + 1;
                Some(address.wrapping_add(place as u64).wrapping_add(offset))
            })
        })
    }
}

impl Memory for PhysicalKernel<'_> {
    fn read(&self, address: u64, out: &mut [u8]) -> usize {
        let mut known = 0;
        while known < out.len() {
            let Some(at) = address.checked_add(known as u64) else {
                break;
            };
            let Ok(found) = self.regime.translate(at, &self.pieces, &mut |_| {}) else {
                break;
            };
            let room = ((PAGE - at % PAGE) as usize).min(out.len() - known);
            let count = self
                .pieces
                .read(found.physical, &mut out[known..known + room]);
            known += count;
            if count < room {
                break;
            }
        }
        known
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn overlapping_pieces_are_read_once() {
        let info = Info::read(
            b"PAGESIZE=4096\nSYMBOL(swapper_pg_dir)=1000\nNUMBER(VA_BITS)=48\n\
              NUMBER(kimage_voffset)=0x0\n",
        );
        let pieces: Vec<(u64, &[u8])> = vec![
            (0x1004, &[5, 6, 7, 8]),
            (0x1000, &[1, 2, 3, 4, 9]),
            (0x1001, &[8, 8]),
            (u64::MAX, &[7, 7]),
        ];
        let kernel = PhysicalKernel::new(pieces, &info).unwrap();
        let mut out = [0; 16];
        assert_eq!(kernel.pieces.read(0x1001, &mut out), 7);
        assert_eq!(out[..7], [2, 3, 4, 9, 6, 7, 8]);
        assert_eq!(kernel.pieces.read(0x1008, &mut out), 0);
        assert_eq!(kernel.pieces.read(u64::MAX, &mut out), 1);
        // No table maps anything.
        assert_eq!(Memory::read(&kernel, 0xffff_8000_0000_0000, &mut out), 0);
    }
}
