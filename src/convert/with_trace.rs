//! Trace file → snapshot with trace: encodes the frames as ETMv4 trace.

use super::frame_values::FrameValues;
use super::note::Note;
use super::retrace::{RetraceOptions, Retraced, Retracer};
use super::snapshot::{self, RestoredSnapshot};
use super::steps::{CollectedFrame, Steps};
use super::{Error, Progress};
use crate::tfile::{Block, File};
use armsnap_arch::arch::Space;
use armsnap_arch::arch::target::Target;
use armsnap_arch::arch::{Architecture, RegisterFile};
use armsnap_arch::quantity::{Address, ExceptionLevel};
use armsnap_history::decode::Image;
use armsnap_snapshot::capture::traced_core;
use armsnap_snapshot::mapped::Mapped;
use armsnap_snapshot::program::elf::Elf;
use armsnap_snapshot::snapshot::files::InMemory;
use armsnap_snapshot::snapshot::memory::CoreMemory;
use armsnap_snapshot::snapshot::model::{
    Buffer, BufferFormat, CoreSource, Device, DeviceClass, Dump, Register, RegisterValue, Snapshot,
    SourceBuffers, Trace,
};
use armsnap_snapshot::snapshot::program::add_segments;
use armsnap_snapshot::snapshot::{OpenSnapshot, write};
use armsnap_trace::element::Context;
use armsnap_trace::etmv4::TraceUnitOptions;
use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

/// Reads a trace file like [`snapshot::read`] and encodes its frames as trace. `elfs` supply code
/// that is not in the file.
///
/// # Errors
///
/// Those of [`snapshot::read`], and if no frame has a program counter and code.
pub fn read(
    bytes: &Mapped,
    name: &str,
    options: &snapshot::Options,
    elfs: &[Elf],
    notes: &mut Vec<Note>,
    progress: Progress<'_>,
) -> Result<RestoredSnapshot, Error> {
    let found = snapshot::read(bytes, name, options, notes)?;
    let order = options.chosen.and_then(|chosen| chosen.order);
    let file = File::open(bytes, order)?;
    let file = file.releasing(|walked| bytes.release(walked));
    let (loaded, mut files) = open(found)?;
    let text = file.description().target.as_deref();
    let named = options.chosen.as_ref().map(|chosen| &chosen.named);
    let target = Target::of_file(text, named)?;
    let steps = Steps::new(&file, &target, elfs);
    let mut snapshot = loaded.snapshot.clone();
    let core = core(&snapshot, steps.core())?;
    let device = &loaded.snapshot.devices[core];

    let mut memory = CoreMemory::new(&loaded, device);
    let dumps = CoreMemory::new(&loaded, device);
    let survey = Survey::of(&steps);
    add_code(&mut memory, survey.code, elfs);
    let image = Image(Some(&memory));
    let unit = trace_unit(&survey.any, device);
    let retrace_options = RetraceOptions {
        unit,
        protocol: steps.protocol(),
        context: state(device),
        watched: steps.watched(),
        frames: file.count() as u64,
    };
    let mut retracer = Retracer::new(retrace_options, image);
    let total = file.count() as u64;
    for (frame, step) in steps.iter() {
        progress(frame.number as u64, total);
        retracer.step(&step);
    }
    let retraced = retracer.finish(steps.halted());
    if survey.any.state.el.is_none() {
        let level = state(device).el.unwrap_or_default().0;
        notes.push(Note::AssumedLevel { level });
    }
    report(&retraced, notes)?;

    if snapshot.trace.take().is_some() {
        notes.push(Note::CarriedTrace);
    }
    let code = code(&retraced, &dumps, image);
    add_dumps(&mut snapshot.devices[core], &mut files, code);
    add_trace(&mut snapshot, core, unit, retraced.trace, &mut files);
    Ok(RestoredSnapshot::Made(Box::new(snapshot), files))
}

/// Opens a snapshot read from a trace file, with its files.
fn open(found: RestoredSnapshot) -> Result<(OpenSnapshot, InMemory), Error> {
    let fault = |error: armsnap_snapshot::snapshot::Error| Error::Input(error.to_string());
    match found {
        RestoredSnapshot::Carried(carried) => {
            let loaded = carried.open().map_err(fault)?;
            let files = carried.files.iter();
            let files = files.map(|(path, bytes)| (path.clone(), bytes.0.clone()));
            Ok((loaded, InMemory(files.collect())))
        }
        RestoredSnapshot::Made(snapshot, dumps) => {
            let mut files = write::texts(&snapshot)?;
            files.extend(dumps.0);
            let files = InMemory(files);
            let loaded = OpenSnapshot::from_files(Arc::new(files.clone()), "snapshot.ini");
            Ok((loaded.map_err(fault)?, files))
        }
    }
}

/// The core that produced the frames.
fn core(snapshot: &Snapshot, wanted: Option<usize>) -> Result<usize, Error> {
    let is_core = |index: &usize| {
        let device = snapshot.devices.get(*index);
        device.is_some_and(|device| device.class == DeviceClass::Core)
    };
    let mut cores = (0..snapshot.devices.len()).filter(is_core);
    match wanted {
        Some(index) if snapshot.devices.len() > 1 => Some(index).filter(is_core),
        _ => cores.next(),
    }
    .ok_or_else(|| Error::Input("the core of its frames is not in its snapshot".to_owned()))
}

/// A summary of all frames.
#[derive(Default)]
struct Survey {
    /// Values that any frame contains.
    any: FrameValues,
    /// The collected code, by address.
    code: BTreeMap<u64, Vec<u8>>,
}

impl Survey {
    fn of(steps: &Steps<'_, '_>) -> Self {
        let mut survey = Self::default();
        for (frame, CollectedFrame { place, values }) in steps.iter() {
            let any = &mut survey.any;
            any.cycles = any.cycles.or(values.cycles);
            any.timestamp = any.timestamp.or(values.timestamp);
            any.state.context_id = any.state.context_id.or(values.state.context_id);
            any.state.vmid = any.state.vmid.or(values.state.vmid);
            any.state.el = any.state.el.or(values.state.el);
            let Some(place) = place else { continue };
            for block in frame.blocks() {
                if let Block::Memory { address, bytes } = block
                    && let Some(from) = place.address.0.checked_sub(address)
                    && let Ok(from) = usize::try_from(from)
                    && let Some(code) = bytes.get(from..)
                {
                    let code = &code[..code.len().min(4)];
                    let known = survey.code.entry(place.address.0).or_default();
                    // A block may end within the instruction.
                    if known.len() < code.len() {
                        *known = code.to_vec();
                    }
                }
            }
        }
        survey
    }
}

/// Adds code that is not in the dumps, from the frames and from programs.
fn add_code(memory: &mut CoreMemory, collected: BTreeMap<u64, Vec<u8>>, elfs: &[Elf]) {
    for (address, bytes) in joined(collected) {
        memory.add_region(Address(address), bytes.into(), Space::Any, "trace frames");
    }
    for elf in elfs {
        add_segments(memory, elf);
    }
}

/// Joins adjacent or overlapping pieces.
fn joined(pieces: BTreeMap<u64, Vec<u8>>) -> Vec<(u64, Vec<u8>)> {
    let mut out: Vec<(u64, Vec<u8>)> = Vec::new();
    for (address, bytes) in pieces {
        if let Some((start, before)) = out.last_mut()
            && let Some(inside) = start.checked_add(before.len() as u64)
            && let Some(known) = inside.checked_sub(address)
        {
            let known = usize::try_from(known).unwrap_or(usize::MAX);
            before.extend_from_slice(bytes.get(known..).unwrap_or(&[]));
        } else {
            out.push((address, bytes));
        }
    }
    out
}

/// A trace unit configured for the values that are in any frame.
fn trace_unit(any: &FrameValues, device: &Device) -> TraceUnitOptions {
    TraceUnitOptions {
        core: traced_core(device),
        cycles: any.cycles.map(|_| 1),
        timestamps: any.timestamp.is_some(),
        context_ids: any.state.context_id.is_some(),
        vmids: any.state.vmid.is_some(),
        branch_broadcast: true,
        ..TraceUnitOptions::default()
    }
}

/// The core's state, for frames that do not contain it: the halted state.
fn state(device: &Device) -> Context {
    let architecture = Architecture::detect(device).architecture;
    let registers = RegisterFile::read(device, architecture);
    let status = registers.value("cpsr");
    let level = |status: u64| match (architecture, status & 0x1f) {
        (Architecture::AArch64, _) => Some((status >> 2) as u8 & 3),
        // User, Monitor and Hyp mode, and the others (DDI 0487, G1.9.1).
        (Architecture::AArch32, 0x10) => Some(0),
        (Architecture::AArch32, 0x16) => Some(3),
        (Architecture::AArch32, 0x1a) => Some(2),
        (Architecture::AArch32, _) => Some(1),
        (Architecture::MProfile, _) => None,
    };
    Context {
        el: status.and_then(level).map(ExceptionLevel),
        ..Context::default()
    }
}

/// Adds notes on the result, or returns an error if nothing was traced.
fn report(retraced: &Retraced, notes: &mut Vec<Note>) -> Result<(), Error> {
    if retraced.traced == 0 {
        return Err(Error::Input(match retraced.lost {
            0 => "it contains no trace frames of executed instructions".to_owned(),
            lost => format!(
                "none of {lost} trace frames has a program counter and code: --elf names a program"
            ),
        }));
    }
    notes.push(Note::Traced {
        frames: retraced.traced,
        gaps: retraced.gaps,
    });
    if retraced.lost > 0 {
        notes.push(Note::Lost {
            frames: retraced.lost,
        });
    }
    if retraced.exhausted {
        notes.push(Note::SearchLimit);
    }
    Ok(())
}

/// The code of traced lines that is not in any dump.
fn code(retraced: &Retraced, dumps: &CoreMemory, image: Image<'_>) -> Vec<(u64, Vec<u8>)> {
    let mut pieces: BTreeMap<u64, Vec<u8>> = BTreeMap::new();
    for &(view, start, end) in &retraced.lines {
        let space = image.space(view);
        let mut at = start;
        while at < end {
            let length = usize::try_from(end.0 - at.0).unwrap_or(usize::MAX);
            let there = dumps.slice(at, space).len().min(length);
            if there > 0 {
                at = Address(at.0 + there as u64);
                continue;
            }
            let Some(bytes) = image.0.map(|memory| memory.slice(at, space)) else {
                break;
            };
            let mut length = bytes.len().min(length);
            if let Some(next) = dumps.next(at, space) {
                length = length.min(usize::try_from(next.0 - at.0).unwrap_or(usize::MAX));
            }
            if length == 0 {
                break;
            }
            let piece = pieces.entry(at.0).or_default();
            if piece.len() < length {
                *piece = bytes[..length].to_vec();
            }
            at = Address(at.0 + length as u64);
        }
    }
    joined(pieces)
}

fn add_dumps(device: &mut Device, files: &mut InMemory, code: Vec<(u64, Vec<u8>)>) {
    let file = unique("trace_code", ".bin", &folded(files.0.keys()));
    let mut sections = folded(device.dumps.iter().map(|dump| &dump.section));
    let mut bytes = Vec::new();
    for (address, piece) in code {
        let section = unique(&format!("dump_code_{address:x}"), "", &sections);
        sections.insert(section.to_ascii_lowercase());
        device.dumps.push(Dump {
            section,
            file: file.clone(),
            address,
            length: Some(piece.len() as u64),
            offset: Some(bytes.len() as u64),
            ..Dump::default()
        });
        bytes.extend(piece);
    }
    if !bytes.is_empty() {
        files.0.insert(file, bytes.into());
    }
}

/// Adds the trace unit as a device, and its buffer.
fn add_trace(
    snapshot: &mut Snapshot,
    core: usize,
    unit: TraceUnitOptions,
    trace: Vec<u8>,
    files: &mut InMemory,
) {
    let mut names = folded(files.0.keys());
    names.extend(folded(snapshot.devices.iter().map(|device| &device.file)));
    let file = |base: &str, extension: &str| unique(base, extension, &names);
    let (buffer, metadata, source) = (
        file("trace_frames", ".bin"),
        file("trace", ".ini"),
        file("trace_source", ".ini"),
    );
    let devices = || snapshot.devices.iter();
    let name = unique("ETM_frames", "", &folded(devices().map(|d| &d.name)));
    let key = unique(
        &format!("device{}", snapshot.devices.len() + 1),
        "",
        &folded(devices().map(|d| &d.key)),
    );
    let registers = unit.registers().into_iter();
    // Invasive and non-invasive debug is permitted in both security states.
    let registers = registers.chain([("TRCAUTHSTATUS", 0xcc)]);
    let registers = registers.map(|(name, value)| Register {
        name: name.to_owned(),
        size: Some(32),
        value: RegisterValue(value.to_le_bytes().to_vec()).canonical(Some(32)),
        ..Register::default()
    });
    snapshot.trace = Some(Trace {
        file: metadata,
        buffers: vec![Buffer {
            id: "buffer0".to_owned(),
            name: "frames".to_owned(),
            files: vec![buffer.clone()],
            format: BufferFormat::SourceData,
            ..Buffer::default()
        }],
        core_sources: vec![CoreSource {
            core: snapshot.devices[core].name.clone(),
            source: name.clone(),
            ..CoreSource::default()
        }],
        source_buffers: Some(vec![SourceBuffers {
            source: name.clone(),
            buffers: vec!["frames".to_owned()],
            ..SourceBuffers::default()
        }]),
        ..Trace::default()
    });
    snapshot.devices.push(Device {
        key,
        file: source,
        name,
        class: DeviceClass::TraceSource,
        kind: "ETM4.2".to_owned(),
        registers: registers.collect(),
        ..Device::default()
    });
    files.0.insert(buffer, Mapped::from(trace));
}

/// Names in lower case, for [`unique`].
fn folded<'n>(names: impl Iterator<Item = &'n String>) -> HashSet<String> {
    names.map(|name| name.to_ascii_lowercase()).collect()
}

/// Joins `base` and `end`, with a number between them if the name is taken, ignoring case. The
/// names in `taken` are in lower case.
fn unique(base: &str, end: &str, taken: &HashSet<String>) -> String {
    let free = |name: &String| !taken.contains(&name.to_ascii_lowercase());
    let numbered = (1..).map(|number| format!("{base}_{number}{end}"));
    let mut names = std::iter::once(format!("{base}{end}")).chain(numbered);
    names.find(free).unwrap_or_default()
}
