//! The effect of an instruction on program flow, for all instruction sets.
//!
//! Independent of where instructions and trace come from.

use crate::encoding::t32::is_wide;
use crate::quantity::{Address, Isa};

/// The kinds of instructions that trace units distinguish (ARM IHI 0064H, "P0 instructions"; ARM IHI
/// 0035B, "waypoint instructions").
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// No effect on program flow.
    Other,
    /// A branch whose target is encoded in it.
    Branch {
        /// The target.
        target: Address,
        /// The instruction set at the target.
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

/// The effect of an instruction on program flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Instruction {
    /// Size: 2 or 4 bytes.
    pub bytes: u8,
    /// What it does to the flow.
    pub kind: Kind,
    /// Whether it writes the return address to the link register.
    pub link: bool,
    /// Whether it returns from a function by convention, or from an exception.
    pub returns: bool,
    /// Whether it returns from an exception (ERET, RFE, SUBS PC, LDM with user registers…).
    pub exception_return: bool,
    /// Whether its encoding has a condition. (T32 instructions in an IT block are conditional too; see
    /// [`ItBlock`].)
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

    /// Returns an instruction of `bytes` bytes that does not branch.
    pub const fn other(bytes: u8) -> Self {
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

/// The position in a T32 IT block, whose instructions are conditional (Arm ARM DDI 0487, F1.3.1).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ItBlock {
    /// Remaining instructions of the current block.
    rest: u8,
}

impl ItBlock {
    /// Steps to the next instruction of a straight line, and makes it conditional if it is in the
    /// block.
    #[inline]
    pub fn step(&mut self, instruction: &mut Instruction) {
        if self.rest > 0 {
            self.rest -= 1;
            instruction.conditional = true;
        } else {
            self.rest = instruction.it_block;
        }
    }
}

/// Decodes the instruction at `address`; its first byte is the lowest of `word` (code is little
/// endian since Armv6, even on big-endian cores).
///
/// For T32, `word` holds the first halfword in its low half. `None` for instruction sets that
/// are not followed.
#[must_use]
pub fn decode(isa: Isa, address: Address, word: u32) -> Option<Instruction> {
    let decode = match isa {
        Isa::A64 => super::a64::decode,
        Isa::A32 => super::a32::decode,
        Isa::T32 => super::t32::decode,
        Isa::ThumbEe | Isa::Jazelle => return None,
    };
    Some(decode(address, word))
}

/// Returns the size of an instruction in bytes, 2 or 4, determined by its first two bytes.
#[must_use]
pub fn size(isa: Isa, code: [u8; 2]) -> usize {
    if isa == Isa::T32 && !is_wide(u16::from_le_bytes(code)) {
        2
    } else {
        4
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fmt::Write;

    fn describe(instruction: &Instruction) -> String {
        let mut text = match instruction.kind {
            Kind::Other => "other".into(),
            Kind::Branch { target, isa } => format!("branch {target} {}", isa.name()),
            Kind::Indirect => "indirect".into(),
            Kind::Isb => "isb".into(),
            Kind::Barrier => "barrier".into(),
            Kind::Wait => "wait".to_string(),
            Kind::Transaction => "transaction".into(),
        };
        for (flag, name) in [
            (instruction.link, " link"),
            (
                instruction.returns && !instruction.exception_return,
                " return",
            ),
            (instruction.exception_return, " exception-return"),
            (instruction.conditional, " conditional"),
        ] {
            if flag {
                text += name;
            }
        }
        if instruction.it_block > 0 {
            write!(text, " it {}", instruction.it_block).unwrap();
        }
        text
    }

    /// Decodes each line of a file in testdata/branches; returns how many agree.
    fn check(isa: Isa, name: &str) -> usize {
        let path = format!(
            "{}/../../testdata/branches/{name}",
            env!("CARGO_MANIFEST_DIR")
        );
        let text = std::fs::read_to_string(path).unwrap();
        let mut count = 0;
        for line in text.lines() {
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let columns: Vec<_> = line.split('|').map(str::trim).collect();
            let [address, encoding, _, expected] = columns[..] else {
                panic!("{name}: {line}");
            };
            let address = u64::from_str_radix(address.trim_start_matches("0x"), 16).unwrap();
            let (word, bytes) = match encoding.split_once(' ') {
                Some((first, second)) => (second.to_string() + first, 4),
                None => (encoding.to_string(), encoding.len() / 2),
            };
            let word = u32::from_str_radix(&word, 16).unwrap();
            let instruction = decode(isa, Address(address), word).unwrap();
            assert_eq!(usize::from(instruction.bytes), bytes, "{line}");
            assert_eq!(describe(&instruction), expected, "{line}");
            count += 1;
        }
        count
    }

    #[test]
    fn a64_instructions() {
        assert!(check(Isa::A64, "a64.txt") > 70);
    }

    #[test]
    fn a32_instructions() {
        assert!(check(Isa::A32, "a32.txt") > 70);
    }

    #[test]
    fn t32_instructions() {
        assert!(check(Isa::T32, "t32.txt") > 90);
    }

    #[test]
    fn sets_that_are_not_followed() {
        assert_eq!(decode(Isa::Jazelle, Address(0), 0), None);
        assert_eq!(decode(Isa::ThumbEe, Address(0), 0), None);
    }

    #[test]
    fn targets_stay_in_32_bits() {
        // b .-8 at 0
        let branch = decode(Isa::A32, Address(0), 0xeaff_fffc).unwrap();
        let target = Address(0xffff_fff8);
        assert_eq!(
            branch.kind,
            Kind::Branch {
                target,
                isa: Isa::A32
            }
        );
        // b .-8 at 0 (T32)
        let branch = decode(Isa::T32, Address(0), 0xe7fa).unwrap();
        assert_eq!(
            branch.kind,
            Kind::Branch {
                target,
                isa: Isa::T32
            }
        );
    }
}
