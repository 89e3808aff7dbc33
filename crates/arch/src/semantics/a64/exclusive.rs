//! Exclusive and atomic accesses.

use super::word::{to_x, x, x_or_sp};
use crate::semantics::builder::Builder;
use crate::semantics::operation::{LaneOperation, Lanes};
use crate::semantics::{Location, Operand, Operation, Width};

/// It is unknown whether the store happens; the status register becomes 0 if it does.
pub(super) fn store(
    builder: &mut Builder,
    size: u8,
    status: u8,
    rn: u8,
    registers: &[u8],
) -> Option<()> {
    if registers.contains(&status) || status == rn && status != 31 {
        // Constrained unpredictable.
        return None;
    }
    let anything = builder.op1(Operation::Unknown, Operand::ZERO);
    let failed = builder.op1(Operation::Extract { low: 0, count: 1 }, anything);
    let stored = builder.inverted(failed);
    for (offset, &register) in (0..).zip(registers) {
        let at = builder.add(x_or_sp(rn), offset * u64::from(size));
        builder.store_where(size, at, x(register), stored);
    }
    builder.copy(to_x(status), failed);
    Some(())
}

/// CAS and CASP: `parts` are the offsets of the registers from `rs` and `rt`.
pub(super) fn compare_and_swap(
    builder: &mut Builder,
    size: u8,
    base: Operand,
    [rs, rt]: [u8; 2],
    parts: &[u8],
) {
    let mut equal = None;
    let mut loaded = [Operand::ZERO; 2];
    let mut places = [Operand::ZERO; 2];
    for (index, &part) in parts.iter().enumerate() {
        places[index] = builder.add(base, u64::from(part) * u64::from(size));
        loaded[index] = builder.load(size, places[index]);
        let mut wanted = x((rs + part) % 32);
        if size < 8 {
            let count = size * 8;
            wanted = builder.op1(Operation::Extract { low: 0, count }, wanted);
        }
        let same = builder.op2(Operation::Equal, loaded[index], wanted);
        equal = Some(match equal {
            None => same,
            Some(others) => builder.op2(Operation::And, others, same),
        });
    }
    let equal = equal.unwrap_or(Operand::ZERO);
    for (index, &part) in parts.iter().enumerate() {
        builder.store_where(size, places[index], x((rt + part) % 32), equal);
    }
    for (index, &part) in parts.iter().enumerate() {
        builder.copy(to_x((rs + part) % 32), loaded[index]);
    }
}

/// LDADD and the like, SWP.
pub(super) fn atomic(
    builder: &mut Builder,
    scale: u8,
    operation: (bool, u8),
    at: Operand,
    [rs, rt]: [u8; 2],
) -> Option<()> {
    let size = 1 << scale;
    let lanes = [Lanes::B8, Lanes::H16, Lanes::S32, Lanes::D64][usize::from(scale)];
    let operation = match operation {
        (false, 0) => Operation::Add(Width::W64),
        (false, 1) => Operation::And,
        (false, 2) => Operation::Xor,
        (false, 3) => Operation::Or,
        (false, 4) => Operation::Lane(LaneOperation::MaxSigned, lanes),
        (false, 5) => Operation::Lane(LaneOperation::MinSigned, lanes),
        (false, 6) => Operation::Lane(LaneOperation::MaxUnsigned, lanes),
        (false, 7) => Operation::Lane(LaneOperation::MinUnsigned, lanes),
        (true, 0) => Operation::Copy,
        _ => return None,
    };
    let old = builder.load(size, at);
    let new = match operation {
        Operation::Copy => x(rs),
        Operation::And => {
            let kept = builder.op1(Operation::Not(Width::W64), x(rs));
            builder.op2(operation, old, kept)
        }
        // Only the lowest lane is stored.
        _ => builder.op2(operation, old, x(rs)),
    };
    builder.store(size, at, new);
    let to = to_x(rt);
    if to != Location::NOWHERE {
        builder.copy(to, old);
    }
    Some(())
}
