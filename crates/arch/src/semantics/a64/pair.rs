//! Loads and stores of pairs of registers.

use super::access::{Transfer, general, indexed, vector};
use crate::encoding::signed;
use crate::semantics::Width;
use crate::semantics::builder::Builder;

/// The transfer of each of the two registers.
#[derive(Clone, Copy)]
enum Pair {
    General(Transfer, u8),
    Vector { store: bool, size: u8 },
}

pub(super) fn decode(
    builder: &mut Builder,
    (v, opc, load): (bool, u8, bool),
    mode: u8,
    imm: u8,
    [rt, rt2, rn]: [u8; 3],
) -> Option<()> {
    let transfer = if load {
        Transfer::Load
    } else {
        Transfer::Store
    };
    let mut scale = None;
    let pair = match (v, opc) {
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
    let writes_base = mode & 1 == 1 && !v && rn != 31 && [rt, rt2].contains(&rn);
    // Constrained unpredictable, as is a load of the same register twice.
    if writes_base || load && rt == rt2 {
        return None;
    }
    let size = match pair {
        Pair::General(_, size) | Pair::Vector { size, .. } => size,
    };
    let offset = signed(imm.into(), 7) * scale.unwrap_or_else(|| i64::from(size));
    indexed(
        builder,
        mode,
        rn,
        offset.cast_unsigned(),
        |builder, first| {
            // Before the first load, which may overwrite the base.
            let second = builder.add(first, u64::from(size));
            for (register, at) in [(rt, first), (rt2, second)] {
                match pair {
                    Pair::General(transfer, size) => general(builder, transfer, size, register, at),
                    Pair::Vector { store, size } => vector(builder, store, size, register, at),
                }
            }
        },
    );
    Some(())
}
