//! Hashes of numbers.

use std::hash::{BuildHasherDefault, Hasher};

/// Builds hashers for maps whose keys are numbers.
pub(super) type HashNumbers = BuildHasherDefault<NumberHasher>;

/// Hashes numbers, scattering neighbours.
#[derive(Default)]
pub struct NumberHasher(u64);

impl Hasher for NumberHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.write_u64(byte.into());
        }
    }

    fn write_u32(&mut self, number: u32) {
        self.write_u64(number.into());
    }

    fn write_u64(&mut self, number: u64) {
        let mixed = (self.0 ^ number).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.0 = mixed ^ mixed >> 29;
    }
}
