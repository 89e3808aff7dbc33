//! A translation regime: the address ranges, the tables of each, and the stage 2 that follows.

use super::attributes::{self, Attributes};
use super::long::{Descriptor, Granule, Layout, Leaf, Reader, Tables};
use super::note::RegimeNote;
use super::short::ShortTables;
use super::steps::{Fault, FaultReason, Step};
use super::{PhysicalMemory, World, bit, low_bits};

/// The maximum size of a physical address in bits.
pub(super) const MAX_BITS: u32 = 52;

/// The physical location of an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mapping {
    /// The physical address.
    pub physical: u64,
    /// Its address space.
    pub world: World,
    /// The number of address bits within the block or page, whose addresses are physically
    /// contiguous.
    pub shift: u32,
    /// The attributes of stage 1; `None` if it is off.
    pub attributes: Option<Attributes>,
}

/// The tables of a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Walked {
    Long(Tables),
    Short(ShortTables),
    /// They are not walked, for this reason.
    Not(FaultReason),
}

/// One of the two ranges of a regime, or its only one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Half {
    pub walked: Walked,
    /// The number of address bits that are translated.
    pub bits: u32,
    /// Whether bits 63 to 56 are ignored (TCR_ELx.TBI).
    pub top_byte_ignored: bool,
    /// Whether the bits above `bits` may be a pointer authentication code.
    pub authenticated: bool,
}

/// How the ranges are distinguished.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Split {
    /// There is only the low range.
    None,
    /// By bit 55 of a 64-bit address (DDI 0487, D8.2.4).
    Bit55,
    /// 32-bit addresses from this one up are in the high range.
    From(u64),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Stage1 {
    /// Every address is its own translation.
    Identity,
    /// By tables.
    Tables {
        low: Half,
        high: Option<Half>,
        split: Split,
    },
}

/// Stage 2 for the intermediate addresses of one world.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stage2Half {
    pub tables: Tables,
    /// The world of the tables.
    pub walk: World,
    /// The world of the output.
    pub output: World,
}

/// Stage 2.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stage2 {
    pub non_secure: Stage2Half,
    pub secure: Option<Stage2Half>,
}

/// A translation regime of a core, as its registers describe it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Regime {
    pub(super) name: &'static str,
    pub(super) world: World,
    /// The size of a virtual address in bits: 64 or 32.
    pub(super) address_bits: u32,
    pub(super) stage1: Stage1,
    pub(super) stage2: Option<Stage2>,
    /// Whether it includes EL0.
    pub(super) user: bool,
    /// Whether the registers exclude EL1 (HCR_EL2.TGE), so that its past tables are unknown.
    pub(super) excludes_el1: bool,
    pub(super) mair: Option<u64>,
    /// What the registers determine, and what was assumed.
    pub(super) notes: Vec<RegimeNote>,
}

/// Tables of a kernel that are known without registers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KernelTables {
    /// The physical address of the table of high addresses, as TTBR1_EL1 holds it.
    pub high_table: u64,
    /// The size of a page in bytes.
    pub granule: u64,
    /// The number of bits of a high address that are translated.
    pub high_bits: u32,
    /// The form of the tables.
    pub form: KernelForm,
}

/// The form of a kernel's tables.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum KernelForm {
    /// The form of AArch64.
    #[default]
    AArch64,
    /// Short descriptors of AArch32; `first` is the first address of the kernel.
    Short {
        /// The address.
        first: u64,
    },
    /// Long descriptors of AArch32 (LPAE).
    Long {
        /// The first address of the kernel.
        first: u64,
    },
}

impl KernelTables {
    /// The regime of a core that runs the kernel; low addresses have no known tables.
    pub fn regime(&self) -> Option<Regime> {
        match self.form {
            KernelForm::AArch64 => {}
            KernelForm::Short { first } => return Some(self.regime32(self.short(), first)),
            KernelForm::Long { first } => return Some(self.regime32(self.long()?, first)),
        }
        let granule = Granule::of_bytes(self.granule)?;
        let tables = Tables::new(Layout {
            name: "TTBR1_EL1",
            base: self.high_table,
            granule,
            input_bits: self.high_bits,
            output_bits: if granule == Granule::K64 { 52 } else { 48 },
            ds: granule != Granule::K64 && self.high_bits > 48,
            first_level: None,
            big_endian: false,
            hierarchical: true,
        })?;
        let half = |walked, bits| Half {
            walked,
            bits,
            top_byte_ignored: false,
            authenticated: true,
        };
        Some(Regime {
            name: "EL1&0",
            world: World::NonSecure,
            address_bits: 64,
            stage1: Stage1::Tables {
                low: half(Walked::Not(FaultReason::Unknown), 48),
                high: Some(half(Walked::Long(tables), self.high_bits)),
                split: Split::Bit55,
            },
            stage2: None,
            user: true,
            excludes_el1: false,
            mair: None,
            notes: vec![RegimeNote::KernelTable],
        })
    }

    /// The kernel's tables of short descriptors, which cover the whole 32-bit space.
    fn short(&self) -> Walked {
        let tables = ShortTables {
            name: "TTBR1",
            base: self.high_table,
            input_bits: 32,
            big_endian: false,
            pxn: true,
        };
        Walked::Short(tables.with_base(self.high_table))
    }

    /// The kernel's tables of long descriptors.
    fn long(&self) -> Option<Walked> {
        let tables = Tables::new(Layout {
            name: "TTBR1",
            base: self.high_table,
            granule: Granule::K4,
            input_bits: 32,
            output_bits: 40,
            ds: false,
            first_level: None,
            big_endian: false,
            hierarchical: true,
        })?;
        Some(Walked::Long(tables))
    }

    /// The regime of a core in AArch32; processes are below the kernel.
    fn regime32(&self, walked: Walked, first: u64) -> Regime {
        let half = |walked| Half {
            walked,
            bits: 32,
            top_byte_ignored: false,
            authenticated: false,
        };
        Regime {
            name: "PL1&0",
            world: World::NonSecure,
            address_bits: 32,
            stage1: Stage1::Tables {
                low: half(Walked::Not(FaultReason::Unknown)),
                high: Some(half(walked)),
                split: Split::From(first),
            },
            stage2: None,
            user: true,
            excludes_el1: false,
            mair: None,
            notes: vec![RegimeNote::KernelTable],
        }
    }
}

impl Regime {
    /// Its name (`EL1&0`).
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// What the registers determine, and what was assumed.
    pub fn notes(&self) -> &[RegimeNote] {
        &self.notes
    }

    /// Whether addresses are their own translations.
    pub fn is_identity(&self) -> bool {
        self.stage1 == Stage1::Identity && self.stage2.is_none()
    }

    /// Whether an address is in the range of high addresses, which all processes share.
    pub fn is_high(&self, address: u64) -> bool {
        match &self.stage1 {
            Stage1::Identity | Stage1::Tables { high: None, .. } => false,
            Stage1::Tables { split, .. } => match split {
                Split::None => false,
                Split::Bit55 => bit(address, 55),
                Split::From(first) => address >= *first,
            },
        }
    }

    /// The regime with another table for its low or high addresses; `base` is the value of the
    /// register. `None` if the regime has no such table.
    pub fn with_table(&self, of_high: bool, base: u64) -> Option<Self> {
        let mut out = self.clone();
        let Stage1::Tables { low, high, .. } = &mut out.stage1 else {
            return None;
        };
        // A range without tables of its own gets the layout of the other one.
        let (like, half) = match of_high {
            true => (*low, high.as_mut()?),
            false => (high.unwrap_or(*low), low),
        };
        let from = match half.walked {
            Walked::Not(_) => like.walked,
            walked => walked,
        };
        half.walked = match from {
            Walked::Long(tables) => Walked::Long(tables.with_base(base)?),
            Walked::Short(tables) => Walked::Short(tables.with_base(base)),
            Walked::Not(_) => return None,
        };
        if let Walked::Long(tables) = half.walked {
            half.bits = tables.input_bits;
        }
        out.notes.push(RegimeNote::ChosenTable { of_high, base });
        Some(out)
    }

    /// The regime with its table of low addresses unknown.
    pub fn without_low_table(&self) -> Self {
        let mut out = self.clone();
        if let Stage1::Tables {
            low, high: Some(_), ..
        } = &mut out.stage1
        {
            low.walked = Walked::Not(FaultReason::Unknown);
        }
        out
    }

    /// The range that contains an address, and the bits of the address that are translated.
    fn half(&self, address: u64) -> Result<(&Half, u64), Fault> {
        let Stage1::Tables { low, high, .. } = &self.stage1 else {
            return Err(range(MAX_BITS));
        };
        let in_high = self.is_high(address);
        let half = high.as_ref().filter(|_| in_high).unwrap_or(low);
        let checked = low_bits(self.address_bits) & !low_bits(half.bits) & !half.ignored();
        let expected = if in_high { u64::MAX } else { 0 };
        let beyond = address & !low_bits(self.address_bits);
        if (address ^ expected) & checked != 0 || beyond != 0 {
            return Err(range(half.bits));
        }
        Ok((half, address & low_bits(half.bits)))
    }

    /// The first and last address of each translated range, ascending.
    pub(super) fn ranges(&self) -> Vec<(u64, u64)> {
        let last = low_bits(self.address_bits);
        match &self.stage1 {
            Stage1::Identity => {
                let mut bits = self.address_bits.min(MAX_BITS);
                if let Some(stage2) = &self.stage2 {
                    bits = bits.min(stage2.half(self.world).tables.input_bits);
                }
                vec![(0, low_bits(bits))]
            }
            Stage1::Tables { low, high, split } => {
                let mut out = vec![(0, low_bits(low.bits))];
                if let Some(high) = high {
                    let mut first = last & !low_bits(high.bits);
                    if let Split::From(from) = split {
                        first = first.max(*from);
                        out[0].1 = out[0].1.min(*from - 1);
                    }
                    out.push((first, last));
                }
                out
            }
        }
    }

    /// Translates an address. `visit` receives each step.
    ///
    /// # Errors
    ///
    /// Returns a fault if the address has no translation.
    pub fn translate(
        &self,
        address: u64,
        memory: &impl PhysicalMemory,
        visit: &mut impl FnMut(Step),
    ) -> Result<Mapping, Fault> {
        if self.stage1 == Stage1::Identity {
            let most = self.address_bits.min(MAX_BITS);
            if address & !low_bits(most) != 0 {
                return Err(range(most));
            }
            return self.to_physical(address, self.world, most, None, memory, visit);
        }
        let (half, input) = self.half(address)?;
        let mut reader = Stage1Reader {
            stage2: self.stage2.as_ref(),
            memory,
            visit,
        };
        let (output, world, shift, attributes) = match &half.walked {
            Walked::Not(reason) => {
                return Err(Fault {
                    stage: 1,
                    shift: half.bits,
                    reason: *reason,
                });
            }
            Walked::Long(tables) => {
                let leaf = tables.walk(input, self.world, &mut reader)?;
                let Leaf {
                    descriptor, tables, ..
                } = leaf;
                let attributes = attributes::of_long(
                    descriptor,
                    tables,
                    self.user,
                    self.address_bits == 32,
                    self.mair,
                );
                (leaf.address, leaf.world, leaf.shift, attributes)
            }
            Walked::Short(tables) => {
                let leaf = tables.walk(input, self.world, &mut reader)?;
                let attributes = attributes::of_short(leaf.descriptor, leaf.shift);
                (leaf.address, leaf.world, leaf.shift, attributes)
            }
        };
        self.to_physical(output, world, shift, Some(attributes), memory, visit)
    }

    fn to_physical(
        &self,
        address: u64,
        world: World,
        shift: u32,
        attributes: Option<Attributes>,
        memory: &impl PhysicalMemory,
        visit: &mut impl FnMut(Step),
    ) -> Result<Mapping, Fault> {
        let mut out = Mapping {
            physical: address,
            world,
            shift,
            attributes,
        };
        if let Some(stage2) = &self.stage2 {
            let mut reader = Stage2Reader { memory, visit };
            let leaf = stage2.translate(address, world, &mut reader);
            let leaf = leaf.map_err(|fault| Fault {
                shift: fault.shift.min(shift),
                ..fault
            })?;
            out.physical = leaf.address;
            out.world = leaf.world;
            out.shift = shift.min(leaf.shift);
        }
        Ok(out)
    }
}

impl Half {
    /// The upper bits that do not affect the choice of the range.
    fn ignored(&self) -> u64 {
        const TOP_BYTE: u64 = 0xff << 56;
        let top = if self.top_byte_ignored { TOP_BYTE } else { 0 };
        // An authentication code takes the place of all upper bits except bit 55 (D8.8.2).
        top | if self.authenticated { !(1 << 55) } else { 0 }
    }
}

impl Stage2 {
    /// The half for the intermediate addresses of a world.
    fn half(&self, world: World) -> &Stage2Half {
        match (world, &self.secure) {
            (World::Secure, Some(secure)) => secure,
            _ => &self.non_secure,
        }
    }

    fn translate(
        &self,
        address: u64,
        world: World,
        reader: &mut impl Reader,
    ) -> Result<Leaf, Fault> {
        let half = self.half(world);
        let bits = half.tables.input_bits;
        if address & !low_bits(bits) != 0 {
            return Err(Fault {
                stage: 2,
                shift: bits,
                reason: FaultReason::Range { bits },
            });
        }
        let mut leaf = half.tables.walk(address, half.walk, reader)?;
        leaf.world = half.output;
        Ok(leaf)
    }
}

fn range(bits: u32) -> Fault {
    Fault {
        stage: 1,
        shift: 0,
        reason: FaultReason::Range { bits },
    }
}

/// Reads descriptors of stage 1 through stage 2.
struct Stage1Reader<'a, M, V> {
    stage2: Option<&'a Stage2>,
    memory: &'a M,
    visit: &'a mut V,
}

impl<M: PhysicalMemory, V: FnMut(Step)> Reader for Stage1Reader<'_, M, V> {
    fn read(&mut self, place: Descriptor) -> Result<u64, Fault> {
        let mut physical = place;
        if let Some(stage2) = self.stage2 {
            let mut reader = Stage2Reader {
                memory: self.memory,
                visit: &mut *self.visit,
            };
            let leaf = stage2.translate(place.address, place.world, &mut reader);
            // All addresses that this descriptor would translate have the same fault.
            let leaf = leaf.map_err(|fault| Fault {
                shift: place.shift,
                ..fault
            })?;
            (physical.address, physical.world) = (leaf.address, leaf.world);
        }
        descriptor(self.memory, physical, 1)
    }

    fn visit(&mut self, step: Step) {
        (self.visit)(step);
    }
}

/// Reads descriptors of stage 2.
struct Stage2Reader<'a, M, V> {
    memory: &'a M,
    visit: &'a mut V,
}

impl<M: PhysicalMemory, V: FnMut(Step)> Reader for Stage2Reader<'_, M, V> {
    fn read(&mut self, place: Descriptor) -> Result<u64, Fault> {
        descriptor(self.memory, place, 2)
    }

    fn visit(&mut self, step: Step) {
        (self.visit)(step);
    }
}

fn descriptor(memory: &impl PhysicalMemory, place: Descriptor, stage: u8) -> Result<u64, Fault> {
    let mut bytes = [0; 8];
    let Descriptor { address, world, .. } = place;
    let out = &mut bytes[..place.bytes];
    if !memory.read(address, world, out) {
        return Err(Fault {
            stage,
            shift: place.shift,
            reason: FaultReason::Missing { address, world },
        });
    }
    if place.big_endian {
        out.reverse();
    }
    Ok(u64::from_le_bytes(bytes))
}
