//! Disassembly of single instructions, for listings.
//!
//! Independent of trace; `capstone` decodes the instruction sets.

use armsnap_arch::quantity::Isa;
use capstone::prelude::*;
use capstone::{Capstone, arch};

/// An error that prevents creating a disassembler.
#[derive(Debug, thiserror::Error)]
#[error(transparent)]
pub struct DisassemblerError(#[from] capstone::Error);

/// Disassemblers for the supported instruction sets.
pub struct Disassembler {
    a64: Capstone,
    a32: Capstone,
    t32: Capstone,
}

impl Disassembler {
    /// Creates disassemblers for little-endian code. `m_profile` selects the M-profile variant of T32.
    ///
    /// # Errors
    ///
    /// Returns an error if Capstone lacks one of the instruction sets or runs out of memory.
    pub fn new(m_profile: bool) -> Result<Self, DisassemblerError> {
        let thumb = if m_profile {
            vec![
                arch::arm::ArchExtraMode::MClass,
                arch::arm::ArchExtraMode::V8,
            ]
        } else {
            vec![arch::arm::ArchExtraMode::V8]
        };
        Ok(Self {
            a64: Capstone::new()
                .arm64()
                .mode(arch::arm64::ArchMode::Arm)
                .build()?,
            a32: Capstone::new()
                .arm()
                .mode(arch::arm::ArchMode::Arm)
                .extra_mode([arch::arm::ArchExtraMode::V8].into_iter())
                .build()?,
            t32: Capstone::new()
                .arm()
                .mode(arch::arm::ArchMode::Thumb)
                .extra_mode(thumb.into_iter())
                .build()?,
        })
    }

    /// Returns the text of the first instruction in `code`, or its bytes as a number if it is unknown.
    pub fn text(&self, isa: Isa, address: u64, code: &[u8]) -> String {
        let engine = match isa {
            Isa::A64 => Some(&self.a64),
            Isa::A32 => Some(&self.a32),
            Isa::T32 => Some(&self.t32),
            Isa::ThumbEe | Isa::Jazelle => None,
        };
        engine
            .and_then(|engine| {
                let found = engine.disasm_count(code, address, 1).ok()?;
                let instruction = found.iter().next()?;
                let mnemonic = instruction.mnemonic()?;
                Some(match instruction.op_str() {
                    Some(operands) if !operands.is_empty() => format!("{mnemonic} {operands}"),
                    _ => mnemonic.to_owned(),
                })
            })
            .unwrap_or_else(|| unknown(isa, code))
    }
}

fn unknown(isa: Isa, code: &[u8]) -> String {
    match (isa, code) {
        (Isa::A64 | Isa::A32, &[a, b, c, d, ..]) => {
            format!(".inst {:#010x}", u32::from_le_bytes([a, b, c, d]))
        }
        (_, &[a, b, c, d]) => format!(
            ".inst.w {:#06x}{:04x}",
            u16::from_le_bytes([a, b]),
            u16::from_le_bytes([c, d])
        ),
        (_, &[a, b, ..]) => format!(".inst.n {:#06x}", u16::from_le_bytes([a, b])),
        _ => "?".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_instruction_set_is_read_as_itself() {
        let d = Disassembler::new(false).unwrap();
        assert_eq!(d.text(Isa::A64, 0, &[0xc0, 0x03, 0x5f, 0xd6]), "ret");
        assert_eq!(d.text(Isa::A32, 0, &[0x1e, 0xff, 0x2f, 0xe1]), "bx lr");
        assert_eq!(d.text(Isa::T32, 0, &[0x70, 0x47]), "bx lr");
        assert_eq!(
            d.text(Isa::A64, 0x1000, &[0x02, 0, 0, 0x94]),
            "bl #0x1008",
            "targets are absolute"
        );
    }

    #[test]
    fn invalid_instructions_are_shown_as_numbers() {
        let d = Disassembler::new(true).unwrap();
        assert_eq!(d.text(Isa::A64, 0, &[0xff; 4]), ".inst 0xffffffff");
        assert_eq!(d.text(Isa::Jazelle, 0, &[1, 2]), ".inst.n 0x0201");
        assert_eq!(d.text(Isa::A64, 0, &[1]), "?");
    }
}
