//! Branch targets and cycle counts without the atoms between them, eight bytes at a time.

use super::super::decode::{LONGEST_ADDRESS, address};
use super::super::packet::AddressBits;
use super::Elements;
use crate::element::{ElementSink, Mark};
use armsnap_arch::quantity::BufferOffset;

/// The highest bit of each byte.
const TOP_BITS: u64 = 0x8080_8080_8080_8080;

/// Returns the number of bytes before the first header that is not of atoms (0xC0 to 0xFF).
#[inline(always)]
fn leading_atoms(bytes: [u8; 8]) -> usize {
    let word = u64::from_le_bytes(bytes);
    // The two highest bits of a byte of atoms are set.
    let others = !(word & word << 1) & TOP_BITS;
    others.trailing_zeros() as usize / 8
}

impl Elements {
    /// Returns the cycles of a count that commits nothing, and the length of its packet, for the
    /// most frequent forms.
    #[inline(always)]
    fn frequent_count(&self, header: u8, next: u8) -> Option<(u32, usize)> {
        if !self.config.separate_commits {
            return None;
        }
        match header {
            0x10..=0x1f => Some((u32::from(header & 3), 1)),
            0x0c | 0x0d => Some((u32::from(next & 0xf), 2)),
            0x0e if next < 0x80 => Some((u32::from(next), 2)),
            _ => None,
        }
    }

    /// Implements [`ElementDecoder::targets`](crate::protocol::ElementDecoder::targets).
    #[inline(always)]
    pub(super) fn targets_of(
        &mut self,
        bytes: &[u8],
        mut locate: impl FnMut(usize) -> BufferOffset,
        out: &mut impl ElementSink,
    ) -> (usize, usize) {
        let (mut at, mut packets) = (0, 0);
        if !self.emits_at_once() {
            return (at, packets);
        }
        while let Some(word) = bytes[at..].first_chunk() {
            let atoms = leading_atoms(*word);
            self.counted &= atoms == 0;
            at += atoms;
            packets += atoms;
            if atoms == size_of_val(word) {
                continue;
            }
            let Some(window) = bytes[at..].first_chunk::<LONGEST_ADDRESS>() else {
                break;
            };
            let header = window[0];
            let found = match header {
                0x90..=0x92 => Some((AddressBits::Match(header & 3), 1)),
                _ => address(header, window),
            };
            let length = if let Some((bits, length)) = found {
                if self.counted {
                    break;
                }
                let (address, is) = self.history.resolve(bits, self.sent_64bit);
                self.is = is;
                out.element(locate(at), self.address(address, is));
                length
            } else if let Some((count, length)) = self.frequent_count(header, window[1]) {
                self.counted = true;
                out.mark(locate(at), Mark::Cycles(self.cycles(Some(count))));
                length
            } else {
                break;
            };
            at += length;
            packets += 1;
        }
        (at, packets)
    }
}
