//! Cryptographic AES (DDI 0487, C4.1, "Cryptographic AES").

use super::super::word::Word;
use super::form::{d, n};
use crate::semantics::builder::Builder;
use crate::semantics::operation::AesStep;
use crate::semantics::{Location, Operation};

pub(super) fn decode(builder: &mut Builder, word: Word) -> Option<()> {
    // Size 0, all of the vector, and no other operation in these bits.
    if word.field(22, 2) != 0 || !word.bit(30) || word.bit(29) {
        return None;
    }
    let of: fn(bool) -> AesStep = match word.field(12, 5) {
        0b00100 => |high| AesStep::Encrypt { high },
        0b00101 => |high| AesStep::Decrypt { high },
        0b00110 => |_| AesStep::Mix,
        0b00111 => |_| AesStep::Unmix,
        _ => return None,
    };
    let mixes = word.bit(13);
    let state = [0_u8, 1].map(|half| match mixes {
        true => n(word, half),
        false => builder.op2(Operation::Xor, d(word, half), n(word, half)),
    });
    let results = [0, 1].map(|half: usize| {
        let operation = Operation::Aes(of(half == 1));
        match mixes {
            true => builder.op1(operation, state[half]),
            false => builder.op2(operation, state[0], state[1]),
        }
    });
    for (half, result) in (0..).zip(results) {
        builder.copy(Location::vector(word.d(), half), result);
    }
    Some(())
}
