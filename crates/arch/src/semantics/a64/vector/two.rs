//! Two registers, miscellaneous.

use super::super::word::Word;
use super::convert;
use super::form::{Form, d, float, in_lanes, lane, n, shuffled, shuffled_lanes, signs, widened};
use crate::semantics::builder::Builder;
use crate::semantics::operation::{FloatOperation, LaneOperation, Lanes};
use crate::semantics::{Location, Operand, Operation, Width};

pub(super) fn decode(builder: &mut Builder, word: Word, form: Form) -> Option<()> {
    let (unsigned, opcode, size) = (word.bit(29), word.field(12, 5), word.field(22, 2));
    match (unsigned, opcode) {
        (_, 0b00000 | 0b00001) if !form.scalar => reversed(builder, word, form)?,
        // SADDLP, UADDLP, SADALP, UADALP.
        (_, 0b00010 | 0b00110) if !form.scalar => added_pairs(builder, word, form)?,
        // CLZ
        (true, 0b00100) if !form.scalar && size != 3 => {
            unary(
                builder,
                word,
                form,
                LaneOperation::CountLeadingZeros,
                form.lanes(word)?,
            );
        }
        // CNT, NOT, RBIT.
        (false, 0b00101) if size == 0 => {
            not_scalar(form)?;
            unary(builder, word, form, LaneOperation::CountOnes, Lanes::B8);
        }
        (true, 0b00101) if size == 0 && !form.scalar => {
            form.by_halves(builder, word, |builder, half| {
                builder.op1(Operation::Not(Width::W64), n(word, half))
            });
        }
        (true, 0b00101) if size == 1 => {
            not_scalar(form)?;
            unary(builder, word, form, LaneOperation::ReverseBits, Lanes::B8);
        }
        // Comparisons with zero.
        (_, 0b01000 | 0b01001) | (false, 0b01010) => {
            let lanes = form.lanes(word)?;
            let (operation, swapped) = match (unsigned, opcode) {
                (false, 0b01000) => (LaneOperation::GreaterSigned, false),
                (true, 0b01000) => (LaneOperation::GreaterEqualSigned, false),
                (false, 0b01001) => (LaneOperation::Equal, false),
                (true, _) => (LaneOperation::GreaterEqualSigned, true),
                (false, _) => (LaneOperation::GreaterSigned, true),
            };
            form.by_halves(builder, word, |builder, half| {
                let (a, b) = (n(word, half), Operand::ZERO);
                let (a, b) = if swapped { (b, a) } else { (a, b) };
                lane(builder, operation, lanes, a, b)
            });
        }
        // ABS, NEG.
        (_, 0b01011) => {
            let lanes = form.lanes(word)?;
            form.by_halves(builder, word, |builder, half| {
                let from = n(word, half);
                let negative = lane(builder, LaneOperation::Subtract, lanes, Operand::ZERO, from);
                if unsigned {
                    negative
                } else {
                    lane(builder, LaneOperation::MaxSigned, lanes, from, negative)
                }
            });
        }
        // XTN
        (false, 0b10010) if !form.scalar && size != 3 => {
            narrowed_to(builder, word, super::form::lanes(size), |_, a, b| (a, b));
        }
        // SHLL
        (true, 0b10011) if !form.scalar && size != 3 => {
            let (lanes, from) = (super::form::lanes(size), n(word, word.field(30, 1) as u8));
            let whole = Form {
                scalar: false,
                full: true,
            };
            whole.across_halves(builder, word, |builder, half| {
                let (value, wide) = widened(builder, lanes, false, from, half);
                let amount = in_lanes(wide, i64::from(lanes.bits()));
                lane(builder, LaneOperation::Shift, wide, value, amount)
            });
        }
        _ => return floating(builder, word, form),
    }
    Some(())
}

const fn not_scalar(form: Form) -> Option<()> {
    if form.scalar { None } else { Some(()) }
}

fn unary(builder: &mut Builder, word: Word, form: Form, operation: LaneOperation, lanes: Lanes) {
    form.by_halves(builder, word, |builder, half| {
        lane(builder, operation, lanes, n(word, half), Operand::ZERO)
    });
}

/// REV64, REV32, REV16.
fn reversed(builder: &mut Builder, word: Word, form: Form) -> Option<()> {
    let lane = 1 << word.field(22, 2);
    let group = match (word.bit(29), word.bit(12)) {
        (false, false) => 8,
        (true, false) => 4,
        (false, true) => 2,
        (true, true) => return None,
    };
    if lane >= group {
        return None;
    }
    form.by_halves(builder, word, |builder, half| {
        let bytes = std::array::from_fn(|index| {
            let index = index as u8;
            let (first, within) = (index / group * group, index % group);
            first + (group - lane - within / lane * lane) + within % lane
        });
        shuffled(builder, n(word, half), Operand::ZERO, bytes)
    });
    Some(())
}

fn added_pairs(builder: &mut Builder, word: Word, form: Form) -> Option<()> {
    let (size, signed) = (word.field(22, 2), !word.bit(29));
    if size == 3 {
        return None;
    }
    let (narrow, wide) = (super::form::lanes(size), super::form::lanes(size + 1));
    let bits = i64::from(narrow.bits());
    let (up, down) = (in_lanes(wide, bits), in_lanes(wide, -bits));
    let to_right = if signed {
        LaneOperation::ShiftSigned
    } else {
        LaneOperation::Shift
    };
    form.by_halves(builder, word, |builder, half| {
        let odd = lane(builder, to_right, wide, n(word, half), down);
        let even = lane(builder, LaneOperation::Shift, wide, n(word, half), up);
        let even = lane(builder, to_right, wide, even, down);
        let sum = lane(builder, LaneOperation::Add, wide, even, odd);
        if word.bit(14) {
            lane(builder, LaneOperation::Add, wide, d(word, half), sum)
        } else {
            sum
        }
    });
    Some(())
}

/// Narrows 128 bits, first changed by `change`, to lanes of half the width. The result is the lower
/// half of the destination, or with Q its upper half, in which case the lower half stays.
pub(super) fn narrowed_to(
    builder: &mut Builder,
    word: Word,
    lanes: Lanes,
    change: impl Fn(&mut Builder, Operand, Operand) -> (Operand, Operand),
) {
    let (a, b) = change(builder, n(word, 0), n(word, 1));
    let narrow = shuffled_lanes(builder, lanes, a, b, |index| 2 * index);
    if word.bit(30) {
        builder.move_to(Location::vector(word.d(), 1), narrow);
    } else {
        builder.move_to(Location::vector(word.d(), 0), narrow);
        builder.copy(Location::vector(word.d(), 1), Operand::ZERO);
    }
}

fn floating(builder: &mut Builder, word: Word, form: Form) -> Option<()> {
    use FloatOperation as F;
    let (unsigned, upper, opcode) = (word.bit(29), word.bit(23), word.field(12, 5));
    if let 0b10110 | 0b10111 = opcode {
        return convert::precision(builder, word, form);
    }
    let shape = form.shape(word)?;
    let (operation, swapped) = match (unsigned, upper, opcode) {
        (false, true, 0b01100) => (F::Greater, false),
        (true, true, 0b01100) => (F::GreaterEqual, false),
        (false, true, 0b01101) => (F::Equal, false),
        (true, true, 0b01101) => (F::GreaterEqual, true),
        (false, true, 0b01110) => (F::Greater, true),
        (true, true, 0b11111) if !form.scalar => (F::SquareRoot, false),
        (_, true, 0b01111) if !form.scalar => {
            let signs = signs(shape);
            let (operation, mask) = if unsigned {
                (Operation::Xor, signs)
            } else {
                (Operation::And, !signs)
            };
            form.by_halves(builder, word, |builder, half| {
                builder.op2(operation, n(word, half), Operand::Constant(mask))
            });
            return Some(());
        }
        (_, _, 0b11000 | 0b11001) if !form.scalar => (F::Round(convert::rounding(word)?), false),
        (_, _, 0b11010..=0b11101) => return convert::integers(builder, word, form, shape),
        _ => return None,
    };
    form.by_halves(builder, word, |builder, half| {
        let from = n(word, half);
        let (a, b) = if swapped {
            (Operand::ZERO, from)
        } else {
            (from, Operand::ZERO)
        };
        float(builder, operation, shape, a, b)
    });
    Some(())
}
