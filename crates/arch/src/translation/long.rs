//! Tables of 64-bit descriptors: VMSAv8-64 (DDI 0487, D8.2 and D8.3), and the long-descriptor
//! format of AArch32 (DDI 0406, B3.6).

use super::attributes::TableAttributes;
use super::steps::{Fault, FaultReason, Step};
use super::{World, bit, field, low_bits};

/// The last level.
const LAST: i8 = 3;

/// The size of a page, as the number of address bits within it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Granule(u32);

impl Granule {
    /// 4 KiB.
    pub(super) const K4: Self = Self(12);
    /// 16 KiB.
    pub(super) const K16: Self = Self(14);
    /// 64 KiB.
    pub(super) const K64: Self = Self(16);

    /// The number of address bits within a page.
    pub(super) const fn bits(self) -> u32 {
        self.0
    }

    /// The number of address bits that one table resolves.
    pub(super) const fn stride(self) -> u32 {
        self.0 - 3
    }

    /// The number of low address bits that an entry at a level does not resolve.
    const fn shift(self, level: i8) -> u32 {
        self.0 + (LAST - level) as u32 * self.stride()
    }

    /// From TCR_ELx.TG0 or VTCR_EL2.TG0.
    pub(super) const fn of_tg0(value: u64) -> Option<Self> {
        match value & 3 {
            0 => Some(Self::K4),
            1 => Some(Self::K64),
            2 => Some(Self::K16),
            _ => None,
        }
    }

    /// From TCR_ELx.TG1.
    pub(super) const fn of_tg1(value: u64) -> Option<Self> {
        match value & 3 {
            1 => Some(Self::K16),
            2 => Some(Self::K4),
            3 => Some(Self::K64),
            _ => None,
        }
    }

    /// The granule of pages of `bytes` bytes.
    pub(super) const fn of_bytes(bytes: u64) -> Option<Self> {
        match bytes {
            0x1000 => Some(Self::K4),
            0x4000 => Some(Self::K16),
            0x1_0000 => Some(Self::K64),
            _ => None,
        }
    }
}

/// The properties of the tables of a range, from registers.
#[derive(Clone, Copy, Debug)]
pub(super) struct Layout {
    /// The register with its address.
    pub name: &'static str,
    /// The value of that register.
    pub base: u64,
    /// The size of pages.
    pub granule: Granule,
    /// The size of an input address in bits.
    pub input_bits: u32,
    /// The size of an output address in bits.
    pub output_bits: u32,
    /// 52-bit addresses with 4 KiB and 16 KiB granules (TCR_ELx.DS, FEAT_LPA2).
    pub ds: bool,
    /// The first level of stage 2; in stage 1 it follows from the input size.
    pub first_level: Option<i8>,
    /// Whether descriptors are big-endian (SCTLR_ELx.EE).
    pub big_endian: bool,
    /// Whether table descriptors restrict the permissions of entries (TCR_ELx.HPD is 0).
    pub hierarchical: bool,
}

/// The tables that translate a range of addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Tables {
    pub name: &'static str,
    pub base: u64,
    pub granule: Granule,
    pub input_bits: u32,
    pub first_level: i8,
    pub output_bits: u32,
    ds: bool,
    stage2: bool,
    big_endian: bool,
    hierarchical: bool,
}

/// A block or a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Leaf {
    /// The output address.
    pub address: u64,
    pub world: World,
    /// The number of address bits within the block.
    pub shift: u32,
    /// The descriptor.
    pub descriptor: u64,
    /// The restrictions of the tables above it.
    pub tables: TableAttributes,
}

impl Tables {
    /// Creates the tables of a layout; `None` if the architecture does not permit it.
    pub(super) fn new(layout: Layout) -> Option<Self> {
        let Layout {
            granule,
            input_bits,
            ds,
            ..
        } = layout;
        let stride = granule.stride();
        let resolved = input_bits.checked_sub(granule.bits())?;
        let stage2 = layout.first_level.is_some();
        // D8.2.6 to D8.2.8: as many levels as the input address needs.
        let levels = i8::try_from(resolved.div_ceil(stride)).ok()?;
        let first_level = layout.first_level.unwrap_or(LAST + 1 - levels);
        // 52-bit input needs FEAT_LVA with 64 KiB granules, FEAT_LPA2 with others.
        let most_input = if ds || granule == Granule::K64 {
            52
        } else {
            48
        };
        let first_possible = if ds && granule == Granule::K4 { -1 } else { 0 };
        if input_bits > most_input || !(first_possible..=LAST).contains(&first_level) {
            return None;
        }
        let shift = granule.shift(first_level);
        // Stage 2 may concatenate up to 16 tables (D8.2.1.1); a table of one entry resolves no bit.
        let bits = input_bits.checked_sub(shift)?;
        let most = if stage2 { stride + 4 } else { stride };
        if bits > most || (stage2 && bits == 0) {
            return None;
        }
        // FEAT_LPA and FEAT_LPA2: bits 5 to 2 of the register are bits 51 to 48 of the address.
        let wide = layout.output_bits > 48;
        let address = field(layout.base, 0, 48)
            | if wide {
                field(layout.base, 2, 4) << 48
            } else {
                0
            };
        let aligned = (bits + 3).max(if wide { 6 } else { 3 });
        Some(Self {
            name: layout.name,
            base: address & !low_bits(aligned),
            granule,
            input_bits,
            first_level,
            output_bits: layout.output_bits,
            ds,
            stage2,
            big_endian: layout.big_endian,
            hierarchical: layout.hierarchical,
        })
    }

    /// The same layout with the table of another address space; `base` is the value of the register.
    pub(super) fn with_base(&self, base: u64) -> Option<Self> {
        Self::new(Layout {
            name: self.name,
            base,
            granule: self.granule,
            input_bits: self.input_bits,
            output_bits: self.output_bits,
            ds: self.ds,
            first_level: self.stage2.then_some(self.first_level),
            big_endian: self.big_endian,
            hierarchical: self.hierarchical,
        })
    }

    /// The translation stage, 1 or 2.
    pub(super) const fn stage(&self) -> u8 {
        if self.stage2 { 2 } else { 1 }
    }

    /// Walks the tables with the low bits of an address.
    pub(super) fn walk(
        &self,
        input: u64,
        mut world: World,
        reader: &mut impl Reader,
    ) -> Result<Leaf, Fault> {
        let stage = self.stage();
        let first_shift = self.granule.shift(self.first_level);
        let (mut table, mut index_bits) = (self.base, self.input_bits - first_shift);
        let mut tables = TableAttributes::default();
        for level in self.first_level..=LAST {
            let shift = self.granule.shift(level);
            let address = table + 8 * field(input, shift, index_bits);
            let fault = |reason| Fault {
                stage,
                shift,
                reason,
            };
            let place = Descriptor {
                address,
                world,
                bytes: 8,
                big_endian: self.big_endian,
                shift,
            };
            if table.checked_shr(self.output_bits).unwrap_or(0) != 0 {
                return Err(fault(FaultReason::Size { address }));
            }
            let value = reader.read(place)?;
            let is_leaf = match (level, value & 3) {
                (LAST, 3) => true,
                (LAST, _) => false,
                (_, 1) => self.has_blocks(level),
                _ => false,
            };
            let is_table = level < LAST && value & 3 == 3;
            reader.visit(Step {
                stage,
                level,
                address,
                world,
                value,
                output: if is_leaf {
                    Some(self.output(value, shift))
                } else {
                    is_table.then(|| self.output(value, self.granule.bits()))
                },
                shift: is_leaf.then_some(shift),
            });
            if !is_leaf && !is_table {
                return Err(fault(FaultReason::Invalid {
                    level,
                    address,
                    value,
                }));
            }
            let output = self.output(value, if is_leaf { shift } else { self.granule.bits() });
            if output.checked_shr(self.output_bits).unwrap_or(0) != 0 {
                return Err(fault(FaultReason::Size { address: output }));
            }
            if is_leaf {
                // NS is bit 5 of a block or page of stage 1 (D8.3.2).
                let world = world.leave(!self.stage2 && bit(value, 5));
                let within = input & low_bits(shift);
                return Ok(Leaf {
                    address: output | within,
                    world,
                    shift,
                    descriptor: value,
                    tables,
                });
            }
            if !self.stage2 {
                // NSTable is bit 63 (D8.3.1).
                world = world.leave(bit(value, 63));
                if self.hierarchical {
                    tables.add(value);
                }
            }
            (table, index_bits) = (output, self.granule.stride());
        }
        // Unreachable: a table descriptor at the last level is not valid.
        Err(Fault {
            stage,
            shift: self.granule.bits(),
            reason: FaultReason::Size { address: table },
        })
    }

    /// Returns whether a descriptor at a level may be a block (D8.3.1, table D8-18 and following).
    fn has_blocks(&self, level: i8) -> bool {
        match (self.granule, level) {
            (_, 2) => true,
            (Granule::K4, 1) => true,
            (Granule::K4, 0) | (Granule::K16, 1) => self.ds,
            (Granule::K64, 1) => self.output_bits > 48,
            _ => false,
        }
    }

    /// The address in a descriptor that leaves `shift` bits unresolved.
    fn output(&self, descriptor: u64, shift: u32) -> u64 {
        let wide = self.output_bits > 48;
        let address = match self.granule {
            // Bits 49 to 48 in place, bits 51 to 50 in bits 9 to 8.
            _ if self.ds => field(descriptor, 0, 50) | field(descriptor, 8, 2) << 50,
            Granule::K64 if wide => field(descriptor, 0, 48) | field(descriptor, 12, 4) << 48,
            _ => field(descriptor, 0, 48),
        };
        address & !low_bits(shift)
    }
}

/// The location of a descriptor.
#[derive(Clone, Copy, Debug)]
pub(super) struct Descriptor {
    pub address: u64,
    pub world: World,
    /// 4 or 8.
    pub bytes: usize,
    pub big_endian: bool,
    /// The number of low address bits that it leaves unresolved.
    pub shift: u32,
}

/// Reads the descriptors of a walk, and receives its steps.
pub(super) trait Reader {
    /// The descriptor at an address.
    fn read(&mut self, place: Descriptor) -> Result<u64, Fault>;

    /// Receives a step.
    fn visit(&mut self, step: Step);
}
