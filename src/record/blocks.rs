//! The emulator's translated blocks, decoded once.
//!
//! A block is a straight run of instructions. A branch ends a block; conditional T32 and A32
//! instructions may occur anywhere.

use super::stream::{Definition, bad};
use armsnap_arch::arch::branch::{self, Instruction, ItBlock, Kind};
use armsnap_arch::quantity::{Address, Isa};
use armsnap_trace::encode::CodeAddress;
use capstone::prelude::*;
use std::io;

/// The instruction sets that the cores execute.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sets {
    /// AArch64 only.
    A64,
    /// A32 and T32.
    A32AndT32,
    /// T32 only (M-profile).
    T32,
}

/// A straight run of instructions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Block {
    /// The block's ID in the stream.
    pub id: u32,
    /// The first instruction.
    pub start: CodeAddress,
    /// The instructions; empty where the emulator replaces kernel code (Arm's helpers at
    /// 0xffff0000).
    pub instructions: Vec<Instruction>,
    /// The bytes of the instructions.
    pub bytes: Vec<u8>,
    /// Whether the last instruction is SVC.
    pub calls: bool,
    /// Whether the last instruction is BXNS or BLXNS, which may leave secure state.
    pub leaves_secure: bool,
}

/// Stands for the ID of a block that is not in the stream.
pub const NOT_IN_STREAM: u32 = u32::MAX;

impl Block {
    /// Returns a block with the instruction SG (Armv8-M ARM DDI 0553, C2.4.173), which is not in the stream
    /// when non-secure code enters secure code.
    pub fn gate(address: u64) -> Self {
        Self {
            id: NOT_IN_STREAM,
            start: CodeAddress {
                address: Address(address),
                isa: Isa::T32,
            },
            instructions: vec![Instruction::other(4)],
            bytes: vec![0x7f, 0xe9, 0x7f, 0xe9],
            calls: false,
            leaves_secure: false,
        }
    }

    /// Returns the address of an instruction by index, or the end of the block.
    pub fn address(&self, instruction: usize) -> Address {
        let before = self.instructions.iter().take(instruction);
        let bytes: u64 = before.map(|i| u64::from(i.bytes)).sum();
        Address(self.start.address.0.wrapping_add(bytes))
    }

    /// Returns the end of the block, exclusive.
    pub fn end(&self) -> Address {
        Address(self.start.address.0.wrapping_add(self.bytes.len() as u64))
    }

    /// Returns the last instruction.
    pub fn last(&self) -> &Instruction {
        static NONE: Instruction = Instruction {
            bytes: 4,
            kind: Kind::Other,
            link: false,
            returns: false,
            exception_return: false,
            conditional: false,
            it_block: 0,
        };
        self.instructions.last().unwrap_or(&NONE)
    }
}

/// All blocks, by ID.
#[derive(Debug)]
pub struct BlockTable {
    sets: Sets,
    blocks: Vec<Block>,
}

impl BlockTable {
    /// Creates an empty table.
    pub fn new(sets: Sets) -> Self {
        Self {
            sets,
            blocks: Vec::new(),
        }
    }

    /// Returns the block with this ID.
    #[inline]
    pub fn get(&self, id: u32) -> Option<&Block> {
        self.blocks.get(id as usize)
    }

    /// Adds the next block. Blocks must come in the order of their IDs.
    ///
    /// # Errors
    ///
    /// If the block is not the next one, or has no instructions or an invalid size.
    pub fn add(&mut self, definition: &Definition<'_>) -> io::Result<()> {
        if definition.id as usize != self.blocks.len() {
            return Err(bad("blocks do not come in the order of their IDs"));
        }
        let opaque = definition.sizes == [0];
        if definition.sizes.is_empty()
            || !opaque && definition.sizes.iter().any(|&s| !matches!(s, 2 | 4 | 6))
        {
            return Err(bad(
                "a block without instructions, or with an invalid instruction size",
            ));
        }
        let sizes = if opaque { &[][..] } else { definition.sizes };
        let isa = self.isa(definition);
        let mut instructions = Vec::with_capacity(sizes.len());
        let mut address = definition.address;
        let mut bytes = definition.bytes;
        let mut code = Vec::with_capacity(bytes.len());
        let mut it_block = ItBlock::default();
        for &size in sizes {
            let (own, rest) = bytes
                .split_at_checked(size.into())
                .ok_or_else(|| bad("a block without its bytes"))?;
            let mut word = [0; 4];
            let known = own.len().min(4);
            word[..known].copy_from_slice(&own[..known]);
            let mut instruction =
                branch::decode(isa, Address(address), u32::from_le_bytes(word))
                    .ok_or_else(|| bad("an instruction of an unsupported instruction set"))?;
            // At the end of a page the emulator also reads the halfword after a T32 instruction.
            if instruction.bytes > size {
                return Err(bad("half of an instruction"));
            }
            it_block.step(&mut instruction);
            instructions.push(instruction);
            address = address.wrapping_add(instruction.bytes.into());
            code.extend_from_slice(&own[..instruction.bytes.into()]);
            bytes = rest;
        }
        let last = instructions.last().map_or(0, |last| last.bytes.into());
        let last = &code[code.len() - last..];
        let calls = is_call(isa, last);
        // DDI 0553, C2.3: 0100 0111 x mmmm 1xx.
        let leaves_secure = self.sets == Sets::T32 && matches!(*last, [low, 0x47] if low & 7 == 4);
        self.blocks.push(Block {
            id: definition.id,
            start: CodeAddress {
                address: Address(definition.address),
                isa,
            },
            instructions,
            bytes: code,
            calls,
            leaves_secure,
        });
        Ok(())
    }

    fn isa(&self, definition: &Definition<'_>) -> Isa {
        if let Some(isa) = definition.isa {
            return isa;
        }
        match self.sets {
            Sets::A64 => Isa::A64,
            Sets::T32 => Isa::T32,
            Sets::A32AndT32
                if !definition.address.is_multiple_of(4) || definition.sizes.contains(&2) =>
            {
                Isa::T32
            }
            Sets::A32AndT32 => SetDetector::new().isa(definition),
        }
    }
}

/// Returns whether an instruction is SVC, in its 32-bit and 16-bit encodings.
fn is_call(isa: Isa, bytes: &[u8]) -> bool {
    let word = match *bytes {
        [a, b] => u32::from(u16::from_le_bytes([a, b])),
        [a, b, c, d] => u32::from_le_bytes([a, b, c, d]),
        _ => return false,
    };
    match isa {
        Isa::A64 => word & 0xffe0_001f == 0xd400_0001,
        Isa::A32 => word & 0x0f00_0000 == 0x0f00_0000 && word >> 28 != 0xf,
        _ => bytes.len() == 2 && word & 0xff00 == 0xdf00,
    }
}

/// Distinguishes A32 from T32 in blocks whose instructions all have four bytes, by comparing both
/// disassemblies with the emulator's.
#[derive(Debug)]
struct SetDetector {
    a32: Option<Capstone>,
    t32: Option<Capstone>,
}

impl SetDetector {
    fn new() -> Self {
        let build = |mode| {
            let builder = Capstone::new().arm().mode(mode);
            builder
                .extra_mode([arch::arm::ArchExtraMode::V8].into_iter())
                .build()
                .ok()
        };
        Self {
            a32: build(arch::arm::ArchMode::Arm),
            t32: build(arch::arm::ArchMode::Thumb),
        }
    }

    fn isa(&self, definition: &Definition<'_>) -> Isa {
        let text = String::from_utf8_lossy(definition.text);
        let (mut a32, mut t32) = (0, 0);
        for (line, (index, bytes)) in text
            .lines()
            .zip(definition.bytes.chunks_exact(4).enumerate())
        {
            let address = definition.address.wrapping_add(4 * index as u64);
            a32 += agreement(self.a32.as_ref(), address, bytes, line);
            t32 += agreement(self.t32.as_ref(), address, bytes, line);
        }
        if t32 > a32 { Isa::T32 } else { Isa::A32 }
    }
}

/// Rates how well the disassembly of an instruction matches a line of the emulator's.
fn agreement(capstone: Option<&Capstone>, address: u64, bytes: &[u8], line: &str) -> u32 {
    let Some(found) = capstone.and_then(|c| c.disasm_count(bytes, address, 1).ok()) else {
        return 0;
    };
    let Some(instruction) = found.iter().next() else {
        return 0;
    };
    let mut words = line.splitn(2, char::is_whitespace);
    let mnemonic = words.next().unwrap_or_default().trim_end_matches(".w");
    let operands = words.next().unwrap_or_default().trim();
    let own = instruction.mnemonic().unwrap_or_default();
    let same = u32::from(own.trim_end_matches(".w") == mnemonic);
    same + u32::from(instruction.op_str().unwrap_or_default().trim() == operands)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn define(table: &mut BlockTable, address: u64, bytes: &[u8], text: &str) -> Isa {
        let id = table.blocks.len() as u32;
        let definition = Definition {
            id,
            address,
            sizes: &[4],
            bytes,
            text: text.as_bytes(),
            isa: None,
        };
        table.add(&definition).unwrap();
        table.get(id).unwrap().start.isa
    }

    #[test]
    fn a32_and_t32_of_one_size() {
        let mut table = BlockTable::new(Sets::A32AndT32);
        // bl 0x1000 + 8 + 0x40 (A32)
        let bytes = 0xeb00_0010_u32.to_le_bytes();
        assert_eq!(define(&mut table, 0x1000, &bytes, "bl #0x1048\n"), Isa::A32);
        // bl 0x1004 + 0x40 (T32)
        let bytes = [0x00, 0xf0, 0x20, 0xf8];
        assert_eq!(define(&mut table, 0x1000, &bytes, "bl #0x1044\n"), Isa::T32);
        assert_eq!(define(&mut table, 0x1002, &bytes, ""), Isa::T32);
    }

    #[test]
    fn blocks_of_a_broken_stream() {
        let mut table = BlockTable::new(Sets::A64);
        let definition = Definition {
            id: 0,
            address: 0,
            sizes: &[3],
            bytes: &[0; 3],
            text: &[],
            isa: None,
        };
        assert!(table.add(&definition).is_err());
        let definition = Definition {
            id: 1,
            sizes: &[4],
            bytes: &[0; 4],
            ..definition
        };
        assert!(table.add(&definition).is_err());
    }
}
