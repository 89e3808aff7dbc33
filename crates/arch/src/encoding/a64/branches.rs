//! Branches, exception generation and system instructions.

encodings! {
    /// Branches, exception generation and system instructions.
    ///
    /// Later extensions (pointer authentication, FEAT_CMPBR, FEAT_HBC, TME) are always recognised:
    /// their encodings were unallocated before.
    pub enum Branch by 24 {
        /// B, BL.
        Immediate { link: 1, "00101", imm: 26 }
        /// CBZ, CBNZ.
        CompareZero { sf: 1, "011010", nonzero: 1, imm: 19, rt: 5 }
        /// TBZ, TBNZ.
        TestBit { high: 1, "011011", nonzero: 1, low: 5, imm: 14, rt: 5 }
        /// B.cond; BC.cond (FEAT_HBC).
        Conditional { "01010100", imm: 19, "x", cond: 4 }
        /// `CB<cc>` (register) (FEAT_CMPBR).
        CompareRegister { "x1110100", cc: 3, rm: 5, "00", imm: 9, rt: 5 }
        /// `CBB<cc>`, `CBH<cc>` (FEAT_CMPBR).
        ComparePart { "01110100", cc: 3, rm: 5, "1", half: 1, imm: 9, rt: 5 }
        /// `CB<cc>` (immediate) (FEAT_CMPBR).
        CompareImmediate { "x1110101", cc: 3, value: 6, "0", imm: 9, rt: 5 }
        /// RETAASPPC, RETABSPPC with a label (FEAT_PAuth_LR).
        ReturnByLabel { "0101010100x", imm: 16, "11111" }

        /// BR, BLR.
        Register { "1101011000", link: 1, "11111000000", rn: 5, "00000" }
        /// BRAAZ, BRABZ, BLRAAZ, BLRABZ (FEAT_PAuth).
        RegisterAndZero { "1101011000", link: 1, "1111100001x", rn: 5, "11111" }
        /// BRAA, BRAB, BLRAA, BLRAB (FEAT_PAuth).
        RegisterAndModifier { "1101011100", link: 1, "1111100001x", rn: 5, rm: 5 }
        /// RET.
        Return { "1101011001011111000000", rn: 5, "00000" }
        /// RETAA, RETAB (FEAT_PAuth): `rm` is 31; RETAASPPCR, RETABSPPCR (FEAT_PAuth_LR).
        ReturnAuthenticated { "110101100101111100001x11111", rm: 5 }
        /// ERET.
        ExceptionReturn { "11010110100111110000001111100000" }
        /// ERETAA, ERETAB (FEAT_PAuth).
        ExceptionReturnAuthenticated { "110101101001111100001x1111111111" }
        /// TEXIT (TME), which returns from an exception. (DRPS is executed in Debug state only, without
        /// trace.)
        TransactionExit { "110101101111111100000x1111100000" }

        /// SVC.
        SystemCall { "11010100000", imm: 16, "00001" }
        /// HVC, SMC.
        HypervisorOrMonitorCall { "11010100000", imm: 16, "0001x" }
        /// BRK.
        Breakpoint { "11010100001", imm: 16, "00000" }
        /// HLT.
        Halt { "11010100010", imm: 16, "00000" }

        /// NOP, WFE, PACIASP, BTI and other hints.
        Hint { "11010101000000110010", crm: 4, op2: 3, "11111" }
        /// DSB, DMB, ISB, SB, CLREX.
        Barrier { "11010101000000110011", crm: 4, op2: 3, rt: 5 }
        /// WFET, WFIT (FEAT_WFxT).
        WaitWithTimeout { "11010101000000110001000000x", rd: 5 }
        /// MSR (immediate), CFINV, XAFLAG, AXFLAG.
        WriteState { "1101010100000", op1: 3, "0100", crm: 4, op2: 3, "11111" }
        /// TSTART, TTEST (TME).
        ReadTransaction { "1101010100100", op1: 3, crn: 4, crm: 4, op2: 3, rt: 5 }
        /// SYS: DC, IC, AT, TLBI and others.
        SystemOperation { "1101010100001", op1: 3, crn: 4, crm: 4, op2: 3, rt: 5 }
        /// SYSL.
        SystemOperationWithResult { "1101010100101", op1: 3, crn: 4, crm: 4, op2: 3, rt: 5 }
        /// MRS.
        ReadRegister { "110101010011", o0: 1, op1: 3, crn: 4, crm: 4, op2: 3, rt: 5 }
        /// MSR (register).
        WriteRegister { "110101010001", o0: 1, op1: 3, crn: 4, crm: 4, op2: 3, rt: 5 }
    }
}
