//! The table of offsets that a program with `CONFIG_DEBUG_THREAD_INFO` has for debuggers
//! (`subsys/debug/thread_info.c`).

use crate::program::elf::Elf;
use object::{Object, ObjectSymbol};

/// The table, and its length.
pub(super) const TABLE: &str = "_kernel_thread_info_offsets";
const COUNT: &str = "_kernel_thread_info_num_offsets";
/// The maximum number of offsets that are read.
const MOST: u64 = 64;

/// A field of the kernel's structures: its index in the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Field {
    /// In the kernel: the thread that the first core runs.
    Current = 1,
    /// In the kernel: the first thread.
    Threads = 2,
    /// In a thread: the next one.
    Next = 4,
    /// In a thread: its state.
    State = 5,
    /// In a thread: its priority.
    Priority = 7,
    /// In a thread: its stack pointer, or the end of its saved registers.
    Stack = 8,
    /// In a thread: its name.
    Name = 9,
    /// In a thread: the part of the architecture, from which the following ones are counted.
    Arch = 10,
    /// In the part of the architecture: saved floating-point registers.
    Float = 11,
    /// In the part of the architecture: EXC_RETURN.
    ExcReturn = 13,
}

/// The offsets of fields in the kernel's structures, in bytes.
#[derive(Clone, Debug)]
pub struct Offsets(Vec<u64>);

impl Offsets {
    /// Reads the table of a program, in numbers of the size of a pointer in bytes. Returns `None` if
    /// the program has none.
    #[must_use]
    pub fn of(elf: &Elf, pointer_size: usize) -> Option<Self> {
        let file = object::File::parse(elf.bytes()).ok()?;
        let read = |name: &str, count: u64| {
            let symbol = file.symbol_by_name(name)?;
            let bytes = elf.slice(symbol.address().wrapping_add(elf.offset))?;
            let bytes = bytes.get(..usize::try_from(count).ok()? * pointer_size)?;
            let number = |bytes: &[u8]| {
                let bytes = bytes.iter().rev();
                bytes.fold(0, |value, byte| value << 8 | u64::from(*byte))
            };
            Some(bytes.chunks(pointer_size).map(number).collect())
        };
        let count: Vec<u64> = read(COUNT, 1)?;
        read(TABLE, count.first()?.min(&MOST).to_owned()).map(Self)
    }

    /// Returns the offset of a field, if the kernel has it.
    #[must_use]
    pub fn get(&self, field: Field) -> Option<u64> {
        let offset = self.0.get(field as usize).copied()?;
        (offset != 0xffff_ffff && offset != u64::MAX).then_some(offset)
    }
}
