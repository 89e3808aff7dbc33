//! Media instructions.

use super::word::Word;
use crate::semantics::Location;
use crate::semantics::aarch32::core::{Arm, PC, constant};
use crate::semantics::aarch32::{media, multiply, shift};

pub(super) fn decode(arm: &mut Arm, word: Word) -> Option<()> {
    let (op1, op2) = (word.field(20, 5), word.field(5, 3));
    let (n, d, m) = (word.r(16), word.r(12), word.r(0));
    match (op1, op2) {
        (0b00000..=0b00111, _) if n != PC && d != PC && m != PC => {
            media::parallel(arm, op1 & 7, op2, d, [n, m])
        }
        (0b01000..=0b01111, _) if d != PC && m != PC => packed(arm, word),
        (0b10000..=0b10111, _) if n != PC && m != PC && word.r(8) != PC => products(arm, word),
        // USADA8, USAD8.
        (0b11000, 0) if n != PC => {
            arm.unknown(Location::general(n));
            Some(())
        }
        (0b11010 | 0b11011 | 0b11110 | 0b11111, 0b010 | 0b110) if d != PC && m != PC => {
            let count = word.field(16, 5) + 1;
            media::extract(arm, d, m, word.field(7, 5), count, !word.bit(22))
        }
        (0b11100 | 0b11101, 0b000 | 0b100) if d != PC => {
            let from = if m == PC { constant(0) } else { arm.r(m) };
            media::insert(arm, d, from, word.field(7, 5), word.field(16, 5))
        }
        _ => None,
    }
}

fn packed(arm: &mut Arm, word: Word) -> Option<()> {
    let (op1, op2) = (word.field(20, 3), word.field(5, 3));
    let (n, d, m) = (word.r(16), word.r(12), word.r(0));
    let addend = (n != PC).then_some(n);
    match (op1, op2) {
        (0b000, _) if op2 & 1 == 0 && n != PC => {
            let (low, high) = (arm.r(n), arm.r(m));
            let kind = if word.bit(6) { 2 } else { 0 };
            let (shifted, _) = shift::by_immediate(arm, kind, high, word.field(7, 5), false);
            if word.bit(6) {
                media::pack(arm, d, shifted, low);
            } else {
                media::pack(arm, d, low, shifted);
            }
        }
        (0b000, 0b101) if n != PC && word.field(8, 4) == 15 => media::select(arm, d, [n, m]),
        (0b010 | 0b011 | 0b110 | 0b111, _) if op2 & 1 == 0 => {
            let signed = !word.bit(22);
            let kind = if word.bit(6) { 2 } else { 0 };
            let value = arm.r(m);
            let (value, _) = shift::by_immediate(arm, kind, value, word.field(7, 5), false);
            let bits = word.field(16, 5) + u32::from(signed);
            media::saturate(arm, d, value, bits, signed);
        }
        // SSAT16, USAT16.
        (0b010 | 0b110, 0b001) => {
            arm.unknown(Location::general(d));
            arm.unknown(Location::Q);
        }
        (0b011, 0b001) => media::reverse(arm, 0, d, m),
        (0b011, 0b101) => media::reverse(arm, 1, d, m),
        (0b111, 0b001) => media::reverse(arm, 2, d, m),
        (0b111, 0b101) => media::reverse(arm, 3, d, m),
        (_, 0b011) => {
            let (signed, rotation) = (!word.bit(22), 8 * word.field(10, 2));
            match op1 & 3 {
                0 => media::extend_pair(arm, d, addend, m, rotation, signed),
                2 => media::extend(arm, d, addend, m, rotation, 8, signed),
                3 => media::extend(arm, d, addend, m, rotation, 16, signed),
                _ => return None,
            }
        }
        _ => return None,
    }
    Some(())
}

fn products(arm: &mut Arm, word: Word) -> Option<()> {
    let (op1, op2) = (word.field(20, 3), word.field(5, 3));
    let (d, a) = (word.r(16), word.r(12));
    let factors = [word.r(0), word.r(8)];
    match (op1, op2) {
        // SMLAD, SMUAD, SMLSD, SMUSD.
        (0b000, 0..=3) => {
            arm.unknown(Location::general(d));
            arm.unknown(Location::Q);
        }
        (0b001 | 0b011, 0) => multiply::divide(arm, op1 == 1, d, factors),
        // SMLALD, SMLSLD.
        (0b100, 0..=3) if a != PC => {
            arm.unknown(Location::general(d));
            arm.unknown(Location::general(a));
        }
        (0b101, 0b000 | 0b001) => {
            let addend = (a != PC).then_some((a, false));
            multiply::upper(arm, d, factors, addend, op2 & 1 == 1);
        }
        (0b101, 0b110 | 0b111) if a != PC => {
            multiply::upper(arm, d, factors, Some((a, true)), op2 & 1 == 1);
        }
        _ => return None,
    }
    Some(())
}
