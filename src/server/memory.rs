//! Memory as seen by a debugger: the memory of a core in its current address space or, if selected by
//! the user, in another space or a memory device.
//!
//! [`crate::snapshot::memory`] resolves overlapping dumps. The segments of programs are part of a
//! core's memory, with lower priority than all dumps.

use super::cores::{Core, MemoryDevice};
use super::endpoint::Endpoint;
use crate::arch::Space;
use crate::quantity::Address;
use crate::snapshot::memory::CoreMemory;

/// Where a session reads memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemoryView {
    /// As each core sees it in its current state.
    Current,
    /// In an address space of the snapshot format.
    Space(Space),
    /// In a memory device, by index in [`Endpoint::devices`].
    Device(usize),
}

/// A range of addresses that is either all known or all unknown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryRange {
    /// Its first address.
    pub start: u64,
    /// Its size in bytes.
    pub size: u64,
    /// Whether its memory is known.
    pub known: bool,
}

impl Endpoint {
    /// Returns the memory and address space of a view.
    fn viewed<'a>(&'a self, core: &'a Core, view: MemoryView) -> (&'a CoreMemory, Space) {
        match view {
            MemoryView::Current => (&core.memory, core.space.space),
            MemoryView::Space(space) => (&core.memory, space),
            MemoryView::Device(index) => match self.devices.get(index) {
                Some(device) => (&device.memory, Space::Any),
                None => (&core.memory, core.space.space),
            },
        }
    }

    /// Reads memory; returns the number of contiguous known bytes from the address. Changed code is
    /// read as of `version`; `None` means the final state.
    pub fn read(
        &self,
        core: &Core,
        view: MemoryView,
        version: Option<u32>,
        address: u64,
        out: &mut [u8],
    ) -> usize {
        let (memory, space) = self.viewed(core, view);
        match version {
            Some(version) => memory.read_code(version, Address(address), space, out),
            None => memory.read(Address(address), space, out),
        }
    }

    /// Returns the range of known or unknown addresses that starts at an address.
    pub fn range_at(&self, core: &Core, view: MemoryView, address: u64) -> MemoryRange {
        let (memory, space) = self.viewed(core, view);
        let known = memory.slice(Address(address), space).len() as u64;
        let next = || memory.next(Address(address), space);
        let gap = || next().map_or(u64::MAX, |next| next.0) - address;
        MemoryRange {
            start: address,
            size: if known > 0 { known } else { gap() },
            known: known > 0,
        }
    }

    /// Parses the argument of `monitor space NAME`.
    pub(super) fn parse_view(&self, name: &str) -> Result<MemoryView, String> {
        if name.eq_ignore_ascii_case("current") {
            return Ok(MemoryView::Current);
        }
        let device = self
            .devices
            .iter()
            .position(|device| device.name == name)
            .or_else(|| {
                let same = |device: &MemoryDevice| device.name.eq_ignore_ascii_case(name);
                self.devices.iter().position(same)
            });
        if let Some(index) = device {
            return Ok(MemoryView::Device(index));
        }
        match Space::parse(name) {
            Some(space) => Ok(MemoryView::Space(space)),
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

    /// Describes where memory is read.
    pub(super) fn describe_view(&self, core: &Core, view: MemoryView) -> String {
        match view {
            MemoryView::Current => match core.space.name {
                Some(space) => format!("in {space}, the current space of {}", core.name),
                None => format!("in the one address space of {}", core.name),
            },
            MemoryView::Space(space) => format!("in {space}"),
            MemoryView::Device(index) => match self.devices.get(index) {
                Some(device) => format!("in the memory device {}", device.name),
                None => "nowhere".to_owned(),
            },
        }
    }
}
