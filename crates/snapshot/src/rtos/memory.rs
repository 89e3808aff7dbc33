//! The memory of a kernel.

use crate::program::elf::{Elf, Segment};
use crate::snapshot::memory::CoreMemory;
use crate::text::one_line;
use armsnap_arch::arch::{Architecture, Space};
use armsnap_arch::quantity::Address;

/// The maximum length of a name in bytes.
const LONGEST_NAME: usize = 128;
/// The maximum size of a stack that is searched for its fill pattern, in bytes.
const LARGEST_STACK: u64 = 128 << 10;

/// The memory of the core that runs a kernel.
#[derive(Clone, Copy)]
pub struct Memory<'a> {
    /// All that is known.
    pub memory: &'a CoreMemory,
    /// The address space that the core is in.
    pub space: Space,
    /// The architecture of the core.
    pub architecture: Architecture,
    /// The programs of the core: their code is known although no dump has it.
    pub programs: &'a [&'a Elf],
}

impl Memory<'_> {
    /// Reads bytes; `None` if some are not known.
    pub(super) fn bytes<const N: usize>(&self, address: u64) -> Option<[u8; N]> {
        let mut bytes = [0; N];
        (self.read(address, &mut bytes) == N).then_some(bytes)
    }

    /// Reads bytes; returns how many are known. Constants may be known only from a program.
    fn read(&self, address: u64, out: &mut [u8]) -> usize {
        let count = self.memory.read(Address(address), self.space, out);
        if count > 0 {
            return count;
        }
        let constants = self.programs.iter().find_map(|elf| {
            let mut segments = elf.segments.iter();
            let has = |segment: &Segment| (segment.address..segment.end()).contains(&address);
            let segment = segments.find(|segment| has(segment) && !segment.writable)?;
            let from = usize::try_from(address - segment.address).ok()?;
            elf.segment_bytes(segment).get(from..)
        });
        let bytes = constants.unwrap_or_default();
        let count = bytes.len().min(out.len());
        out[..count].copy_from_slice(&bytes[..count]);
        count
    }

    /// Reads a byte.
    pub(super) fn byte(&self, address: u64) -> Option<u8> {
        self.bytes::<1>(address).map(|[byte]| byte)
    }

    /// Reads a word of 32 bits.
    pub(super) fn word(&self, address: u64) -> Option<u32> {
        self.bytes(address).map(u32::from_le_bytes)
    }

    /// Returns the size of a pointer in bytes.
    pub(super) fn pointer_size(&self) -> u64 {
        match self.architecture {
            Architecture::AArch64 => 8,
            Architecture::AArch32 | Architecture::MProfile => 4,
        }
    }

    /// Reads a pointer, or a number of its size.
    pub(super) fn pointer(&self, address: u64) -> Option<u64> {
        match self.pointer_size() {
            8 => self.bytes(address).map(u64::from_le_bytes),
            _ => self.word(address).map(u64::from),
        }
    }

    /// Reads a number of a size in bytes.
    pub(super) fn number(&self, address: u64, size: u64) -> Option<u64> {
        match size {
            1 => self.byte(address).map(u64::from),
            2 => self
                .bytes(address)
                .map(|bytes| u16::from_le_bytes(bytes).into()),
            4 => self.word(address).map(u64::from),
            8 => self.bytes(address).map(u64::from_le_bytes),
            _ => None,
        }
    }

    /// Reads a name that a NUL ends, at most `most` bytes of it.
    pub(super) fn name(&self, address: u64, most: u64) -> String {
        let mut bytes = [0; LONGEST_NAME];
        let most = usize::try_from(most).map_or(LONGEST_NAME, |most| most.min(LONGEST_NAME));
        let count = self.read(address, &mut bytes[..most]);
        let known = bytes[..count].split(|byte| *byte == 0).next();
        let text = String::from_utf8_lossy(known.unwrap_or_default());
        one_line(&text).into_owned()
    }

    /// Returns the number of bytes from an address on that repeat a pattern, up to `end`.
    pub(super) fn filled(&self, lowest: u64, end: Option<u64>, pattern: [u8; 4]) -> u64 {
        let mut count = 0;
        let most = end.map_or(LARGEST_STACK, |end| {
            end.saturating_sub(lowest).min(LARGEST_STACK)
        });
        while count < most {
            let bytes = self
                .memory
                .slice(Address(lowest.wrapping_add(count)), self.space);
            let left = usize::try_from(most - count).unwrap_or(usize::MAX);
            let bytes = &bytes[..bytes.len().min(left)];
            let repeated = pattern.iter().cycle().skip(count as usize % pattern.len());
            let both = bytes.iter().zip(repeated);
            let same = both.take_while(|(byte, wanted)| byte == wanted).count();
            count += same as u64;
            if same < bytes.len() || bytes.is_empty() {
                break;
            }
        }
        count
    }

    /// Returns whether code at an address is known.
    pub(super) fn has_code(&self, address: u64) -> bool {
        !self.memory.slice(Address(address), self.space).is_empty()
            || self.programs.iter().any(|elf| elf.slice(address).is_some())
    }
}
