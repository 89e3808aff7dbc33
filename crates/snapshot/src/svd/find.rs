//! Finds peripherals and registers by name or address.

use super::{Peripheral, Register, Svd};
use crate::text::matches_pattern;

/// The number of registers before an address that are tried: they may overlap.
const TRIED: usize = 64;

impl Svd {
    /// Indexes the registers by address.
    pub(super) fn index(&mut self) {
        let peripherals = self.peripherals.iter().zip(0..);
        let entries = peripherals.flat_map(|(peripheral, of)| {
            let registers = peripheral.registers.iter().zip(0..);
            registers.map(move |(register, index)| (register.address, of, index))
        });
        self.by_address = entries.collect();
        self.by_address.sort_unstable();
    }

    /// Returns the peripherals and registers that a name selects: `UART0`, `UART0.SR`, `DMA.CH[0].*`.
    /// `*` and `?` stand for other characters; brackets and case do not matter. No name selects all
    /// peripherals.
    #[must_use]
    pub fn find(&self, name: &str) -> Vec<(&Peripheral, Vec<&Register>)> {
        let name = normal(name);
        let (of, register) = match name.split_once('.') {
            Some((of, register)) => (of, register),
            None => (name.as_str(), ""),
        };
        // A cluster selects all that is in it.
        let inside = format!("{register}.*");
        let is_wanted = |wanted: &&Register| {
            let name = normal(&wanted.name);
            register.is_empty() || matches_name(register, &name) || matches_name(&inside, &name)
        };
        let mut found = Vec::new();
        for peripheral in &self.peripherals {
            if !of.is_empty() && !matches_name(of, &normal(&peripheral.name)) {
                continue;
            }
            let registers: Vec<_> = peripheral.registers.iter().filter(is_wanted).collect();
            if register.is_empty() || !registers.is_empty() {
                found.push((peripheral, registers));
            }
        }
        found
    }

    /// Names what is at an address: `UART0.SR`, `UART0.SR+1`, or a peripheral without a register
    /// there, `UART0+0x20`.
    #[must_use]
    pub fn name_of(&self, address: u64) -> Option<String> {
        let end = self
            .by_address
            .partition_point(|(start, ..)| *start <= address);
        let before = self.by_address[..end].iter().rev().take(TRIED);
        let found = before.filter_map(|(start, of, index)| {
            let peripheral = self.peripherals.get(*of as usize)?;
            let register = peripheral.registers.get(*index as usize)?;
            let offset = address - start;
            (offset < register.bytes() as u64).then_some((offset, peripheral, register))
        });
        // Of registers at one address, the first one of the description.
        let nearest = found.min_by_key(|(offset, peripheral, register)| {
            let place = (
                *peripheral as *const Peripheral,
                *register as *const Register,
            );
            (*offset, place)
        });
        if let Some((offset, peripheral, register)) = nearest {
            let name = format!("{}.{}", peripheral.name, register.name);
            return Some(plus(name, offset));
        }
        let contains = |(start, size): &&(u64, u64)| address.wrapping_sub(*start) < *size;
        let mut peripherals = self.peripherals.iter();
        let peripheral =
            peripherals.find(|peripheral| peripheral.blocks.iter().any(|b| contains(&b)))?;
        let offset = address.wrapping_sub(peripheral.base);
        Some(plus(peripheral.name.clone(), offset))
    }
}

fn plus(name: String, offset: u64) -> String {
    match offset {
        0 => name,
        1..=9 => format!("{name}+{offset}"),
        _ => format!("{name}+{offset:#x}"),
    }
}

/// A name as it is compared.
fn normal(name: &str) -> String {
    let name = name.trim().chars().filter(|c| !matches!(c, '[' | ']'));
    name.map(|c| c.to_ascii_lowercase()).collect()
}

/// Whether a name is, or with `*` and `?` matches, what is wanted.
fn matches_name(wanted: &str, name: &str) -> bool {
    match wanted.contains(['*', '?']) {
        true => matches_pattern(wanted, name),
        false => wanted == name,
    }
}
