//! Data processing of registers.

encodings! {
    /// Data processing of registers.
    pub enum Register by 21 {
        /// AND, BIC, ORR, ORN, EOR, EON, ANDS, BICS; MOV, MVN, TST.
        Logical { sf: 1, opc: 2, "01010", shift: 2, n: 1, rm: 5, imm: 6, rn: 5, rd: 5 }
        /// ADD, ADDS, SUB, SUBS with a shifted register; NEG, CMP, CMN.
        AddSubtract { sf: 1, op: 1, s: 1, "01011", shift: 2, "0", rm: 5, imm: 6, rn: 5, rd: 5 }
        /// ADD, ADDS, SUB, SUBS with an extended register; CMP, CMN.
        AddSubtractExtended {
            sf: 1, op: 1, s: 1, "01011001", rm: 5, option: 3, imm: 3, rn: 5, rd: 5
        }
        /// ADC, ADCS, SBC, SBCS; NGC.
        AddCarry { sf: 1, op: 1, s: 1, "11010000", rm: 5, "000000", rn: 5, rd: 5 }
        /// RMIF (FEAT_FlagM).
        RotateToFlags { "10111010000", imm: 6, "00001", rn: 5, "0", mask: 4 }
        /// SETF8, SETF16 (FEAT_FlagM).
        SetFlags { "00111010000000000", size: 1, "0010", rn: 5, "01101" }
        /// CCMN, CCMP.
        ConditionalCompare {
            sf: 1, op: 1, "111010010", rm: 5, cond: 4, immediate: 1, "0", rn: 5, "0", nzcv: 4
        }
        /// CSEL, CSINC, CSINV, CSNEG; CSET.
        ConditionalSelect {
            sf: 1, op: 1, "011010100", rm: 5, cond: 4, "0", op2: 1, rn: 5, rd: 5
        }

        /// RBIT.
        ReverseBits { sf: 1, "101101011000000000000", rn: 5, rd: 5 }
        /// REV16.
        ReverseHalves { sf: 1, "101101011000000000001", rn: 5, rd: 5 }
        /// REV of 32 bits, REV32.
        ReverseWords { sf: 1, "101101011000000000010", rn: 5, rd: 5 }
        /// REV of 64 bits.
        Reverse { "1101101011000000000011", rn: 5, rd: 5 }
        /// CLZ.
        LeadingZeros { sf: 1, "101101011000000000100", rn: 5, rd: 5 }
        /// CLS.
        LeadingSigns { sf: 1, "101101011000000000101", rn: 5, rd: 5 }
        /// CTZ (FEAT_CSSC).
        TrailingZeros { sf: 1, "101101011000000000110", rn: 5, rd: 5 }
        /// CNT (FEAT_CSSC).
        CountBits { sf: 1, "101101011000000000111", rn: 5, rd: 5 }
        /// ABS (FEAT_CSSC).
        Absolute { sf: 1, "101101011000000001000", rn: 5, rd: 5 }
        /// PACIA to AUTDB (FEAT_PAuth).
        Authenticate { "1101101011000001000", key: 3, rn: 5, rd: 5 }
        /// PACIZA to AUTDZB (FEAT_PAuth).
        AuthenticateZero { "1101101011000001001", key: 3, "11111", rd: 5 }
        /// XPACI, XPACD (FEAT_PAuth).
        StripAuthentication { "110110101100000101000", data: 1, "11111", rd: 5 }

        /// SUBP, SUBPS (FEAT_MTE).
        SubtractPointers { "10", s: 1, "11010110", rm: 5, "000000", rn: 5, rd: 5 }
        /// UDIV.
        DivideUnsigned { sf: 1, "0011010110", rm: 5, "000010", rn: 5, rd: 5 }
        /// SDIV.
        DivideSigned { sf: 1, "0011010110", rm: 5, "000011", rn: 5, rd: 5 }
        /// IRG (FEAT_MTE).
        RandomTag { "10011010110", rm: 5, "000100", rn: 5, rd: 5 }
        /// GMI (FEAT_MTE).
        TagMask { "10011010110", rm: 5, "000101", rn: 5, rd: 5 }
        /// LSLV, LSRV, ASRV, RORV.
        Shift { sf: 1, "0011010110", rm: 5, "0010", shift: 2, rn: 5, rd: 5 }
        /// PACGA (FEAT_PAuth).
        AuthenticationCode { "10011010110", rm: 5, "001100", rn: 5, rd: 5 }
        /// CRC32, CRC32C.
        Crc32 { sf: 1, "0011010110", rm: 5, "010", castagnoli: 1, size: 2, rn: 5, rd: 5 }
        /// SMAX, UMAX, SMIN, UMIN (FEAT_CSSC).
        MinMax { sf: 1, "0011010110", rm: 5, "0110", opc: 2, rn: 5, rd: 5 }

        /// MADD, MSUB; MUL, MNEG.
        MultiplyAdd { sf: 1, "0011011000", rm: 5, o0: 1, ra: 5, rn: 5, rd: 5 }
        /// SMADDL, SMSUBL, UMADDL, UMSUBL; SMULL, UMULL.
        MultiplyAddLong { "10011011", unsigned: 1, "01", rm: 5, o0: 1, ra: 5, rn: 5, rd: 5 }
        /// SMULH, UMULH.
        MultiplyHigh { "10011011", unsigned: 1, "10", rm: 5, "0", ra: 5, rn: 5, rd: 5 }
    }
}
