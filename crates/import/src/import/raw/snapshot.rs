//! Raw buffers and trace units → snapshot.

use super::cores::Cores;
use super::form::{self, DetectedSource, form};
use super::registers::List;
use super::units::Unit;
use crate::import::imported::SECTION;
use crate::import::note::{FoundSource, RawNote};
use crate::import::paths::{Names, plain};
use crate::import::{ImportError, Imported, NamedProgram, Options, imported, memory, programs};
use armsnap_arch::arch::CoreType;
use armsnap_arch::quantity::TraceId;
use armsnap_snapshot::capture::Protocol;
use armsnap_snapshot::mapped::Mapped;
use armsnap_snapshot::snapshot::model::{
    Buffer, BufferFormat, Cluster, CoreSource, Device, DeviceClass, Snapshot, SourceBuffers, Trace,
};
use armsnap_trace::formatter::FrameKind;
use std::path::{Path, PathBuf};

/// A trace unit, and the buffers with its trace.
#[derive(Debug)]
struct Placed {
    unit: Unit,
    /// Whether its registers were given.
    given: bool,
    /// The core that it traced, if that is already known.
    core: Option<usize>,
    buffers: Vec<String>,
}

/// The snapshot that is being made.
pub struct RawSnapshot<'o> {
    options: &'o Options,
    /// Its files and notes, starting with those of a saved state.
    pub out: Imported,
    /// The cores.
    pub cores: Cores<'o>,
    /// Whether its reader has used the programs that the user names.
    has_programs: bool,
    /// The devices of a saved state that are not cores.
    others: Vec<Device>,
    trace: Trace,
    placed: Vec<Placed>,
    names: Names,
}

impl<'o> RawSnapshot<'o> {
    /// Starts a snapshot without buffers; `state` is a saved state of the cores.
    ///
    /// # Errors
    ///
    /// If the type of the cores is not known, or the state contains trace of its own.
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
        let is_core = |device: &Device| device.class == DeviceClass::Core;
        let (saved, others): (Vec<_>, Vec<_>) = saved.into_iter().partition(is_core);
        let sections = &mut out.snapshot.other_sections;
        sections.retain(|section| section.name != SECTION);
        Ok(Self {
            options,
            out,
            has_programs: !saved.is_empty(),
            cores: Cores::new(saved, options),
            others,
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
    /// If it contains no trace.
    pub fn buffer(&mut self, path: &Path, bytes: Mapped) -> Result<(), ImportError> {
        // Among several units, those without trace come first.
        let (without, with): (Vec<&Placed>, Vec<&Placed>) = self
            .placed
            .iter()
            .partition(|placed| placed.buffers.is_empty());
        let known = without.into_iter().chain(with);
        let known: Vec<Unit> = known.map(|placed| placed.unit.clone()).collect();
        let hints = self.cores.hints();
        let Some(mut form) = form(&bytes, &known, &hints) else {
            if form::is_reversed(&bytes, &known, &hints) {
                return Err(ImportError::input(
                    path,
                    "the bytes of each word of 32 bits are reversed: read the buffer as bytes, or \
                     reverse them with objcopy -I binary -O binary --reverse-bytes=4",
                ));
            }
            return Err(ImportError::input(
                path,
                format!(
                    "no trace is found in its {} bytes: neither in formatter frames, wherever they begin, \
                     nor without them is there a synchronisation point of ETMv4, ETE, PTM, ETMv3, STM or \
                     ITM with valid packets after it, nor are there packets of an ITM without one",
                    bytes.len()
                ),
            ));
        };
        let bytes = bytes.part(form.from..bytes.len());
        let streams = form.later(&bytes, &known, &hints);
        let found = RawNote::Found {
            path: path.to_owned(),
            frames: form.frames,
            from: form.from,
            sources: form.found.iter().map(noted).collect(),
        };
        self.out.notes.push(found.into());
        let base = plain(&path.file_stem().unwrap_or_default().to_string_lossy());
        match form.frames {
            // Snapshots have no format for the stream of a trace port or for frames without an ID,
            // so each source has a buffer of its own.
            Some(_) if !streams.is_empty() => {
                for (bytes, found) in streams.into_iter().zip(&form.found) {
                    let name = match found.id {
                        Some(id) => format!("{base}_{id:02x}"),
                        None => base.clone(),
                    };
                    let buffer = self.add_buffer(&name, BufferFormat::SourceData, bytes.into());
                    self.place(path, found, &buffer)?;
                }
            }
            frames => {
                let format = match frames {
                    Some(FrameKind::Dstream) => BufferFormat::DstreamCoresight,
                    Some(_) => BufferFormat::Coresight,
                    None => BufferFormat::SourceData,
                };
                let buffer = self.add_buffer(&base, format, bytes);
                for found in &form.found {
                    self.place(path, found, &buffer)?;
                }
            }
        }
        Ok(())
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
    ///
    /// # Errors
    ///
    /// If it may belong to several units, all of which have trace.
    fn place(
        &mut self,
        path: &Path,
        found: &DetectedSource,
        buffer: &str,
    ) -> Result<(), ImportError> {
        let Some((protocol, kind)) = found.protocol else {
            return Ok(());
        };
        let id = found.id;
        let by_id = |placed: &Placed| placed.unit.trace_id() == id && id.is_some();
        let may_be = |placed: &Placed| {
            let own = placed.unit.protocol();
            placed.given
                && (placed.unit.trace_id().is_none() || id.is_none())
                && own.is_none_or(|own| own == protocol)
        };
        let mut index = self.placed.iter().position(by_id);
        if index.is_none() {
            let all = self.placed.iter().enumerate();
            let all: Vec<_> = all.filter(|(_, placed)| may_be(placed)).collect();
            let free = all.iter().find(|(_, placed)| placed.buffers.is_empty());
            if free.is_none() && all.len() > 1 {
                let text = "its trace has no trace ID, and all trace units that may be its source \
                            have a buffer already: expected no more buffers than trace units";
                return Err(ImportError::input(path, text));
            }
            index = free.or(all.first()).map(|(index, _)| *index);
            if let (None, Some(index), 2..) = (id, index, all.len()) {
                let note = RawNote::AssumedUnit {
                    buffer: buffer.to_owned(),
                    unit: self.placed[index].unit.device.name.clone(),
                };
                self.out.notes.push(note.into());
            }
        }
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
        placed.unit.is_micro |= found.is_micro;
        placed.buffers.push(buffer.to_owned());
        Ok(())
    }

    /// Adds cores with the registers that the user lists, one for each file.
    ///
    /// # Errors
    ///
    /// If a file has no registers, or the cores of a saved state have them.
    pub fn registers(&mut self, files: &[PathBuf]) -> Result<(), ImportError> {
        if !files.is_empty() && self.cores.are_saved() {
            return Err(ImportError::Usage(
                "--registers: the input has registers of its own".to_owned(),
            ));
        }
        for path in files {
            let list = List::read(&imported::map_unpacked(path)?).ok_or_else(|| {
                let text = "no list of registers is found: expected what OpenOCD, pyOCD, J-Link Commander or GDB print";
                ImportError::input(path, text)
            })?;
            let count = list.registers.len();
            let core = self.listed(list);
            let path = path.clone();
            let note = RawNote::Registers { path, count, core };
            self.out.notes.push(note.into());
            self.out.kind = "registers with raw trace".to_owned();
        }
        Ok(())
    }

    /// Adds a core with these registers. Returns its name.
    pub fn listed(&mut self, list: List) -> String {
        self.cores.listed(list, &mut self.names)
    }

    /// Adds the memory that the user specifies: dumps first, then programs.
    ///
    /// # Errors
    ///
    /// If a file cannot be read.
    pub fn memory(&mut self, files: &[NamedProgram]) -> Result<(), ImportError> {
        let mut dumps = memory::dumps(files, &mut self.out)?;
        if !self.has_programs {
            dumps.extend(programs::dumps(&self.options.elf, &mut self.out)?);
        }
        self.cores.add_memory(dumps);
        Ok(())
    }

    /// The first core, which is added if no core is known.
    pub fn first_core(&mut self) -> usize {
        if self.cores.devices.is_empty() {
            let notes = &mut self.out.notes;
            self.cores.assume(0, (None, false), &mut self.names, notes);
        }
        0
    }

    /// Adds trace of a core that was encoded from other data.
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

    /// Makes the snapshot.
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
        devices.extend(self.others);
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
        // Only dumps of memory.
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

    /// Returns the device of a trace unit, and adds its core and buffers to the metadata.
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

fn noted(found: &DetectedSource) -> FoundSource {
    FoundSource {
        trace_id: found.id.map(TraceId),
        protocol: found.protocol.map(|(protocol, _)| protocol),
        alike: found.alike,
        bytes: found.bytes,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::import::import_raw;
    use crate::import::note::Note;
    use armsnap_arch::quantity::BufferOffset;
    use armsnap_trace::formatter::encode::Encoder;
    use armsnap_trace::formatter::{Deformatter, Demux, FSYNC};

    /// ETMv4 trace of two sources, 0x10 and 0x11.
    fn recorded() -> [Vec<u8>; 2] {
        let path = concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/../../testdata/recorded/etmv4/trace.bin"
        );
        let frames = std::fs::read(path).unwrap();
        let mut demux = Demux::new();
        Deformatter::new(FrameKind::Memory).feed(BufferOffset(0), &frames, true, &mut demux);
        [0x10, 0x11].map(|id| demux.stream(TraceId(id)).payload().to_vec())
    }

    fn framed(sources: [&[u8]; 2]) -> Vec<u8> {
        let (mut encoder, mut out) = (Encoder::new(), Vec::new());
        for (id, bytes) in [0x10, 0x11].into_iter().zip(sources) {
            encoder.write(TraceId(id), bytes, &mut out);
        }
        encoder.finish(&mut out);
        out
    }

    fn buffers(out: &RawSnapshot<'_>) -> Vec<(String, Vec<String>)> {
        let placed = out.placed.iter();
        placed
            .map(|placed| (placed.unit.device.name.clone(), placed.buffers.clone()))
            .collect()
    }

    #[test]
    fn buffers_without_ids_are_of_the_units_in_order() {
        let options = Options::default();
        let units = ["etm0", "etm1"].map(|name| Unit::new(name, "ETM4"));
        let mut out = RawSnapshot::new(None, units.to_vec(), &options).unwrap();
        let [first, second] = recorded();
        out.buffer(Path::new("a.bin"), first.clone().into())
            .unwrap();
        out.buffer(Path::new("b.bin"), second.into()).unwrap();
        let of = |unit: &str, buffer: &str| (unit.to_owned(), vec![buffer.to_owned()]);
        assert_eq!(buffers(&out), [of("etm0", "a"), of("etm1", "b")]);
        let assumed = |buffer: &str, unit: &str| {
            Note::from(RawNote::AssumedUnit {
                buffer: buffer.to_owned(),
                unit: unit.to_owned(),
            })
        };
        for note in [assumed("a", "etm0"), assumed("b", "etm1")] {
            assert!(out.out.notes.contains(&note), "{note}");
        }
        let error = out.buffer(Path::new("c.bin"), first.into()).unwrap_err();
        let wanted = "have a buffer already";
        assert!(error.to_string().contains(wanted), "{error}");
    }

    #[test]
    fn a_unit_without_an_id_does_not_hide_other_sources() {
        let options = Options::default();
        let mut out = RawSnapshot::new(None, vec![Unit::new("stm0", "STM")], &options).unwrap();
        let [first, second] = recorded();
        let bytes = framed([&first, &second]);
        out.buffer(Path::new("etr.bin"), bytes.into()).unwrap();
        let etr = || vec!["etr".to_owned()];
        let source = || "source".to_owned();
        let wanted = [
            ("stm0".to_owned(), Vec::new()),
            (source(), etr()),
            (source(), etr()),
        ];
        assert_eq!(buffers(&out), wanted);
    }

    #[test]
    fn sources_of_a_trace_port_may_start_late() {
        let options = Options::default();
        let mut out = RawSnapshot::new(None, Vec::new(), &options).unwrap();
        let [first, second] = recorded();
        let long = first.repeat((1 << 20) / first.len() + 1);
        // HSYNC within frames occurs only on a port.
        let mut port = vec![0x55; 6];
        for frame in framed([&long, &second]).chunks(16) {
            port.extend(FSYNC);
            port.extend(&frame[..6]);
            port.extend([0xFF, 0x7F]);
            port.extend(&frame[6..]);
        }
        out.buffer(Path::new("port.bin"), port.into()).unwrap();
        let found: Vec<Vec<String>> = buffers(&out).into_iter().map(|(_, all)| all).collect();
        assert_eq!(found, [["port_10"], ["port_11"]]);
        assert_eq!(&*out.out.files["trace/port_11.bin"], &second[..]);
        let said = out.out.notes[0].to_string();
        let wanted = "trace ID 0x10, ETMv4, trace ID 0x11, ETMv4";
        assert!(said.ends_with(wanted), "{said}");
    }

    #[test]
    fn only_cores_of_a_saved_state_are_traced() {
        let device = |name: &str, class| Device {
            name: name.to_owned(),
            class,
            ..Device::default()
        };
        let state = Imported {
            snapshot: Snapshot {
                devices: vec![
                    device("RAM", DeviceClass::MemorySpace),
                    device("cpu_0", DeviceClass::Core),
                ],
                ..Snapshot::default()
            },
            ..Imported::default()
        };
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("etr.bin");
        let [first, second] = recorded();
        std::fs::write(&path, framed([&first, &second])).unwrap();
        let out = import_raw(Some(state), &[path], &Options::default());
        let out = out.unwrap().snapshot;
        let cores = &out.clusters[0].devices;
        assert_eq!(cores[0], "cpu_0");
        assert!(!cores.contains(&"RAM".to_owned()), "{cores:?}");
        let ram = out.devices.iter().find(|device| device.name == "RAM");
        assert_eq!(ram.unwrap().class, DeviceClass::MemorySpace);
        let traced = &out.trace.unwrap().core_sources;
        assert_eq!(traced[0].core, "cpu_0");
    }
}
