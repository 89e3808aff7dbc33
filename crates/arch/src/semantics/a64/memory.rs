//! Loads and stores.

use super::access::{Transfer, general, indexed, vector};
use super::arithmetic::{extended, with_unknown_code};
use super::word::{Word, to_x_or_sp, x, x_or_sp};
use super::{exclusive, pair, structure, tag};
use crate::encoding::{a64::Memory, signed};
use crate::semantics::builder::Builder;
use crate::semantics::{Operand, Operation, Width};

pub(super) fn decode(builder: &mut Builder, word: u32, address: u64) -> Option<()> {
    match Memory::decode(word)? {
        Memory::Pair {
            opc,
            v,
            mode,
            load,
            imm,
            rt2,
            rn,
            rt,
        } => pair::decode(builder, (v, opc, load), mode, imm, [rt, rt2, rn])?,
        Memory::Offset {
            size,
            v,
            opc,
            imm,
            rn,
            rt,
        } => {
            let access = Access::of(v, size, opc)?;
            let offset = u64::from(imm) * u64::from(access.size());
            let at = builder.add(x_or_sp(rn), offset);
            access.perform(builder, rt, at);
        }
        Memory::Unscaled {
            size,
            v,
            opc,
            imm,
            mode,
            rn,
            rt,
        } => {
            let access = Access::of(v, size, opc)?;
            let (unprivileged, prefetch) = (mode == 2, matches!(access, Access::Prefetch));
            if unprivileged && v || mode != 0 && prefetch {
                return None;
            }
            // Constrained unpredictable (K1.2.21).
            if mode & 1 == 1 && !v && rn == rt && rn != 31 {
                return None;
            }
            let offset = signed(imm, 9).cast_unsigned();
            indexed(builder, mode, rn, offset, |builder, at| {
                access.perform(builder, rt, at);
            });
        }
        Memory::RegisterOffset {
            size,
            v,
            opc,
            rm,
            option,
            s,
            rn,
            rt,
        } => {
            let access = Access::of(v, size, opc)?;
            if option & 2 == 0 {
                return None;
            }
            if matches!(access, Access::Prefetch) {
                return Some(());
            }
            let scale = access.size().ilog2() as u8;
            let offset = extended(builder, option, x(rm), if s { scale } else { 0 });
            let at = builder.op2(Operation::Add(Width::W64), x_or_sp(rn), offset);
            access.perform(builder, rt, at);
        }
        Memory::Literal { opc, v, imm, rt } => {
            let at = address.wrapping_add_signed(signed(imm, 19) << 2);
            let at = Operand::Constant(at);
            match (v, opc) {
                (false, 0) => general(builder, Transfer::Load, 4, rt, at),
                (false, 1) => general(builder, Transfer::Load, 8, rt, at),
                (false, 2) => {
                    let transfer = Transfer::LoadSigned(Width::W64);
                    general(builder, transfer, 4, rt, at);
                }
                // PRFM
                (false, _) => {}
                (true, 3) => return None,
                (true, opc) => vector(builder, false, 4 << opc, rt, at),
            }
        }
        Memory::Authenticated {
            sign,
            imm,
            pre,
            rn,
            rt,
        } => {
            if pre && rn == rt && rn != 31 {
                return None;
            }
            let offset = signed(u32::from(sign) << 9 | imm, 10) << 3;
            let base = with_unknown_code(builder, x_or_sp(rn));
            let at = builder.add(base, offset.cast_unsigned());
            if pre {
                builder.copy(to_x_or_sp(rn), at);
            }
            general(builder, Transfer::Load, 8, rt, at);
        }
        Memory::Atomic {
            v: false,
            size,
            acquire,
            release,
            rs,
            o3,
            opc,
            rn,
            rt,
        } => {
            let at = x_or_sp(rn);
            if let (true, 4, true, false, 31) = (o3, opc, acquire, release, rs) {
                // LDAPR
                general(builder, Transfer::Load, 1 << size, rt, at);
            } else {
                exclusive::atomic(builder, size, (o3, opc), at, [rs, rt])?;
            }
        }
        Memory::Exclusive {
            unprivileged: false,
            size,
            load,
            rs,
            rn,
            rt,
            ..
        } => {
            if load {
                general(builder, Transfer::Load, 1 << size, rt, x_or_sp(rn));
            } else {
                exclusive::store(builder, 1 << size, rs, rn, &[rt])?;
            }
        }
        Memory::ExclusivePair {
            unprivileged: false,
            sz,
            load,
            rs,
            rt2,
            rn,
            rt,
        } => {
            let size = if sz { 8 } else { 4 };
            if !load {
                exclusive::store(builder, size, rs, rn, &[rt, rt2])?;
            } else if rt == rt2 {
                return None;
            } else {
                let first = x_or_sp(rn);
                let second = builder.add(first, u64::from(size));
                general(builder, Transfer::Load, size, rt, first);
                general(builder, Transfer::Load, size, rt2, second);
            }
        }
        Memory::CompareAndSwapPair {
            unprivileged: false,
            sz,
            rs,
            rt2: 31,
            rn,
            rt,
            ..
        } if (rs | rt) & 1 == 0 => {
            let size = if sz { 8 } else { 4 };
            exclusive::compare_and_swap(builder, size, x_or_sp(rn), [rs, rt], &[0, 1]);
        }
        Memory::Ordered {
            unprivileged: false,
            size,
            load,
            rn,
            rt,
            ..
        } => {
            let transfer = if load {
                Transfer::Load
            } else {
                Transfer::Store
            };
            general(builder, transfer, 1 << size, rt, x_or_sp(rn));
        }
        Memory::CompareAndSwap {
            unprivileged: false,
            size,
            rs,
            rt2: 31,
            rn,
            rt,
            ..
        } => exclusive::compare_and_swap(builder, 1 << size, x_or_sp(rn), [rs, rt], &[0]),
        Memory::OrderedUnscaled {
            size,
            opc,
            imm,
            rn,
            rt,
        } => {
            if matches!((size, opc), (3, 2 | 3) | (2, 3)) {
                return None;
            }
            let at = builder.add(x_or_sp(rn), signed(imm, 9).cast_unsigned());
            general(builder, Transfer::of(opc), 1 << size, rt, at);
        }
        Memory::Tag {
            opc,
            imm,
            mode,
            rn,
            rt,
        } => tag::decode(builder, opc, mode, imm, [rt, rn])?,
        Memory::Structure { .. } => structure::decode(builder, Word(word))?,
        // Not modelled.
        _ => return None,
    }
    Some(())
}

/// An access of one register, from the fields `size`, `V` and `opc`.
enum Access {
    General(Transfer, u8),
    Vector { store: bool, size: u8 },
    Prefetch,
}

impl Access {
    fn of(v: bool, size: u8, opc: u8) -> Option<Self> {
        Some(match (v, size, opc) {
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
            Self::Vector { store, size } => vector(builder, store, size, register, at),
            Self::Prefetch => {}
        }
    }
}
