//! A64 (Arm ARM, DDI 0487, chapter C4).

mod access;
mod arithmetic;
mod branch;
mod exclusive;
mod immediate;
mod memory;
mod pair;
mod register;
mod structure;
mod system;
mod tag;
mod vector;
mod word;

use super::Semantics;
use super::builder::Builder;
use word::Word;

/// Returns what the instruction at `address` does. After an encoding that is not modelled,
/// everything is unknown.
#[must_use]
pub fn decode(word: u32, address: u64) -> Semantics {
    let mut builder = Builder::new();
    // Table C4-1: op0.
    let decoded = match word >> 25 & 0xf {
        0b1000 | 0b1001 => immediate::decode(&mut builder, word, address),
        0b1010 | 0b1011 => branch::decode(&mut builder, word, address),
        0b0100 | 0b0110 | 0b1100 | 0b1110 => memory::decode(&mut builder, word, address),
        0b0101 | 0b1101 => register::decode(&mut builder, word),
        0b0111 | 0b1111 => vector::decode(&mut builder, Word(word)),
        _ => None,
    };
    if decoded.is_none() {
        builder.everything_unknown();
    }
    builder.finish(4)
}
