//! Why a core faulted: its fault registers in words, the instruction, and the address it accessed.
//!
//! The registers are those of the halted state. Those of a Cortex-M are read from its system control
//! space, if the snapshot has that memory.

mod a64;
mod aarch32;
mod access;
mod m_frame;
mod m_profile;
mod memory_map;
mod note;
mod signal;
mod text;

use crate::program::elf::Elf;
use crate::program::symbols::Symbols;
use crate::snapshot::memory::CoreMemory;
use crate::snapshot::signals::Signal;
use crate::svd::Svd;
use armsnap_arch::arch::{Architecture, RegisterFile, Space};
use armsnap_arch::quantity::{Address, Isa};
use serde::Serialize;

pub use note::Note;
pub use text::Text;

/// The state of a halted core.
#[derive(Clone, Copy)]
pub struct Halted<'a> {
    /// Its registers.
    pub registers: &'a RegisterFile,
    /// Its memory.
    pub memory: &'a CoreMemory,
    /// The address space that it is in.
    pub space: Space,
    /// The signal that stopped it, if it is a thread of a program.
    pub signal: Option<&'a Signal>,
    /// The symbols of its programs.
    pub symbols: &'a Symbols,
    /// Its programs.
    pub programs: &'a [&'a Elf],
    /// The description of its peripherals.
    pub svd: Option<&'a Svd>,
}

/// A fault: the exception that a core is handling, or the last one that its registers recorded.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Fault {
    /// The exception and its cause in one line.
    pub summary: String,
    /// Whether the core is still handling it. Otherwise its registers recorded it earlier, and
    /// nothing says when.
    pub active: bool,
    /// The instruction that faulted.
    pub instruction: Option<Instruction>,
    /// The data address that could not be accessed.
    pub address: Option<DataAddress>,
    /// The registers that described the fault.
    pub status: Vec<StatusRegister>,
    /// The registers of the interrupted code that are known.
    pub interrupted: Vec<Interrupted>,
    /// What limits these statements.
    pub notes: Vec<Note>,
}

/// The instruction that faulted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Instruction {
    /// Its address.
    pub address: u64,
    /// Its text, if its code is known.
    pub text: Option<String>,
    /// The function, the offset in it, and the source line, if known.
    pub place: Option<String>,
    /// Where it was read, if this was not certain.
    pub relation: Relation,
}

/// How an instruction is related to a fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Relation {
    /// It faulted.
    Faulted,
    /// It could not be fetched.
    NotFetched,
    /// The fault was reported late: an earlier instruction caused it.
    After,
    /// It was interrupted by the exception; which instruction faulted is not known.
    Interrupted,
}

/// A data address that could not be accessed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct DataAddress {
    /// The address.
    pub address: u64,
    /// What is there.
    pub what: String,
    /// How the instruction computed it: the registers in the address, with their values.
    pub from: Vec<(String, u64)>,
    /// Whether it was computed from the instruction and its registers, because no register reports
    /// it.
    pub computed: bool,
}

/// A register that describes a fault.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct StatusRegister {
    /// Its name in the architecture.
    pub name: &'static str,
    /// Its value.
    pub value: u64,
    /// Its size in bits.
    #[serde(skip)]
    bits: u32,
    /// Its fields in words; empty for an address.
    pub meaning: String,
}

/// A register of the interrupted code.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Interrupted {
    /// Its name.
    pub name: &'static str,
    /// Its value at the exception.
    pub value: u64,
}

impl Fault {
    /// Reads the fault of a core. Returns `None` if no register or memory of the snapshot tells of
    /// one.
    #[must_use]
    pub fn of(core: &Halted<'_>) -> Option<Self> {
        match core.registers.architecture() {
            Architecture::MProfile => m_profile::fault(core),
            Architecture::AArch64 => a64::fault(core),
            Architecture::AArch32 => aarch32::fault(core),
        }
    }

    fn new(summary: String, active: bool) -> Self {
        Self {
            summary,
            active,
            instruction: None,
            address: None,
            status: Vec::new(),
            interrupted: Vec::new(),
            notes: Vec::new(),
        }
    }
}

impl Halted<'_> {
    /// Returns a register by the first of its names that is saved.
    fn register(&self, names: &[&str]) -> Option<u64> {
        names.iter().find_map(|name| self.registers.value(name))
    }

    /// Reads bytes of memory, if all are known.
    fn bytes<const N: usize>(&self, address: u64) -> Option<[u8; N]> {
        let mut bytes = [0; N];
        let known = self.memory.read(Address(address), self.space, &mut bytes);
        (known == N).then_some(bytes)
    }

    /// Reads a little-endian word of memory.
    fn word(&self, address: u64) -> Option<u32> {
        self.bytes(address).map(u32::from_le_bytes)
    }

    /// Whether any byte of memory is known at an address.
    fn has_memory(&self, address: u64) -> bool {
        self.bytes::<1>(address).is_some()
    }

    /// Describes an instruction.
    fn instruction(&self, address: u64, isa: Isa, relation: Relation) -> Instruction {
        Instruction {
            address,
            text: access::text(self, address, isa),
            place: self.place(address),
            relation,
        }
    }

    /// The function and the source line of code.
    fn place(&self, address: u64) -> Option<String> {
        let (name, offset) = self.symbols.function(address)?;
        let mut text = match offset {
            0 => name.to_owned(),
            _ => format!("{name}+{offset:#x}"),
        };
        if let Some(line) = self.symbols.line(address) {
            let file = line.file.rsplit('/').next().unwrap_or_default();
            text.push_str(&format!(" ({file}:{})", line.line));
        }
        Some(text)
    }
}
