//! Tests of the search for mapped ranges, and of arbitrary tables and registers.

use super::*;
use proptest::prelude::*;

/// A table whose entries all refer to itself maps every address; a search through it ends.
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

/// A limited search finds the same as an unlimited one before the limit, and does not look beyond
/// it.
#[test]
fn ends_are_kept() {
    let mut memory = Memory::default();
    for index in 0..512 {
        memory.add(World::NonSecure, 0x1000 + 8 * index, 0x1003);
    }
    let regimes = el1(TCR_4K, 0x1000, 0);
    let regime = regimes.get(Space::El1N).unwrap();
    let find = |end| {
        memory.reads.set(0);
        let mut maps = Maps::new(regime, &memory, 0x5800, 1000).before(end);
        let blocks = std::iter::from_fn(|| maps.next_block());
        let found: Vec<(u64, u64)> = blocks.map(|block| (block.first, block.last)).collect();
        (found, memory.reads.get())
    };
    let (all, _) = find(None);
    assert_eq!(all.len(), 1000);
    for (end, last, blocks) in [
        (0x8800, 0x87ff, 4),
        (0x8000, 0x7fff, 3),
        (0x5801, 0x5800, 1),
    ] {
        let (found, reads) = find(Some(end));
        assert_eq!(found.len(), blocks);
        assert_eq!(found[..blocks - 1], all[..blocks - 1]);
        assert_eq!(found[blocks - 1], (all[blocks - 1].0, last));
        assert!(reads <= 4 * blocks, "{reads}");
    }
    for end in [0x5800, 0] {
        assert_eq!(find(Some(end)), (Vec::new(), 0));
    }
}

/// Adjacent blocks that are contiguous form one range.
#[test]
fn mapped_ranges() {
    let memory = Memory::of(&[
        (0x1000, 0x2003),
        (0x2000 + 8 * 2, 0x3003),
        (0x3000, 0x0060_0000_8000_0401),
        (0x3008, 0x0060_0000_8020_0401),
        // A read-only page, and a page elsewhere.
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
    /// Any registers and any memory give a result with few reads.
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
        // Most registers have the bits that switch translation on, and sizes that are possible.
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
            // Five levels, each read through five levels of stage 2, and the output once more.
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
