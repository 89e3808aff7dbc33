//! What a tombstone says, in either form.

use crate::import::note::TombstoneNote;
use armsnap_snapshot::snapshot::signals::Signal;

/// The contents of a tombstone.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// Whether it is of ARM64.
    pub wide: bool,
    /// The number of the thread that failed.
    pub failed: u32,
    /// The command line of the process, up to its first space.
    pub command: String,
    /// The signal that ended it.
    pub signal: Option<Signal>,
    /// The threads.
    pub threads: Vec<Thread>,
    /// Memory: addresses and bytes; parts may overlap.
    pub memory: Vec<(u64, Vec<u8>)>,
    /// What files were mapped, in the order of the addresses.
    pub mappings: Vec<Mapping>,
    /// What the program and debuggerd say of the cause, and what could not be read.
    pub notes: Vec<TombstoneNote>,
}

/// A thread.
#[derive(Clone, Debug, Default)]
pub struct Thread {
    /// Its number.
    pub tid: u32,
    /// Its name.
    pub name: String,
    /// Its registers, by their printed names.
    pub registers: Vec<(String, u128)>,
    /// Frames of its backtrace.
    pub frames: Vec<Frame>,
}

impl Thread {
    /// The value of a register.
    pub fn value(&self, name: &str) -> Option<u64> {
        let found = self.registers.iter().find(|(known, _)| known == name)?;
        Some(found.1 as u64)
    }
}

/// A frame of a backtrace.
#[derive(Clone, Debug, Default)]
pub struct Frame {
    /// The address in memory, if it is known.
    pub pc: Option<u64>,
    /// The same by the addresses in the file.
    pub linked: u64,
    /// The path of the file.
    pub path: String,
    /// Its build-id, in digits.
    pub build_id: String,
}

/// A part of a file that was mapped.
#[derive(Clone, Debug, Default)]
pub struct Mapping {
    /// Its first address.
    pub first: u64,
    /// Its length in bytes.
    pub length: u64,
    /// Where it begins in the file.
    pub offset: u64,
    /// Whether it can be executed.
    pub code: bool,
    /// The path of the file.
    pub path: String,
    /// Its build-id, in digits.
    pub build_id: String,
}

impl Report {
    /// Adds memory after what was added last, if it follows it.
    pub fn add_memory(&mut self, address: u64, bytes: &[u8]) {
        if bytes.is_empty() || address.checked_add(bytes.len() as u64).is_none() {
            return;
        }
        match self.memory.last_mut() {
            Some((begin, known)) if begin.checked_add(known.len() as u64) == Some(address) => {
                known.extend(bytes);
            }
            _ => self.memory.push((address, bytes.to_vec())),
        }
    }
}

/// An address without its tag, which the hardware ignores.
pub const fn untagged(address: u64, wide: bool) -> u64 {
    match wide {
        true => address & ((1 << 56) - 1),
        false => address,
    }
}
