//! Tables written by hand from the rules of the Arm ARM (DDI 0487, D8; DDI 0406, B3).

use super::steps::{FaultReason, Step};
use super::{Mapping, Maps, PhysicalMemory, Regimes, World};
use crate::arch::{Architecture, RegisterFile, SavedCore, SavedRegister, Space};
use proptest::prelude::*;
use std::cell::Cell;
use std::collections::BTreeMap;

/// Words of memory; what is not written is not known.
#[derive(Default)]
struct Memory {
    words: BTreeMap<(World, u64), u32>,
    reads: Cell<usize>,
}

impl Memory {
    fn of(descriptors: &[(u64, u64)]) -> Self {
        let mut out = Self::default();
        for &(address, value) in descriptors {
            out.add(World::NonSecure, address, value);
        }
        out
    }

    fn add(&mut self, world: World, address: u64, value: u64) {
        self.words.insert((world, address), value as u32);
        self.words
            .insert((world, address + 4), (value >> 32) as u32);
    }

    fn short(entries: &[(u64, u32)]) -> Self {
        let words = entries
            .iter()
            .map(|&(address, value)| ((World::NonSecure, address), value));
        Self {
            words: words.collect(),
            ..Self::default()
        }
    }
}

impl PhysicalMemory for Memory {
    fn read(&self, address: u64, world: World, out: &mut [u8]) -> bool {
        self.reads.set(self.reads.get() + 1);
        out.chunks_mut(4).zip(0..).all(|(bytes, index)| {
            let word = self.words.get(&(world, address + 4 * index));
            word.map(|word| bytes.copy_from_slice(&word.to_le_bytes()))
                .is_some()
        })
    }
}

struct Core(Vec<(&'static str, u64)>);

impl SavedCore for Core {
    fn core_type(&self) -> &str {
        ""
    }

    fn saved_registers(&self) -> impl Iterator<Item = SavedRegister<'_>> {
        self.0.iter().map(|(name, value)| SavedRegister {
            name,
            size: Some(64),
            // The test's values are little-endian on every host.
            value: Box::leak(Box::new(value.to_le_bytes())),
        })
    }
}

fn regimes(architecture: Architecture, registers: &[(&'static str, u64)]) -> Regimes {
    let core = Core(registers.to_vec());
    Regimes::of(&RegisterFile::read(&core, architecture), false)
}

fn a64(registers: &[(&'static str, u64)]) -> Regimes {
    regimes(Architecture::AArch64, registers)
}

fn a32(registers: &[(&'static str, u64)]) -> Regimes {
    regimes(Architecture::AArch32, registers)
}

fn map(regimes: &Regimes, space: Space, memory: &Memory, at: u64) -> Result<Mapping, FaultReason> {
    let regime = regimes.get(space).unwrap();
    let found = regime.translate(at, memory, &mut |_| {});
    found.map_err(|fault| fault.reason)
}

/// The physical address and the bits of the block.
fn place(regimes: &Regimes, memory: &Memory, at: u64) -> Option<(u64, u32)> {
    let found = map(regimes, Space::El1N, memory, at).ok()?;
    Some((found.physical, found.shift))
}

const ON: u64 = 1;
/// TCR_EL1: both ranges have 48 bits and 4 KiB pages, 48-bit output.
const TCR_4K: u64 = 5 << 32 | 2 << 30 | 16 << 16 | 16;

fn el1(tcr: u64, low: u64, high: u64) -> Regimes {
    a64(&[
        ("SCTLR_EL1", ON),
        ("TCR_EL1", tcr),
        ("TTBR0_EL1", low),
        ("TTBR1_EL1", high),
    ])
}

/// D8.2.6: four levels of 9 bits each; blocks at levels 1 and 2 (D8.3.1).
#[test]
fn four_kib_pages_and_blocks() {
    // 0x0000_7f12_3456_7890: indices 0xfe, 0x48, 0x1a2, 0x167.
    let memory = Memory::of(&[
        (0x1000 + 8 * 0xfe, 0x2003),
        (0x2000 + 8 * 0x48, 0x3003),
        (0x3000 + 8 * 0x1a2, 0x4003),
        (0x4000 + 8 * 0x167, 0x8000_5723),
        (0x3000 + 8 * 0x1a3, 0x0040_0000_8060_0701),
        (0x2000 + 8 * 0x49, 0xc000_0701),
        // A block at level 0 is reserved, and so is 0b01 at level 3.
        (0x1000 + 8 * 0xff, 0xc000_0701),
        (0x4000 + 8 * 0x168, 0x8000_5721),
        (0x4000 + 8 * 0x169, 0),
        // High addresses.
        (0x9000 + 8 * 0x100, 0x2003),
    ]);
    // Bits 63 to 48 of TTBR are the ASID, bit 0 is CnP.
    let regimes = el1(TCR_4K, 0x0042_0000_0000_1001, 0x9000);
    let place = |at| place(&regimes, &memory, at);
    assert_eq!(place(0x7f12_3456_7890), Some((0x8000_5890, 12)));
    assert_eq!(place(0x7f12_3475_4321), Some((0x8075_4321, 21)));
    assert_eq!(
        place(0x7f12_7654_3210),
        Some((0xc000_0000 + 0x3654_3210, 30))
    );
    assert_eq!(place(0x7f92_3456_7890), None);
    assert_eq!(place(0x7f12_3456_8000), None);
    assert_eq!(place(0x7f12_3456_9000), None);
    assert_eq!(place(0xffff_8012_3456_7890), Some((0x8000_5890, 12)));
    // D8.2.4: bits 63 to 48 equal bit 55.
    assert_eq!(place(0x0100_7f12_3456_7890), None);
    assert_eq!(place(0xfeff_8012_3456_7890), None);
    let fault = map(&regimes, Space::El1N, &memory, 0x7f12_3456_9000).unwrap_err();
    let (address, value) = (0x4000 + 8 * 0x169, 0);
    assert_eq!(
        fault,
        FaultReason::Invalid {
            level: 3,
            address,
            value
        }
    );
    // A table that is not in memory.
    let fault = map(&regimes, Space::El1N, &memory, 0x1000).unwrap_err();
    let world = World::NonSecure;
    assert_eq!(
        fault,
        FaultReason::Missing {
            address: 0x1000,
            world
        }
    );
}

/// TCR_EL1.TBI0, TBI1 (bits 37, 38); a code of pointer authentication in bits 63 to 56 and 54 to 48
/// (D8.8.2), where SCTLR_EL1.EnIA (bit 31) is set.
#[test]
fn tags_and_authentication_codes() {
    let memory = Memory::of(&[(0x1000, 0x2003), (0x2000, 0x4000_0701)]);
    let tbi = el1(TCR_4K | 1 << 37, 0x1000, 0x1000);
    assert_eq!(
        place(&tbi, &memory, 0xab00_0000_0000_1234),
        Some((0x4000_1234, 30))
    );
    assert_eq!(place(&tbi, &memory, 0xab01_0000_0000_1234), None);
    assert_eq!(place(&tbi, &memory, 0xabff_0000_0000_1234), None);
    let high = el1(TCR_4K | 1 << 38, 0x1000, 0x1000);
    assert_eq!(
        place(&high, &memory, 0xabff_0000_0000_1234),
        Some((0x4000_1234, 30))
    );
    assert_eq!(place(&high, &memory, 0xab00_0000_0000_1234), None);
    let pac = a64(&[
        ("SCTLR_EL1", ON | 1 << 31),
        ("TCR_EL1", TCR_4K),
        ("TTBR0_EL1", 0x1000),
        ("TTBR1_EL1", 0x7000),
    ]);
    assert_eq!(
        place(&pac, &memory, 0x5a25_0000_0000_1234),
        Some((0x4000_1234, 30))
    );
    assert_eq!(
        place(&pac, &memory, 0x5a80_0000_0000_1234),
        None,
        "bit 55 selects TTBR1"
    );
}

/// D8.2.7: 16 KiB pages, 11 bits a level, of which level 0 has one bit; blocks at level 2.
#[test]
fn sixteen_kib_pages() {
    // TG0 = 2, TG1 = 1.
    let tcr = 5 << 32 | 1 << 30 | 16 << 16 | 2 << 14 | 16;
    let at = 1_u64 << 47 | 5 << 36 | 6 << 25 | 7 << 14 | 0x123;
    let memory = Memory::of(&[
        (0x1_0000 + 8, 0x2_0003),
        (0x2_0000 + 8 * 5, 0x2_4003),
        (0x2_4000 + 8 * 6, 0x2_8003),
        (0x2_8000 + 8 * 7, 0x8000_c703),
        (0x2_4000 + 8 * 8, 0x9000_0701),
        // No block at level 1.
        (0x2_0000 + 8 * 6, 0x9000_0701),
    ]);
    let regimes = el1(tcr, 0x1_0000, 0x1_0000);
    assert_eq!(place(&regimes, &memory, at), Some((0x8000_c123, 14)));
    let block = 1_u64 << 47 | 5 << 36 | 8 << 25 | 0x12_3456;
    assert_eq!(place(&regimes, &memory, block), Some((0x9012_3456, 25)));
    assert_eq!(place(&regimes, &memory, 1 << 47 | 6 << 36), None);
    let high = at | !0 << 48;
    assert_eq!(place(&regimes, &memory, high), Some((0x8000_c123, 14)));
}

/// D8.2.8: 64 KiB pages, 13 bits a level; with FEAT_LPA bits 15 to 12 of a descriptor and 5 to 2 of
/// TTBR are bits 51 to 48 of an address, and level 1 has blocks.
#[test]
fn sixty_four_kib_pages() {
    let tcr = |size: u64, offset: u64| size << 32 | 3 << 30 | 16 << 16 | 1 << 14 | offset;
    let at = 3_u64 << 42 | 4 << 29 | 5 << 16 | 0x6789;
    let memory = Memory::of(&[
        (0x1_0000 + 8 * 3, 0x10_0003),
        (0x10_0000 + 8 * 4, 0x20_0003),
        (0x20_0000 + 8 * 5, 0x8001_0703),
        (0x10_0000 + 8 * 5, 0xa000_0701),
        (0x1_0000 + 8 * 4, 0x400_0000_0701),
    ]);
    let regimes = el1(tcr(5, 16), 0x1_0000, 0);
    assert_eq!(place(&regimes, &memory, at), Some((0x8001_6789, 16)));
    assert_eq!(
        place(&regimes, &memory, 3 << 42 | 5 << 29 | 0x123_4567),
        Some((0xa123_4567, 29))
    );
    assert_eq!(place(&regimes, &memory, 4 << 42), None);
    // 52-bit input (FEAT_LVA): 10 bits at level 1, 64 KiB-aligned table at 0x000f_0000_0001_0000.
    let wide = 0x3ff_u64 << 42 | 4 << 29 | 5 << 16 | 0x6789;
    let memory = Memory::of(&[
        (0xf_0000_0001_0000 + 8 * 0x3ff, 0x0010_a003),
        (0xa_0000_0010_0000 + 8 * 4, 0x20_0003),
        (0x20_0000 + 8 * 5, 0x8001_3703),
        (0xf_0000_0001_0000 + 8, 0x400_0000_1701),
    ]);
    let regimes = el1(tcr(6, 12), 0x1_0000 | 0xf << 2, 0);
    assert_eq!(
        place(&regimes, &memory, wide),
        Some((0x3_0000_8001_6789, 16))
    );
    assert_eq!(
        place(&regimes, &memory, 1 << 42 | 9),
        Some((0x1_0400_0000_0009, 42))
    );
}

/// FEAT_LPA2 (TCR_EL1.DS, bit 59): level -1 of 4 KiB pages, bits 9 and 8 of a descriptor are bits
/// 51 and 50 of an address, and level 0 has blocks (D8.2.6).
#[test]
fn fifty_two_bits_with_small_pages() {
    let tcr = 1 << 59 | 6 << 32 | 2 << 30 | 12 << 16 | 12;
    let at = 0xa_u64 << 48 | 1 << 39 | 2 << 30 | 3 << 21 | 4 << 12 | 5;
    let memory = Memory::of(&[
        (0x1000 + 8 * 0xa, 0x2003),
        (0x2000 + 8, 0x3_0000_0000_3203),
        (0xb_0000_0000_3000 + 8 * 2, 0x4003),
        (0x4000 + 8 * 3, 0x5003),
        (0x5000 + 8 * 4, 0x8000_6103),
        (0x2000 + 8 * 2, 0x180_0000_0001),
    ]);
    let regimes = el1(tcr, 0x1000, 0x1000);
    assert_eq!(place(&regimes, &memory, at), Some((0x4_0000_8000_6005, 12)));
    let block = 0xa_u64 << 48 | 2 << 39 | 77;
    assert_eq!(place(&regimes, &memory, block), Some((0x180_0000_004d, 39)));
    // ID_AA64MMFR0_EL1.TGran4 = 0: no FEAT_LPA2, and DS has no effect.
    let without = a64(&[
        ("SCTLR_EL1", ON),
        ("TCR_EL1", tcr),
        ("TTBR0_EL1", 0x1000),
        ("TTBR1_EL1", 0x1000),
        ("ID_AA64MMFR0_EL1", 6),
    ]);
    let fault = map(&without, Space::El1N, &memory, at).unwrap_err();
    assert_eq!(fault, FaultReason::Unknown, "52 bits are not possible");
}

/// TCR_EL1.IPS and ID_AA64MMFR0_EL1.PARange bound output addresses (D8.2.3).
#[test]
fn addresses_have_no_more_bits_than_the_output() {
    let memory = Memory::of(&[
        (0x1000, 0x2003),
        (0x2000, 0x10_0000_0701),
        (0x2008, 0xc000_0701),
    ]);
    let narrow = el1(TCR_4K & !(7 << 32), 0x1000, 0);
    let fault = map(&narrow, Space::El1N, &memory, 5).unwrap_err();
    assert_eq!(
        fault,
        FaultReason::Size {
            address: 0x10_0000_0000
        }
    );
    assert_eq!(place(&narrow, &memory, 1 << 30), Some((0xc000_0000, 30)));
    let wide = el1(TCR_4K, 0x1000, 0);
    assert_eq!(place(&wide, &memory, 5), Some((0x10_0000_0005, 30)));
    let core = a64(&[
        ("SCTLR_EL1", ON),
        ("TCR_EL1", TCR_4K),
        ("TTBR0_EL1", 0x1000),
        ("ID_AA64MMFR0_EL1", 1),
    ]);
    assert_eq!(place(&core, &memory, 5), None, "36 bits");
    let fault = map(&core, Space::El1N, &memory, !0).unwrap_err();
    assert_eq!(
        fault,
        FaultReason::Unknown,
        "TTBR1_EL1 is not in the snapshot"
    );
}

/// SCTLR_ELx.M, EE; TCR_EL1.EPD0, EPD1.
#[test]
fn control_bits() {
    let memory = Memory::of(&[(0x1000, 0x2003), (0x2000, 0x4000_0701)]);
    let off = a64(&[("SCTLR_EL1", 0x30d0_0800)]);
    assert_eq!(place(&off, &memory, 0x1234_5678), Some((0x1234_5678, 52)));
    assert_eq!(place(&off, &memory, 1 << 52), None);
    let disabled = el1(TCR_4K | 1 << 7, 0x1000, 0x1000);
    let fault = map(&disabled, Space::El1N, &memory, 0).unwrap_err();
    assert_eq!(fault, FaultReason::Disabled);
    assert!(place(&disabled, &memory, !0 << 48).is_some());
    let swapped = Memory::of(&[
        (0x1000, 0x2003_u64.swap_bytes()),
        (0x2000, 0x4000_0701_u64.swap_bytes()),
    ]);
    let big = a64(&[
        ("SCTLR_EL1", ON | 1 << 25),
        ("TCR_EL1", TCR_4K),
        ("TTBR0_EL1", 0x1000),
    ]);
    assert_eq!(place(&big, &swapped, 7), Some((0x4000_0007, 30)));
    let missing = a64(&[("SCTLR_EL1", ON)]);
    let why = missing.get(Space::El1N).unwrap_err();
    assert_eq!(why, "TCR_EL1 is not in the snapshot, and stage 1 is on");
    let unknown = a64(&[("TCR_EL1", TCR_4K), ("TTBR0_EL1", 0x1000)]);
    let notes = unknown.get(Space::El1N).unwrap().notes().join("\n");
    assert!(notes.contains("SCTLR_EL1 is not in the snapshot: translation is assumed to be on"));
}

/// NS (bit 5) of a page and NSTable (bit 63) of a table in the secure world (D8.3.1, D8.3.2).
#[test]
fn the_secure_world_and_the_way_out() {
    let mut memory = Memory::default();
    let table = 0x3003 | 1 << 63;
    for (world, address, value) in [
        (World::Secure, 0x1000, 0x2003),
        (World::Secure, 0x2000, 0x4000_0701),
        (World::Secure, 0x2008, 0x8000_0721),
        (World::Secure, 0x2010, table),
        (World::NonSecure, 0x3000, 0xc000_0701),
        // The same addresses in the other world hold something else.
        (World::NonSecure, 0x1000, 0),
        (World::Secure, 0x3000, 0),
    ] {
        memory.add(world, address, value);
    }
    let registers = [
        ("SCTLR_EL1", ON),
        ("TCR_EL1", TCR_4K),
        ("TTBR0_EL1", 0x1000),
        ("SCTLR_EL3", ON),
        ("TCR_EL3", 5 << 16 | 16),
        ("TTBR0_EL3", 0x1000),
        ("SCR_EL3", 0),
    ];
    let regimes = a64(&registers);
    for space in [Space::El1S, Space::S, Space::El3, Space::Any] {
        let at = |address| {
            let found = map(&regimes, space, &memory, address).ok()?;
            Some((found.physical, found.world))
        };
        assert_eq!(at(0x10), Some((0x4000_0010, World::Secure)), "{space}");
        assert_eq!(
            at(1 << 30),
            Some((0x8000_0000, World::NonSecure)),
            "{space}"
        );
        assert_eq!(
            at(2 << 30),
            Some((0xc000_0000, World::NonSecure)),
            "{space}"
        );
    }
    assert!(map(&regimes, Space::El1N, &memory, 0x10).is_err());
}

/// EL2 has one range, and two with HCR_EL2.E2H (D8.1.2); with TGE they are those of EL0 too.
#[test]
fn el2_of_hypervisors_and_of_hosts() {
    let memory = Memory::of(&[(0x1000, 0x2003), (0x2000, 0x4000_0701)]);
    let registers = |hcr, tcr| {
        a64(&[
            ("SCTLR_EL2", ON),
            ("TCR_EL2", tcr),
            ("TTBR0_EL2", 0x1000),
            ("TTBR1_EL2", 0x1000),
            ("HCR_EL2", hcr),
            ("SCTLR_EL1", 0),
        ])
    };
    let hypervisor = registers(0, 5 << 16 | 16);
    let at = |regimes: &Regimes, space, address| {
        Some(map(regimes, space, &memory, address).ok()?.physical)
    };
    assert_eq!(at(&hypervisor, Space::El2, 9), Some(0x4000_0009));
    assert_eq!(at(&hypervisor, Space::H, !0 << 48), None);
    assert_eq!(hypervisor.get(Space::El2).unwrap().name(), "EL2");
    let host = registers(1 << 34 | 1 << 27, TCR_4K);
    assert_eq!(at(&host, Space::El2, !0 << 48 | 9), Some(0x4000_0009));
    assert_eq!(at(&host, Space::El1N, 9), Some(0x4000_0009));
    assert_eq!(host.get(Space::El1N).unwrap().name(), "EL2&0");
}

/// Stage 2 (D8.2.1): concatenated tables, the first level by VTCR_EL2.SL0; tables of stage 1 are at
/// intermediate addresses.
#[test]
fn stage_two_is_behind_all_of_stage_one() {
    // 40 bits, 4 KiB pages, SL0 = 1: two concatenated tables at level 1 (8 KiB).
    let vtcr = 2 << 16 | 1 << 6 | 24;
    let memory = Memory::of(&[
        // Intermediate 0x40000000 to physical 0x80000000, a table, then a block and a page.
        (0x1_0000 + 8, 0x1_2003),
        (0x1_2000, 0x8000_07fd),
        (0x1_2008, 0x1_3003),
        (0x1_3000 + 8 * 3, 0x9999_9003 | 0x7c0),
        // The upper half of the input is in the second table.
        (0x1_0000 + 8 * 513, 0xc000_07fd),
        // Stage 1, at intermediate 0x40001000.
        (0x8000_1000, 0x4000_2003),
        (0x8000_2000, 0x4000_3003),
        (0x8000_3000, 0x4000_4003),
        (0x8000_4000, 0x4000_5703),
        (0x8000_4008, 0x4020_3703),
        (0x8000_4010, 0x4020_4703),
        (0x8000_2008, 0x80_4000_0701),
    ]);
    let registers = [
        ("SCTLR_EL1", ON),
        ("TCR_EL1", TCR_4K),
        ("TTBR0_EL1", 0x4000_1000),
        ("HCR_EL2", 1 << 31 | 1),
        ("VTCR_EL2", vtcr),
        ("VTTBR_EL2", 7 << 48 | 0x1_0000),
    ];
    let regimes = a64(&registers);
    assert_eq!(place(&regimes, &memory, 0x123), Some((0x8000_5123, 12)));
    assert_eq!(place(&regimes, &memory, 0x1123), Some((0x9999_9123, 12)));
    assert_eq!(
        place(&regimes, &memory, 1 << 30 | 0x123),
        Some((0xc000_0123, 30))
    );
    let regime = regimes.get(Space::El1N).unwrap();
    let fault = regime.translate(0x2123, &memory, &mut |_| {}).unwrap_err();
    assert_eq!((fault.stage, fault.shift), (2, 12), "{fault}");
    let mut steps = Vec::new();
    regime
        .translate(0x1123, &memory, &mut |step| steps.push(step))
        .unwrap();
    let stages: Vec<u8> = steps
        .iter()
        .filter_map(|step| match step {
            Step::Descriptor { stage, .. } => Some(*stage),
            Step::Note(_) => None,
        })
        .collect();
    assert_eq!(stages, [2, 2, 1, 2, 2, 1, 2, 2, 1, 2, 2, 1, 2, 2, 2]);
    // Without its registers nothing is translated.
    let regimes = a64(&registers[..4]);
    let why = regimes.get(Space::El1N).unwrap_err();
    assert_eq!(why, "VTCR_EL2 is not in the snapshot, and stage 2 is on");
    // HCR_EL2.DC: stage 1 is off.
    let mut off = registers;
    off[3].1 = 1 << 12;
    assert_eq!(
        place(&a64(&off), &memory, 0x4000_5123),
        Some((0x8000_5123, 21))
    );
}

/// DDI 0406, B3.5: sections, supersections, large and small pages; TTBCR.N chooses TTBR1.
#[test]
fn short_descriptors() {
    let memory = Memory::short(&[
        (0x4000 + 4 * 0x123, 0x0000_8001),
        (0x8000 + 4 * 0x45, 0x5555_5032),
        (0x8000 + 4 * 0x46, 0x6666_0031),
        (0x8000 + 4 * 0x47, 0),
        (0x4000 + 4 * 0x124, 0x7770_0c02),
        // A supersection: bits 35 to 32 in 23 to 20, bits 39 to 36 in 8 to 5.
        (0x4000 + 4 * 0x130, 0xab54_00c2 & !0x1e0 | 0x60),
        (0x4000 + 4 * 0x131, 0),
        // PXN.
        (0x4000 + 4 * 0x132, 0x1230_0c03),
        (0xc000 + 4 * 0x800, 0x8880_0c02),
    ]);
    let registers = [
        ("SCTLR", ON),
        ("TTBCR", 0),
        ("TTBR0", 0x404a),
        ("ID_MMFR0", 5),
    ];
    let regimes = a32(&registers);
    assert_eq!(
        place(&regimes, &memory, 0x1234_5678),
        Some((0x5555_5678, 12))
    );
    assert_eq!(
        place(&regimes, &memory, 0x1234_6678),
        Some((0x6666_6678, 16))
    );
    assert_eq!(place(&regimes, &memory, 0x1234_7678), None);
    assert_eq!(
        place(&regimes, &memory, 0x1245_6789),
        Some((0x7775_6789, 20))
    );
    assert_eq!(
        place(&regimes, &memory, 0x1300_1234),
        Some((0x35_ab00_1234, 24))
    );
    assert_eq!(place(&regimes, &memory, 0x1310_1234), None);
    assert_eq!(
        place(&regimes, &memory, 0x1320_1234),
        Some((0x1230_1234, 20))
    );
    assert_eq!(place(&regimes, &memory, 0x1_1234_5678), None);
    let without = a32(&[
        ("SCTLR", ON),
        ("TTBCR", 0),
        ("TTBR0", 0x4000),
        ("ID_MMFR0", 3),
    ]);
    assert_eq!(
        place(&without, &memory, 0x1320_1234),
        None,
        "0b11 is reserved"
    );
    // N = 1: a table of 8 KiB for the lower half, the whole table at TTBR1 for the upper one.
    let two = [
        ("SCTLR", ON),
        ("TTBCR", 1),
        ("TTBR0", 0x4000),
        ("TTBR1", 0xc000),
    ];
    let regimes = a32(&two);
    assert_eq!(
        place(&regimes, &memory, 0x1245_6789),
        Some((0x7775_6789, 20))
    );
    assert_eq!(
        place(&regimes, &memory, 0x8001_2345),
        Some((0x8881_2345, 20))
    );
    // PD1.
    let disabled = a32(&[two[0], ("TTBCR", 0x21), two[2], two[3]]);
    let fault = map(&disabled, Space::N, &memory, 0x8001_2345).unwrap_err();
    assert_eq!(fault, FaultReason::Disabled);
}

/// Registers of both worlds, as Arm's debuggers name them.
#[test]
fn banked_registers() {
    let memory = Memory::short(&[(0x4000 + 4, 0x7770_0c02), (0x8000 + 4, 0x8880_0c02)]);
    let registers = [
        ("S_SCTLR", ON),
        ("S_TTBCR", 0),
        ("S_TTBR0", 0x4000),
        ("N_SCTLR", ON),
        ("N_TTBCR", 0),
        ("N_TTBR0", 0x8000),
        ("CPSR", 0x1d3),
        ("SCR", 1),
    ];
    let regimes = a32(&registers);
    assert_eq!(place(&regimes, &memory, 0x10_0000), Some((0x8880_0000, 20)));
    let secure = regimes.get(Space::S).unwrap();
    let mut tables = Memory::default();
    tables.words.extend(
        memory
            .words
            .iter()
            .map(|((_, at), word)| ((World::Secure, *at), *word)),
    );
    let found = secure.translate(0x10_0000, &tables, &mut |_| {}).unwrap();
    assert_eq!((found.physical, found.world), (0x7770_0000, World::Secure));
    // A register without a prefix is that of the current world.
    let current = a32(&[
        ("SCTLR", ON),
        ("TTBCR", 0),
        ("TTBR0", 0x8000),
        ("SCR", 1),
        ("CPSR", 0x1d3),
    ]);
    assert!(current.get(Space::N).is_ok());
    assert!(current.get(Space::S).is_err());
}

/// DDI 0406, B3.6: TTBCR.EAE, T0SZ, T1SZ; the first level depends on the input size.
#[test]
fn long_descriptors_of_aarch32() {
    let memory = Memory::of(&[
        (0x1000 + 8, 0x2003),
        (0x2000 + 8 * 3, 0x3003),
        (0x3000 + 8 * 4, 0x12_3456_7703),
        (0x2000 + 8 * 5, 0x4020_0701),
        // T1SZ = 2: 30 bits, from level 2.
        (0x5000 + 8 * 7, 0x6000_0701),
    ]);
    let registers = |ttbcr: u64| {
        a32(&[
            ("SCTLR", ON),
            ("TTBCR", 1_u64 << 31 | ttbcr),
            ("TTBR0_64", 0x1000),
            ("TTBR1_64", 0x5000),
        ])
    };
    let whole = registers(0);
    let at = 1_u64 << 30 | 3 << 21 | 4 << 12 | 5;
    assert_eq!(place(&whole, &memory, at), Some((0x12_3456_7005, 12)));
    assert_eq!(
        place(&whole, &memory, 1 << 30 | 5 << 21 | 5),
        Some((0x4020_0005, 21))
    );
    assert_eq!(place(&whole, &memory, 0xc000_0000 | 7 << 21), None);
    let two = registers(2 << 16);
    assert_eq!(place(&two, &memory, at), Some((0x12_3456_7005, 12)));
    assert_eq!(
        place(&two, &memory, 0xc000_0000 | 7 << 21 | 9),
        Some((0x6000_0009, 21))
    );
    // T0SZ = 1 and T1SZ = 2: addresses between the ranges have no table.
    let gap = registers(2 << 16 | 1);
    let fault = map(&gap, Space::El1N, &memory, 0x8000_0000).unwrap_err();
    assert_eq!(fault, FaultReason::Range { bits: 31 });
}

/// A core with an MPU, and M-profile, have no tables.
#[test]
fn memory_protection_units_translate_nothing() {
    let core = RegisterFile::read(&Core(vec![("SCTLR", ON)]), Architecture::AArch32);
    let regimes = Regimes::of(&core, true);
    let found = map(&regimes, Space::El1N, &Memory::default(), 0x1234).unwrap();
    assert_eq!((found.physical, found.attributes), (0x1234, None));
    assert!(regimes.get(Space::P).is_err());
}

/// A table whose entries are the table itself maps every address; a search through it ends.
#[test]
fn loops_end() {
    let mut memory = Memory::default();
    for index in 0..512 {
        memory.add(World::NonSecure, 0x1000 + 8 * index, 0x1003);
    }
    let regimes = el1(TCR_4K, 0x1000, 0);
    let found = place(&regimes, &memory, 0x1234_5678_9abc);
    assert_eq!(found, Some((0x1abc, 12)));
    assert!(memory.reads.get() <= 4);
    let regime = regimes.get(Space::El1N).unwrap();
    let mut maps = Maps::new(regime, &memory, 0, 1000);
    assert!(maps.by_ref().count() <= 1000);
    assert!(maps.reached().is_some());
    assert!(memory.reads.get() < 10_000, "{}", memory.reads.get());
}

/// Neighbours that continue each other are one range.
#[test]
fn mapped_ranges() {
    let memory = Memory::of(&[
        (0x1000, 0x2003),
        (0x2000 + 8 * 2, 0x3003),
        (0x3000, 0x0060_0000_8000_0401),
        (0x3008, 0x0060_0000_8020_0401),
        // Read-only, and elsewhere.
        (0x3010, 0x0060_0000_8040_0481),
        (0x1000 + 8 * 511, 0x2003),
    ]);
    let all: Vec<u64> = (0..512).map(|index| 0x1000 + 8 * index).collect();
    let mut memory = memory;
    for table in [0_u64, 0x1000, 0x2000] {
        for at in &all {
            memory
                .words
                .entry((World::NonSecure, at + table))
                .or_insert(0);
            memory
                .words
                .entry((World::NonSecure, at + table + 4))
                .or_insert(0);
        }
    }
    let regimes = el1(TCR_4K, 0x1000, 0x1000);
    let regime = regimes.get(Space::El1N).unwrap();
    let found: Vec<(u64, u64, u64, String)> = Maps::new(regime, &memory, 0, 10_000)
        .map(|range| {
            let attributes = range.attributes.unwrap().to_string();
            (range.first, range.last, range.physical, attributes)
        })
        .collect();
    let base = [0, 0xff80_0000_0000, !0 << 48, 0xffff_ff80_0000_0000];
    let mut wanted = Vec::new();
    for base in base {
        let base: u64 = base + (2 << 30);
        let rest = "user ---";
        wanted.push((base, base + 0x3f_ffff, 0x8000_0000, format!("rw- {rest}")));
        wanted.push((
            base + 0x40_0000,
            base + 0x5f_ffff,
            0x8040_0000,
            format!("r-- {rest}"),
        ));
    }
    assert_eq!(found, wanted);
}

proptest! {
    /// Any registers and any memory: a result, with few reads.
    #[test]
    fn nothing_is_trusted(
        values in proptest::collection::vec(any::<u64>(), 24),
        shapes in proptest::collection::vec(0_u64..0x100, 24),
        address: u64,
        key: u64,
        is_64bit: bool,
    ) {
        struct Noise(u64, Cell<usize>);
        impl PhysicalMemory for Noise {
            fn read(&self, address: u64, _: World, out: &mut [u8]) -> bool {
                self.1.set(self.1.get() + 1);
                let mixed = (address ^ self.0).wrapping_mul(0x9e37_79b9_7f4a_7c15);
                let valid = mixed | if mixed >> 60 < 14 { 3 } else { 0 };
                out.copy_from_slice(&valid.to_le_bytes()[..out.len()]);
                mixed >> 56 != 7
            }
        }
        let names = [
            "SCTLR_EL1", "TCR_EL1", "TTBR0_EL1", "TTBR1_EL1", "SCTLR_EL2", "TCR_EL2",
            "TTBR0_EL2", "TTBR1_EL2", "HCR_EL2", "VTCR_EL2", "VTTBR_EL2", "VSTCR_EL2",
            "VSTTBR_EL2", "SCR_EL3", "TCR_EL3", "TTBR0_EL3", "SCTLR", "TTBCR", "TTBR0", "TTBR1",
            "HCR", "HTCR", "HTTBR", "VTCR",
        ];
        // Most registers with the bits that switch translation on, and sizes that are possible.
        let registers: Vec<(&'static str, u64)> = names
            .iter()
            .zip(values.iter().zip(&shapes))
            .map(|(&name, (&value, &shape))| (name, match shape % 4 {
                0 => value,
                1 => value & !0x3f_003f | 0x10_0010,
                _ => value & !0x3f_003f | 0x11_0011,
            }))
            .collect();
        let regimes = if is_64bit { a64(&registers) } else { a32(&registers) };
        for space in Space::ALL {
            let Ok(regime) = regimes.get(space) else { continue };
            let memory = Noise(key, Cell::new(0));
            for at in [address, address & 0xffff_ffff, address | !0 << 48, address & !(!0 << 48)] {
                let _ = regime.translate(at, &memory, &mut |_| {});
            }
            // Five levels, each by way of five levels, and the output once more.
            prop_assert!(memory.1.get() <= 4 * 35);
            let mut last = None;
            for range in Maps::new(regime, &memory, address, 200) {
                prop_assert!(range.first <= range.last && last < Some(range.first));
                last = Some(range.last);
            }
            let _ = regime.with_table(true, key).map(|r| r.translate(address, &memory, &mut |_| {}));
            let _ = regime.with_table(false, key).map(|r| r.translate(address, &memory, &mut |_| {}));
        }
    }
}
