//! The effects of A64 instructions on the stack pointer and on general-purpose registers, and where
//! the instructions store and load them.
//!
//! Where the analysis does not distinguish instructions, it counts more registers as written than
//! actually are.

use armsnap_arch::encoding::a64::{Branch, Immediate, Memory, Register};
use armsnap_arch::encoding::signed;

/// The frame pointer (AAPCS64 6.1.1).
pub(super) const FP: u8 = 29;
/// The link register.
pub(super) const LR: u8 = 30;
/// The stack pointer; in other fields of an encoding, the zero register.
pub(super) const SP: u8 = 31;

/// The effect of an instruction on registers. Branches with link also write [`LR`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Effect {
    /// `to` becomes `from` plus a number.
    Sum { to: u8, from: u8, add: i64 },
    /// Registers change in another way: one bit for each, including [`SP`].
    Writes(u32),
    /// Memory is accessed relative to a register.
    Transfer(Transfer),
}

/// A load or a store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Transfer {
    pub load: bool,
    pub base: u8,
    /// The offset of the first byte from the old value of the base.
    pub offset: i64,
    /// The number of bytes.
    pub size: i64,
    /// The general registers whose 64 bits are transferred, in address order.
    pub whole: [Option<u8>; 2],
    /// Other registers that a load writes.
    pub writes: u32,
    /// The number that is added to the base.
    pub writeback: i64,
}

const NOTHING: Effect = Effect::Writes(0);

/// A register that may be the stack pointer.
fn or_sp(register: u8) -> u32 {
    1 << register
}

/// A register that may be the zero register.
fn or_zero(register: u8) -> u32 {
    if register == SP { 0 } else { 1 << register }
}

/// Returns the effect of the instruction `word`.
pub(super) fn effect(word: u32) -> Effect {
    let destination = (word & 0x1f) as u8;
    match word >> 25 & 0xf {
        0b1000 | 0b1001 => immediate(word),
        0b1010 | 0b1011 => Effect::Writes(match Branch::decode(word) {
            Some(
                Branch::ReadRegister { rt, .. }
                | Branch::ReadTransaction { rt, .. }
                | Branch::SystemOperationWithResult { rt, .. },
            ) => or_zero(rt),
            _ => 0,
        }),
        0b0100 | 0b0110 | 0b1100 | 0b1110 => memory(word),
        0b0101 | 0b1101 => Effect::Writes(match Register::decode(word) {
            Some(
                Register::AddSubtractExtended { s: false, rd, .. } | Register::RandomTag { rd, .. },
            ) => or_sp(rd),
            _ => or_zero(destination),
        }),
        0b0111 | 0b1111 => {
            // Conversions to general registers, of integers and fixed-point numbers; UMOV, SMOV
            let converts = word & 0x5f20_fc00 == 0x1e20_0000 || word & 0x5f3e_0000 == 0x1e18_0000;
            let moves = word & 0xbfe0_ec00 == 0x0e00_2c00;
            Effect::Writes(match converts || moves {
                true => or_zero(destination),
                false => 0,
            })
        }
        // SVE: ADDVL, RDVL, counts, and others
        0b0010 if matches!(word >> 24, 0x04 | 0x05 | 0x25) => Effect::Writes(or_sp(destination)),
        _ => NOTHING,
    }
}

/// Data processing with immediates.
fn immediate(word: u32) -> Effect {
    Effect::Writes(match Immediate::decode(word) {
        Some(Immediate::AddSubtract {
            sf: true,
            op,
            s: false,
            shift,
            imm,
            rn,
            rd,
        }) => {
            let number = i64::from(imm) << if shift { 12 } else { 0 };
            return Effect::Sum {
                to: rd,
                from: rn,
                add: if op { -number } else { number },
            };
        }
        Some(
            Immediate::AddSubtract { s: false, rd, .. }
            | Immediate::AddTag { rd, .. }
            | Immediate::Logical { opc: ..3, rd, .. },
        ) => or_sp(rd),
        _ => or_zero((word & 0x1f) as u8),
    })
}

/// Loads and stores.
fn memory(word: u32) -> Effect {
    Effect::Writes(match Memory::decode(word) {
        Some(Memory::Pair {
            opc,
            v,
            mode,
            load,
            imm,
            rt2,
            rn,
            rt,
        }) => {
            let unit: i64 = match (v, opc, load) {
                (true, opc, _) => 4 << opc.min(2),
                (false, 2, _) => 8,
                // STGP
                (false, 1, false) => 16,
                _ => 4,
            };
            let transfer = Transfer {
                load,
                base: rn,
                size: 2 * unit,
                ..Transfer::default()
            };
            let transfer = transfer.indexed(mode, signed(imm.into(), 7) * unit);
            return transfer.of(!v && opc == 2, v, [Some(rt), Some(rt2)]);
        }
        // PRFM
        Some(
            Memory::Offset {
                size: 3,
                v: false,
                opc: 2,
                ..
            }
            | Memory::Unscaled {
                size: 3,
                v: false,
                opc: 2,
                ..
            },
        ) => 0,
        Some(Memory::Offset {
            size,
            v,
            opc,
            imm,
            rn,
            rt,
        }) => {
            let transfer = Transfer::one(size, v, opc, rn);
            let transfer = transfer.indexed(0, i64::from(imm) * transfer.size);
            return transfer.of(!v && size == 3, v, [Some(rt), None]);
        }
        Some(Memory::Unscaled {
            size,
            v,
            opc,
            imm,
            mode,
            rn,
            rt,
        }) => {
            let transfer = Transfer::one(size, v, opc, rn).indexed(mode, signed(imm, 9));
            return transfer.of(!v && size == 3, v, [Some(rt), None]);
        }
        Some(Memory::RegisterOffset { v, opc, rt, .. }) => match v || opc == 0 {
            true => 0,
            false => or_zero(rt),
        },
        // PRFM has 3
        Some(Memory::Literal { opc, v, rt, .. }) => match v || opc == 3 {
            true => 0,
            false => or_zero(rt),
        },
        Some(Memory::Atomic { rt, .. }) => or_zero(rt),
        Some(Memory::AtomicPair { rt2, rt, .. }) => or_zero(rt) | or_zero(rt2),
        Some(Memory::Authenticated { pre, rn, rt, .. }) => {
            or_zero(rt) | if pre { or_sp(rn) } else { 0 }
        }
        Some(Memory::Exclusive { load: true, rt, .. } | Memory::Ordered { load: true, rt, .. }) => {
            or_zero(rt)
        }
        Some(Memory::ExclusivePair {
            load: true,
            rt2,
            rt,
            ..
        }) => or_zero(rt) | or_zero(rt2),
        Some(
            Memory::Exclusive { rs, .. }
            | Memory::ExclusivePair { rs, .. }
            | Memory::CompareAndSwap { rs, .. },
        ) => or_zero(rs),
        Some(Memory::CompareAndSwapPair { rs, .. }) => or_zero(rs) | or_zero((rs + 1) & 0x1f),
        Some(Memory::OrderedUnscaled { opc: 1.., rt, .. }) => or_zero(rt),
        Some(Memory::Tag {
            mode: 1 | 3, rn, ..
        }) => or_sp(rn),
        Some(Memory::Tag { rt, .. }) => or_zero(rt),
        Some(Memory::BlockOrOther { rs, rn, rt }) => or_zero(rt) | or_sp(rn) | or_zero(rs),
        Some(Memory::Structure { post: true, rn, .. }) => or_sp(rn),
        Some(
            Memory::Ordered { .. } | Memory::OrderedUnscaled { .. } | Memory::Structure { .. },
        )
        | None => 0,
    })
}

impl Transfer {
    /// A transfer of one register, from the fields `size`, `V` and `opc`.
    fn one(size: u8, v: bool, opc: u8, base: u8) -> Self {
        let (scale, load) = match v {
            true => (if opc & 2 != 0 { 4 } else { size }, opc & 1 == 1),
            false => (size, opc != 0),
        };
        Self {
            load,
            base,
            size: 1 << scale,
            ..Self::default()
        }
    }

    /// At an offset in one of the addressing modes: 1 for post-index, 3 for pre-index.
    fn indexed(mut self, mode: u8, number: i64) -> Self {
        self.offset = if mode == 1 { 0 } else { number };
        self.writeback = if mode & 1 == 1 { number } else { 0 };
        self
    }

    /// Of these registers.
    fn of(mut self, whole: bool, v: bool, registers: [Option<u8>; 2]) -> Effect {
        if whole {
            self.whole = registers;
        } else if self.load && !v {
            self.writes = registers
                .into_iter()
                .flatten()
                .fold(0, |all, register| all | or_zero(register));
        }
        Effect::Transfer(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn transfer(word: u32) -> Transfer {
        match effect(word) {
            Effect::Transfer(transfer) => transfer,
            other => panic!("{word:#x}: {other:?}"),
        }
    }

    #[test]
    fn prologues_and_epilogues() {
        // stp x29, x30, [sp, #-32]!
        let stored = transfer(0xa9be_7bfd);
        assert_eq!(
            (stored.base, stored.offset, stored.writeback),
            (SP, -32, -32)
        );
        assert_eq!(stored.whole, [Some(FP), Some(LR)]);
        assert!(!stored.load);
        // ldp x29, x30, [sp], #32
        let loaded = transfer(0xa8c2_7bfd);
        assert_eq!((loaded.offset, loaded.writeback, loaded.size), (0, 32, 16));
        assert!(loaded.load);
        // str x19, [sp, #16]; ldr x21, [sp, #-16]!; ldr w20, [sp, #8]
        assert_eq!(transfer(0xf900_0bf3).offset, 16);
        assert_eq!(transfer(0xf85f_0ff5).writeback, -16);
        assert_eq!(transfer(0xb940_0bf4).writes, 1 << 20);
        // stp d8, d9, [sp, #16]
        let vectors = transfer(0x6d01_27e8);
        assert_eq!((vectors.offset, vectors.size), (16, 16));
        assert_eq!(vectors.whole, [None; 2]);
    }

    #[test]
    fn other_writes() {
        let sum = |to, from, add| Effect::Sum { to, from, add };
        // mov x29, sp; sub sp, sp, #0x30; add sp, sp, #1, lsl #12
        assert_eq!(effect(0x9100_03fd), sum(FP, SP, 0));
        assert_eq!(effect(0xd100_c3ff), sum(SP, SP, -0x30));
        assert_eq!(effect(0x9140_07ff), sum(SP, SP, 0x1000));
        for (word, registers) in [
            (0xcb20_63ff, 1 << SP), // sub sp, sp, x0
            (0xf100_001f, 0),       // cmp x0, #0
            (0xaa1e_03e9, 1 << 9),  // mov x9, x30
            (0xd538_4036, 1 << 22), // mrs x22, elr_el1
            (0xd503_233f, 0),       // paciasp
            (0x9e58_f413, 1 << 19), // fcvtzs x19, d0, #3
            (0x1e59_e400, 1),       // fcvtzu w0, d0, #7
            (0x9e42_f413, 0),       // scvtf d19, x0, #3
            (0x927c_ec1f, 1 << SP), // and sp, x0, #-16
            (0xc85f_7c13, 1 << 19), // ldxr x19, [x0]
            (0xc813_7c01, 1 << 19), // stxr w19, x1, [x0]
            (0xc89f_fc13, 0),       // stlr x19, [x0]
            (0xf833_6814, 0),       // str x20, [x0, x19]
            (0xf873_6814, 1 << 20), // ldr x20, [x0, x19]
            (0x9e66_0013, 1 << 19), // fmov x19, d0
            (0x4e08_3c13, 1 << 19), // mov x19, v0.d[0]
            (0x4ee1_8413, 0),       // add v19.2d, v0.2d, v1.2d
            (0x5800_001e, 1 << LR), // ldr x30, .
            (0xf8b3_0014, 1 << 20), // ldadda x19, x20, [x0]
        ] {
            assert_eq!(effect(word), Effect::Writes(registers), "{word:#x}");
        }
        // Every word has an effect.
        for word in (0..=u32::MAX).step_by(4099) {
            effect(word);
        }
    }
}
