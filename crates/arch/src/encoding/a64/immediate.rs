//! Data processing with immediates.

encodings! {
    /// Data processing with immediates.
    pub enum Immediate by 22 {
        /// ADR, ADRP.
        Address { page: 1, low: 2, "10000", imm: 19, rd: 5 }
        /// ADD, ADDS, SUB, SUBS; MOV from and to the stack pointer, CMP, CMN.
        AddSubtract { sf: 1, op: 1, s: 1, "100010", shift: 1, imm: 12, rn: 5, rd: 5 }
        /// ADDG, SUBG (FEAT_MTE).
        AddTag { "1", op: 1, "01000110", imm: 6, "00", tag: 4, rn: 5, rd: 5 }
        /// SMAX, UMAX, SMIN, UMIN (FEAT_CSSC).
        MinMax { sf: 1, "00100011100", opc: 2, imm: 8, rn: 5, rd: 5 }
        /// AND, ORR, EOR, ANDS; MOV, TST.
        Logical { sf: 1, opc: 2, "100100", n: 1, immr: 6, imms: 6, rn: 5, rd: 5 }
        /// MOVN, MOVZ, MOVK.
        MoveWide { sf: 1, opc: 2, "100101", hw: 2, imm: 16, rd: 5 }
        /// SBFM, BFM, UBFM; shifts, extensions and bit fields.
        BitField { sf: 1, opc: 2, "100110", n: 1, immr: 6, imms: 6, rn: 5, rd: 5 }
        /// EXTR; ROR.
        Extract { sf: 1, "00100111", n: 1, "0", rm: 5, imms: 6, rn: 5, rd: 5 }
    }
}
