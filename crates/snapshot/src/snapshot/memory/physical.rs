//! The physical memory of a core: from its own dumps, those of memory devices, and those of other
//! cores.

use super::dumps::{Dumps, Origin, is_physical};
use super::translated::{Process, Translated, other_cores};
use super::{CoreMemory, Moment};
use crate::snapshot::changed::Carrier;
use crate::snapshot::model::{Device, DeviceClass};
use crate::snapshot::read::OpenSnapshot;
use armsnap_arch::arch::Space;
use armsnap_arch::quantity::{Address, ExceptionLevel};

/// The smallest page of translation tables.
const LEAST_PAGE: u64 = 0x1000;

impl CoreMemory {
    /// Makes the physical memory of the snapshot visible at the virtual addresses of the core at
    /// index `device` of the device list, as its tables map them. Its dumps for virtual addresses
    /// take precedence; added or shared memory has lower precedence.
    pub fn translate(&mut self, loaded: &OpenSnapshot, device: usize) {
        let devices = &loaded.snapshot.devices;
        let physical = devices.get(device).and_then(|core| physical(loaded, core));
        let translated = physical.and_then(|memory| Translated::of(devices, device, memory));
        self.translated = translated.map(Box::new);
    }

    /// Like [`Self::slice`], with translation: first the core's dumps for virtual addresses, then
    /// the memory that its tables map, then other memory.
    pub(super) fn through<'a>(
        &'a self,
        translated: &'a Translated,
        process: Process,
        address: Address,
        space: Space,
    ) -> &'a [u8] {
        if self.is_dumped(address, space, translated) {
            return self.untranslated(address, space);
        }
        let mut bytes = translated.slice(process, address, space);
        let mut end = self.dumps.next(address, space);
        if bytes.is_empty() {
            if self.is_physical(address, space) {
                return &[];
            }
            bytes = self.untranslated(address, space);
            // The next page may be mapped.
            end = Some(Address((address.0 | (LEAST_PAGE - 1)).saturating_add(1)));
        }
        let most = end.map_or(u64::MAX, |end| end.0 - address.0);
        &bytes[..bytes.len().min(usize::try_from(most).unwrap_or(usize::MAX))]
    }

    /// Whether a dump of the core contains the byte at an address, so that its tables are not
    /// needed.
    pub(super) fn is_dumped(
        &self,
        address: Address,
        space: Space,
        translated: &Translated,
    ) -> bool {
        let region = self.dumps.region(address, space);
        region.is_some_and(|region| {
            let is_dump = matches!(region.origin, Origin::Dump(_));
            // If any space is acceptable, a mapped address precedes the same physical one.
            let as_virtual = space == Space::Any && translated.regime(space).is_ok();
            is_dump && !(as_virtual && is_physical(region.space))
        })
    }

    /// Whether the byte at an address comes from physical memory.
    fn is_physical(&self, address: Address, space: Space) -> bool {
        let region = self.dumps.region(address, space);
        region.is_some_and(|region| is_physical(region.space))
    }

    /// Returns the memory that a past state of the core selects, as its trace reports the state.
    pub fn moment(
        &self,
        level: Option<ExceptionLevel>,
        context_id: Option<u32>,
        vmid: Option<u32>,
    ) -> Moment {
        let changed = self.changed();
        // An ID that identifies a version does not identify a process.
        let (version, context_id, vmid) = match changed.carrier() {
            Carrier::ContextId if changed.is_empty() => (context_id, context_id, vmid),
            Carrier::ContextId => (context_id, None, vmid),
            Carrier::Vmid => (vmid, context_id, None),
        };
        let translated = self.translated.as_deref();
        let process = translated.map(|all| all.process(level, context_id, vmid));
        Moment {
            version: Some(version.unwrap_or(0)),
            process: process.unwrap_or_default(),
        }
    }
}

/// Returns the physical memory of a core.
fn physical(loaded: &OpenSnapshot, core: &Device) -> Option<Dumps> {
    let mut memory = Dumps::empty(loaded.dump_files());
    let own = |space: Space| is_physical(space).then_some(space);
    // A memory device is a view of a bus: its addresses are physical unless it declares otherwise.
    let on_bus = |space: Space| match space {
        Space::Any => Some(Space::P),
        space => own(space),
    };
    memory.add_seen_in(core, own);
    let devices = &loaded.snapshot.devices;
    for device in devices.iter().filter(|device| is_bus(device)) {
        memory.add_seen_in(device, on_bus);
    }
    if loaded.shares_memory() {
        for device in other_cores(devices, core) {
            memory.add_seen_in(device, own);
        }
    }
    let is_empty = memory.regions().len() == 0;
    (!is_empty).then_some(memory)
}

/// Whether a device is a view of the cores' bus. The APB is the bus of debug components.
fn is_bus(device: &Device) -> bool {
    let of_debug = |text: &str| text.to_ascii_lowercase().contains("apb");
    device.class == DeviceClass::MemorySpace && !of_debug(&device.name) && !of_debug(&device.kind)
}
