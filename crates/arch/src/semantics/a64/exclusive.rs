//! Exclusive, ordered and atomic accesses.

use super::access::{Transfer, general};
use super::word::{Word, to_x, x, x_or_sp};
use crate::semantics::builder::Builder;
use crate::semantics::operation::{LaneOperation, Lanes};
use crate::semantics::{Location, Operand, Operation, Width};

/// Load and store exclusive, load acquire and store release, compare and swap.
pub(super) fn decode(builder: &mut Builder, word: Word) -> Option<()> {
    let size = 1 << word.field(30, 2);
    let (load, paired) = (word.bit(22), word.bit(21));
    let at = x_or_sp(word.n());
    match (word.bit(23), paired) {
        (false, false) if load => general(builder, Transfer::Load, size, word.d(), at),
        (false, false) => exclusive_store(builder, word, size, &[word.d()])?,
        (false, true) if word.bit(31) => {
            if load && word.d() == word.a() {
                return None;
            }
            if load {
                let second = builder.add(at, u64::from(size));
                general(builder, Transfer::Load, size, word.d(), at);
                general(builder, Transfer::Load, size, word.a(), second);
            } else {
                exclusive_store(builder, word, size, &[word.d(), word.a()])?;
            }
        }
        (false, true) if word.a() == 31 && (word.m() | word.d()) & 1 == 0 => {
            compare_and_swap(builder, word, 4 << word.field(30, 1), &[0, 1]);
        }
        (true, false) => {
            let transfer = if load {
                Transfer::Load
            } else {
                Transfer::Store
            };
            general(builder, transfer, size, word.d(), at);
        }
        (true, true) if word.a() == 31 => compare_and_swap(builder, word, size, &[0]),
        _ => return None,
    }
    Some(())
}

/// It is unknown whether the store happens; the status register becomes 0 if it does.
fn exclusive_store(builder: &mut Builder, word: Word, size: u8, registers: &[u8]) -> Option<()> {
    let status = word.m();
    if registers.contains(&status) || status == word.n() && status != 31 {
        // Constrained unpredictable.
        return None;
    }
    let anything = builder.op1(Operation::Unknown, Operand::ZERO);
    let failed = builder.op1(Operation::Extract { low: 0, count: 1 }, anything);
    let stored = builder.inverted(failed);
    for (offset, &register) in (0..).zip(registers) {
        let at = builder.add(x_or_sp(word.n()), offset * u64::from(size));
        builder.store_where(size, at, x(register), stored);
    }
    builder.copy(to_x(status), failed);
    Some(())
}

/// CAS and CASP: `parts` are the offsets of the registers from `Rs` and `Rt`.
fn compare_and_swap(builder: &mut Builder, word: Word, size: u8, parts: &[u8]) {
    let base = x_or_sp(word.n());
    let mut equal = None;
    let mut loaded = [Operand::ZERO; 2];
    let mut places = [Operand::ZERO; 2];
    for (index, &part) in parts.iter().enumerate() {
        places[index] = builder.add(base, u64::from(part) * u64::from(size));
        loaded[index] = builder.load(size, places[index]);
        let mut wanted = x((word.m() + part) % 32);
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
        builder.store_where(size, places[index], x((word.d() + part) % 32), equal);
    }
    for (index, &part) in parts.iter().enumerate() {
        builder.copy(to_x((word.m() + part) % 32), loaded[index]);
    }
}

/// LDADD and the like, SWP, LDAPR.
pub(super) fn atomic(builder: &mut Builder, word: Word) -> Option<()> {
    let (scale, opc) = (word.field(30, 2), word.field(12, 3));
    let (size, at) = (1 << scale, x_or_sp(word.n()));
    let lanes = [Lanes::B8, Lanes::H16, Lanes::S32, Lanes::D64][scale as usize];
    let operation = match (word.bit(15), opc) {
        (false, 0) => Operation::Add(Width::W64),
        (false, 1) => Operation::And,
        (false, 2) => Operation::Xor,
        (false, 3) => Operation::Or,
        (false, 4) => Operation::Lane(LaneOperation::MaxSigned, lanes),
        (false, 5) => Operation::Lane(LaneOperation::MinSigned, lanes),
        (false, 6) => Operation::Lane(LaneOperation::MaxUnsigned, lanes),
        (false, 7) => Operation::Lane(LaneOperation::MinUnsigned, lanes),
        (true, 0) => Operation::Copy,
        (true, 4) if word.bit(23) && !word.bit(22) && word.m() == 31 => {
            general(builder, Transfer::Load, size, word.d(), at);
            return Some(());
        }
        _ => return None,
    };
    let old = builder.load(size, at);
    let new = match operation {
        Operation::Copy => x(word.m()),
        Operation::And => {
            let kept = builder.op1(Operation::Not(Width::W64), x(word.m()));
            builder.op2(operation, old, kept)
        }
        // Only the lowest lane is stored.
        _ => builder.op2(operation, old, x(word.m())),
    };
    builder.store(size, at, new);
    let to = to_x(word.d());
    if to != Location::NOWHERE {
        builder.copy(to, old);
    }
    Some(())
}
