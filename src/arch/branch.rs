//! What an instruction does to the flow of a program, for all instruction sets.
//!
//! Knows encodings only: not where instructions come from, nor what a trace says about them.

use crate::quantity::{Address, Isa};

/// What a trace unit may see in an instruction (ETMv4 IHI 0064, "P0 instructions"; PFT IHI 0035,
/// "waypoint instructions").
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Nothing that steers a program.
    Other,
    /// A branch whose target is in its encoding.
    Branch {
        /// Where it goes if taken.
        target: Address,
        /// The instruction set there.
        isa: Isa,
    },
    /// A branch whose target is in a register or in memory; exception returns too.
    Indirect,
    /// ISB, or its CP15 form.
    Isb,
    /// DSB or DMB, or their CP15 forms.
    Barrier,
    /// WFI, WFE and their forms with timeout.
    Wait,
    /// TSTART.
    Transaction,
}

/// An instruction as far as program flow is concerned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Instruction {
    /// Size: 2 or 4 bytes.
    pub bytes: u8,
    /// What it does to the flow.
    pub kind: Kind,
    /// It writes the return address to the link register.
    pub link: bool,
    /// By convention it returns from a function, or it returns from an exception.
    pub returns: bool,
    /// It returns from an exception (ERET, RFE, SUBS PC, LDM with user registers…).
    pub exception_return: bool,
    /// It may do nothing: it tests a condition by itself. (T32 instructions in an IT block are
    /// conditional too; see [`Instruction::it_block`].)
    pub conditional: bool,
    /// T32 IT: how many of the following instructions it makes conditional, else 0.
    pub it_block: u8,
}

impl Instruction {
    pub(crate) const fn new(bytes: u8, kind: Kind) -> Self {
        Self {
            bytes,
            kind,
            link: false,
            returns: false,
            exception_return: false,
            conditional: false,
            it_block: 0,
        }
    }

    pub(crate) const fn other(bytes: u8) -> Self {
        Self::new(bytes, Kind::Other)
    }

    pub(crate) const fn indirect(bytes: u8) -> Self {
        Self::new(bytes, Kind::Indirect)
    }

    pub(crate) const fn branch(bytes: u8, target: u64, isa: Isa) -> Self {
        Self::new(
            bytes,
            Kind::Branch {
                target: Address(target),
                isa,
            },
        )
    }

    pub(crate) const fn link_if(mut self, link: bool) -> Self {
        self.link = link;
        self
    }

    pub(crate) const fn returns_if(mut self, returns: bool) -> Self {
        self.returns = returns;
        self
    }

    pub(crate) const fn exception_return_if(mut self, exception_return: bool) -> Self {
        self.exception_return = exception_return;
        self.returns |= exception_return;
        self
    }

    pub(crate) const fn conditional_if(mut self, conditional: bool) -> Self {
        self.conditional = conditional;
        self
    }
}

/// Sign-extends the low `bits` bits of `value`.
pub(crate) const fn sign_extend(value: u32, bits: u32) -> i64 {
    (((value as i32) << (32 - bits)) >> (32 - bits)) as i64
}

/// The instruction at `address` whose first byte is the lowest one of `word` (code is little
/// endian, on big-endian cores too since Armv6).
///
/// For T32, `word` holds the first halfword in its low half. `None` for instruction sets that
/// are not followed.
#[must_use]
pub fn decode(isa: Isa, address: Address, word: u32) -> Option<Instruction> {
    match isa {
        Isa::A64 => Some(super::a64::decode(address, word)),
        Isa::A32 => Some(super::a32::decode(address, word)),
        Isa::T32 => Some(super::t32::decode(address, word)),
        Isa::ThumbEe | Isa::Jazelle => None,
    }
}
