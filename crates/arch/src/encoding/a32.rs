//! A32 (F4.1 "A32 instruction set encoding").

encodings! {
    /// Instructions with a condition. Loads and stores have the fields `p` (the offset is added before the
    /// access), `u` (it is added, not subtracted) and `w` (write-back).
    pub enum Conditional by 20 {
        /// MUL, MLA.
        Multiply { cond: 4, "000000", accumulate: 1, s: 1, rd: 4, ra: 4, rm: 4, "1001", rn: 4 }
        /// UMAAL.
        MultiplyAddBoth { cond: 4, "00000100", high: 4, low: 4, rm: 4, "1001", rn: 4 }
        /// MLS.
        MultiplySubtract { cond: 4, "00000110", rd: 4, ra: 4, rm: 4, "1001", rn: 4 }
        /// UMULL, UMLAL, SMULL, SMLAL.
        MultiplyLong {
            cond: 4, "00001", signed: 1, accumulate: 1, s: 1, high: 4, low: 4, rm: 4, "1001", rn: 4
        }
        /// LDREX, STREX, LDA, STL and the like.
        Exclusive {
            cond: 4, "00011", kind: 2, load: 1, rn: 4, rd: 4, "xx", order: 2, "1001", rt: 4
        }
        /// LDRH, STRH.
        Half {
            cond: 4, "000", p: 1, u: 1, immediate: 1, w: 1, load: 1, rn: 4, rt: 4, high: 4, "1011",
            low: 4
        }
        /// LDRSB, LDRSH; LDRD, STRD, which are encoded as stores (`half` for STRD).
        SignedOrDual {
            cond: 4, "000", p: 1, u: 1, immediate: 1, w: 1, load: 1, rn: 4, rt: 4, high: 4, "11",
            half: 1, "1", low: 4
        }

        /// SMLAxy, SMLAWy, SMULWy, SMLALxy, SMULxy.
        MultiplyHalves {
            cond: 4, "00010", op: 2, "0", rd: 4, ra: 4, rm: 4, "1", y: 1, x: 1, "0", rn: 4
        }
        /// MRS.
        ReadState { cond: 4, "00010", spsr: 1, "00xxxx", rd: 4, "xx", banked: 1, "x0000xxxx" }
        /// MSR (register).
        WriteState { cond: 4, "00010", spsr: 1, "10", mask: 4, "xxxxxx", banked: 1, "x0000", rn: 4 }
        /// BX.
        BranchExchange { cond: 4, "00010010xxxxxxxxxxxx0001", rm: 4 }
        /// BXJ.
        BranchJazelle { cond: 4, "00010010xxxxxxxxxxxx0010", rm: 4 }
        /// BLX (register).
        BranchLinkExchange { cond: 4, "00010010xxxxxxxxxxxx0011", rm: 4 }
        /// CLZ.
        LeadingZeros { cond: 4, "00010110xxxx", rd: 4, "xxxx0001", rm: 4 }
        /// CRC32, CRC32C.
        Crc32 {
            cond: 4, "00010", size: 2, "0", rn: 4, rd: 4, "xx", castagnoli: 1, "x0100", rm: 4
        }
        /// QADD, QSUB, QDADD, QDSUB.
        AddSaturating {
            cond: 4, "00010", double: 1, subtract: 1, "0", rn: 4, rd: 4, "xxxx0101", rm: 4
        }
        /// ERET.
        ExceptionReturn { cond: 4, "0001011000000000000001101110" }
        /// HLT, BKPT, HVC, SMC, by `op`.
        Exception { cond: 4, "00010", op: 2, "0", imm: 12, "0111", low: 4 }
        /// MOVW.
        MoveWide { cond: 4, "00110000", high: 4, rd: 4, imm: 12 }
        /// MOVT.
        MoveTop { cond: 4, "00110100", high: 4, rd: 4, imm: 12 }
        /// NOP, WFE, WFI and other hints.
        Hint { cond: 4, "001100100000", sbo: 4, imm: 12 }
        /// MSR (immediate).
        WriteStateImmediate { cond: 4, "00110", spsr: 1, "10", mask: 4, "xxxx", rotation: 4, imm: 8 }
        /// Where comparisons would not set flags.
        Unallocated { cond: 4, "00x10xx0xxxxxxxxxxxxxxxxxxxx" }

        /// AND, ADD, MOV and the like with an immediate.
        DataImmediate { cond: 4, "001", opcode: 4, s: 1, rn: 4, rd: 4, rotation: 4, imm: 8 }
        /// AND, ADD, MOV and the like with a register, shifted by an immediate.
        DataRegister {
            cond: 4, "000", opcode: 4, s: 1, rn: 4, rd: 4, amount: 5, shift: 2, "0", rm: 4
        }
        /// AND, ADD, MOV and the like with a register, shifted by a register.
        DataShifted {
            cond: 4, "000", opcode: 4, s: 1, rn: 4, rd: 4, rs: 4, "0", shift: 2, "1", rm: 4
        }
        /// LDR, STR, LDRB, STRB and their unprivileged forms, with an immediate.
        Offset {
            cond: 4, "010", p: 1, u: 1, byte: 1, w: 1, load: 1, rn: 4, rt: 4, imm: 12
        }
        /// LDR, STR, LDRB, STRB and their unprivileged forms, with a register.
        RegisterOffset {
            cond: 4, "011", p: 1, u: 1, byte: 1, w: 1, load: 1, rn: 4, rt: 4, amount: 5, shift: 2,
            "0", rm: 4
        }
        /// Parallel additions, saturation, bit fields, divisions and other media instructions.
        Media { cond: 4, "011", op1: 5, "xxxxxxxxxxxx", op2: 3, "1xxxx" }
        /// LDM, STM. With `user`: registers of User mode, or a return from an exception.
        Multiple { cond: 4, "100", p: 1, u: 1, user: 1, w: 1, load: 1, rn: 4, list: 16 }
        /// B, BL.
        Branch { cond: 4, "101", link: 1, imm: 24 }
        /// LDC, STC, MCRR, MRRC; VLDR, VSTR, VLDM, VSTM.
        CoprocessorTransfer { cond: 4, "110xxxxxxxxxxxxxxxxxxxxxxxxx" }
        /// MCR p15, 0, Rt, c7, c5, 4: ISB before Armv7.
        OldIsb { cond: 4, "111000000111", rt: 4, "111110010101" }
        /// MCR p15, 0, Rt, c7, c10, 4 or 5: DSB and DMB before Armv7.
        OldBarrier { cond: 4, "111000000111", rt: 4, "111110", dmb: 1, "11010" }
        /// CDP, MCR, MRC; floating point.
        Coprocessor { cond: 4, "1110xxxxxxxxxxxxxxxxxxxxxxxx" }
        /// SVC.
        SystemCall { cond: 4, "1111", imm: 24 }
    }
}

encodings! {
    /// Instructions without a condition.
    pub enum Unconditional by 20 {
        /// BLX (immediate), to T32.
        BranchLinkExchange { "1111101", half: 1, imm: 24 }
        /// RFE.
        ReturnFromException { "1111100xx0x1xxxxxxxxxxxxxxxxxxxx" }
        /// CPS; SETEND (`endian`).
        ChangeState {
            "111100010000xx", mode: 1, endian: 1, "xxxxxxxxxx0xxxxx"
        }
        /// Loads and stores of elements (Advanced SIMD).
        Elements { "111101x0xxx0xxxxxxxxxxxxxxxxxxxx" }
        /// DSB, DMB, ISB, SB, CLREX.
        Barrier { "111101010111xxxxxxxxxxxx", op: 4, "xxxx" }
        /// PLD, PLI.
        Prefetch { "111101xxxx01xxxxxxxxxxxxxxxxxxxx" }
        /// Data processing of vectors (Advanced SIMD).
        Vectors { "1111001xxxxxxxxxxxxxxxxxxxxxxxxx" }
        /// VSEL, VMAXNM, VRINTA and the like.
        Float { "1111111xxxxxxxxxxxxxxxxxxxxxxxxx" }
    }
}
