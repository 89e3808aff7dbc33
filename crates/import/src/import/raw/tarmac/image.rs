//! The memory of the cores: what was executed, loaded and stored, as it was last.

use std::collections::BTreeMap;
use std::ops::Range;

/// The size of a block in bytes.
const BLOCK: u64 = 64;

/// Bytes of memory, and which of them are known and were executed.
#[derive(Clone, Debug)]
struct Block {
    bytes: [u8; BLOCK as usize],
    known: u64,
    executed: u64,
}

/// The known bytes of memory.
#[derive(Debug)]
pub struct Parts {
    /// Ranges of addresses, and where each begins in the bytes.
    pub ranges: Vec<(Range<u64>, usize)>,
    /// The bytes of all ranges.
    pub bytes: Vec<u8>,
    /// The number of ranges that are left out.
    pub left_out: usize,
}

/// Memory by address.
#[derive(Debug, Default)]
pub struct Image {
    blocks: BTreeMap<u64, Block>,
    /// Whether code was changed after it was executed.
    pub changed: bool,
}

impl Image {
    fn byte(&mut self, address: u64) -> (&mut Block, usize, u64) {
        let block = self.blocks.entry(address / BLOCK).or_insert(Block {
            bytes: [0; BLOCK as usize],
            known: 0,
            executed: 0,
        });
        let index = address % BLOCK;
        (block, index as usize, 1 << index)
    }

    /// Sets bytes; `None` is a byte that is not known. Returns whether a known one had another value.
    pub fn set(&mut self, address: u64, bytes: impl IntoIterator<Item = Option<u8>>) -> bool {
        let mut differs = false;
        for (offset, byte) in bytes.into_iter().enumerate() {
            let (block, index, bit) = self.byte(address.wrapping_add(offset as u64));
            let is_other = byte != Some(block.bytes[index]);
            let changed = is_other && block.executed & bit != 0;
            differs |= is_other && byte.is_some() && block.known & bit != 0;
            match byte {
                Some(byte) => {
                    block.bytes[index] = byte;
                    block.known |= bit;
                }
                None => block.known &= !bit,
            }
            self.changed |= changed;
        }
        differs
    }

    /// Sets the bytes of an instruction that is executed.
    pub fn execute(&mut self, address: u64, bytes: &[u8]) {
        self.set(address, bytes.iter().copied().map(Some));
        for offset in 0..bytes.len() as u64 {
            let (block, _, bit) = self.byte(address.wrapping_add(offset));
            block.executed |= bit;
        }
    }

    /// Makes what is known of a range unknown.
    pub fn forget(&mut self, range: Range<u64>) {
        for (number, block) in self
            .blocks
            .range_mut(range.start / BLOCK..range.end.div_ceil(BLOCK))
        {
            let begin = number * BLOCK;
            for index in 0..BLOCK {
                if range.contains(&(begin + index)) {
                    block.known &= !(1 << index);
                }
            }
        }
    }

    /// The known bytes, in at most `most` ranges.
    pub fn parts(&self, most: usize) -> Parts {
        let (mut parts, mut all, mut left_out) = (Vec::<(Range<u64>, usize)>::new(), Vec::new(), 0);
        let mut skipped = None;
        for (number, block) in &self.blocks {
            for index in 0..BLOCK {
                if block.known >> index & 1 == 0 {
                    continue;
                }
                let address = number * BLOCK + index;
                let byte = block.bytes[index as usize];
                let extends = parts.last().is_some_and(|(range, _)| range.end == address);
                if address == u64::MAX || !extends && parts.len() >= most {
                    left_out += usize::from(skipped.is_none_or(|last: u64| last + 1 != address));
                    skipped = Some(address);
                    continue;
                }
                match parts.last_mut().filter(|_| extends) {
                    Some((range, _)) => range.end += 1,
                    None => parts.push((address..address + 1, all.len())),
                }
                all.push(byte);
            }
        }
        Parts {
            ranges: parts,
            bytes: all,
            left_out,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_bytes_are_kept() {
        let mut image = Image::default();
        image.execute(0x3e, &[1, 2, 3, 4]);
        image.set(0x80, [Some(5), None, Some(6)]);
        image.set(0x3e, [Some(1)]);
        assert!(!image.changed && image.set(0x80, [Some(4)]));
        image.set(0x80, [Some(5)]);
        let Parts {
            ranges,
            bytes,
            left_out,
        } = image.parts(10);
        assert_eq!(ranges, [(0x3e..0x42, 0), (0x80..0x81, 4), (0x82..0x83, 5)]);
        assert_eq!((bytes, left_out), (vec![1, 2, 3, 4, 5, 6], 0));
        let parts = image.parts(1);
        let counts = (parts.ranges.len(), parts.bytes.len(), parts.left_out);
        assert_eq!(counts, (1, 4, 2));
        image.set(0x3f, [Some(7), None]);
        assert!(image.changed);
        image.forget(0x40..0x81);
        assert_eq!(image.parts(10).ranges, [(0x3e..0x40, 0), (0x82..0x83, 2)]);
        image.set(u64::MAX, [Some(1), Some(2)]);
        assert_eq!(image.parts(10).ranges[0].0, 0..1);
    }
}
