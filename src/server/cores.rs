//! The cores of an endpoint, and its memory devices.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::note::CoreNote;
use armsnap_arch::arch::registers::Bytes;
use armsnap_arch::arch::state::{self, CurrentSpace};
use armsnap_arch::arch::{
    Architecture, Detected, RegisterDescription, RegisterFile, Space, TargetDescription,
};
use armsnap_arch::quantity::Isa;
use armsnap_history::timeline::TracedCore;
use armsnap_snapshot::snapshot::OpenSnapshot;
use armsnap_snapshot::snapshot::memory::{CoreMemory, Origin};
use armsnap_snapshot::snapshot::program::Program;

/// A core as a debugger sees it.
#[derive(Debug)]
pub struct Core {
    /// Its name in the snapshot.
    pub name: String,
    /// Its type, as written.
    pub kind: String,
    /// The cluster that contains it.
    pub cluster: Option<String>,
    /// Its architecture, and how it was detected.
    pub detected: Detected,
    /// Its registers.
    pub registers: RegisterFile,
    /// Its current address space.
    pub space: CurrentSpace,
    /// Its memory: dumps, then the program.
    pub memory: Arc<CoreMemory>,
    /// Whether it stays at the end of its trace: it has a history, and its registers are
    /// placeholders or absent.
    pub(super) rests: bool,
    /// Its index in the device list.
    pub(super) device: usize,
    /// Descriptions of its dumps.
    pub(super) dumps: Vec<String>,
    /// What could not be loaded, or was taken from other cores.
    pub notes: Vec<CoreNote>,
}

impl Core {
    /// Returns the text that `info threads` shows after the name.
    pub fn summary(&self) -> String {
        let kind = match self.kind.trim() {
            "" => self.detected.architecture.name(),
            kind => kind,
        };
        match state::mode(&self.registers).or(self.space.name) {
            Some(state) => format!("{kind} {state}"),
            None => kind.to_owned(),
        }
    }

    /// Returns the description of the core for following its history.
    pub(super) fn traced(&self) -> TracedCore {
        TracedCore {
            device: self.device,
            memory: Arc::clone(&self.memory),
        }
    }

    /// Returns a register as sent: its bytes, or all `None` if any byte is unknown.
    ///
    /// GDB checks only the first byte of a register for availability, and treats other unknown
    /// bytes as 0.
    pub(super) fn register(&self, register: &RegisterDescription) -> Bytes {
        let bytes = self.registers.bytes(&register.view, register.bytes());
        if bytes.iter().all(Option::is_some) {
            bytes
        } else {
            vec![None; bytes.len()]
        }
    }

    /// Returns its instruction set at the halted state, if known.
    pub(super) fn isa(&self) -> Option<Isa> {
        let thumb = self.registers.value("cpsr")? >> 5 & 1 == 1;
        Some(match self.detected.architecture {
            Architecture::AArch64 => Isa::A64,
            Architecture::AArch32 if !thumb => Isa::A32,
            Architecture::AArch32 | Architecture::MProfile => Isa::T32,
        })
    }

    /// Returns the address spaces of its dumps, with the number of bytes in each.
    pub(super) fn space_sizes(&self) -> BTreeMap<Space, u64> {
        let mut sizes = BTreeMap::new();
        for region in self.memory.regions() {
            if matches!(region.origin, Origin::Dump(_)) {
                let size = sizes.entry(region.space).or_insert(0_u64);
                *size = size.saturating_add(region.length);
            }
        }
        sizes
    }

    /// Shares the memory of other cores where it has none. Adds notes on this if `notes`.
    pub(super) fn share(&mut self, loaded: &OpenSnapshot, notes: bool) {
        // Nothing else refers to the memory yet.
        let Some(memory) = Arc::get_mut(&mut self.memory) else {
            return;
        };
        memory.share(loaded, self.device);
        if notes {
            let sharing = memory.sharing(self.space.space);
            self.notes.extend(sharing.map(CoreNote::Memory));
        }
    }

    /// Adds the segments of programs, with lower priority than all dumps.
    pub(super) fn add_programs<'p>(&mut self, programs: impl Iterator<Item = &'p Program>) {
        // Nothing else refers to the memory yet.
        let Some(memory) = Arc::get_mut(&mut self.memory) else {
            return;
        };
        for program in programs {
            let added = program.add_to(memory, self.space.space);
            self.notes.extend(added.into_iter().map(CoreNote::Program));
        }
    }
}

/// A device of class `memory_space`.
#[derive(Debug)]
pub struct MemoryDevice {
    /// Its name.
    pub name: String,
    /// Its dumps.
    pub memory: CoreMemory,
}

/// The cores of an endpoint with the registers that clients know.
#[derive(Clone, Copy)]
pub(super) struct Cores<'a> {
    /// The cores, by index.
    pub(super) all: &'a [Core],
    /// Their registers.
    pub(super) description: &'a TargetDescription,
    /// Number of general registers in a reply to `g`.
    pub(super) general: usize,
}

impl<'a> Cores<'a> {
    /// Returns the registers in a reply to `g`; clients request others one by one.
    pub(super) fn block(self) -> impl Iterator<Item = &'a RegisterDescription> {
        let general = self.description.registers().filter(|r| r.general);
        general.take(self.general)
    }
}
