//! Raw buffers and trace units → a snapshot.

use super::form::{Form, Found, form};
use super::units::Unit;
use crate::arch::CoreType;
use crate::capture::Protocol;
use crate::formatter::{Deformatter, Demux, FrameKind};
use crate::import::paths::{Names, plain};
use crate::import::{ImportError, Imported, Options, memory, programs};
use crate::mapped::Mapped;
use crate::protocol::Core;
use crate::quantity::{BufferOffset, TraceId};
use crate::snapshot::model::{
    Buffer, BufferFormat, Cluster, CoreSource, Device, DeviceClass, Snapshot, SourceBuffers, Trace,
};
use std::path::Path;

/// The bytes of a trace port that are taken apart at once.
const PIECE: usize = 1 << 20;

/// A trace unit, and the buffers with its trace.
#[derive(Debug)]
struct Placed {
    unit: Unit,
    /// Whether its registers were given.
    given: bool,
    buffers: Vec<String>,
}

/// The snapshot that is being made.
pub struct RawSnapshot<'o> {
    options: &'o Options,
    out: Imported,
    trace: Trace,
    placed: Vec<Placed>,
    names: Names,
}

impl<'o> RawSnapshot<'o> {
    /// Without a buffer yet.
    ///
    /// # Errors
    ///
    /// If the type of the cores is not known.
    pub fn new(units: Vec<Unit>, options: &'o Options) -> Result<Self, ImportError> {
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
            buffers: Vec::new(),
        });
        Ok(Self {
            options,
            out: Imported {
                kind: "raw trace".to_owned(),
                ..Imported::default()
            },
            trace: Trace {
                file: "trace.ini".to_owned(),
                source_buffers: Some(Vec::new()),
                ..Trace::default()
            },
            placed: placed.collect(),
            names: Names::default(),
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
        let Some(form) = form(&bytes, &known, self.core()) else {
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
        let shown = path.display();
        let how = match form.frames {
            Some(FrameKind::Memory) => "formatter frames",
            Some(FrameKind::Dstream) => "formatter frames as a DSTREAM stores them",
            Some(_) => "a trace port's stream of formatter frames",
            None => "one source, not formatted",
        };
        let list: Vec<String> = form.found.iter().map(shown_source).collect();
        self.out
            .notes
            .push(format!("{shown}: found to be {how}: {}", list.join(", ")));
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

    /// Gives a source in a buffer to its unit; a unit that nobody described is assumed.
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
            let mut unit = Unit::new("source", kind);
            if let Some(id) = id {
                let name = match protocol {
                    Protocol::Etmv3 | Protocol::Ptm => "ETMTRACEIDR",
                    Protocol::Etmv4 | Protocol::Ete => "TRCTRACEIDR",
                    Protocol::Stm => "STMTCSR",
                    Protocol::Itm => "ITMTCR",
                };
                let shift = if protocol.needs_core() { 0 } else { 16 };
                unit.set(name, u64::from(id) << shift);
            }
            self.placed.push(Placed {
                unit,
                given: false,
                buffers: Vec::new(),
            });
            self.placed.len() - 1
        });
        let placed = &mut self.placed[index];
        if placed.unit.protocol().is_none() {
            placed.unit.device.kind = kind.to_owned();
        }
        if let (None, Some(id)) = (placed.unit.trace_id(), id) {
            match protocol {
                Protocol::Etmv3 | Protocol::Ptm => placed.unit.set("ETMTRACEIDR", id.into()),
                _ => placed.unit.set("TRCTRACEIDR", id.into()),
            }
        }
        placed.buffers.push(buffer.to_owned());
    }

    fn core(&self) -> Core {
        crate::capture::traced_core(&self.core_device("core", &[]))
    }

    fn core_device(&self, name: &str, units: &[&Unit]) -> Device {
        let assumed = match units.iter().find_map(|unit| unit.protocol()) {
            Some(Protocol::Ptm | Protocol::Etmv3) => "ARMv7-A",
            Some(Protocol::Itm) => "ARMv7-M",
            _ => "ARMv8-A",
        };
        Device {
            name: name.to_owned(),
            class: DeviceClass::Core,
            kind: self
                .options
                .core_type
                .clone()
                .unwrap_or_else(|| assumed.to_owned()),
            ..Device::default()
        }
    }

    /// The snapshot.
    ///
    /// # Errors
    ///
    /// If a program cannot be read.
    pub fn imported(mut self) -> Result<Imported, ImportError> {
        let unplaced = self
            .placed
            .iter()
            .filter(|placed| placed.buffers.is_empty());
        let unplaced: Vec<String> = unplaced
            .map(|placed| placed.unit.device.name.clone())
            .collect();
        if !unplaced.is_empty() {
            let text = "trace units without trace in the buffers";
            self.out
                .notes
                .push(format!("{text}: {}", unplaced.join(", ")));
        }
        let mut placed = std::mem::take(&mut self.placed);
        placed.retain(|placed| !placed.buffers.is_empty());
        // What is dumped is what memory held; programs are what was loaded.
        let mut dumps = memory::dumps(&self.options.memory, 0, &mut self.out)?;
        let of_programs = programs::dumps(&self.options.elf, &mut self.out)?;
        dumps.extend(of_programs);
        for (index, dump) in dumps.iter_mut().enumerate() {
            dump.section = format!("dump{}", index + 1);
        }
        let mut cores = Vec::new();
        if self.trace.buffers.is_empty() {
            let mut core = self.core_device("cpu0", &[]);
            core.dumps.clone_from(&dumps);
            cores.push(core);
        }
        let mut sources = Vec::new();
        for placed in placed {
            let mut device = placed.unit.device.clone();
            let base = match (placed.given, placed.unit.trace_id()) {
                (true, _) => plain(&device.name),
                (false, Some(id)) => format!("{}_{id:02x}", device.kind),
                (false, None) => device.kind.clone(),
            };
            device.name = self.names.unique(&base);
            let protocol = placed.unit.protocol();
            if protocol.is_some_and(Protocol::needs_core) {
                let number = placed.unit.cpu.unwrap_or(cores.len() as u32);
                let name = self.names.unique(&format!("cpu{number}"));
                let mut core = self.core_device(&name, &[&placed.unit]);
                core.dumps.clone_from(&dumps);
                if self.options.core_type.is_none() {
                    self.out.notes.push(format!(
                        "{name}: --core does not give its type: {} is assumed",
                        core.kind
                    ));
                }
                self.trace.core_sources.push(CoreSource {
                    core: name,
                    source: device.name.clone(),
                    ..CoreSource::default()
                });
                cores.push(core);
            }
            let lines = self.trace.source_buffers.get_or_insert_default();
            lines.push(SourceBuffers {
                source: device.name.clone(),
                buffers: placed.buffers,
                ..SourceBuffers::default()
            });
            sources.push(device);
        }
        let cluster = Cluster {
            name: "cluster0".to_owned(),
            devices: cores.iter().map(|core| core.name.clone()).collect(),
            ..Cluster::default()
        };
        let mut devices = cores;
        devices.extend(sources);
        for (index, device) in devices.iter_mut().enumerate() {
            device.key = format!("device{index}");
            device.file = format!("device_{index}.ini");
        }
        let programs = std::mem::take(&mut self.out.snapshot.other_sections);
        self.out.snapshot = Snapshot {
            version: "1.0".to_owned(),
            devices,
            clusters: if cluster.devices.is_empty() {
                Vec::new()
            } else {
                vec![cluster]
            },
            trace: Some(self.trace).filter(|trace| !trace.buffers.is_empty()),
            other_sections: programs,
            ..Snapshot::default()
        };
        self.out.record_origin();
        Ok(self.out)
    }
}

fn shown_source(found: &Found) -> String {
    let id = found
        .id
        .map_or(String::new(), |id| format!("trace ID {id:#04x}, "));
    match found.protocol {
        Some((protocol, _)) => match found.alike {
            Some(alike) => format!(
                "{id}{} ({} fits as well: a register such as ETMIDR tells them apart)",
                protocol.name(),
                alike.name()
            ),
            None => format!("{id}{}", protocol.name()),
        },
        None => format!("{id}{} bytes of no known kind, left out", found.bytes),
    }
}
