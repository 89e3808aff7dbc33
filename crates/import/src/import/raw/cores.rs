//! The traced cores: those of a saved state, or assumed ones.

use super::hints::Hints;
use super::registers::{Kind, List};
use super::units::Unit;
use crate::import::note::{Note, RawNote};
use crate::import::paths::Names;
use crate::import::{Options, programs};
use armsnap_snapshot::capture::Protocol;
use armsnap_snapshot::program::elf::{Elf, Machine};
use armsnap_snapshot::snapshot::model::{Device, DeviceClass, Dump};
use armsnap_trace::protocol::Core;

/// The cores collected so far.
#[derive(Debug)]
pub struct Cores<'o> {
    options: &'o Options,
    /// Their devices, starting with the cores of a saved state.
    pub devices: Vec<Device>,
    saved: usize,
    /// The number of trace units to which a core has been assigned.
    traced: usize,
    /// The memory that the user specifies.
    dumps: Vec<Dump>,
    /// The first program that the user names.
    program: Option<Elf>,
}

impl<'o> Cores<'o> {
    /// Starts with the cores of a saved state.
    pub fn new(saved: Vec<Device>, options: &'o Options) -> Self {
        Self {
            options,
            saved: saved.len(),
            devices: saved,
            traced: 0,
            dumps: Vec::new(),
            // Faults are reported where its memory is read.
            program: options
                .elf
                .first()
                .and_then(|named| Elf::open(&named.path).ok()),
        }
    }

    /// Whether a state was saved.
    pub const fn are_saved(&self) -> bool {
        self.saved > 0
    }

    /// Adds a core with the registers that the user lists. Returns its name.
    pub fn listed(&mut self, list: List, names: &mut Names) -> String {
        let mut device = self.device(None, list.kind == Kind::Micro, None);
        if self.options.core_type.is_none() {
            match list.kind {
                Kind::Wide => device.kind = "ARMv8-A".to_owned(),
                Kind::Narrow if device.kind == "ARMv8-A" => device.kind = "ARM-AA32".to_owned(),
                Kind::Micro | Kind::Narrow => {}
            }
        }
        device.name = names.unique(&format!("cpu{}", self.saved));
        device.registers = list.registers;
        let name = device.name.clone();
        self.devices.push(device);
        self.saved += 1;
        name
    }

    /// Adds memory to all cores, after the memory of a saved state.
    pub fn add_memory(&mut self, dumps: Vec<Dump>) {
        for device in &mut self.devices {
            device.dumps.extend(dumps.iter().cloned());
            number(&mut device.dumps);
        }
        self.dumps = dumps;
        number(&mut self.dumps);
    }

    /// The properties of cores for which nothing else is known.
    pub fn usual(&self) -> Core {
        match self.devices.first() {
            Some(device) => armsnap_snapshot::capture::traced_core(device),
            None => armsnap_snapshot::capture::traced_core(&self.device(None, false, None)),
        }
    }

    /// The hints about the cores.
    pub fn hints(&self) -> Hints {
        let program = self.program.as_ref();
        let tells =
            |program: &Elf| program.m_profile.is_some() || program.machine == Machine::AArch64;
        let is_typed = |device: &Device| !device.kind.is_empty();
        let is_saved = self.are_saved() && self.devices.first().is_some_and(is_typed);
        Hints {
            core: self.usual(),
            is_known: self.options.core_type.is_some() || is_saved || program.is_some_and(tells),
            code: programs::code(&self.options.elf),
        }
    }

    /// The index of the core of a trace unit.
    pub fn of(&mut self, unit: &Unit, names: &mut Names, notes: &mut Vec<Note>) -> usize {
        let number = unit.cpu.map_or(self.traced, |cpu| cpu as usize);
        self.traced += 1;
        let name = &unit.device.name;
        if number < self.saved {
            if self.saved > 1 && unit.cpu.is_none() {
                let note = RawNote::AssumedCore {
                    unit: name.clone(),
                    core: self.devices[number].name.clone(),
                };
                notes.push(note.into());
            }
            return number;
        }
        if self.are_saved() {
            let note = RawNote::UnsavedCore {
                unit: name.clone(),
                core: number,
            };
            notes.push(note.into());
        }
        self.assume(number, (unit.protocol(), unit.is_micro), names, notes)
    }

    /// Adds a core without a saved state.
    pub fn assume(
        &mut self,
        number: usize,
        (protocol, is_micro): (Option<Protocol>, bool),
        names: &mut Names,
        notes: &mut Vec<Note>,
    ) -> usize {
        let like = self.devices.first().filter(|_| self.are_saved());
        let mut device = self.device(protocol, is_micro, like);
        device.name = names.unique(&format!("cpu{number}"));
        if self.options.core_type.is_none() && protocol.is_some() && !self.are_saved() {
            let note = RawNote::AssumedType {
                core: device.name.clone(),
                kind: device.kind.clone(),
            };
            notes.push(note.into());
        }
        device.dumps = like.map_or_else(|| self.dumps.clone(), |like| like.dumps.clone());
        self.devices.push(device);
        self.devices.len() - 1
    }

    fn device(&self, protocol: Option<Protocol>, is_micro: bool, like: Option<&Device>) -> Device {
        let program = self.program.as_ref();
        let is_micro = is_micro || program.is_some_and(|program| program.m_profile == Some(true));
        let assumed = match protocol {
            Some(Protocol::Itm) => "ARMv7-M",
            _ if is_micro || self.options.mtb.is_some() => "ARMv7-M",
            Some(Protocol::Ptm | Protocol::Etmv3) => "ARMv7-A",
            _ if program.is_some_and(|program| program.machine == Machine::Arm) => "ARM-AA32",
            _ => "ARMv8-A",
        };
        let named = self.options.core_type.clone();
        let kind = named.or_else(|| like.map(|like| like.kind.clone()));
        Device {
            class: DeviceClass::Core,
            kind: kind.unwrap_or_else(|| assumed.to_owned()),
            ..Device::default()
        }
    }
}

/// Sets the section names of dumps.
fn number(dumps: &mut [Dump]) {
    for (index, dump) in dumps.iter_mut().enumerate() {
        dump.section = format!("dump{}", index + 1);
    }
}
