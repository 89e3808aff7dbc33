//! Maps and sets whose keys are numbers.

use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasherDefault, Hasher};

/// A map by numbers, such as addresses of executed code. Its order is the same in each run.
pub type NumberMap<K, V> = HashMap<K, V, BuildHasherDefault<NumberHasher>>;

/// A set of numbers, such as addresses of executed code. Its order is the same in each run.
pub type NumberSet<K> = HashSet<K, BuildHasherDefault<NumberHasher>>;

/// A fast hasher of numbers, which separates neighbours. It has no secret seed: an input can choose
/// numbers that collide.
#[derive(Clone, Copy, Debug, Default)]
pub struct NumberHasher(u64);

impl Hasher for NumberHasher {
    fn finish(&self) -> u64 {
        self.0 ^ self.0 >> 32
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
        self.0 = (self.0.rotate_left(23) ^ number).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }
}
