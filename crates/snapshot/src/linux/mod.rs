//! Information that a Linux kernel keeps about itself, read from its memory: VMCOREINFO, the log,
//! the types (BTF), the tasks, and the modules.
//!
//! Independent of snapshots and debuggers, which implement [`Memory`]. Memory is never trusted.

pub mod aarch32;
pub mod btf;
pub mod log;
pub mod module_names;
pub mod modules;
pub mod physical;
pub mod tasks;
pub mod vmcoreinfo;

#[cfg(test)]
mod module_tests;
#[cfg(test)]
mod tests;

/// The memory of a kernel at its virtual addresses.
pub trait Memory {
    /// Reads memory; returns the number of known bytes from the address.
    fn read(&self, address: u64, out: &mut [u8]) -> usize;
}

/// Reads bytes, if all of them are known.
fn bytes(memory: &dyn Memory, address: u64, length: usize) -> Option<Vec<u8>> {
    let mut out = vec![0; length];
    (memory.read(address, &mut out) == length).then_some(out)
}

fn word(memory: &dyn Memory, address: u64) -> Option<u32> {
    let mut out = [0; 4];
    (memory.read(address, &mut out) == 4).then_some(u32::from_le_bytes(out))
}

fn long(memory: &dyn Memory, address: u64) -> Option<u64> {
    let mut out = [0; 8];
    (memory.read(address, &mut out) == 8).then_some(u64::from_le_bytes(out))
}

/// A name of fixed size, up to its first zero byte.
fn name(bytes: &[u8]) -> String {
    let end = bytes.iter().position(|byte| *byte == 0);
    String::from_utf8_lossy(&bytes[..end.unwrap_or(bytes.len())]).into_owned()
}
