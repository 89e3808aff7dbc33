//! Stage 1 of AArch64 (DDI 0487, D8).

use super::*;
use crate::translation::RegimeNote;

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

/// TCR_EL1.TBI0, TBI1 (bits 37, 38); a pointer authentication code in bits 63 to 56 and 54 to 48
/// (D8.8.2), if SCTLR_EL1.EnIA (bit 31) is set.
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

/// D8.2.7: 16 KiB pages, 11 bits per level, except that level 0 has one bit; blocks at level 2.
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
        // Level 1 has no blocks.
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

/// D8.2.8: 64 KiB pages, 13 bits per level; with FEAT_LPA bits 15 to 12 of a descriptor and 5 to 2
/// of TTBR are bits 51 to 48 of an address, and level 1 has blocks.
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

/// FEAT_LPA2 (TCR_EL1.DS, bit 59): 4 KiB pages start at level -1, bits 9 and 8 of a descriptor are
/// bits 51 and 50 of an address, and level 0 has blocks (D8.2.6).
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
    // ID_AA64MMFR0_EL1.TGran4 = 0: without FEAT_LPA2, DS has no effect.
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

/// TCR_EL1.IPS and ID_AA64MMFR0_EL1.PARange limit output addresses (D8.2.3).
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

/// Armv8-R AArch64 (DDI 0600): VTCR_EL2.MSA selects tables for EL1&0. EL2 keeps its MPU, which is stage 2.
#[test]
fn tables_of_a_core_with_an_mpu() {
    let mut memory = Memory::default();
    for world in [World::NonSecure, World::Secure] {
        memory.add(world, 0x1000, 0x2003);
        memory.add(world, 0x2000, 0x8000_0401);
    }
    for (msa, wanted) in [(1 << 31, (0x8000_0123, 30)), (0, (0x123, 52))] {
        let registers = Core(vec![
            ("SCTLR_EL1", ON),
            ("TCR_EL1", TCR_4K),
            ("TTBR0_EL1", 0x1000),
            ("HCR_EL2", 1),
            ("VTCR_EL2", msa),
        ]);
        let registers = RegisterFile::read(&registers, Architecture::AArch64);
        let regimes = Regimes::of(&registers, true);
        for (space, wanted) in [
            (Space::El1N, wanted),
            (Space::El1S, wanted),
            (Space::El2N, (0x123, 52)),
        ] {
            let found = map(&regimes, space, &memory, 0x123).unwrap();
            assert_eq!((found.physical, found.shift), wanted, "{space} {msa:#x}");
        }
    }
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
    let text = "TCR_EL1 is not in the snapshot, and stage 1 is on";
    assert_eq!(why.to_string(), text);
    let unknown = a64(&[("TCR_EL1", TCR_4K), ("TTBR0_EL1", 0x1000)]);
    let note = &unknown.get(Space::El1N).unwrap().notes()[0];
    let register = "SCTLR_EL1";
    assert_eq!(*note, RegimeNote::AssumedOn { register });
    let text = "SCTLR_EL1 is not in the snapshot: translation is assumed to be on";
    assert_eq!(note.to_string(), text);
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
        // The same addresses hold something else in the other world.
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

/// EL2 has one range, or two with HCR_EL2.E2H (D8.1.2); with TGE, EL0 has them too.
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
    // EL1 ran in a guest, whose tables are not the host's.
    assert!(host.exclude_el1() && !hypervisor.exclude_el1());
    let guest = host.of_el1();
    assert!(guest.get(Space::El1N).is_err() && guest.get(Space::Any).is_err());
    assert_eq!(at(&guest, Space::El2, 9), Some(0x4000_0009));
}
