//! LD1 to LD4 and ST1 to ST4, of whole registers and of single elements (C4.1, "Advanced SIMD
//! load/store").

use super::word::{Word, to_x_or_sp, v, x, x_or_sp};
use crate::semantics::builder::Builder;
use crate::semantics::{Location, Operand, Operation, Width};

pub(super) fn decode(builder: &mut Builder, word: Word) -> Option<()> {
    let post = word.bit(23);
    if word.bit(31) || !post && word.m() != 0 {
        return None;
    }
    let bytes = if word.bit(24) {
        single(builder, word)?
    } else {
        if word.bit(21) {
            return None;
        }
        multiple(builder, word)?
    };
    if post {
        let base = to_x_or_sp(word.n());
        let offset = match word.m() {
            31 => Operand::Constant(bytes),
            number => x(number),
        };
        builder.set2(
            base,
            Operation::Add(Width::W64),
            Operand::Location(base),
            offset,
        );
    }
    Some(())
}

/// The number of registers selected by `opcode`, and the number of registers over which consecutive
/// elements are interleaved.
const fn registers(opcode: u32) -> Option<(u8, u8)> {
    Some(match opcode {
        0b0000 => (4, 4),
        0b0010 => (4, 1),
        0b0100 => (3, 3),
        0b0110 => (3, 1),
        0b0111 => (1, 1),
        0b1000 => (2, 2),
        0b1010 => (2, 1),
        _ => return None,
    })
}

/// Transfers whole registers. Memory is accessed in pieces of 8 bytes. Returns the number of bytes.
fn multiple(builder: &mut Builder, word: Word) -> Option<u64> {
    let (count, interleaved) = registers(word.field(12, 4))?;
    let (halves, load) = (if word.bit(30) { 2 } else { 1 }, word.bit(22));
    let size = 8u8 << word.field(10, 2);
    if interleaved > 1 && size == 64 && halves == 1 {
        return None;
    }
    let base = x_or_sp(word.n());
    let pieces = count * halves;
    let register = |index: u8| (word.d() + index) % 32;
    let mut memory = [Operand::ZERO; 8];
    if load {
        for piece in 0..pieces {
            let at = builder.add(base, 8 * u64::from(piece));
            memory[usize::from(piece)] = builder.load(8, at);
        }
    }
    // Assembles each piece of memory, or each half of a register, lane by lane.
    let lanes = 64 / size;
    for target in 0..pieces {
        let to = if load {
            Location::vector(register(target / halves), target % halves)
        } else {
            builder.temporary()
        };
        let part = builder.temporary();
        for lane in 0..lanes {
            let (from, from_lane) = if load {
                // Element `lane` of the half is element `element` of memory.
                let in_register = target % halves * lanes + lane;
                let element = if interleaved == 1 {
                    target / halves * (halves * lanes) + in_register
                } else {
                    in_register * interleaved + target / halves
                };
                (memory[usize::from(element / lanes)], element % lanes)
            } else {
                let element = target * lanes + lane;
                let (index, in_register) = if interleaved == 1 {
                    (element / (halves * lanes), element % (halves * lanes))
                } else {
                    (element % interleaved, element / interleaved)
                };
                (v(register(index), in_register / lanes), in_register % lanes)
            };
            if interleaved == 1 {
                builder.copy(to, from);
                break;
            }
            let extract = Operation::Extract {
                low: from_lane * size,
                count: size,
            };
            if lane == 0 {
                builder.set1(to, extract, from);
            } else {
                builder.set1(part, extract, from);
                let insert = Operation::Insert {
                    low: lane * size,
                    count: size,
                };
                builder.set2(to, insert, Operand::Location(to), Operand::Location(part));
            }
        }
        if !load {
            let at = builder.add(base, 8 * u64::from(target));
            builder.store(8, at, Operand::Location(to));
        } else if halves == 1 {
            builder.copy(Location::vector(register(target), 1), Operand::ZERO);
        }
    }
    Some(8 * u64::from(pieces))
}

/// Transfers one element of each register, or replicates one element to all lanes. Returns the
/// number of bytes.
fn single(builder: &mut Builder, word: Word) -> Option<u64> {
    let (opcode, s, size, q) = (
        word.field(13, 3),
        word.field(12, 1),
        word.field(10, 2),
        word.field(30, 1),
    );
    let count = ((opcode & 1) << 1 | word.field(21, 1)) as u8 + 1;
    let (scale, index) = match (opcode >> 1, size) {
        (0, _) => (0, q << 3 | s << 2 | size),
        (1, 0 | 2) => (1, q << 2 | s << 1 | size >> 1),
        (2, 0) => (2, q << 1 | s),
        (2, 1) if s == 0 => (3, q),
        (3, _) if s == 0 && word.bit(22) => (size, 0),
        _ => return None,
    };
    let (bytes, bits) = (1u8 << scale, 8u8 << scale);
    let (low, half) = ((index as u8 * bits) % 64, index as u8 * bytes / 8);
    for register in 0..count {
        let at = builder.add(x_or_sp(word.n()), u64::from(register * bytes));
        let register = (word.d() + register) % 32;
        if opcode >> 1 == 3 {
            let element = builder.load(bytes, at);
            // A one in the lowest bit of each lane.
            let ones = Operand::Constant(u64::MAX / (u64::MAX >> (64 - bits)));
            let to = Location::vector(register, 0);
            builder.set2(to, Operation::Multiply(Width::W64), element, ones);
            let high = if q == 1 {
                Operand::Location(to)
            } else {
                Operand::ZERO
            };
            builder.copy(Location::vector(register, 1), high);
        } else if word.bit(22) {
            let element = builder.load(bytes, at);
            let to = Location::vector(register, half);
            let insert = Operation::Insert { low, count: bits };
            builder.set2(to, insert, Operand::Location(to), element);
        } else {
            let mut element = v(register, half);
            if low != 0 {
                element = builder.op1(Operation::Extract { low, count: bits }, element);
            }
            builder.store(bytes, at, element);
        }
    }
    Some(u64::from(count * bytes))
}
