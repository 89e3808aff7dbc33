//! Loads and stores of memory tags. The tags themselves are not modelled.

use super::access::{pre_indexed, write_back};
use super::word::{Word, to_x, x, x_or_sp};
use crate::semantics::builder::Builder;
use crate::semantics::{Operand, Operation};

pub(super) fn decode(builder: &mut Builder, word: Word) -> Option<()> {
    if word.field(30, 2) != 3 || word.bit(26) {
        return None;
    }
    let offset = (word.signed(12, 9) << 4).cast_unsigned();
    let (opc, mode) = (word.field(22, 2), word.field(10, 2));
    // STZG and STZ2G also write zeros.
    let zeros = if opc & 1 == 1 { opc + 1 } else { 0 };
    match (mode, opc) {
        // LDG: the tag of the address in memory.
        (0, 1) => {
            let tag = builder.op1(Operation::Unknown, Operand::ZERO);
            let insert = Operation::Insert { low: 56, count: 4 };
            builder.set2(to_x(word.d()), insert, x(word.d()), tag);
        }
        // LDGM
        (0, 3) if offset == 0 => builder.unknown(to_x(word.d())),
        // STZGM, STGM.
        (0, _) if offset == 0 => builder.may_store_anywhere = opc == 0,
        (0, _) => return None,
        (1, _) => {
            clear(builder, x_or_sp(word.n()), zeros);
            write_back(builder, word, Operand::Constant(offset));
        }
        (2, _) => {
            let at = builder.add(x_or_sp(word.n()), offset);
            clear(builder, at, zeros);
        }
        _ => pre_indexed(builder, word, offset, |builder, at| {
            clear(builder, at, zeros)
        }),
    }
    Some(())
}

fn clear(builder: &mut Builder, at: Operand, words: u32) {
    for word in 0..words {
        let at = builder.add(at, 8 * u64::from(word));
        builder.store(8, at, Operand::ZERO);
    }
}
