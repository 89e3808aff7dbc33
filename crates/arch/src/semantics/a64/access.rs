//! Accesses of one register, and the base registers that they write.

use super::arithmetic::set_cut;
use super::word::{to_x, to_x_or_sp, v, x, x_or_sp};
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
    pub(super) const fn of(opc: u8) -> Self {
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

/// An access at an offset from the base register, in one of the addressing modes: 1 for post-index, 3
/// for pre-index, else without write-back.
pub(super) fn indexed(
    builder: &mut Builder,
    mode: u8,
    rn: u8,
    offset: u64,
    access: impl FnOnce(&mut Builder, Operand),
) {
    match mode {
        1 => {
            access(builder, x_or_sp(rn));
            write_back(builder, rn, Operand::Constant(offset));
        }
        3 => {
            write_back(builder, rn, Operand::Constant(offset));
            access(builder, x_or_sp(rn));
        }
        _ => {
            let at = builder.add(x_or_sp(rn), offset);
            access(builder, at);
        }
    }
}

/// Adds `offset` to the base register.
pub(super) fn write_back(builder: &mut Builder, rn: u8, offset: Operand) {
    let base = to_x_or_sp(rn);
    let operation = Operation::Add(Width::W64);
    builder.set2(base, operation, Operand::Location(base), offset);
}
