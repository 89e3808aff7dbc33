//! The addresses that the comparators of a DWT match.

use armsnap_arch::arch::Space;
use armsnap_arch::quantity::Address;
use armsnap_snapshot::capture::{CaptureSource, DWT_VARIABLES};
use armsnap_snapshot::snapshot::OpenSnapshot;
use armsnap_snapshot::snapshot::memory::CoreMemory;
use armsnap_snapshot::snapshot::model::DeviceClass;
use armsnap_snapshot::text::one_line;

/// The number of comparators that trace data.
pub const COMPARATORS: usize = 4;

/// DWT_COMP0 (ARM DDI 0403E, C1.8.1); those of the other comparators are 16 bytes apart.
const COMP0: u64 = 0xE000_1020;

/// Returns the names that the snapshot gives to the data that comparators match.
pub fn variables(loaded: &OpenSnapshot, source: &CaptureSource) -> [Option<String>; COMPARATORS] {
    let device = loaded.snapshot.devices.get(source.device);
    let sections = device.into_iter().flat_map(|device| &device.other_sections);
    let named = sections.filter(|section| section.name == DWT_VARIABLES);
    let entries: Vec<_> = named.flat_map(|section| &section.entries).collect();
    std::array::from_fn(|number| {
        let number = number.to_string();
        let entry = entries.iter().find(|(key, _)| *key == number);
        entry.map(|(_, name)| one_line(name).into_owned())
    })
}

/// Returns the values of DWT_COMP0 and so on: from the registers of the source, from those of its
/// core, or from a dump of the core's memory. `None` for one that is not known, or 0.
pub fn addresses(loaded: &OpenSnapshot, source: &CaptureSource) -> [Option<u32>; COMPARATORS] {
    let devices = &loaded.snapshot.devices;
    let mut cores = devices
        .iter()
        .enumerate()
        .filter(|(_, device)| device.class == DeviceClass::Core);
    let only = match (cores.next(), cores.next()) {
        (Some((core, _)), None) => Some(core),
        _ => None,
    };
    let core = source.core.or(only).map(|core| &devices[core]);
    let memory = core.map(|core| CoreMemory::new(loaded, core));
    let mut out = [None; COMPARATORS];
    for (number, out) in out.iter_mut().enumerate() {
        let name = format!("DWT_COMP{number}");
        let holders = [devices.get(source.device), core];
        let mut registers = holders
            .into_iter()
            .flatten()
            .filter_map(|device| device.register(&name));
        let register = registers.find_map(|register| register.value.as_u64());
        let value = register.map(|value| value as u32).or_else(|| {
            let mut word = [0; 4];
            let address = Address(COMP0 + 16 * number as u64);
            let count = memory.as_ref()?.read(address, Space::Any, &mut word);
            (count == word.len()).then(|| u32::from_le_bytes(word))
        });
        *out = value.filter(|value| *value != 0);
    }
    out
}
