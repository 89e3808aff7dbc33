//! Multiplications.

use crate::encoding::a32::Conditional;
use crate::semantics::aarch32::core::{Arm, PC};
use crate::semantics::aarch32::multiply;

pub(super) fn decode(arm: &mut Arm, instruction: Conditional) -> Option<()> {
    match instruction {
        Conditional::Multiply {
            accumulate,
            s,
            rd,
            ra,
            rm,
            rn,
            ..
        } => {
            if [rd, rm, rn].contains(&PC) || accumulate && ra == PC {
                return None;
            }
            let addend = accumulate.then_some((ra, false));
            multiply::single(arm, s, rd, [rn, rm], addend);
        }
        Conditional::MultiplySubtract { rd, ra, rm, rn, .. } => {
            if [rd, ra, rm, rn].contains(&PC) {
                return None;
            }
            multiply::single(arm, false, rd, [rn, rm], Some((ra, true)));
        }
        Conditional::MultiplyAddBoth {
            high, low, rm, rn, ..
        } => {
            if [high, low, rm, rn].contains(&PC) || low == high {
                return None;
            }
            multiply::add_both(arm, [low, high], [rn, rm]);
        }
        Conditional::MultiplyLong {
            signed,
            accumulate,
            s,
            high,
            low,
            rm,
            rn,
            ..
        } => {
            if [high, low, rm, rn].contains(&PC) || low == high {
                return None;
            }
            multiply::long(arm, s, [low, high], [rn, rm], signed, accumulate);
        }
        Conditional::MultiplyHalves {
            op,
            rd,
            ra,
            rm,
            y,
            x,
            rn,
            ..
        } => {
            let factors = [rn, rm];
            if rd == PC || factors.contains(&PC) {
                return None;
            }
            match op {
                0 if ra != PC => multiply::halves(arm, rd, factors, [x, y], Some(ra)),
                1 if x => multiply::by_half(arm, rd, factors, y, None),
                1 if ra != PC => multiply::by_half(arm, rd, factors, y, Some(ra)),
                2 if ra != PC && ra != rd => {
                    multiply::halves_long(arm, [ra, rd], factors, [x, y]);
                }
                3 => multiply::halves(arm, rd, factors, [x, y], None),
                _ => return None,
            }
        }
        _ => return None,
    }
    Some(())
}
