//! Loads and stores.

encodings! {
    /// Loads and stores. Fields that several have: `v` is whether the register is a vector, `mode` is 1
    /// for post-index and 3 for pre-index.
    pub enum Memory by 22 {
        /// LDP, STP, LDNP, STNP, LDPSW, STGP.
        Pair {
            opc: 2, "101", v: 1, "0", mode: 2, load: 1, imm: 7, rt2: 5, rn: 5, rt: 5
        }
        /// LDR, STR and the like with an unsigned offset; PRFM.
        Offset { size: 2, "111", v: 1, "01", opc: 2, imm: 12, rn: 5, rt: 5 }
        /// LDUR, STUR and the like, LDR and STR with post-index or pre-index, LDTR and STTR (`mode` 2);
        /// PRFUM.
        Unscaled { size: 2, "111", v: 1, "00", opc: 2, "0", imm: 9, mode: 2, rn: 5, rt: 5 }
        /// LDR, STR and the like with an offset in a register; PRFM.
        RegisterOffset {
            size: 2, "111", v: 1, "00", opc: 2, "1", rm: 5, option: 3, s: 1, "10", rn: 5, rt: 5
        }
        /// LDR, LDRSW with an address relative to the pc; PRFM.
        Literal { opc: 2, "011", v: 1, "00", imm: 19, rt: 5 }
        /// LDADD, LDCLR, LDEOR, LDSET, LDSMAX and the like, SWP; LDAPR.
        Atomic {
            size: 2, "111", v: 1, "00", acquire: 1, release: 1, "1", rs: 5, o3: 1, opc: 3, "00",
            rn: 5, rt: 5
        }
        /// LDRAA, LDRAB (FEAT_PAuth).
        Authenticated {
            "11111000x", sign: 1, "1", imm: 9, pre: 1, "1", rn: 5, rt: 5
        }

        /// LDXR, STXR, LDAXR, STLXR and their unprivileged forms (FEAT_LSUI).
        Exclusive {
            size: 2, "00100", unprivileged: 1, "0", load: 1, "0", rs: 5, "x", rt2: 5, rn: 5, rt: 5
        }
        /// LDXP, STXP, LDAXP, STLXP.
        ExclusivePair {
            "1", sz: 1, "00100", unprivileged: 1, "0", load: 1, "1", rs: 5, "x", rt2: 5, rn: 5, rt: 5
        }
        /// CASP.
        CompareAndSwapPair {
            "0", sz: 1, "00100", unprivileged: 1, "0", acquire: 1, "1", rs: 5, "x", rt2: 5, rn: 5, rt: 5
        }
        /// LDAR, STLR, LDLAR, STLLR.
        Ordered {
            size: 2, "00100", unprivileged: 1, "1", load: 1, "0", rs: 5, "x", rt2: 5, rn: 5, rt: 5
        }
        /// CAS.
        CompareAndSwap {
            size: 2, "00100", unprivileged: 1, "1", acquire: 1, "1", rs: 5, "x", rt2: 5, rn: 5, rt: 5
        }
        /// LDAPUR, STLUR (FEAT_LRCPC2).
        OrderedUnscaled { size: 2, "011001", opc: 2, "0", imm: 9, "00", rn: 5, rt: 5 }
        /// STG, LDG and other accesses of tags (FEAT_MTE).
        Tag { "11011001", opc: 2, "1", imm: 9, mode: 2, rn: 5, rt: 5 }
        /// LDCLRP, LDSETP, SWPP (FEAT_LSE128).
        AtomicPair {
            "00011001", acquire: 1, release: 1, "1", rt2: 5, o3: 1, opc: 3, "00", rn: 5, rt: 5
        }
        /// CPY and SET of blocks of memory (FEAT_MOPS); LDIAPP, STILP and accesses of vectors with order
        /// (FEAT_LRCPC3); RCWCAS and the like (FEAT_THE).
        BlockOrOther { "xx011x01xxx", rs: 5, "xxxxxx", rn: 5, rt: 5 }

        /// LD1 to LD4 and ST1 to ST4 of several elements, or of one (`single`).
        Structure {
            "x", q: 1, "00110", single: 1, post: 1, load: 1, r: 1, rm: 5, opcode: 3, s: 1, size: 2,
            rn: 5, rt: 5
        }
    }
}
