//! The locations that relations read and write.

use std::fmt;

/// A location of 64 bits: a general register, half of a vector register, a condition flag (0 or 1),
/// or a temporary of one instruction.
///
/// A32 and T32 use [`Location::general`] 0 to 14 for r0 to r14 (in the current mode); their pc is a
/// constant of each instruction.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Location(u8);

impl Location {
    /// The number of locations that are kept between instructions.
    pub const KEPT: usize = 112;
    /// The stack pointer of A64 at the current exception level.
    pub const SP: Self = Self(31);
    /// Flag N.
    pub const N: Self = Self(32);
    /// Flag Z.
    pub const Z: Self = Self(33);
    /// Flag C.
    pub const C: Self = Self(34);
    /// Flag V.
    pub const V: Self = Self(35);
    /// Flag Q of AArch32 (saturation).
    pub const Q: Self = Self(36);
    /// Flags GE of AArch32, bits 3:0.
    pub const GE: Self = Self(37);
    /// FPCR; in AArch32 the control bits of FPSCR.
    pub const FPCR: Self = Self(38);
    /// TPIDR_EL0; in AArch32 TPIDRURO.
    pub const THREAD_POINTER: Self = Self(39);
    /// N:Z:C:V of FPSCR in AArch32, in bits 3:0.
    pub const FPSCR_FLAGS: Self = Self(40);
    /// DCZID_EL0, which is constant.
    pub const ZERO_BLOCK: Self = Self(41);
    /// On M-profile cores, the stack pointer that is not in use: PSP if SP is MSP, otherwise MSP.
    pub const OTHER_STACK: Self = Self(42);
    /// On M-profile cores, whether SP is PSP (0 or 1): never in Handler mode.
    pub const ON_PROCESS_STACK: Self = Self(43);
    /// On M-profile cores, whether the core is in Handler mode (0 or 1).
    pub const HANDLER_MODE: Self = Self(44);
    /// On M-profile cores with floating point, whether the code that is executed has used it
    /// (CONTROL.FPCA, 0 or 1): then an exception makes room for its floating-point registers.
    pub const FLOATS: Self = Self(45);
    /// On M-profile cores with floating point, whether the core has not stored the floating-point
    /// registers of interrupted code yet (FPCCR.LSPACT, 0 or 1); then its first floating-point
    /// instruction does.
    pub const FLOATS_PENDING: Self = Self(46);
    /// On M-profile cores with floating point, the address in the last frame with room for
    /// floating-point registers where they are stored (FPCAR).
    pub const LAZY_FRAME: Self = Self(47);
    /// Used instead of a destination: the result is dropped.
    pub const NOWHERE: Self = Self(255);

    const VECTORS: u8 = 48;
    const TEMPORARIES: u8 = 112;

    /// x0 to x30, or r0 to r14.
    ///
    /// # Panics
    /// If `number` is above 30.
    #[must_use]
    pub const fn general(number: u8) -> Self {
        assert!(number <= 30, "general registers are 0 to 30");
        Self(number)
    }

    /// The low (`half` 0: bits 63:0) or high (`half` 1: bits 127:64) half of a vector register.
    /// In AArch32, d0 to d31 are the halves of v0 to v15 in order.
    ///
    /// # Panics
    /// If `number` is above 31 or `half` above 1.
    #[must_use]
    pub const fn vector(number: u8, half: u8) -> Self {
        assert!(
            number <= 31 && half <= 1,
            "vector registers are 0 to 31, halves 0 and 1"
        );
        Self(Self::VECTORS + 2 * number + half)
    }

    /// A temporary of one instruction.
    ///
    /// # Panics
    /// If `number` is above 127.
    #[must_use]
    pub const fn temporary(number: u8) -> Self {
        assert!(number < 128, "an instruction has at most 128 temporaries");
        Self(Self::TEMPORARIES + number)
    }

    /// The kept location with a number below [`Location::KEPT`].
    ///
    /// # Panics
    /// If the number is not below that.
    #[must_use]
    pub const fn kept_at(index: usize) -> Self {
        assert!(index < Self::KEPT, "the location is not kept");
        Self(index as u8)
    }

    /// The locations that are kept between instructions and may change.
    pub(super) fn kept() -> impl Iterator<Item = Self> {
        // 42 to 47 are those of the M profile.
        (0..=Self::FPSCR_FLAGS.0)
            .chain(Self::VECTORS..Self::TEMPORARIES)
            .map(Self)
    }

    /// Whether the value outlives its instruction.
    #[must_use]
    pub const fn is_kept(self) -> bool {
        self.0 < Self::TEMPORARIES
    }

    /// The number of the location: below [`Location::KEPT`] if it is kept.
    #[must_use]
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

impl fmt::Debug for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            number @ 0..=30 => write!(f, "x{number}"),
            31 => f.write_str("sp"),
            32 => f.write_str("n"),
            33 => f.write_str("z"),
            34 => f.write_str("c"),
            35 => f.write_str("v"),
            36 => f.write_str("q"),
            37 => f.write_str("ge"),
            38 => f.write_str("fpcr"),
            39 => f.write_str("tp"),
            40 => f.write_str("fpscr_nzcv"),
            41 => f.write_str("dczid"),
            42 => f.write_str("other_sp"),
            43 => f.write_str("on_psp"),
            44 => f.write_str("handler"),
            45 => f.write_str("fpca"),
            46 => f.write_str("lspact"),
            47 => f.write_str("fpcar"),
            255 => f.write_str("nowhere"),
            half @ Self::VECTORS..Self::TEMPORARIES => {
                let half = half - Self::VECTORS;
                write!(
                    f,
                    "v{}.{}",
                    half / 2,
                    if half % 2 == 0 { "low" } else { "high" }
                )
            }
            other if other >= Self::TEMPORARIES => write!(f, "t{}", other - Self::TEMPORARIES),
            other => write!(f, "location {other}"),
        }
    }
}
