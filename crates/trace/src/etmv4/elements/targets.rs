//! Branch targets and cycle counts without the atoms between them, eight bytes at a time.

use super::super::decode::{LONGEST_ADDRESS, address};
use super::super::packet::AddressBits;
use super::Elements;
use crate::element::{Element, ElementSink, Mark};
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

/// Returns the cycles of a count that commits nothing, and the length of its packet, for the most
/// frequent forms.
#[inline(always)]
fn frequent_count(header: u8, next: u8) -> Option<(u32, usize)> {
    match header {
        0x10..=0x1f => Some((u32::from(header & 3), 1)),
        0x0c | 0x0d => Some((u32::from(next & 0xf), 2)),
        0x0e if next < 0x80 => Some((u32::from(next), 2)),
        _ => None,
    }
}

/// What is decoded from: a word of atoms, and the longest address after fewer atoms than that.
const WINDOW: usize = 8 + LONGEST_ADDRESS;

impl Elements {
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
        // Local copies stay in registers.
        let (mut history, mut is, mut counted) = (self.history, self.is, self.counted);
        let commits = !self.config.separate_commits;
        while let Some(window) = bytes
            .get(at..)
            .and_then(|rest| rest.first_chunk::<WINDOW>())
        {
            let [a, b, c, d, e, f, g, h, ..] = *window;
            let atoms = leading_atoms([a, b, c, d, e, f, g, h]);
            counted &= atoms == 0;
            at += atoms;
            packets += atoms;
            let Some(window) = window[atoms..].first_chunk() else {
                break;
            };
            if atoms == 8 {
                continue;
            }
            let header = window[0];
            let found = match header {
                0x90..=0x92 => Some((AddressBits::Match(header & 3), 1)),
                _ => address(header, window),
            };
            let length = if let Some((bits, length)) = found {
                if counted {
                    break;
                }
                let address;
                (address, is) = history.resolve(bits, self.sent_64bit);
                out.element(locate(at), self.address(address, is));
                length
            } else if let Some((count, length)) = frequent_count(header, window[1])
                && !commits
            {
                counted = true;
                let cycles = Mark::Cycles(self.cycles(Some(count)));
                out.element(locate(at), Element::Mark(cycles));
                length
            } else {
                break;
            };
            at += length;
            packets += 1;
        }
        (self.history, self.is, self.counted) = (history, is, counted);
        (at, packets)
    }
}
