//! Raw buffers and trace units → a snapshot.

use super::cores::Cores;
use super::form::{self, Form, Found, form};
use super::units::Unit;
use crate::arch::CoreType;
use crate::capture::Protocol;
use crate::formatter::{Deformatter, Demux, FrameKind};
use crate::import::imported::SECTION;
use crate::import::note::{FoundSource, RawNote};
use crate::import::paths::{Names, plain};
use crate::import::{ImportError, Imported, NamedProgram, Options, memory, programs};
use crate::mapped::Mapped;
use crate::quantity::{BufferOffset, TraceId};
use crate::snapshot::model::{
    Buffer, BufferFormat, Cluster, CoreSource, Device, Snapshot, SourceBuffers, Trace,
};
use std::path::Path;

/// The bytes of a trace port that are deformatted at once.
const PIECE: usize = 1 << 20;

/// A trace unit, and the buffers with its trace.
#[derive(Debug)]
struct Placed {
    unit: Unit,
    /// Whether its registers were given.
    given: bool,
    /// The core that it traced, if that is known already.
    core: Option<usize>,
    buffers: Vec<String>,
}

/// The snapshot that is being made.
pub struct RawSnapshot<'o> {
    options: &'o Options,
    /// Its files and notes, which start with the files and notes of a saved state.
    pub out: Imported,
    /// The cores.
    pub cores: Cores<'o>,
    trace: Trace,
    placed: Vec<Placed>,
    names: Names,
}

impl<'o> RawSnapshot<'o> {
    /// Starts a snapshot without buffers; `state` is a saved state of the cores.
    ///
    /// # Errors
    ///
    /// If the type of the cores is not known, or the state has trace of its own.
    pub fn new(
        state: Option<Imported>,
        units: Vec<Unit>,
        options: &'o Options,
    ) -> Result<Self, ImportError> {
        if let Some(kind) = &options.core_type
            && CoreType::parse(kind).is_none()
        {
            return Err(ImportError::Usage(format!(
                "--core {kind}: is no type of a core that is known, such as Cortex-A53 or ARMv8-A"
            )));
        }
        let placed = units.into_iter().map(|unit| Placed {
            unit,
            given: true,
            core: None,
            buffers: Vec::new(),
        });
        let mut names = Names::default();
        let mut out = state.unwrap_or_default();
        if out.snapshot.trace.is_some() {
            return Err(ImportError::Usage(format!(
                "a {} has trace of its own: expected a core file or a core dump",
                out.kind
            )));
        }
        let saved = std::mem::take(&mut out.snapshot.devices);
        for device in &saved {
            names.unique(&device.name);
        }
        out.kind = match saved.is_empty() {
            true => "raw trace".to_owned(),
            false => format!("{} with raw trace", out.kind),
        };
        let sections = &mut out.snapshot.other_sections;
        sections.retain(|section| section.name != SECTION);
        Ok(Self {
            options,
            out,
            cores: Cores::new(saved, options),
            trace: Trace {
                file: "trace.ini".to_owned(),
                source_buffers: Some(Vec::new()),
                ..Trace::default()
            },
            placed: placed.collect(),
            names,
        })
    }

    /// Adds a buffer.
    ///
    /// # Errors
    ///
    /// If nothing in it is trace.
    pub fn buffer(&mut self, path: &Path, bytes: Mapped) -> Result<(), ImportError> {
        let known: Vec<Unit> = self
            .placed
            .iter()
            .map(|placed| placed.unit.clone())
            .collect();
        let Some(form) = form(&bytes, &known, self.cores.usual()) else {
            if form::is_reversed(&bytes, &known, self.cores.usual()) {
                return Err(ImportError::input(
                    path,
                    "the bytes of each word of 32 bits are reversed: read the buffer as bytes, or \
                     reverse them with objcopy -I binary -O binary --reverse-bytes=4",
                ));
            }
            return Err(ImportError::input(
                path,
                format!(
                    "no trace is found in its {} bytes: neither in formatter frames nor without them \
                     is there a synchronisation point of ETMv4, ETE, PTM, ETMv3, STM or ITM with valid \
                     packets after it",
                    bytes.len()
                ),
            ));
        };
        let found = RawNote::Found {
            path: path.to_owned(),
            frames: form.frames,
            sources: form.found.iter().map(noted).collect(),
        };
        self.out.notes.push(found.into());
        let base = plain(&path.file_stem().unwrap_or_default().to_string_lossy());
        match form.frames {
            Some(FrameKind::Tpiu) => self.port(&base, &form, &bytes),
            frames => {
                let format = match frames {
                    Some(FrameKind::Dstream) => BufferFormat::DstreamCoresight,
                    Some(_) => BufferFormat::Coresight,
                    None => BufferFormat::SourceData,
                };
                let buffer = self.add_buffer(&base, format, bytes);
                for found in &form.found {
                    self.place(found, &buffer);
                }
            }
        }
        Ok(())
    }

    /// Adds the stream of a trace port: snapshots have no format for it, so that each source has a
    /// buffer of its own.
    fn port(&mut self, base: &str, form: &Form, bytes: &Mapped) {
        let mut demux = Demux::new();
        let mut frames = Deformatter::new(FrameKind::Tpiu);
        let mut sources = vec![Vec::new(); form.found.len()];
        let mut at = 0;
        while at < bytes.len() {
            let piece = &bytes[at..(at + PIECE).min(bytes.len())];
            let last = at + piece.len() == bytes.len();
            frames.feed(BufferOffset(at as u64), piece, last, &mut demux);
            for (source, found) in sources.iter_mut().zip(&form.found) {
                let stream = demux.stream(TraceId(found.id.unwrap_or(0)));
                source.extend_from_slice(stream.payload());
            }
            demux.clear();
            bytes.release(at..at + piece.len());
            at += piece.len();
        }
        for (bytes, found) in sources.into_iter().zip(&form.found) {
            let name = format!("{base}_{:02x}", found.id.unwrap_or(0));
            let buffer = self.add_buffer(&name, BufferFormat::SourceData, bytes.into());
            self.place(found, &buffer);
        }
    }

    fn add_buffer(&mut self, base: &str, format: BufferFormat, bytes: Mapped) -> String {
        let name = self.names.unique(base);
        let file = format!("trace/{name}.bin");
        self.out.files.insert(file.clone(), bytes);
        self.trace.buffers.push(Buffer {
            id: format!("buffer{}", self.trace.buffers.len()),
            name: name.clone(),
            files: vec![file],
            format,
            ..Buffer::default()
        });
        name
    }

    /// Assigns a source in a buffer to its unit. If the user described none, one is assumed.
    fn place(&mut self, found: &Found, buffer: &str) {
        let Some((protocol, kind)) = found.protocol else {
            return;
        };
        let id = found.id;
        let by_id = |placed: &Placed| placed.unit.trace_id() == id && id.is_some();
        let without_id =
            |placed: &Placed| placed.given && (placed.unit.trace_id().is_none() || id.is_none());
        let index = self.placed.iter().position(by_id);
        let index = index.or_else(|| self.placed.iter().position(without_id));
        let index = index.unwrap_or_else(|| {
            self.placed.push(Placed {
                unit: Unit::new("source", kind),
                given: false,
                core: None,
                buffers: Vec::new(),
            });
            self.placed.len() - 1
        });
        let placed = &mut self.placed[index];
        if placed.unit.protocol().is_none() {
            placed.unit.device.kind = kind.to_owned();
        }
        if let (None, Some(id)) = (placed.unit.trace_id(), id) {
            placed.unit.set_trace_id(protocol, id.into());
        }
        placed.buffers.push(buffer.to_owned());
    }

    /// Adds the memory that the user gives: dumps first, then programs.
    ///
    /// # Errors
    ///
    /// If a file cannot be read.
    pub fn memory(&mut self, files: &[NamedProgram]) -> Result<(), ImportError> {
        let mut dumps = memory::dumps(files, &mut self.out)?;
        if !self.cores.are_saved() {
            // With a saved state, its reader has used them.
            dumps.extend(programs::dumps(&self.options.elf, &mut self.out)?);
        }
        self.cores.add_memory(dumps);
        Ok(())
    }

    /// The first core, which is added if no core is known.
    pub fn first_core(&mut self) -> usize {
        if self.cores.devices.is_empty() {
            let notes = &mut self.out.notes;
            self.cores.assume(0, None, &mut self.names, notes);
        }
        0
    }

    /// Adds trace of a core that was encoded from something else.
    pub fn made(&mut self, unit: Unit, core: usize, bytes: Vec<u8>) {
        let name = format!("of_{}", unit.device.name);
        let buffer = self.add_buffer(&name, BufferFormat::SourceData, bytes.into());
        self.placed.push(Placed {
            unit,
            given: true,
            core: Some(core),
            buffers: vec![buffer],
        });
    }

    /// The snapshot.
    pub fn imported(mut self) -> Imported {
        let (placed, unplaced): (Vec<Placed>, Vec<Placed>) = std::mem::take(&mut self.placed)
            .into_iter()
            .partition(|placed| !placed.buffers.is_empty());
        if !unplaced.is_empty() {
            let names = unplaced.into_iter().map(|placed| placed.unit.device.name);
            let note = RawNote::UnitsWithoutTrace {
                units: names.collect(),
            };
            self.out.notes.push(note.into());
        }
        if placed.is_empty() {
            self.first_core();
        }
        let sources: Vec<Device> = placed
            .into_iter()
            .map(|placed| self.source(placed))
            .collect();
        let mut devices = self.cores.devices;
        let cluster = Cluster {
            name: "cluster0".to_owned(),
            devices: devices.iter().map(|core| core.name.clone()).collect(),
            ..Cluster::default()
        };
        devices.extend(sources);
        for (index, device) in devices.iter_mut().enumerate() {
            device.key = format!("device{index}");
            device.file = format!("device_{index}.ini");
        }
        self.out.snapshot = Snapshot {
            version: "1.0".to_owned(),
            devices,
            clusters: vec![cluster],
            trace: Some(self.trace).filter(|trace| !trace.buffers.is_empty()),
            other_sections: self.out.snapshot.other_sections,
            ..Snapshot::default()
        };
        // Dumps of memory alone.
        if self.out.snapshot.trace.is_none() {
            let kind = &self.out.kind;
            self.out.kind = match kind.strip_suffix("raw trace") {
                Some(before) => format!("{before}memory"),
                None => kind.clone(),
            };
        }
        self.out.record_origin();
        self.out
    }

    /// The device of a trace unit, and in the metadata its core and buffers.
    fn source(&mut self, placed: Placed) -> Device {
        let mut unit = placed.unit;
        let base = match (placed.given, unit.trace_id()) {
            (true, _) => plain(&unit.device.name),
            (false, Some(id)) => format!("{}_{id:02x}", unit.device.kind),
            (false, None) => unit.device.kind.clone(),
        };
        unit.device.name = self.names.unique(&base);
        let source = unit.device.name.clone();
        if unit.protocol().is_some_and(Protocol::needs_core) {
            let notes = &mut self.out.notes;
            let core = match placed.core {
                Some(core) => core,
                None => self.cores.of(&unit, &mut self.names, notes),
            };
            self.trace.core_sources.push(CoreSource {
                core: self.cores.devices[core].name.clone(),
                source: source.clone(),
                ..CoreSource::default()
            });
        }
        let lines = self.trace.source_buffers.get_or_insert_default();
        lines.push(SourceBuffers {
            source,
            buffers: placed.buffers,
            ..SourceBuffers::default()
        });
        unit.device
    }
}

fn noted(found: &Found) -> FoundSource {
    FoundSource {
        trace_id: found.id.map(TraceId),
        protocol: found.protocol.map(|(protocol, _)| protocol),
        alike: found.alike,
        bytes: found.bytes,
    }
}
