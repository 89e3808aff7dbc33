//! AArch32 (DDI 0406, B3), and cores with an MPU.

use super::*;

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
    // N = 1: an 8 KiB table for the lower half, the whole table at TTBR1 for the upper half.
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
    // A register without a prefix belongs to the current world.
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

/// HCR.DC turns stage 2 on, and stage 1 off, as TGE does (DDI 0487, G8.2.63).
#[test]
fn hypervisors_of_aarch32_turn_stage_one_off() {
    let memory = Memory::of(&[(0x1000, 0x8000_07fd)]);
    let regimes = |hcr| {
        a32(&[
            ("SCTLR", ON),
            ("TTBCR", 0),
            ("TTBR0", 0x4000),
            ("HCR", hcr),
            ("VTCR", 1 << 6),
            ("VTTBR", 0x1000),
        ])
    };
    assert_eq!(
        place(&regimes(1 << 12), &memory, 0x123),
        Some((0x8000_0123, 30))
    );
    let excluded = regimes(1 << 27);
    assert_eq!(place(&excluded, &memory, 0x123), Some((0x123, 32)));
    assert!(excluded.exclude_el1() && !regimes(0).exclude_el1());
    assert_eq!(place(&regimes(0), &memory, 0x123), None);
}

/// DDI 0406, B3.7.2: XN applies to PL1 too, and PL1 may execute what PL0 can write.
#[test]
fn execution_by_long_descriptors_of_aarch32() {
    // Bits of a page descriptor: XN (54), PXN (53), AP[1] (6).
    for (bits, privileged, user) in [
        (0, "rwx", "--x"),
        (1 << 54, "rw-", "---"),
        (1 << 53, "rw-", "--x"),
        (1 << 6, "rwx", "rwx"),
        (1 << 6 | 1 << 54, "rw-", "rw-"),
    ] {
        let memory = Memory::of(&[
            (0x1000, 0x2003),
            (0x2000, 0x3003),
            (0x3000, 0x12_3456_7703 | bits),
        ]);
        let registers = a32(&[
            ("SCTLR", ON),
            ("TTBCR", 1_u64 << 31),
            ("TTBR0_64", 0x1000),
            ("TTBR1_64", 0x5000),
        ]);
        let found = map(&registers, Space::El1N, &memory, 0).unwrap();
        let attributes = found.attributes.unwrap();
        assert_eq!(attributes.privileged.to_string(), privileged, "{bits:#x}");
        assert_eq!(attributes.user.unwrap().to_string(), user, "{bits:#x}");
    }
}

/// The guest of an AArch64 hypervisor: VTCR_EL2 describes 64 KiB pages from level 2.
#[test]
fn stage_two_of_an_aarch64_hypervisor() {
    let memory = Memory::of(&[
        (0x1_0000 + 8 * 2, 0x2_0003),
        (0x2_0000 + 8 * 3, 0x9_9999_0000 | 0x7c3),
    ]);
    let regimes = a32(&[
        ("SCTLR", 0),
        ("HCR_EL2", 1),
        ("VTCR_EL2", 2 << 16 | 1 << 14 | 1 << 6 | 32),
        ("VTTBR_EL2", 0x1_0000),
    ]);
    let at = 2 << 29 | 3 << 16 | 5;
    assert_eq!(place(&regimes, &memory, at), Some((0x9_9999_0005, 16)));
}
