//! Accesses of one register, and the base registers that they write.

use super::arithmetic::set_cut;
use super::word::{Word, to_x, to_x_or_sp, v, x, x_or_sp};
use crate::semantics::builder::Builder;
use crate::semantics::{Location, Operand, Operation, Width};

/// The direction of a transfer between a register and memory.
#[derive(Clone, Copy)]
pub(super) enum Transfer {
    Store,
    Load,
    LoadSigned(Width),
}

impl Transfer {
    /// The direction from `opc` of an allocated encoding.
    pub(super) const fn of(opc: u32) -> Self {
        match opc {
            0 => Self::Store,
            1 => Self::Load,
            2 => Self::LoadSigned(Width::W64),
            _ => Self::LoadSigned(Width::W32),
        }
    }
}

/// Transfers `size` bytes between a general register and memory at an address.
pub(super) fn general(
    builder: &mut Builder,
    transfer: Transfer,
    size: u8,
    register: u8,
    at: Operand,
) {
    let (to, count) = (to_x(register), size * 8);
    match transfer {
        Transfer::Store => builder.store(size, at, x(register)),
        _ if to == Location::NOWHERE => {
            builder.load(size, at);
        }
        Transfer::Load => builder.load_to(to, size, at),
        Transfer::LoadSigned(width) => {
            let value = builder.load(size, at);
            let signed = Operation::ExtractSigned { low: 0, count };
            let operands = [value, Operand::ZERO, Operand::ZERO];
            set_cut(builder, width, to, signed, operands);
        }
    }
}

/// Transfers `size` bytes between a vector register and memory at an address; a load clears the
/// rest of the register.
pub(super) fn vector(builder: &mut Builder, store: bool, size: u8, register: u8, at: Operand) {
    let (low, high) = (Location::vector(register, 0), Location::vector(register, 1));
    let part = size.min(8);
    if store {
        builder.store(part, at, v(register, 0));
    } else {
        builder.load_to(low, part, at);
    }
    if size == 16 {
        let at = builder.add(at, 8);
        if store {
            builder.store(8, at, v(register, 1));
        } else {
            builder.load_to(high, 8, at);
        }
    } else if !store {
        builder.copy(high, Operand::ZERO);
    }
}

/// Adds `offset` to the base register, after the access.
pub(super) fn write_back(builder: &mut Builder, word: Word, offset: Operand) {
    let base = to_x_or_sp(word.n());
    builder.set2(
        base,
        Operation::Add(Width::W64),
        Operand::Location(base),
        offset,
    );
}

/// Adds to the base register, then accesses memory at the new address.
pub(super) fn pre_indexed(
    builder: &mut Builder,
    word: Word,
    offset: u64,
    access: impl FnOnce(&mut Builder, Operand),
) {
    write_back(builder, word, Operand::Constant(offset));
    access(builder, x_or_sp(word.n()));
}

/// Whether the register with this number is the base: with write-back, that is constrained
/// unpredictable (K1.2.21).
pub(super) const fn is_base(word: Word, register: u8) -> bool {
    !word.bit(26) && word.n() == register && register != 31
}
