//! The blocks of a dump. After an unknown or damaged block, reading continues if another block is
//! found.

use super::ZephyrNote;
use crate::import::fields::Fields;
use std::ops::Range;

/// The newest version of a block header that is accepted.
const NEWEST: u16 = 16;
/// The minimum size of a block of registers in bytes: version 1 for a Cortex-M.
const FEWEST_REGISTERS: usize = 36;

/// A block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Block {
    /// The registers at the fault (`A`): version, range in the file.
    Registers(u16, Range<usize>),
    /// The registers of a CPU (`F`). Those of the CPU that failed are in block `A`.
    Cpu {
        /// Its number.
        cpu: u32,
        /// The address of the thread that it was running.
        thread: u64,
        /// The range in the file; empty for the CPU that failed.
        registers: Range<usize>,
    },
    /// The kernel's `_kernel` (`T`): range in the file.
    Threads(Range<usize>),
    /// Memory (`M`): address, range in the file.
    Memory(u64, Range<usize>),
    /// A CRC-32 of all bytes before the block (`C`).
    Checksum(u32),
}

/// Reads the block at an offset; also returns the offset after it.
fn block(bytes: &[u8], at: usize, wide: bool) -> Option<(Block, usize)> {
    let mut fields = Fields::new(bytes.get(at..)?, false);
    let (kind, version) = (fields.bytes(1)?[0], fields.u16()?);
    if !(1..=NEWEST).contains(&version) {
        return None;
    }
    let word = |fields: &mut Fields<'_>| match wide {
        true => fields.u64(),
        false => fields.u32().map(u64::from),
    };
    let place = |fields: &mut Fields<'_>, length: usize| {
        let begin = bytes.len() - fields.rest().len();
        fields.bytes(length)?;
        Some(begin..begin + length)
    };
    let found = match kind {
        b'A' => {
            let length = usize::from(fields.u16()?);
            let place = place(&mut fields, length)?;
            (length >= FEWEST_REGISTERS).then_some(Block::Registers(version, place))?
        }
        b'F' if version == 1 => {
            let length = usize::from(fields.u16()?);
            let (cpu, thread) = (fields.u32()?, word(&mut fields)?);
            let registers = place(&mut fields, length)?;
            let is_one = length == 0 || length >= FEWEST_REGISTERS;
            is_one.then_some(Block::Cpu {
                cpu,
                thread,
                registers,
            })?
        }
        b'T' => {
            let length = usize::from(fields.u16()?);
            Block::Threads(place(&mut fields, length)?)
        }
        b'M' if version == 1 => {
            let (start, end) = (word(&mut fields)?, word(&mut fields)?);
            let length = usize::try_from(end.checked_sub(start)?).ok()?;
            Block::Memory(start, place(&mut fields, length)?)
        }
        b'C' if version == 1 => Block::Checksum(fields.u32()?),
        _ => return None,
    };
    Some((found, bytes.len() - fields.rest().len()))
}

/// Whether only erased flash or zeros follow.
fn is_end(bytes: &[u8], at: usize) -> bool {
    let rest = bytes.get(at..).unwrap_or(&[]);
    let first = rest.first().copied().unwrap_or(0);
    matches!(first, 0 | 0xff) && rest.iter().all(|byte| *byte == first)
}

/// The offset of the next block after one that cannot be read.
fn next_block(bytes: &[u8], at: usize, wide: bool) -> Option<usize> {
    let continues =
        |at: usize| at <= bytes.len() && (at == bytes.len() || block(bytes, at, wide).is_some());
    // All blocks except those of memory and of the checksum begin with their length.
    let mut fields = Fields::new(&bytes[at..], false);
    let length = (|| {
        fields.bytes(3)?;
        fields.u16()
    })();
    let skipped = length.map(|length| at + 5 + usize::from(length));
    if let Some(skipped) = skipped.filter(|skipped| continues(*skipped)) {
        return Some(skipped);
    }
    let mut from = at + 1;
    // A block is accepted if another block or the end follows.
    let begins = |byte: &u8| matches!(byte, b'A' | b'F' | b'M' | b'T');
    while let Some(next) = bytes.get(from..)?.iter().position(begins) {
        let next = from + next;
        if let Some((_, end)) = block(bytes, next, wide)
            && continues(end)
        {
            return Some(next);
        }
        from = next + 1;
    }
    None
}

/// The available part of a block of memory, if the file ends within the block.
fn cut_memory(bytes: &[u8], at: usize, wide: bool) -> Option<(u64, Range<usize>)> {
    let mut fields = Fields::new(bytes.get(at..)?, false);
    let head = (fields.bytes(1)?[0], fields.u16()?);
    let mut word = || match wide {
        true => fields.u64(),
        false => fields.u32().map(u64::from),
    };
    let (start, end) = (word()?, word()?);
    let begin = bytes.len() - fields.rest().len();
    let is_cut = head == (b'M', 1) && end.checked_sub(start)? > fields.rest().len() as u64;
    (is_cut && begin < bytes.len()).then_some((start, begin..bytes.len()))
}

/// Reads the blocks from an offset; returns them with their offsets.
pub fn read(
    bytes: &[u8],
    mut at: usize,
    wide: bool,
    notes: &mut Vec<ZephyrNote>,
) -> Vec<(usize, Block)> {
    let mut out = Vec::new();
    while !is_end(bytes, at) {
        if let Some((found, end)) = block(bytes, at, wide) {
            out.push((at, found));
            at = end;
            continue;
        }
        let kind = bytes[at];
        let next = next_block(bytes, at, wide);
        let cut = cut_memory(bytes, at, wide).filter(|_| next.is_none());
        if let Some((start, place)) = cut {
            let kept = place.len();
            notes.push(ZephyrNote::CutMemory { at, kept });
            out.push((at, Block::Memory(start, place)));
            return out;
        }
        let bytes_left_out = next.map(|next| next - at);
        notes.push(ZephyrNote::Block {
            at,
            kind,
            bytes: bytes_left_out,
        });
        let Some(next) = next else {
            return out;
        };
        at = next;
    }
    out
}
