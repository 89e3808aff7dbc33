//! Memory as seen by a debugger: the memory of a core in its current address space or, if selected by
//! the user, in another space or a memory device.
//!
//! [`armsnap_snapshot::snapshot::memory`] resolves overlapping dumps, and translates addresses of cores with
//! physical memory. The segments of programs are part of a core's memory, with lower priority than all
//! dumps.

use super::cores::{Core, MemoryDevice};
use super::endpoint::Endpoint;
use armsnap_arch::arch::Space;
use armsnap_arch::quantity::Address;
use armsnap_arch::translation::Regime;
use armsnap_snapshot::snapshot::memory::{CoreMemory, Moment};
use armsnap_snapshot::snapshot::registers::parse_u64;
use std::sync::Arc;

/// Where a session reads memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MemoryView {
    /// As each core sees it in its current state.
    Current,
    /// In an address space of the snapshot format.
    Space(Space),
    /// In a memory device, by index in [`Endpoint::devices`].
    Device(usize),
    /// By translation tables that the user chose.
    Tables(Arc<ChosenTables>),
}

/// Translation tables that the user chose.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChosenTables {
    /// The regime with these tables.
    pub regime: Regime,
    /// The text with which the user chose them.
    pub chosen: String,
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

/// Returns the range that starts at an address. `slice` returns the known bytes from an address to the
/// end of its page or dump; `next` returns an address before which no other byte is known.
fn range<'a>(
    start: u64,
    slice: impl Fn(Address) -> &'a [u8],
    next: impl Fn(Address) -> Option<Address>,
) -> MemoryRange {
    /// Pages are joined up to this size.
    const JOINED: u64 = 16 << 20;
    let mut end = start;
    while end - start < JOINED {
        let known = slice(Address(end)).len() as u64;
        match end.checked_add(known) {
            Some(after) if known > 0 => end = after,
            _ => break,
        }
    }
    let known = end > start;
    if !known {
        end = next(Address(start)).map_or(u64::MAX, |next| next.0);
    }
    MemoryRange {
        start,
        size: end - start,
        known,
    }
}

impl Endpoint {
    /// Returns the memory and address space of a view.
    fn viewed<'a>(&'a self, core: &'a Core, view: &MemoryView) -> (&'a CoreMemory, Space) {
        match view {
            MemoryView::Current | MemoryView::Tables(_) => (&core.memory, core.space.space),
            MemoryView::Space(space) => (&core.memory, *space),
            MemoryView::Device(index) => match self.devices.get(*index) {
                Some(device) => (&device.memory, Space::Any),
                None => (&core.memory, core.space.space),
            },
        }
    }

    /// Reads memory; returns the number of contiguous known bytes from the address. Changed code,
    /// and the addresses of a process, are read as of `moment`.
    pub fn read(
        &self,
        core: &Core,
        view: &MemoryView,
        moment: Moment,
        address: u64,
        out: &mut [u8],
    ) -> usize {
        if let (MemoryView::Tables(tables), Some(all)) = (view, core.memory.translated()) {
            return all.read_in(&tables.regime, Address(address), out);
        }
        let (memory, space) = self.viewed(core, view);
        memory.read_code(moment, Address(address), space, out)
    }

    /// Returns the range of known or unknown addresses that starts at an address.
    pub fn range_at(&self, core: &Core, view: &MemoryView, address: u64) -> MemoryRange {
        if let (MemoryView::Tables(tables), Some(all)) = (view, core.memory.translated()) {
            return range(
                address,
                |at| all.slice_in(&tables.regime, at.0),
                |at| all.next_in(&tables.regime, at, None),
            );
        }
        let (memory, space) = self.viewed(core, view);
        range(
            address,
            |at| memory.slice(at, space),
            |at| memory.next(at, space),
        )
    }

    /// Parses the argument of `monitor space NAME`.
    pub(super) fn parse_view(&self, core: &Core, name: &str) -> Result<MemoryView, String> {
        if name.contains('=') {
            return self.parse_tables(core, name);
        }
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

    /// Parses `ttbr0=0xTABLE`, `ttbr1=0xTABLE`, both separated by a comma, or `asid=N`.
    fn parse_tables(&self, core: &Core, text: &str) -> Result<MemoryView, String> {
        let all = core.memory.translated();
        let all =
            all.ok_or("the snapshot has no physical memory, which would contain the tables")?;
        let regime = all.regime(core.space.space);
        let regime = regime.map_err(|why| format!("{} has no tables: {why}", core.name))?;
        let mut regime = regime.clone();
        for part in text.split(',') {
            let wrong =
                || format!("expected ttbr0=0xTABLE, ttbr1=0xTABLE or asid=N, found {part:?}");
            let (name, value) = part.split_once('=').ok_or_else(wrong)?;
            let value = parse_u64(value.trim()).ok_or_else(wrong)?;
            let (of_high, table) = match &*name.trim().to_ascii_lowercase() {
                "ttbr0" => (false, value),
                "ttbr1" => (true, value),
                "asid" => (false, self.table_of(value)?),
                _ => return Err(wrong()),
            };
            let changed = regime.with_table(of_high, table);
            regime = changed
                .ok_or_else(|| format!("{} of {} has no such table", regime.name(), core.name))?;
        }
        Ok(MemoryView::Tables(Arc::new(ChosenTables {
            regime,
            chosen: text.to_owned(),
        })))
    }

    /// Returns the table of low addresses of the process with an ASID, if a core runs it.
    fn table_of(&self, wanted: u64) -> Result<u64, String> {
        let mut known = Vec::new();
        for core in &self.cores {
            let value = |name: &str| core.registers.value(name);
            let Some(table) = value("TTBR0_EL1") else {
                continue;
            };
            // TCR_EL1.A1, bit 22, selects the register whose bits 63 to 48 hold the ASID.
            let of_high = value("TCR_EL1").is_some_and(|tcr| tcr >> 22 & 1 == 1);
            let holder = if of_high {
                value("TTBR1_EL1")
            } else {
                Some(table)
            };
            let Some(asid) = holder.map(|holder| holder >> 48) else {
                continue;
            };
            if asid == wanted {
                return Ok(table);
            }
            known.push(format!("{asid} on {}", core.name));
        }
        let known = match known.is_empty() {
            true => "none is known".to_owned(),
            false => known.join(", "),
        };
        Err(format!(
            "no core runs a process with ASID {wanted} ({known}): give its table as ttbr0=0xTABLE"
        ))
    }

    /// Describes what a view selects.
    pub(super) fn describe_view(&self, core: &Core, view: &MemoryView) -> String {
        match view {
            MemoryView::Current => match core.space.name {
                Some(space) => format!("in {space}, the current space of {}", core.name),
                None => format!("in the one address space of {}", core.name),
            },
            MemoryView::Space(space) => format!("in {space}"),
            MemoryView::Device(index) => match self.devices.get(*index) {
                Some(device) => format!("in the memory device {}", device.name),
                None => "nowhere".to_owned(),
            },
            MemoryView::Tables(tables) => {
                format!("by the translation tables {}", tables.chosen)
            }
        }
    }
}
