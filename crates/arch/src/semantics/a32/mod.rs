//! A32 (Arm ARM, DDI 0487, F4.1).

mod data;
mod media;
mod memory;
mod miscellaneous;
mod word;

use super::Semantics;
use super::aarch32::core::{Arm, LR};
use super::aarch32::{float, neon};
use super::{Control, Location, Operand};
use word::Word;

/// Returns what the instruction at `address` does. After an encoding that is not modelled,
/// everything is unknown.
#[must_use]
pub fn decode(word: u32, address: u64) -> Semantics {
    let word = Word(word);
    let condition = word.field(28, 4) as u8;
    let mut arm = Arm::new(address, 4, 8, condition);
    let decoded = if condition == 15 {
        unconditional(&mut arm, word)
    } else {
        conditional(&mut arm, word)
    };
    if decoded.is_none() {
        arm.b.everything_unknown();
    }
    arm.finish()
}

fn conditional(arm: &mut Arm, word: Word) -> Option<()> {
    match (word.field(25, 3), word.bit(4)) {
        (0b000 | 0b001, _) => data::decode(arm, word),
        (0b010, _) | (0b011, false) => memory::word_or_byte(arm, word),
        (0b011, true) => media::decode(arm, word),
        (0b100, _) => memory::multiple(arm, word),
        (0b101, _) => {
            branch(arm, word);
            Some(())
        }
        (0b110, _) => float::transfer(arm, word.0),
        _ if word.bit(24) => {
            // SVC
            if !arm.always() {
                return None;
            }
            arm.b.control = Control::SystemCall;
            Some(())
        }
        _ => float::decode(arm, word.0),
    }
}

fn offset(word: Word) -> u32 {
    ((word.0 << 8).cast_signed() >> 6).cast_unsigned()
}

/// B, BL.
fn branch(arm: &mut Arm, word: Word) {
    let target = arm.pc.wrapping_add(offset(word));
    if word.bit(24) {
        let link = arm.address.wrapping_add(4);
        arm.write(LR, Operand::Constant(u64::from(link)));
    }
    arm.jump(target);
}

fn unconditional(arm: &mut Arm, word: Word) -> Option<()> {
    match word.field(25, 3) {
        // BLX to T32.
        0b101 => {
            let target = arm.pc.wrapping_add(offset(word)) | word.field(24, 1) << 1;
            let link = arm.address.wrapping_add(4);
            arm.write(LR, Operand::Constant(u64::from(link)));
            arm.jump(target);
            Some(())
        }
        0b001 => neon::data(arm, word.0),
        0b111 => float::unconditional(arm, word.0),
        // Loads and stores of elements; PLI, PLD, barriers, CLREX.
        0b010 | 0b011 if !word.bit(24) && !word.bit(20) => neon::elements(arm, word.0),
        0b010 | 0b011 => {
            let prefetch = word.field(20, 2) == 1;
            let barrier = word.field(20, 8) == 0x57;
            (prefetch || barrier).then_some(())
        }
        // CPS: the mode may change, and with it the banked registers. SETEND.
        0b000 if word.field(20, 5) == 0x10 && !word.bit(5) => {
            if word.bit(17) {
                arm.unknown(Location::general(13));
                arm.unknown(Location::general(LR));
            }
            (!word.bit(16)).then_some(())
        }
        _ => None,
    }
}
