//! The effects of A64 instructions on the stack pointer and on general-purpose registers, and where
//! the instructions store and load them (Arm ARM DDI 0487, C4.1 "A64 instruction set encoding").
//!
//! Where the analysis does not distinguish instructions, it counts more registers as written than
//! actually are.

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

fn field(word: u32, at: u32) -> u8 {
    (word >> at & 0x1f) as u8
}

fn signed(word: u32, at: u32, bits: u32) -> i64 {
    i64::from((word >> at << (32 - bits)) as i32 >> (32 - bits))
}

fn bit(word: u32, at: u32) -> bool {
    word >> at & 1 == 1
}

/// Returns the effect of the instruction `word`.
pub(super) fn effect(word: u32) -> Effect {
    let destination = field(word, 0);
    match word >> 25 & 0xf {
        0b1000 | 0b1001 => immediate(word),
        0b1010 | 0b1011 => {
            // MRS, SYSL
            let reads = word & 0xffe0_0000 == 0xd520_0000;
            Effect::Writes(if reads { or_zero(destination) } else { 0 })
        }
        0b0100 | 0b0110 | 0b1100 | 0b1110 => memory(word),
        0b0101 | 0b1101 => {
            // ADD and SUB (extended register) without S; IRG
            let extended = word & 0x3fe0_0000 == 0x0b20_0000;
            let tag = word & 0xffe0_fc00 == 0x9ac0_1000;
            Effect::Writes(match extended || tag {
                true => or_sp(destination),
                false => or_zero(destination),
            })
        }
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

/// Data processing (immediate).
fn immediate(word: u32) -> Effect {
    let (to, from) = (field(word, 0), field(word, 5));
    match word >> 23 & 7 {
        // 64-bit ADD and SUB without S
        2 if word & 0xa000_0000 == 0x8000_0000 => {
            let shift = if bit(word, 22) { 12 } else { 0 };
            let number = i64::from(word >> 10 & 0xfff) << shift;
            let add = if bit(word, 30) { -number } else { number };
            Effect::Sum { to, from, add }
        }
        2 if bit(word, 29) => Effect::Writes(or_zero(to)),
        2 | 3 => Effect::Writes(or_sp(to)),
        // AND, ORR, EOR; ANDS
        4 if word >> 29 & 3 != 3 => Effect::Writes(or_sp(to)),
        _ => Effect::Writes(or_zero(to)),
    }
}

/// Loads and stores.
fn memory(word: u32) -> Effect {
    let vector = bit(word, 26);
    let (first, base, second, status) = (
        field(word, 0),
        field(word, 5),
        field(word, 10),
        field(word, 16),
    );
    match word >> 28 & 3 {
        // Structures: post-indexed accesses write the base.
        0 if vector => Effect::Writes(if bit(word, 23) { or_sp(base) } else { 0 }),
        0 => Effect::Writes(exclusive(word)),
        // Literals; PRFM
        1 if !bit(word, 24) => Effect::Writes(match vector || word >> 30 == 3 {
            true => 0,
            false => or_zero(first),
        }),
        1 => match word >> 10 & 3 {
            // Tags
            mode if word >> 24 == 0xd9 && bit(word, 21) => Effect::Writes(match mode {
                1 | 3 => or_sp(base),
                _ => or_zero(first),
            }),
            // LDAPUR and STLUR
            0 => Effect::Writes(match word >> 22 & 3 {
                0 => 0,
                _ => or_zero(first),
            }),
            // Copies and sets
            _ => Effect::Writes(or_zero(first) | or_sp(base) | or_zero(status)),
        },
        2 => pair(word, vector),
        _ if bit(word, 24) || !bit(word, 21) => single(word, vector),
        _ => match word >> 10 & 3 {
            // Register offset
            2 => Effect::Writes(match vector || word >> 22 & 3 == 0 {
                true => 0,
                false => or_zero(first),
            }),
            // Atomic operations
            0 => Effect::Writes(or_zero(first)),
            // LDRAA and LDRAB
            3 => Effect::Writes(or_zero(first) | or_sp(base)),
            _ => Effect::Writes(or_zero(first) | or_zero(second)),
        },
    }
}

/// Returns the registers that exclusive and ordered accesses and compare-and-swap write.
fn exclusive(word: u32) -> u32 {
    let (first, second, status) = (field(word, 0), field(word, 10), field(word, 16));
    let pair = |register: u8| or_zero(register) | or_zero((register + 1) & 0x1f);
    match (bit(word, 23), bit(word, 21), bit(word, 22)) {
        // CAS
        (true, true, _) => or_zero(status),
        // LDAR, STLR
        (true, false, load) => or_zero(if load { first } else { SP }),
        // CASP; LDXP, STXP
        (false, true, _) if !bit(word, 31) => pair(status),
        (false, true, true) => or_zero(first) | or_zero(second),
        (false, false, true) => or_zero(first),
        (false, _, false) => or_zero(status),
    }
}

/// LDP, STP and similar instructions.
fn pair(word: u32, vector: bool) -> Effect {
    let (first, second) = (field(word, 0), field(word, 10));
    let (size, load) = (word >> 30, bit(word, 22));
    let unit: i64 = match (vector, size, load) {
        (true, size, _) => 4 << size.min(2),
        (false, 2, _) => 8,
        // STGP
        (false, 1, false) => 16,
        _ => 4,
    };
    let number = signed(word, 15, 7) * unit;
    let mode = word >> 23 & 3;
    let whole = !vector && size == 2;
    Effect::Transfer(Transfer {
        load,
        base: field(word, 5),
        offset: if mode == 1 { 0 } else { number },
        size: 2 * unit,
        whole: if whole {
            [Some(first), Some(second)]
        } else {
            [None; 2]
        },
        writes: if load && !vector && !whole {
            or_zero(first) | or_zero(second)
        } else {
            0
        },
        writeback: if mode & 1 == 1 { number } else { 0 },
    })
}

/// LDR, STR and similar instructions with an immediate offset.
fn single(word: u32, vector: bool) -> Effect {
    let first = field(word, 0);
    let (size, operation) = (word >> 30, word >> 22 & 3);
    // PRFM
    if !vector && size == 3 && operation == 2 {
        return NOTHING;
    }
    let scale = if vector && operation & 2 != 0 {
        4
    } else {
        size
    };
    let load = if vector {
        operation & 1 == 1
    } else {
        operation != 0
    };
    let whole = !vector && size == 3;
    let (offset, writeback) = if bit(word, 24) {
        (i64::from(word >> 10 & 0xfff) << scale, 0)
    } else {
        let number = signed(word, 12, 9);
        match word >> 10 & 3 {
            1 => (0, number),
            3 => (number, number),
            _ => (number, 0),
        }
    };
    Effect::Transfer(Transfer {
        load,
        base: field(word, 5),
        offset,
        size: 1 << scale,
        whole: [whole.then_some(first), None],
        writes: if load && !vector && !whole {
            or_zero(first)
        } else {
            0
        },
        writeback,
    })
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
