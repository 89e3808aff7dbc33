//! Data processing of vectors and floating point (C4.1, "Data Processing -- Scalar Floating-Point
//! and Advanced SIMD"). FPCR.AH, which changes the sign of NaNs, is assumed to be 0.

mod across;
mod aes;
mod convert;
mod copy;
mod different;
mod form;
mod indexed;
mod permute;
mod same;
mod scalar_float;
mod shift;
mod two;

use super::word::{Word, to_x};
use crate::semantics::Location;
use crate::semantics::builder::Builder;
use form::Form;

pub(super) fn decode(builder: &mut Builder, word: Word) -> Option<()> {
    // FMOV to general registers, FCVTZS and the like; the rest of the scalar instructions.
    if word.bit(28) && !word.bit(30) {
        return scalar_float::decode(builder, word);
    }
    if word.bit(31) {
        // SHA512, SHA3, SM3 and SM4 write one vector.
        if word.field(24, 8) != 0xce {
            return None;
        }
        unknown(builder, word);
        return Some(());
    }
    let form = Form::of(word);
    if modelled(builder, word, form).is_none() {
        builder.restart();
        // All instructions of this group write one vector, except UMOV and SMOV.
        if copy::is_to_general(word) {
            builder.unknown(to_x(word.d()));
        } else {
            unknown(builder, word);
        }
    }
    Some(())
}

fn unknown(builder: &mut Builder, word: Word) {
    builder.unknown(Location::vector(word.d(), 0));
    builder.unknown(Location::vector(word.d(), 1));
}

/// Decodes an instruction; `None` if it is not modelled.
fn modelled(builder: &mut Builder, word: Word, form: Form) -> Option<()> {
    let (high, middle, low) = (word.bit(24), word.bit(21), word.field(10, 2));
    match (high, middle, low) {
        // The bits below `size`: three registers, or groups selected by bits 21:17.
        (false, true, 0b01 | 0b11) => same::decode(builder, word, form),
        (false, true, 0b00) if !form.scalar => different::decode(builder, word),
        (false, true, 0b10) => match word.field(17, 5) {
            0b10000 => two::decode(builder, word, form),
            0b10100 if !form.scalar => aes::decode(builder, word),
            0b11000 if form.scalar => across::pairwise(builder, word, form),
            0b11000 => across::decode(builder, word, form),
            _ => None,
        },
        (false, false, _) if word.bit(15) => None,
        (false, false, 0b01 | 0b11) if word.field(22, 2) == 0 => copy::decode(builder, word, form),
        (false, false, _) if !form.scalar => permute::decode(builder, word, form),
        (true, _, 0b01 | 0b11) if !word.bit(23) => {
            if word.field(19, 4) == 0 {
                (!form.scalar).then(|| copy::immediate(builder, word, form))?
            } else {
                shift::decode(builder, word, form)
            }
        }
        (true, _, 0b00 | 0b10) => indexed::decode(builder, word, form),
        _ => None,
    }
}
