//! Loads and stores of memory tags. The tags themselves are not modelled.

use super::access::indexed;
use super::word::{to_x, x};
use crate::encoding::signed;
use crate::semantics::builder::Builder;
use crate::semantics::{Operand, Operation};

pub(super) fn decode(
    builder: &mut Builder,
    opc: u8,
    mode: u8,
    imm: u32,
    [rt, rn]: [u8; 2],
) -> Option<()> {
    let offset = (signed(imm, 9) << 4).cast_unsigned();
    match (mode, opc) {
        // LDG: the tag of the address in memory.
        (0, 1) => {
            let tag = builder.op1(Operation::Unknown, Operand::ZERO);
            let insert = Operation::Insert { low: 56, count: 4 };
            builder.set2(to_x(rt), insert, x(rt), tag);
        }
        // LDGM
        (0, 3) if offset == 0 => builder.unknown(to_x(rt)),
        // STZGM, STGM.
        (0, _) if offset == 0 => builder.may_store_anywhere = opc == 0,
        (0, _) => return None,
        // STZG and STZ2G also write zeros.
        _ => indexed(builder, mode, rn, offset, |builder, first| {
            let words = if opc & 1 == 1 { opc + 1 } else { 0 };
            for word in 0..words {
                let at = builder.add(first, 8 * u64::from(word));
                builder.store(8, at, Operand::ZERO);
            }
        }),
    }
    Some(())
}
