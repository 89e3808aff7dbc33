//! Tables of 32-bit descriptors: the short-descriptor format of AArch32 (DDI 0406, B3.5).

use super::long::{Descriptor, Reader};
use super::steps::{Fault, FaultReason, Step};
use super::{World, bit, field, low_bits};

/// The number of low address bits that an entry of the first level does not resolve: 1 MiB.
const SECTION: u32 = 20;
/// A supersection: 16 MiB.
const SUPERSECTION: u32 = 24;
/// A large page: 64 KiB.
const LARGE: u32 = 16;
/// A small page: 4 KiB.
const SMALL: u32 = 12;

/// Tables of the short-descriptor format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ShortTables {
    /// The register with the address.
    pub name: &'static str,
    /// The address of the table of the first level.
    pub base: u64,
    /// The size of an input address in bits, 25 to 32.
    pub input_bits: u32,
    pub big_endian: bool,
    /// Whether descriptors of the first level may be 0b11: sections that are not executed by
    /// privileged software.
    pub pxn: bool,
}

/// A section or a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ShortLeaf {
    pub address: u64,
    pub world: World,
    pub shift: u32,
    pub descriptor: u32,
}

impl ShortTables {
    /// The same layout with another table; `base` is the value of the register.
    pub(super) fn with_base(&self, base: u64) -> Self {
        // 4096 entries of 4 bytes for 32 bits (B3.5.4).
        let size = self.input_bits - SECTION + 2;
        Self {
            base: base & 0xffff_ffff & !low_bits(size),
            ..*self
        }
    }

    /// Walks the tables with the low bits of an address.
    pub(super) fn walk(
        &self,
        input: u64,
        world: World,
        reader: &mut impl Reader,
    ) -> Result<ShortLeaf, Fault> {
        let mut next = |level: i8, address: u64, shift: u32| {
            let value = reader.read(Descriptor {
                address,
                world,
                bytes: 4,
                big_endian: self.big_endian,
                shift,
            })?;
            // The meaning of the descriptor: the address in it, and the number of bits that it
            // leaves unresolved if it is a section or a page.
            let meaning = match level {
                1 => self.first(value),
                _ => second(value),
            };
            reader.visit(Step {
                stage: 1,
                level,
                address,
                world,
                value,
                output: meaning.map(|(output, _)| output),
                shift: meaning.and_then(|(_, shift)| shift),
            });
            let reason = FaultReason::Invalid {
                level,
                address,
                value,
            };
            let invalid = Fault {
                stage: 1,
                shift,
                reason,
            };
            Ok((value, meaning.ok_or(invalid)?))
        };
        let at = self.base + 4 * field(input, SECTION, self.input_bits - SECTION);
        let (value, (output, shift)) = next(1, at, SECTION)?;
        if let Some(shift) = shift {
            return Ok(ShortLeaf {
                address: output | input & low_bits(shift),
                // NS is bit 19 of a section.
                world: world.leave(bit(value, 19)),
                shift,
                descriptor: value as u32,
            });
        }
        // NS of a table applies to the pages; the table itself is in the world of the regime
        // (B3.6.3).
        let leaf_world = world.leave(bit(value, 3));
        let at = output + 4 * field(input, SMALL, 8);
        let (value, (output, shift)) = next(2, at, SMALL)?;
        let shift = shift.unwrap_or(SMALL);
        Ok(ShortLeaf {
            address: output | input & low_bits(shift),
            world: leaf_world,
            shift,
            descriptor: value as u32,
        })
    }

    /// The address in a descriptor of the first level, and the number of bits that it leaves
    /// unresolved if it is a section. `None` if it is not valid.
    fn first(&self, value: u64) -> Option<(u64, Option<u32>)> {
        match value & 3 {
            1 => Some((value & 0xffff_fc00, None)),
            3 if !self.pxn => None,
            2 | 3 if bit(value, 18) => {
                // Bits 35 to 32 are in 23 to 20, 39 to 36 in 8 to 5.
                let high = field(value, 20, 4) << 32 | field(value, 5, 4) << 36;
                Some((value & 0xff00_0000 | high, Some(SUPERSECTION)))
            }
            2 | 3 => Some((value & 0xfff0_0000, Some(SECTION))),
            _ => None,
        }
    }
}

/// The same for a descriptor of the second level, a page.
fn second(value: u64) -> Option<(u64, Option<u32>)> {
    match value & 3 {
        0 => None,
        1 => Some((value & 0xffff_0000, Some(LARGE))),
        _ => Some((value & 0xffff_f000, Some(SMALL))),
    }
}
