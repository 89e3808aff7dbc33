#![no_main]

//! Translation tables of any contents, used by registers of any value: walks end, and searches through
//! the tables are bounded.

use armsnap::arch::{Architecture, RegisterFile, SavedCore, SavedRegister, Space};
use armsnap::translation::{PhysicalMemory, Regimes, World};
use armsnap_fuzz::tables::NAMES;
use libfuzzer_sys::fuzz_target;
use std::cell::Cell;

/// Registers: 8 bytes of the input each.
struct Core<'a>(&'a [u8]);

impl SavedCore for Core<'_> {
    fn core_type(&self) -> &str {
        ""
    }

    fn saved_registers(&self) -> impl Iterator<Item = SavedRegister<'_>> {
        let values = self.0.chunks_exact(8).zip(NAMES);
        // A first byte of 0xff leaves the register out.
        let known = values.filter(|(value, _)| value[0] != 0xff);
        known.map(|(value, name)| SavedRegister {
            name,
            size: Some(64),
            value,
        })
    }
}

/// The rest of the input, again and again over all addresses below a limit.
struct Memory<'a> {
    bytes: &'a [u8],
    end: u64,
    reads: Cell<usize>,
}

impl PhysicalMemory for Memory<'_> {
    fn read(&self, address: u64, _: World, out: &mut [u8]) -> bool {
        self.reads.set(self.reads.get() + 1);
        let known = address < self.end && !self.bytes.is_empty();
        for (index, byte) in out.iter_mut().enumerate().filter(|_| known) {
            *byte = self.bytes[(address as usize + index) % self.bytes.len()];
        }
        known
    }
}

fuzz_target!(|data: &[u8]| {
    let Some((head, bytes)) = data.split_at_checked(8 * NAMES.len() + 10) else {
        return;
    };
    let (registers, rest) = head.split_at(8 * NAMES.len());
    let address = u64::from_le_bytes(rest[2..].try_into().expect("eight bytes"));
    let architecture = match rest[0] & 1 {
        0 => Architecture::AArch64,
        _ => Architecture::AArch32,
    };
    let registers = RegisterFile::read(&Core(registers), architecture);
    let regimes = Regimes::of(&registers, false);
    let memory = Memory {
        bytes,
        end: 1 << (rest[1] & 63),
        reads: Cell::new(0),
    };
    for space in Space::ALL {
        let Ok(regime) = regimes.get(space) else {
            continue;
        };
        memory.reads.set(0);
        let _ = regime.translate(address, &memory, &mut |step| {
            let _ = step.to_string();
        });
        assert!(memory.reads.get() <= 35, "a walk is bounded");
        let mut last = None;
        for range in armsnap::translation::Maps::new(regime, &memory, address, 100) {
            assert!(range.first <= range.last && last < Some(range.first));
            last = Some(range.last);
        }
        assert!(memory.reads.get() <= 35 * 300, "a search is bounded");
        if let Some(other) = regime.with_table(false, address) {
            let _ = other.translate(address, &memory, &mut |_| {});
        }
    }
});
