//! The memory that is known.

use armsnap::semantics::Machine;
use std::collections::HashMap;

const PAGE: u64 = 4096;

/// Bytes that were stored or loaded.
#[derive(Default)]
pub struct Shadow {
    pages: HashMap<u64, Box<[Option<u8>; PAGE as usize]>>,
    /// The loads of the last instruction: address, size, and whether the value is known.
    pub loads: Vec<(u64, u8, bool)>,
}

impl Shadow {
    pub fn forget(&mut self) {
        self.pages.clear();
    }

    fn byte(&mut self, address: u64) -> &mut Option<u8> {
        let page = self.pages.entry(address / PAGE);
        let page = page.or_insert_with(|| Box::new([None; PAGE as usize]));
        &mut page[(address % PAGE) as usize]
    }

    fn value(&mut self, address: u64, size: u8) -> Option<u64> {
        let mut value = 0;
        for offset in 0..size {
            let byte = (*self.byte(address.wrapping_add(u64::from(offset))))?;
            value |= u64::from(byte) << (8 * offset);
        }
        Some(value)
    }

    /// Records what a load found.
    pub fn learn(&mut self, address: u64, size: u8, value: u64) {
        for offset in 0..size {
            *self.byte(address.wrapping_add(u64::from(offset))) =
                Some((value >> (8 * offset)) as u8);
        }
    }
}

impl Machine for Shadow {
    fn load(&mut self, address: u64, size: u8) -> Option<u64> {
        let value = self.value(address, size);
        self.loads.push((address, size, value.is_some()));
        value
    }

    fn store(&mut self, address: Option<u64>, size: u8, value: Option<u64>) {
        let Some(address) = address else {
            return self.forget();
        };
        for offset in 0..size {
            let byte = value.map(|value| (value >> (8 * offset)) as u8);
            *self.byte(address.wrapping_add(u64::from(offset))) = byte;
        }
    }

    fn may_store_anywhere(&mut self) {
        self.forget();
    }
}
