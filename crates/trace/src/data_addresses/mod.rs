//! The addresses of the loads and stores of a core, by executed instruction: what
//! `armsnap record --data-addresses` writes beside the trace.
//!
//! The first line of a file is `armsnap data addresses 1`. It is followed by pieces. Each contains the
//! accesses of about 65,536 executed instructions and can be read on its own. Numbers are unsigned
//! LEB128; a signed number n is written as `2n`, or as `-2n - 1` if it is negative.
//!
//! Each record of a piece starts with its kind:
//!
//! | kind | fields | meaning |
//! | --- | --- | --- |
//! | 0 | address, instructions, accesses; for each access: instruction, offset, size | defines the next run of instructions, numbered from 0 in each piece. The address of its first instruction is relative to that of the previously defined run (signed). Each access has the index of its instruction in the run and its offset in bytes from the run's address, both relative to the previous access; size is twice the number of bytes, plus 1 for a store |
//! | 1 | count | the last executed run was executed `count` more times, each access at the predicted address |
//! | 2 | count | `count` instructions without accesses were executed |
//! | 3 + n | for each access: difference (signed) | run n was executed; the difference is from the predicted address |
//!
//! The predicted address of an access of a run is its last one plus the difference of its last two.
//! Before the first execution, the last address is the one of the access executed last in the piece,
//! or 0, and the difference is 0. Addresses are computed modulo 2⁶⁴.
//!
//! The index follows the last piece: the number of pieces, and for each piece the number of its
//! instructions and of its bytes. The last eight bytes of the file, little endian, are the offset of
//! the index.
//!
//! Instructions are counted from the first one that the core executed; the last one counted is the
//! last one executed before the core halted.

mod read;
mod write;

pub use read::{Accesses, Addresses, Error};
pub use write::Writer;

const FIRST: &[u8] = b"armsnap data addresses 1\n";

const RUN: u64 = 0;
const AGAIN: u64 = 1;
const PASSED: u64 = 2;
const EXECUTED: u64 = 3;

/// A piece ends after this many instructions.
const PIECE: u64 = 1 << 16;
/// A piece ends after this many accesses.
const PIECE_ACCESSES: usize = 1 << 18;

/// The maximum number of instructions of a run.
const MAX_INSTRUCTIONS: u64 = 1 << 12;
/// The maximum number of accesses of a run.
const MAX_ACCESSES: usize = 1 << 16;

/// An access to memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Access {
    /// The address of its first byte.
    pub address: u64,
    /// The number of adjacent bytes.
    pub bytes: u32,
    /// Whether it is a store. Atomic instructions, which load and store, are stores.
    pub store: bool,
}

/// An access, and the instruction that made it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Accessed {
    /// The number of instructions that the core had executed before this one.
    pub instruction: u64,
    /// The address of the instruction.
    pub pc: u64,
    /// The access.
    pub access: Access,
}

/// An access of a run of instructions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Slot {
    /// The index of its instruction in the run.
    instruction: u32,
    /// The offset of its instruction from the run's address.
    offset: u32,
    bytes: u32,
    store: bool,
    /// The last address, and how it is expected to change.
    last: u64,
    stride: u64,
}

impl Slot {
    fn predicted(&self) -> u64 {
        self.last.wrapping_add(self.stride)
    }

    fn moves_to(&mut self, address: u64) {
        self.stride = address.wrapping_sub(self.last);
        self.last = address;
    }
}

/// Encodes a signed number as an unsigned one, which is small if the number is near 0.
fn zigzag(difference: u64) -> u64 {
    difference << 1 ^ ((difference as i64) >> 63) as u64
}

fn from_zigzag(number: u64) -> u64 {
    number >> 1 ^ (number & 1).wrapping_neg()
}

#[cfg(test)]
mod tests;
