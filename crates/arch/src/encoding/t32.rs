//! T32 (F3.1 "T32 instruction set encoding"), with the instructions of the M profile (Armv8-M ARM
//! DDI 0553, C2.3).

use super::signed;

/// Returns whether an instruction that starts with this halfword has a second one: its top bits are
/// 0b11101, 0b11110 or 0b11111.
#[must_use]
pub const fn is_wide(first: u16) -> bool {
    first >= 0xe800
}

/// Returns the distance of B with a condition, in bytes (F5.1.18, encoding T3).
#[must_use]
pub const fn near(s: bool, j1: bool, j2: bool, high: u8, low: u32) -> i64 {
    let top = (s as u32) << 19 | (j2 as u32) << 18 | (j1 as u32) << 17;
    signed(top | (high as u32) << 11 | low, 20) << 1
}

/// Returns the distance of B (encoding T4), BL or BLX, in bytes.
#[must_use]
pub const fn far(s: bool, j1: bool, j2: bool, high: u32, low: u32) -> i64 {
    let top = (s as u32) << 23 | ((j1 == s) as u32) << 22 | ((j2 == s) as u32) << 21;
    signed(top | high << 11 | low, 24) << 1
}

encodings! {
    /// Instructions of 16 bits.
    pub enum Narrow by 8 {
        /// ADD, SUB with a register or a small immediate.
        AddSubtract { "00011", immediate: 1, subtract: 1, rm: 3, rn: 3, rd: 3 }
        /// LSL, LSR, ASR; MOV.
        Shift { "000", shift: 2, amount: 5, rm: 3, rd: 3 }
        /// MOV, CMP, ADD, SUB with an immediate, by `op`.
        Immediate { "001", op: 2, rd: 3, imm: 8 }
        /// Data processing of two of r0 to r7.
        Registers { "010000", opcode: 4, rm: 3, rd: 3 }
        /// BX, BLX; BXNS, BLXNS.
        BranchExchange { "01000111", link: 1, rm: 4, "xxx" }
        /// ADD, CMP, MOV of all registers, by `op`.
        HighRegisters { "010001", op: 2, high: 1, rm: 4, low: 3 }
        /// LDR with an address relative to the pc.
        Literal { "01001", rt: 3, imm: 8 }
        /// STR, STRH, STRB, LDRSB, LDR, LDRH, LDRB, LDRSH with a register, by `op`.
        RegisterOffset { "0101", op: 3, rm: 3, rn: 3, rt: 3 }
        /// STR, LDR, STRB, LDRB.
        Offset { "011", byte: 1, load: 1, imm: 5, rn: 3, rt: 3 }
        /// STRH, LDRH.
        HalfOffset { "1000", load: 1, imm: 5, rn: 3, rt: 3 }
        /// STR, LDR relative to the stack pointer.
        StackOffset { "1001", load: 1, rt: 3, imm: 8 }
        /// ADR; ADD of the stack pointer.
        Address { "1010", sp: 1, rd: 3, imm: 8 }
        /// ADD, SUB of the stack pointer to itself.
        AdjustStack { "10110000", subtract: 1, imm: 7 }
        /// CBZ, CBNZ.
        CompareZero { "1011", nonzero: 1, "0", high: 1, "1", imm: 5, rn: 3 }
        /// SXTH, SXTB, UXTH, UXTB.
        Extend { "10110010", unsigned: 1, byte: 1, rm: 3, rd: 3 }
        /// PUSH.
        Push { "1011010", lr: 1, list: 8 }
        /// POP.
        Pop { "1011110", pc: 1, list: 8 }
        /// CPS.
        ChangeState { "10110110011xxxxx" }
        /// HLT.
        Halt { "1011101010", imm: 6 }
        /// REV, REV16, REVSH, by `op`.
        Reverse { "10111010", op: 2, rm: 3, rd: 3 }
        /// BKPT.
        Breakpoint { "10111110", imm: 8 }
        /// NOP, WFE, WFI and other hints.
        Hint { "10111111", hint: 4, "0000" }
        /// IT.
        IfThen { "10111111", cond: 4, mask: 4 }
        /// STM, LDM.
        Multiple { "1100", load: 1, rn: 3, list: 8 }
        /// UDF.
        Undefined { "11011110", imm: 8 }
        /// SVC.
        SystemCall { "11011111", imm: 8 }
        /// B with a condition.
        BranchConditional { "1101", cond: 4, imm: 8 }
        /// B.
        Branch { "11100", imm: 11 }
    }
}

encodings! {
    /// Instructions of 32 bits, whose first halfword is on top.
    pub enum Wide by 20 {
        /// LDM, STM; RFE, SRS where `p` and `u` are equal; CLRM.
        Multiple { "1110100", p: 1, u: 1, "0", w: 1, load: 1, rn: 4, list: 16 }
        /// TBB, TBH.
        TableBranch { "111010001101", rn: 4, "11110000000", half: 1, rm: 4 }
        /// LDRD, STRD, LDREX, STREX, LDA, STL and the like.
        DualOrExclusive { "1110100xx1xxxxxxxxxxxxxxxxxxxxxx" }
        /// AND, ADD, MOV and the like with a shifted register.
        DataShifted { "1110101xxxxxxxxxxxxxxxxxxxxxxxxx" }
        /// MCR p15, 0, Rt, c7, c5, 4: ISB before Armv7.
        OldIsb { "1110111000000111", rt: 4, "111110010101" }
        /// MCR p15, 0, Rt, c7, c10, 4 or 5: DSB and DMB before Armv7.
        OldBarrier { "1110111000000111", rt: 4, "111110", dmb: 1, "11010" }
        /// MCR, MRC and other coprocessor instructions; floating point and vectors.
        Coprocessor { "111x11xxxxxxxxxxxxxxxxxxxxxxxxxx" }

        /// AND, ADD, MOV and the like with a modified immediate.
        DataImmediate { "11110x0xxxxxxxxx0xxxxxxxxxxxxxxx" }
        /// ADDW, SUBW, MOVW, MOVT, saturation and bit fields.
        PlainImmediate { "11110x1xxxxxxxxx0xxxxxxxxxxxxxxx" }
        /// NOP, WFE, WFI and other hints.
        Hint { "111100111010111110000000", hint: 8 }
        /// CPS.
        ChangeState { "111100111010xxxx10x0x", mode: 3, "xxxxxxxx" }
        /// DSB, DMB, ISB, SB, CLREX.
        Barrier { "111100111011111110001111", op: 4, "xxxx" }
        /// MSR.
        WriteState { "11110011100", spsr: 1, rn: 4, "10x0", mask: 4, low: 8 }
        /// BXJ.
        BranchJazelle { "111100111100xxxx10x0xxxxxxxxxxxx" }
        /// SUBS PC, LR; ERET.
        ExceptionReturn { "111100111101xxxx10x0xxxxxxxxxxxx" }
        /// MRS.
        ReadState { "11110011111xxxxx10x0", rd: 4, "xxxxxxxx" }
        /// HVC, SMC.
        HypervisorOrMonitorCall { "11110111111xxxxx1000xxxxxxxxxxxx" }
        /// B with a condition.
        BranchConditional { "11110", s: 1, cond: 4, high: 6, "10", j1: 1, "0", j2: 1, low: 11 }
        /// B.
        Branch { "11110", s: 1, high: 10, "10", j1: 1, "1", j2: 1, low: 11 }
        /// BL.
        BranchLink { "11110", s: 1, high: 10, "11", j1: 1, "1", j2: 1, low: 11 }
        /// BLX, to A32.
        BranchLinkExchange { "11110", s: 1, high: 10, "11", j1: 1, "0", j2: 1, low: 10, "0" }
        /// LE, LETP (Armv8.1-M).
        LoopEnd { "11110000000x11111100", low: 1, imm: 10, "1" }
        /// LE that always branches (Armv8.1-M).
        LoopEndAlways { "11110000001011111100", low: 1, imm: 10, "1" }
        /// WLS (Armv8.1-M).
        LoopStart { "111100000100xxxx1100", low: 1, imm: 10, "1" }
        /// WLSTP (Armv8.1-M).
        LoopStartTail { "1111000000xxxxxx1100", low: 1, imm: 10, "1" }

        /// Loads and stores of elements (Advanced SIMD).
        Elements { "11111001xxx0xxxxxxxxxxxxxxxxxxxx" }
        /// LDR, STR and the like of one register; PLD, PLI.
        Single { "1111100", signed: 1, u: 1, size: 2, load: 1, rn: 4, rt: 4, imm: 12 }
        /// BXAUT (Armv8.1-M).
        BranchAuthenticated { "111110110101", rn: 4, ra: 4, "11110001", rm: 4 }
        /// Shifts by registers, extension, parallel and other operations of registers.
        DataRegisters { "11111010xxxxxxxxxxxxxxxxxxxxxxxx" }
        /// MUL, MLA and other products of 32 bits.
        Products { "111110110xxxxxxxxxxxxxxxxxxxxxxx" }
        /// SMULL and other products of 64 bits; SDIV, UDIV.
        LongProducts { "111110111xxxxxxxxxxxxxxxxxxxxxxx" }
    }
}
