//! What a debugger sees at an address: the memory of a core in its current address space, in
//! another space or that of a memory device if the user wants it.
//!
//! Which of overlapping dumps is taken is in [`crate::snapshot::memory`]. A program's segments
//! are part of a core's memory, behind all dumps.

use super::endpoint::{Core, Endpoint};
use crate::arch::Space;
use crate::quantity::Address;
use crate::snapshot::memory::CoreMemory;

/// Where a session reads memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Look {
    /// As each core sees it in its current state.
    Current,
    /// In an address space of the snapshot format.
    Space(Space),
    /// In a memory device: its place in [`Endpoint::devices`].
    Device(usize),
}

/// A stretch of addresses, known or not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stretch {
    /// Its first address.
    pub start: u64,
    /// Its size in bytes.
    pub size: u64,
    /// Whether there is memory.
    pub known: bool,
}

impl Endpoint {
    /// The memory that is looked into, and the space within it.
    fn looked_at<'a>(&'a self, core: &'a Core, look: Look) -> (&'a CoreMemory, Space) {
        match look {
            Look::Current => (&core.memory, core.space.space),
            Look::Space(space) => (&core.memory, space),
            Look::Device(index) => match self.devices.get(index) {
                Some(device) => (&device.memory, Space::Any),
                None => (&core.memory, core.space.space),
            },
        }
    }

    /// Reads memory; answers how many bytes are known in one piece from the address on. Code that
    /// changed is that of a version, or what was there at the end.
    pub fn read(
        &self,
        core: &Core,
        look: Look,
        version: Option<u32>,
        address: u64,
        out: &mut [u8],
    ) -> usize {
        let (memory, space) = self.looked_at(core, look);
        match version {
            Some(version) => memory.read_code(version, Address(address), space, out),
            None => memory.read(Address(address), space, out),
        }
    }

    /// The stretch of known or unknown addresses that begins with an address.
    pub fn stretch(&self, core: &Core, look: Look, address: u64) -> Stretch {
        let (memory, space) = self.looked_at(core, look);
        let known = memory.slice(Address(address), space).len() as u64;
        let next = || memory.next(Address(address), space);
        let gap = || next().map_or(u64::MAX, |next| next.0) - address;
        Stretch {
            start: address,
            size: if known > 0 { known } else { gap() },
            known: known > 0,
        }
    }

    /// The place that `monitor space NAME` means.
    pub(super) fn look(&self, name: &str) -> Result<Look, String> {
        if name.eq_ignore_ascii_case("current") {
            return Ok(Look::Current);
        }
        let device = self
            .devices
            .iter()
            .position(|device| device.name == name)
            .or_else(|| {
                let same =
                    |device: &super::endpoint::MemoryDevice| device.name.eq_ignore_ascii_case(name);
                self.devices.iter().position(same)
            });
        if let Some(index) = device {
            return Ok(Look::Device(index));
        }
        match Space::parse(name) {
            Some(space) => Ok(Look::Space(space)),
            None => {
                let mut names = vec!["current"];
                names.extend(Space::ALL.map(Space::name));
                names.extend(self.devices.iter().map(|device| device.name.as_str()));
                Err(format!(
                    "expected an address space or a memory device, found {name:?}: {}",
                    names.join(", ")
                ))
            }
        }
    }

    /// Where memory is read, in words.
    pub(super) fn describe_look(&self, core: &Core, look: Look) -> String {
        match look {
            Look::Current => match core.space.name {
                Some(space) => format!("in {space}, the current space of {}", core.name),
                None => format!("in the one address space of {}", core.name),
            },
            Look::Space(space) => format!("in {space}"),
            Look::Device(index) => match self.devices.get(index) {
                Some(device) => format!("in the memory device {}", device.name),
                None => "nowhere".to_owned(),
            },
        }
    }
}
