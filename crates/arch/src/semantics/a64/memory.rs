//! Loads and stores (C4.1, "Loads and Stores"): the groups, and the accesses of one register.

use super::access::{Transfer, general, is_base, pre_indexed, vector, write_back};
use super::arithmetic::{extended, with_unknown_code};
use super::word::{Word, to_x_or_sp, x, x_or_sp};
use super::{exclusive, pair, structure, tag};
use crate::semantics::builder::Builder;
use crate::semantics::{Operand, Operation, Width};

pub(super) fn decode(builder: &mut Builder, word: Word, address: u64) -> Option<()> {
    let vector = word.bit(26);
    match (word.field(28, 2), word.bit(24)) {
        (0, false) if !vector => exclusive::decode(builder, word),
        (0, _) if vector => structure::decode(builder, word),
        (1, false) => literal(builder, word, address),
        (1, true) if word.bit(21) => tag::decode(builder, word),
        (1, true) if !vector && word.field(10, 2) == 0 => {
            // STLUR, LDAPUR.
            let transfer = match (word.field(30, 2), word.field(22, 2)) {
                (3, 2 | 3) | (2, 3) => return None,
                (_, opc) => Transfer::of(opc),
            };
            let at = builder.add(x_or_sp(word.n()), word.signed(12, 9).cast_unsigned());
            general(builder, transfer, 1 << word.field(30, 2), word.d(), at);
            Some(())
        }
        (2, _) => pair::decode(builder, word),
        (3, false) if !word.bit(21) => unscaled(builder, word),
        (3, false) => match word.field(10, 2) {
            0 if !vector => exclusive::atomic(builder, word),
            2 => register_offset(builder, word),
            1 | 3 if !vector && word.field(30, 2) == 3 => authenticated(builder, word),
            _ => None,
        },
        (3, true) => {
            let access = Access::of(word)?;
            let offset = u64::from(word.field(10, 12)) * u64::from(access.size());
            let at = builder.add(x_or_sp(word.n()), offset);
            access.perform(builder, word.d(), at);
            Some(())
        }
        _ => None,
    }
}

/// An access of one register, from the fields `size`, `V` and `opc`.
enum Access {
    General(Transfer, u8),
    Vector { store: bool, size: u8 },
    Prefetch,
}

impl Access {
    fn of(word: Word) -> Option<Self> {
        let (size, opc) = (word.field(30, 2), word.field(22, 2));
        Some(match (word.bit(26), size, opc) {
            (false, 3, 2) => Self::Prefetch,
            (false, 3, 3) | (false, 2, 3) => return None,
            (false, ..) => Self::General(Transfer::of(opc), 1 << size),
            (true, _, 0 | 1) => Self::Vector {
                store: opc == 0,
                size: 1 << size,
            },
            (true, 0, _) => Self::Vector {
                store: opc == 2,
                size: 16,
            },
            _ => return None,
        })
    }

    const fn size(&self) -> u8 {
        match self {
            Self::General(_, size) | Self::Vector { size, .. } => *size,
            Self::Prefetch => 8,
        }
    }

    fn perform(&self, builder: &mut Builder, register: u8, at: Operand) {
        match *self {
            Self::General(transfer, size) => general(builder, transfer, size, register, at),
            Self::Vector { store, size } => self::vector(builder, store, size, register, at),
            Self::Prefetch => {}
        }
    }
}

fn literal(builder: &mut Builder, word: Word, address: u64) -> Option<()> {
    let at = address.wrapping_add_signed(word.signed(5, 19) << 2);
    let at = Operand::Constant(at);
    match (word.bit(26), word.field(30, 2)) {
        (false, 0) => general(builder, Transfer::Load, 4, word.d(), at),
        (false, 1) => general(builder, Transfer::Load, 8, word.d(), at),
        (false, 2) => {
            let transfer = Transfer::LoadSigned(Width::W64);
            general(builder, transfer, 4, word.d(), at);
        }
        (false, _) => {}
        (true, 3) => return None,
        (true, opc) => vector(builder, false, 4 << opc, word.d(), at),
    }
    Some(())
}

/// With a signed 9-bit offset: LDUR and STUR, LDTR and STTR, post-index, pre-index.
fn unscaled(builder: &mut Builder, word: Word) -> Option<()> {
    let access = Access::of(word)?;
    let offset = word.signed(12, 9).cast_unsigned();
    let (base, mode) = (x_or_sp(word.n()), word.field(10, 2));
    let (unprivileged, prefetch) = (mode == 2, matches!(access, Access::Prefetch));
    if unprivileged && word.bit(26) || mode != 0 && prefetch {
        return None;
    }
    if mode & 1 == 1 && is_base(word, word.d()) {
        return None;
    }
    match mode {
        0 | 2 => {
            let at = builder.add(base, offset);
            access.perform(builder, word.d(), at);
        }
        1 => {
            access.perform(builder, word.d(), base);
            write_back(builder, word, Operand::Constant(offset));
        }
        _ => pre_indexed(builder, word, offset, |builder, at| {
            access.perform(builder, word.d(), at);
        }),
    }
    Some(())
}

fn register_offset(builder: &mut Builder, word: Word) -> Option<()> {
    let access = Access::of(word)?;
    let option = word.field(13, 3);
    if option & 2 == 0 {
        return None;
    }
    if matches!(access, Access::Prefetch) {
        return Some(());
    }
    let amount = if word.bit(12) {
        u32::from(access.size()).ilog2()
    } else {
        0
    };
    let offset = extended(builder, option, x(word.m()), amount);
    let at = builder.op2(Operation::Add(Width::W64), x_or_sp(word.n()), offset);
    access.perform(builder, word.d(), at);
    Some(())
}

/// LDRAA, LDRAB.
fn authenticated(builder: &mut Builder, word: Word) -> Option<()> {
    if word.bit(11) && is_base(word, word.d()) {
        return None;
    }
    let offset = (word.signed(22, 1) << 9 | i64::from(word.field(12, 9))) << 3;
    let base = with_unknown_code(builder, x_or_sp(word.n()));
    let at = builder.add(base, offset.cast_unsigned());
    if word.bit(11) {
        builder.copy(to_x_or_sp(word.n()), at);
    }
    general(builder, Transfer::Load, 8, word.d(), at);
    Some(())
}
