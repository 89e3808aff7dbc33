//! Loads and stores of pairs of registers.

use super::access::{Transfer, general, is_base, pre_indexed, vector, write_back};
use super::word::{Word, x_or_sp};
use crate::semantics::builder::Builder;
use crate::semantics::{Operand, Width};

/// The transfer of each of the two registers.
#[derive(Clone, Copy)]
enum Pair {
    General(Transfer, u8),
    Vector { store: bool, size: u8 },
}

pub(super) fn decode(builder: &mut Builder, word: Word) -> Option<()> {
    let (opc, mode, load) = (word.field(30, 2), word.field(23, 2), word.bit(22));
    let transfer = if load {
        Transfer::Load
    } else {
        Transfer::Store
    };
    let mut scale = None;
    let pair = match (word.bit(26), opc) {
        (true, 3) | (false, 3) => return None,
        (true, _) => Pair::Vector {
            store: !load,
            size: 4 << opc,
        },
        (false, 0) => Pair::General(transfer, 4),
        (false, 1) if mode == 0 => return None,
        // LDPSW
        (false, 1) if load => Pair::General(Transfer::LoadSigned(Width::W64), 4),
        // STGP: also writes the tag of the 16 bytes.
        (false, 1) => {
            scale = Some(16);
            Pair::General(transfer, 8)
        }
        (false, _) => Pair::General(transfer, 8),
    };
    let writes_base = mode & 1 == 1 && (is_base(word, word.d()) || is_base(word, word.a()));
    // Constrained unpredictable, as is a load of the same register twice.
    if writes_base || load && word.d() == word.a() {
        return None;
    }
    let size = match pair {
        Pair::General(_, size) | Pair::Vector { size, .. } => size,
    };
    let offset = word.signed(15, 7) * scale.unwrap_or_else(|| i64::from(size));
    let offset = offset.cast_unsigned();
    let base = x_or_sp(word.n());
    match mode {
        0 | 2 => {
            let at = builder.add(base, offset);
            both(builder, word, pair, at, size);
        }
        1 => {
            both(builder, word, pair, base, size);
            write_back(builder, word, Operand::Constant(offset));
        }
        _ => pre_indexed(builder, word, offset, |builder, at| {
            both(builder, word, pair, at, size);
        }),
    }
    Some(())
}

fn both(builder: &mut Builder, word: Word, pair: Pair, first: Operand, size: u8) {
    // Before the first load, which may overwrite the base.
    let second = builder.add(first, u64::from(size));
    for (register, at) in [(word.d(), first), (word.a(), second)] {
        match pair {
            Pair::General(transfer, size) => general(builder, transfer, size, register, at),
            Pair::Vector { store, size } => vector(builder, store, size, register, at),
        }
    }
}
