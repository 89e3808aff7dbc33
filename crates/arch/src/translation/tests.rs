//! Tests with tables written by hand from the rules of the Arm ARM (DDI 0487, D8; DDI 0406, B3).

mod aarch32;
mod aarch64;
mod search;
mod stage2;

use super::steps::FaultReason;
use super::{Mapping, Maps, PhysicalMemory, Regimes, World};
use crate::arch::{Architecture, RegisterFile, SavedCore, SavedRegister, Space};
use std::cell::Cell;
use std::collections::BTreeMap;

/// Words of memory; all other words are unknown.
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

/// The physical address and the address bits within the block.
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
