//! Which cores an endpoint serves, and what the snapshot has of them.

use std::sync::Arc;

use super::{EndpointError, Options};
use crate::server::cores::Core;
use crate::server::note::CoreNote;
use armsnap_arch::arch::state;
use armsnap_arch::arch::{Architecture, RegisterFile, Space};
use armsnap_snapshot::capture::core_memory;
use armsnap_snapshot::check;
use armsnap_snapshot::snapshot::OpenSnapshot;
use armsnap_snapshot::snapshot::memory::{CoreMemory, Origin};
use armsnap_snapshot::snapshot::model::{Cluster, Device, DeviceClass, Snapshot};

fn is_core(device: &Device) -> bool {
    device.class == DeviceClass::Core
}

/// Returns the device indices of the cores selected by the options.
pub(super) fn choose(snapshot: &Snapshot, options: &Options) -> Result<Vec<usize>, EndpointError> {
    let all = snapshot.devices.iter().enumerate();
    let all: Vec<(usize, &Device)> = all.filter(|(_, device)| is_core(device)).collect();
    if all.is_empty() {
        return Err(EndpointError::NoCore);
    }
    let mut chosen = all.clone();
    if !options.cores.is_empty() {
        for name in &options.cores {
            if !all.iter().any(|(_, core)| same_name(&core.name, name)) {
                return Err(EndpointError::UnknownCore {
                    found: name.clone(),
                    known: all.iter().map(|(_, core)| core.name.clone()).collect(),
                });
            }
        }
        chosen.retain(|(_, core)| options.cores.iter().any(|n| same_name(&core.name, n)));
    }
    if let Some(name) = &options.cluster {
        let cluster = snapshot.clusters.iter().find(|c| same_name(&c.name, name));
        let Some(cluster) = cluster else {
            return Err(EndpointError::UnknownCluster {
                found: name.clone(),
                known: snapshot.clusters.iter().map(|c| c.name.clone()).collect(),
            });
        };
        chosen.retain(|(_, core)| cluster.devices.iter().any(|n| same_name(&core.name, n)));
    }
    if chosen.is_empty() {
        return Err(EndpointError::NothingLeft);
    }
    Ok(chosen.into_iter().map(|(index, _)| index).collect())
}

/// References may differ in case from the definition (snapshot format, section 3.3.5).
fn same_name(a: &str, b: &str) -> bool {
    a.trim().eq_ignore_ascii_case(b.trim())
}

/// Reads a core: its registers and its memory.
pub(super) fn core(
    loaded: &OpenSnapshot,
    index: usize,
    placeholders: &check::Placeholders,
) -> Core {
    let device = &loaded.snapshot.devices[index];
    let detected = Architecture::detect(device);
    let mut registers = RegisterFile::read(device, detected.architecture);
    registers.keep_unwinding_possible();
    let in_cluster =
        |cluster: &&Cluster| cluster.devices.iter().any(|n| same_name(n, &device.name));
    let cluster = loaded.snapshot.clusters.iter().find(in_cluster);
    let memory = core_memory(loaded, index);
    let (dumps, mut notes) = describe_dumps(loaded, device, &memory);
    if let Some(reason) = placeholders.why(index) {
        notes.push(CoreNote::Placeholders { reason });
    }
    Core {
        rests: false,
        name: device.name.clone(),
        kind: device.kind.clone(),
        cluster: cluster.map(|cluster| cluster.name.clone()),
        space: state::current_space(&registers),
        detected,
        registers,
        memory: Arc::new(memory),
        device: index,
        dumps,
        notes,
    }
}

/// Describes the dumps of a device. Adds notes on those that are empty although their files exist;
/// the reader has reported the others.
fn describe_dumps(
    loaded: &OpenSnapshot,
    device: &Device,
    memory: &CoreMemory,
) -> (Vec<String>, Vec<CoreNote>) {
    let mut dumps = Vec::new();
    let mut missing: Vec<bool> = vec![true; device.dumps.len()];
    for region in memory.regions() {
        let Origin::Dump(index) = region.origin else {
            continue;
        };
        let Some(dump) = device.dumps.get(index) else {
            continue;
        };
        missing[index] = false;
        let space = match region.space {
            Space::Any => String::new(),
            space => format!(" in {space}"),
        };
        dumps.push(format!(
            "{}, {} bytes{space}: {} ({})",
            region.address, region.length, dump.file, dump.section
        ));
    }
    let elfs = device.dumps.iter().filter_map(|dump| loaded.elf_dump(dump));
    let elfs = elfs.map(|elf| elf.note.clone());
    let mut notes: Vec<CoreNote> = elfs.map(|text| CoreNote::ElfDump { text }).collect();
    let empty = device.dumps.iter().zip(missing);
    let empty = empty
        .filter(|(dump, missing)| {
            *missing && Space::parse(dump.space.as_deref().unwrap_or("")).is_some()
        })
        .filter(|(dump, _)| loaded.length(&dump.place.file, &dump.file).is_ok())
        .map(|(dump, _)| CoreNote::EmptyDump {
            section: dump.section.clone(),
            file: dump.file.clone(),
        });
    notes.extend(empty);
    (dumps, notes)
}
