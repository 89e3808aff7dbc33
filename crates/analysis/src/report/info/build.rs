//! [`Info`] from a loaded snapshot.

use super::{
    BufferInfo, ClusterInfo, CoreInfo, DeviceInfo, FileInfo, Info, KernelInfo, MemorySpaceInfo,
    SourceBufferInfo, SourceInfo, SpaceInfo, core, memory, source,
};
use armsnap_arch::arch::Space;
use armsnap_arch::arch::{Architecture, RegisterFile, state};
use armsnap_history::decode;
use armsnap_snapshot::capture::{Capture, CaptureSource, TraceArchitecture, registers};
use armsnap_snapshot::check::Placeholders;
use armsnap_snapshot::rtos::{self, Memory};
use armsnap_snapshot::snapshot::OpenSnapshot;
use armsnap_snapshot::snapshot::memory::CoreMemory;
use armsnap_snapshot::snapshot::model::{BufferFormat, Device, DeviceClass, Note, Snapshot, Trace};
use armsnap_snapshot::snapshot::program::Program;
use armsnap_snapshot::snapshot::signals::Signal;
use armsnap_snapshot::snapshot::topology::{self, PlacedSource};
use std::collections::{HashMap, HashSet};

impl Info {
    /// The contents of a loaded snapshot.
    pub fn new(loaded: &OpenSnapshot) -> Self {
        let model = &loaded.snapshot;
        let cores = model.devices.iter().enumerate();
        let cores = cores.filter(|(_, device)| device.class == DeviceClass::Core);
        let spaces = of_class(model, &DeviceClass::MemorySpace);
        let mut notes: Vec<String> = loaded.notes.iter().map(ToString::to_string).collect();
        let sources = sources(loaded, &mut notes);
        let clusters_of = clusters_of(model);
        let mut known = notes.iter().cloned().collect();
        let placeholders = Placeholders::new(loaded);
        let mut kernel = None;
        let cores = cores.map(|(index, device)| {
            let cluster = clusters_of.get(&device.name.to_ascii_lowercase());
            let (core, about) =
                core_info(loaded, index, cluster.copied(), &placeholders, &mut kernel);
            let new = about.into_iter().filter(|note| insert(&mut known, note));
            notes.extend(new);
            core
        });
        let cores: Vec<CoreInfo> = cores.collect();
        let look = decode::first_look(loaded);
        notes.extend(look.iter().map(ToString::to_string));
        Self {
            version: model.version.clone(),
            description: model.description.clone(),
            devices: devices(model),
            clusters: clusters(model),
            cores,
            kernel,
            memory_spaces: spaces
                .map(|device| MemorySpaceInfo {
                    name: device.name.clone(),
                    memory: memory::regions(loaded, device),
                })
                .collect(),
            buffers: buffers(loaded),
            sources,
            timestamp_frequency: model.trace.as_ref().and_then(|t| t.timestamp_frequency),
            notes,
        }
    }
}

/// All devices.
fn devices(model: &Snapshot) -> Vec<DeviceInfo> {
    let devices = model.devices.iter().map(|device| DeviceInfo {
        name: device.name.clone(),
        class: class(&device.class).to_owned(),
        kind: device.kind.clone(),
        location: device.location.clone(),
        file: device.file.clone(),
        registers: device.registers.len(),
    });
    devices.collect()
}

fn class(class: &DeviceClass) -> &str {
    match class {
        DeviceClass::Core => "core",
        DeviceClass::TraceSource => "trace_source",
        DeviceClass::MemorySpace => "memory_space",
        DeviceClass::Other(other) => other,
        DeviceClass::Missing => "",
    }
}

/// Devices of a class.
fn of_class<'a>(model: &'a Snapshot, class: &'a DeviceClass) -> impl Iterator<Item = &'a Device> {
    model
        .devices
        .iter()
        .filter(move |device| device.class == *class)
}

/// The clusters; without `[clusters]` all cores are in one (section 3.1.3).
fn clusters(model: &Snapshot) -> Vec<ClusterInfo> {
    let cores: Vec<String> = of_class(model, &DeviceClass::Core)
        .map(|device| device.name.clone())
        .collect();
    if model.clusters.is_empty() && !cores.is_empty() {
        return vec![ClusterInfo {
            name: String::new(),
            devices: cores,
            assumed: true,
        }];
    }
    let clusters = model.clusters.iter().map(|cluster| ClusterInfo {
        name: cluster.name.clone(),
        devices: cluster.devices.clone(),
        assumed: false,
    });
    clusters.collect()
}

/// Adds a note; returns whether it is new.
fn insert(known: &mut HashSet<String>, note: &str) -> bool {
    !known.contains(note) && known.insert(note.to_owned())
}

/// The first cluster of each device, by its lower-case name.
fn clusters_of(model: &Snapshot) -> HashMap<String, &str> {
    let mut of = HashMap::new();
    for cluster in &model.clusters {
        for device in &cluster.devices {
            of.entry(device.to_ascii_lowercase())
                .or_insert(&*cluster.name);
        }
    }
    of
}

/// A core, and notes on how the program in the snapshot agrees with its dumps. Sets the kernel that
/// it runs, unless one is known.
fn core_info(
    loaded: &OpenSnapshot,
    index: usize,
    cluster: Option<&str>,
    placeholders: &Placeholders,
    kernel: &mut Option<KernelInfo>,
) -> (CoreInfo, Vec<String>) {
    let device = &loaded.snapshot.devices[index];
    let detected = Architecture::detect(device);
    let file = RegisterFile::read(device, detected.architecture);
    let space = state::current_space(&file);
    let notes = program_notes(loaded, index, &file, space.space, kernel);
    let core = CoreInfo {
        name: device.name.clone(),
        kind: device.kind.clone(),
        architecture: detected.architecture.name(),
        architecture_from: detected.from,
        cluster: cluster.map(str::to_owned),
        registers: core::count(device, detected.architecture),
        pc: core::value(&file, "pc"),
        sp: core::value(&file, "sp"),
        status: core::status(device, &file),
        signal: Signal::of(device)
            .map(|signal| signal.describe(detected.architecture == Architecture::AArch64)),
        placeholder: placeholders.why(index),
        current_space: SpaceInfo {
            name: space.name,
            reason: space.reason,
        },
        memory: memory::regions(loaded, device),
        notes: file.notes().iter().map(ToString::to_string).collect(),
    };
    (core, notes)
}

/// Notes on differences between the snapshot's program and a core's dumps, and on shared memory. Sets
/// the kernel that the core runs, unless one is known.
fn program_notes(
    loaded: &OpenSnapshot,
    index: usize,
    file: &RegisterFile,
    space: Space,
    kernel: &mut Option<KernelInfo>,
) -> Vec<String> {
    let device = &loaded.snapshot.devices[index];
    let mut memory = CoreMemory::new(loaded, device);
    memory.translate(loaded, index);
    let program = Program::of_snapshot(loaded, file.architecture(), &[(&memory, space)]);
    let mut notes = Vec::new();
    if let Some(program) = &program {
        notes = program.notes().iter().map(ToString::to_string).collect();
        program.add_to(&mut memory, space);
    }
    memory.share(loaded, index);
    if let (Some(program), None) = (&program, &kernel) {
        let programs = [&program.elf];
        let found = rtos::kernel(&Memory {
            memory: &memory,
            space,
            architecture: file.architecture(),
            programs: &programs,
        });
        let bits = file.architecture().general_bits();
        *kernel = found.map(|found| KernelInfo::new(&found, bits));
    }
    let sharing = memory.sharing(space);
    notes.extend(sharing.map(|note| format!("{}: {note}", device.name)));
    notes
}

/// The trace buffers with their files.
fn buffers(loaded: &OpenSnapshot) -> Vec<BufferInfo> {
    let Some(trace) = &loaded.snapshot.trace else {
        return Vec::new();
    };
    let file = |written: &String| {
        let length = loaded.length(&trace.place.file, written);
        FileInfo {
            file: written.clone(),
            size: length.as_ref().ok().copied(),
            missing: length.err().map(|problem| problem.to_string()),
        }
    };
    let buffers = trace.buffers.iter().map(|buffer| {
        let files: Vec<FileInfo> = buffer.files.iter().map(file).collect();
        let sizes = files.iter().filter_map(|file| file.size);
        BufferInfo {
            name: buffer.name.clone(),
            format: format(&buffer.format).to_owned(),
            size: sizes.fold(0, u64::saturating_add),
            files,
        }
    });
    buffers.collect()
}

fn format(format: &BufferFormat) -> &str {
    match format {
        BufferFormat::Coresight => "coresight",
        BufferFormat::SourceData => "source_data",
        BufferFormat::DstreamCoresight => "dstream_coresight",
        BufferFormat::Other(other) => other,
        BufferFormat::Missing => "",
    }
}

/// The trace sources, including sources without a buffer; prohibited register values are added to
/// `notes`.
fn sources(loaded: &OpenSnapshot, notes: &mut Vec<String>) -> Vec<SourceInfo> {
    let model = &loaded.snapshot;
    let placed = topology::sources(model);
    let (capture, assumed) = Capture::open(loaded);
    notes.extend(assumed.iter().map(Note::to_string));
    let captured: Vec<_> = capture
        .buffers
        .iter()
        .flat_map(|buffer| &buffer.sources)
        .collect();
    // A device of another class is a source if the metadata list it.
    let all = model.devices.iter().enumerate().filter(|(index, device)| {
        device.class == DeviceClass::TraceSource || placed.iter().any(|p| p.device == *index)
    });
    let mut written = written_cores(model);
    let mut sources = Vec::new();
    for (index, device) in all {
        let placed: Vec<&PlacedSource> = placed.iter().filter(|p| p.device == index).collect();
        let protocol = TraceArchitecture::of(device);
        let described = source::registers(device, protocol);
        notes.extend(source::alarms(device, &described));
        sources.push(SourceInfo {
            name: device.name.clone(),
            kind: device.kind.clone(),
            protocol,
            trace_id: registers::trace_id(device).map(|id| u64::from(id.0)),
            cores: cores_of(model, index, written.remove(&index), &captured),
            buffers: buffers_of(model.trace.as_ref(), &placed),
            other_registers: device.registers.len() - described.len(),
            registers: described,
        });
    }
    sources
}

/// The cores named by the metadata, by source.
fn written_cores(model: &Snapshot) -> HashMap<usize, Vec<usize>> {
    let names = model.device_names();
    let mut cores: HashMap<usize, Vec<usize>> = HashMap::new();
    for line in model.trace.iter().flat_map(|trace| &trace.core_sources) {
        if let (Some(source), Some(core)) = (names.source(&line.source), names.find(&line.core)) {
            cores.entry(source).or_default().push(core);
        }
    }
    cores
}

/// Names of the cores that a source traces: the written ones, or else the assumed one.
fn cores_of(
    model: &Snapshot,
    source: usize,
    written: Option<Vec<usize>>,
    captured: &[&CaptureSource],
) -> Vec<String> {
    let mut cores = written.unwrap_or_else(|| {
        let captured = captured.iter().filter(|captured| captured.device == source);
        captured.filter_map(|captured| captured.core).collect()
    });
    cores.sort_unstable();
    cores.dedup();
    let devices = cores.iter().filter_map(|&core| model.devices.get(core));
    devices.map(|device| device.name.clone()).collect()
}

fn buffers_of(trace: Option<&Trace>, placed: &[&PlacedSource]) -> Vec<SourceBufferInfo> {
    let buffers = placed.iter().filter_map(|source| {
        Some(SourceBufferInfo {
            buffer: trace?.buffers.get(source.buffer)?.name.clone(),
            stream: source.stream,
        })
    });
    buffers.collect()
}
