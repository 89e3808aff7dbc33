//! Recording → snapshot: a core for each thread (or CPU), with the mapped files as its memory and
//! the trace of its pieces.

use super::aux_traces::aux_traces;
use super::bytes::Bytes;
use super::contexts;
use super::etm_info::UnitKind;
use super::memory::MemoryBuilder;
use super::recording::Recording;
use super::slices::{Slice, slices};
use super::units::{Units, VIRTUAL, source_device};
use crate::import::images::Images;
use crate::import::note::{Note, PerfNote, TraceOf};
use crate::import::paths::{Names, one_line, plain};
use crate::import::{ImportError, Imported, Options, programs};
use armsnap_snapshot::capture::OnlyContext;
use armsnap_snapshot::program::elf::Elf;
use armsnap_snapshot::snapshot::model::{
    Buffer, BufferFormat, Cluster, CoreSource, Device, DeviceClass, Snapshot, SourceBuffers, Trace,
};
use armsnap_snapshot::snapshot::straight;
use armsnap_snapshot::text;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// The thread or CPU whose history a core represents.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Whose {
    Thread {
        /// Whether its process later executed another program.
        replaced: bool,
        tid: u32,
        image: Option<usize>,
    },
    Cpu(u32),
}

/// Converts a recording to a snapshot.
pub struct Snapshots<'a> {
    path: &'a Path,
    bytes: &'a Bytes,
    recording: &'a Recording,
    options: &'a Options,
    memories: MemoryBuilder<'a>,
    units: Units<'a>,
    out: Imported,
    names: Names,
}

impl<'a> Snapshots<'a> {
    /// Prepares the conversion.
    ///
    /// # Errors
    ///
    /// If the recording contains nothing that can be decoded.
    pub fn new(
        path: &'a Path,
        (bytes, piped): (&'a Bytes, bool),
        recording: &'a Recording,
        kcore: Option<Elf>,
        options: &'a Options,
    ) -> Result<Self, ImportError> {
        let fault = |text: &str| ImportError::input(path, text);
        let Some(info) = &recording.units else {
            return Err(fault(
                "has no AUX trace of CoreSight: it has no AUXTRACE_INFO record; record \
                 with perf record -e cs_etm//u",
            ));
        };
        let writer = recording.writer;
        let kind = match piped {
            true => format!("perf.data of {writer}, piped"),
            false => format!("perf.data of {writer}"),
        };
        let mut out = Imported {
            kind,
            notes: recording.notes.iter().cloned().map(Note::Perf).collect(),
            ..Imported::default()
        };
        if recording.clock.is_some() && info.units.iter().any(|unit| unit.clock != Some(VIRTUAL)) {
            out.notes.push(PerfNote::OtherClocks.into());
        }
        let (units, notes) = Units::new(info, &recording.hardware_ids);
        out.notes.extend(notes.into_iter().map(Note::Perf));
        Ok(Self {
            path,
            bytes,
            recording,
            options,
            memories: MemoryBuilder::new(recording, bytes.len(), Images::new(options)?, kcore),
            units,
            out,
            names: Names::default(),
        })
    }

    /// Makes the snapshot.
    ///
    /// # Errors
    ///
    /// If there is no trace, or none that the options select.
    pub fn imported(mut self) -> Result<Imported, ImportError> {
        let (all, notes) = aux_traces(self.recording);
        if all.is_empty() {
            let described: u128 = self
                .recording
                .aux
                .iter()
                .map(|aux| u128::from(aux.size))
                .sum();
            let text = match described {
                0 => "no trace was recorded: it has no AUXTRACE record; perf report \
                      -D shows what it has"
                    .to_owned(),
                bytes => format!(
                    "its trace was lost: {bytes} bytes of {} are in no AUXTRACE record; record again \
                     with larger buffers (perf record -m ,SIZE)",
                    text::count(self.recording.aux.len() as u64, "AUX record")
                ),
            };
            return Err(ImportError::input(self.path, text));
        }
        self.out.notes.extend(notes.into_iter().map(Note::Perf));
        let by_cpu = self.options.by_cpu;
        let (slices, notes) = slices(self.recording, self.bytes, &self.units, &all, by_cpu);
        self.out.notes.extend(notes.into_iter().map(Note::Perf));
        if slices.is_empty() {
            let text = self.units.why_nothing();
            return Err(ImportError::input(self.path, text));
        }
        let (selected, others): (Vec<Slice<'_>>, _) = slices
            .into_iter()
            .partition(|slice| self.is_selected(slice));
        if selected.is_empty() {
            return Err(ImportError::Usage(format!(
                "no trace is left by --pid, --tid, --comm and --cpu; there is trace of {}",
                self.choices(&others)
            )));
        }
        let mut cores: BTreeMap<Whose, Vec<Slice<'_>>> = BTreeMap::new();
        for slice in selected {
            cores.entry(self.whose(&slice)).or_default().push(slice);
        }
        self.drop_idle(&mut cores);
        let mut trace = Trace {
            file: "trace.ini".to_owned(),
            source_buffers: Some(Vec::new()),
            ..Trace::default()
        };
        let mut snapshot = Snapshot {
            version: "1.0".to_owned(),
            description: self.recording.command.clone().map(|line| one_line(&line)),
            ..Snapshot::default()
        };
        // The sources follow all cores, because debuggers show the numbers of cores.
        let mut sources = Vec::new();
        for (whose, slices) in &cores {
            let device = self.core(*whose, slices, snapshot.devices.len());
            sources.extend(self.sources(&device.name, slices, &mut trace));
            snapshot.devices.push(device);
        }
        for mut device in sources {
            device.key = format!("device{}", snapshot.devices.len());
            snapshot.devices.push(device);
        }
        snapshot.clusters = vec![Cluster {
            name: "cluster0".to_owned(),
            devices: snapshot.devices[..cores.len()]
                .iter()
                .map(|device| device.name.clone())
                .collect(),
            ..Cluster::default()
        }];
        snapshot.trace = Some(trace);
        snapshot.other_sections = std::mem::take(&mut self.out.snapshot.other_sections);
        self.out.snapshot = snapshot;
        self.memories.images.report(&mut self.out.notes);
        self.out.record_origin();
        Ok(self.out)
    }

    /// Removes cores whose trace contains no execution, unless there are no others.
    fn drop_idle(&mut self, cores: &mut BTreeMap<Whose, Vec<Slice<'_>>>) {
        let bytes = self.bytes;
        let idle = |slice: &Slice<'_>| {
            let device = source_device(slice.unit, slice.id);
            contexts::is_idle((slice.unit, &device), slice.id, slice.piece, bytes)
        };
        let mut idle: Vec<Whose> = cores
            .iter()
            .filter(|(_, slices)| slices.iter().all(idle))
            .map(|(whose, _)| *whose)
            .collect();
        if idle.len() == cores.len() {
            idle.clear();
        }
        for whose in idle {
            let slices = cores.remove(&whose).unwrap_or_default();
            let of = match whose {
                Whose::Cpu(cpu) => TraceOf::Cpu(cpu),
                Whose::Thread { tid, replaced, .. } if replaced => TraceOf::ReplacedThread(tid),
                Whose::Thread { tid, .. } => TraceOf::Thread(tid),
            };
            let buffers = slices.len();
            self.out.notes.push(PerfNote::Idle { of, buffers }.into());
        }
    }

    fn whose(&self, slice: &Slice<'_>) -> Whose {
        match slice.tid {
            None => Whose::Cpu(slice.unit.cpu),
            Some(tid) => Whose::Thread {
                replaced: slice
                    .image
                    .is_some_and(|image| self.recording.processes.images[image].replaced),
                tid,
                image: slice.image,
            },
        }
    }

    fn is_selected(&self, slice: &Slice<'_>) -> bool {
        let options = self.options;
        let image = slice
            .image
            .map(|image| &self.recording.processes.images[image]);
        let among = |wanted: &[u32], value: Option<u32>| {
            wanted.is_empty() || value.is_some_and(|value| wanted.contains(&value))
        };
        let tid = slice.tid.or(slice.piece.tid);
        let name = image.and_then(|image| image.name(tid?));
        among(&options.cpus, Some(slice.unit.cpu))
            && among(&options.tids, tid)
            && among(&options.pids, image.map(|image| image.pid))
            && (options.comms.is_empty()
                || name.is_some_and(|name| options.comms.iter().any(|comm| comm == name)))
    }

    /// Lists what the user can select.
    fn choices(&self, all: &[Slice<'_>]) -> String {
        let mut out = BTreeSet::new();
        for slice in all {
            let image = slice
                .image
                .map(|image| &self.recording.processes.images[image]);
            let tid = slice.tid.or(slice.piece.tid);
            let name = image.and_then(|image| image.name(tid?)).unwrap_or("?");
            let number = |number: Option<u32>| number.map_or("?".into(), |n: u32| n.to_string());
            out.insert(format!(
                "pid {} tid {} comm {name} cpu {}",
                number(image.map(|image| image.pid)),
                number(tid),
                slice.unit.cpu
            ));
        }
        out.into_iter().take(8).collect::<Vec<_>>().join(", ")
    }

    /// The device of a core, with its memory.
    fn core(&mut self, whose: Whose, slices: &[Slice<'_>], index: usize) -> Device {
        let processes = &self.recording.processes;
        let mut other = Vec::new();
        let mut entry = |key: &str, value: String| other.push((key.to_owned(), value));
        let name = match whose {
            Whose::Cpu(cpu) => {
                entry("cpu", cpu.to_string());
                format!("cpu{cpu}")
            }
            Whose::Thread { tid, image, .. } => {
                let image = image.map(|image| &processes.images[image]);
                let comm = image.and_then(|image| image.name(tid)).unwrap_or("thread");
                entry("comm", one_line(comm));
                entry("tid", tid.to_string());
                if let Some(image) = image {
                    entry("pid", image.pid.to_string());
                }
                format!("{}-{tid}", plain(comm))
            }
        };
        // The images of its pieces, those with the most trace first.
        let mut images: BTreeMap<usize, u64> = BTreeMap::new();
        for slice in slices {
            if let Some(image) = slice.image {
                *images.entry(image).or_default() += slice.piece.bytes();
            }
        }
        let mut images: Vec<(usize, u64)> = images.into_iter().collect();
        images.sort_by_key(|(_, bytes)| std::cmp::Reverse(*bytes));
        let images: Vec<usize> = images.into_iter().map(|(image, _)| image).collect();
        let memory = self.memories.memory(&images, &mut self.out);
        if let Some(file) = &self.memories.straight {
            other.push((straight::ENTRY.to_owned(), file.clone()));
        }
        let kind = core_type(slices, memory.is_aarch32());
        // Names in debuggers come from the process of the first core.
        if index == 0 {
            self.programs(memory.programs, &other);
        }
        Device {
            key: format!("device{index}"),
            file: format!("cpu_{index}.ini"),
            name: self.names.unique(&name),
            class: DeviceClass::Core,
            kind: kind.to_owned(),
            other,
            dumps: memory.dumps,
            ..Device::default()
        }
    }

    /// The trace sources of a core, and its buffers: each slice has its own buffer, so that it can
    /// be decoded on its own.
    fn sources(&mut self, core: &str, slices: &[Slice<'_>], trace: &mut Trace) -> Vec<Device> {
        // By CPU, trace ID and context.
        let mut found: BTreeMap<_, (Device, Vec<String>)> = BTreeMap::new();
        for slice in slices {
            let number = trace.buffers.len();
            let name = format!("cpu{}_{number}", slice.unit.cpu);
            let files = slice.piece.parts.iter().map(|part| {
                // Slices of one piece share its files.
                let file = format!("trace/{:x}.bin", part.start);
                let bytes = self.bytes.part(part.clone());
                self.out.files.entry(file.clone()).or_insert(bytes);
                file
            });
            trace.buffers.push(Buffer {
                id: format!("buffer{number}"),
                files: files.collect(),
                format: match slice.piece.raw {
                    true => BufferFormat::SourceData,
                    false => BufferFormat::Coresight,
                },
                name: name.clone(),
                ..Buffer::default()
            });
            let only = slice.only.as_ref().map(OnlyContext::entry);
            let entry = found.entry((slice.unit.cpu, slice.id, only.clone()));
            let (_, buffers) = entry.or_insert_with(|| {
                let mut device = source_device(slice.unit, slice.id);
                device.other.extend(only);
                let clock = self.recording.clock;
                let clock = clock.filter(|_| slice.unit.clock == Some(VIRTUAL));
                device.other.extend(clock.map(|clock| clock.entry()));
                (device, Vec::new())
            });
            buffers.push(name);
        }
        let mut out = Vec::new();
        for (mut device, buffers) in found.into_values() {
            device.name = self.names.unique(&device.name);
            device.file = format!("{}.ini", device.name.to_ascii_lowercase());
            trace.core_sources.push(CoreSource {
                core: core.to_owned(),
                source: device.name.clone(),
                ..CoreSource::default()
            });
            let lines = trace.source_buffers.get_or_insert_default();
            lines.push(SourceBuffers {
                source: device.name.clone(),
                buffers,
                ..SourceBuffers::default()
            });
            out.push(device);
        }
        out
    }

    /// Records the programs of a core for their names, its main program first.
    fn programs(&mut self, mut programs: Vec<(String, u64)>, entries: &[(String, String)]) {
        let comm = entries.iter().find(|(key, _)| key == "comm");
        let comm = comm.map_or("", |(_, comm)| comm);
        programs.sort_by_key(|(file, _)| {
            let origin = self.out.origins.get(file);
            let name = origin
                .and_then(|origin| origin.file_name())
                .unwrap_or_default();
            // The name of a thread has at most 15 characters.
            comm.is_empty() || !name.to_string_lossy().starts_with(comm)
        });
        for (index, (file, bias)) in programs.into_iter().enumerate() {
            programs::record(index, file, bias, &mut self.out);
        }
    }
}

/// The architecture of the cores that ran some slices. An ETMv4 or ETE traces both execution
/// states.
fn core_type(slices: &[Slice<'_>], aarch32: bool) -> &'static str {
    match slices.first().map(|slice| slice.unit.kind) {
        Some(UnitKind::Etmv3) => "ARMv7-A",
        _ if aarch32 => "ARM-AA32",
        _ => "ARMv8-A",
    }
}
