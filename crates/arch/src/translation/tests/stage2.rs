//! Stage 2 of AArch64 (DDI 0487, D8.2).

use super::*;

/// Stage 2 (D8.2.1): concatenated tables, with the first level from VTCR_EL2.SL0; tables of stage 1
/// are at intermediate addresses.
#[test]
fn stage_two_follows_all_of_stage_one() {
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
    let stages: Vec<u8> = steps.iter().map(|step| step.stage).collect();
    assert_eq!(stages, [2, 2, 1, 2, 2, 1, 2, 2, 1, 2, 2, 1, 2, 2, 2]);
    // Without its registers, nothing is translated.
    let regimes = a64(&registers[..4]);
    let why = regimes.get(Space::El1N).unwrap_err();
    let text = "VTCR_EL2 is not in the snapshot, and stage 2 is on";
    assert_eq!(why.to_string(), text);
    // HCR_EL2.DC: stage 1 is off.
    let mut off = registers;
    off[3].1 = 1 << 12;
    assert_eq!(
        place(&a64(&off), &memory, 0x4000_5123),
        Some((0x8000_5123, 21))
    );
}

/// Without stage 1, addresses have the bits of stage 2: a search does not go beyond them.
#[test]
fn a_search_ends_with_the_intermediate_addresses() {
    // One table at level 1 for 33 bits; HCR_EL2.VM, and stage 1 off.
    let registers = [
        ("SCTLR_EL1", 0),
        ("HCR_EL2", 1),
        ("VTCR_EL2", 2 << 16 | 1 << 6 | 31),
        ("VTTBR_EL2", 0x1000),
    ];
    let table: Vec<(u64, u64)> = (0..8)
        .map(|index| (0x1000 + 8 * index, if index == 7 { 0xc000_07fd } else { 0 }))
        .collect();
    let memory = Memory::of(&table);
    let regimes = a64(&registers);
    let regime = regimes.get(Space::El1N).unwrap();
    let mut maps = Maps::new(regime, &memory, 0, 10);
    let found: Vec<_> = maps
        .by_ref()
        .map(|found| (found.first, found.physical))
        .collect();
    assert_eq!(found, [(7 << 30, 0xc000_0000)]);
    assert_eq!(maps.reached(), None, "few walks suffice");
    let fault = regime.translate(1 << 33, &memory, &mut |_| {}).unwrap_err();
    assert_eq!((fault.stage, fault.shift), (2, 33));
}

/// AArch64.SS2OutputPASpace: VSTCR_EL2.SW and SA, VTCR_EL2.NSW and NSA; each counts as set if an
/// earlier one is set.
#[test]
fn the_world_that_secure_stage_two_gives() {
    const BLOCK: u64 = 0xc000_07fd;
    for (secure_control, control, wanted) in [
        (0, 0, World::Secure),
        (1 << 30, 0, World::NonSecure),
        (1 << 29, 0, World::NonSecure),
        // These are set for non-secure intermediate addresses.
        (0, 1 << 29 | 1 << 30, World::Secure),
    ] {
        let size = 1 << 6 | 31;
        let registers = [
            ("SCTLR_EL1", 0),
            ("SCR_EL3", 1 << 18),
            ("HCR_EL2", 1),
            ("VTCR_EL2", 2 << 16 | size | control),
            ("VTTBR_EL2", 0x2000),
            ("VSTCR_EL2", size | secure_control),
            ("VSTTBR_EL2", 0x1000),
        ];
        let mut memory = Memory::of(&[(0x1000, BLOCK), (0x2000, BLOCK)]);
        memory.add(World::Secure, 0x1000, BLOCK);
        let found = map(&a64(&registers), Space::El1S, &memory, 5).unwrap();
        assert_eq!((found.physical, found.world), (0xc000_0005, wanted));
    }
}
