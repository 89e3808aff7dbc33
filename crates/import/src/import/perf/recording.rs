//! The records of a `perf.data` file that matter for trace: which threads ran, which files were
//! mapped where, and the trace itself.

use super::bytes::Bytes;
use super::etm_info::{EtmInfo, InfoError};
use super::file::{PerfFile, Record, SampleId, fault, feature, kind};
use super::processes::{Event, Mapping, Processes};
use super::switches::Switches;
use crate::import::ImportError;
use crate::import::build_id::BuildId;
use crate::import::fields::Fields;
use crate::import::note::PerfNote;
use armsnap_snapshot::capture::PerfClock;
use std::collections::{HashMap, HashSet};
use std::ops::Range;
use std::path::PathBuf;

/// The maximum number of events that are kept: more than any recording with trace has.
const MAX_EVENTS: usize = 1 << 22;
/// The maximum number of trace IDs that are kept: more than any system has CPUs and sinks.
const MAX_IDS: usize = 1 << 11;

/// `PERF_RECORD_MISC_MMAP_BUILD_ID`.
const MMAP_BUILD_ID: u16 = 1 << 14;
/// `PERF_RECORD_MISC_MMAP_DATA`: not executable.
const MMAP_DATA: u16 = 1 << 13;
/// `PERF_RECORD_MISC_SWITCH_OUT`.
const SWITCH_OUT: u16 = 1 << 13;
/// `PERF_RECORD_MISC_COMM_EXEC`.
const COMM_EXEC: u16 = 1 << 13;
/// `PERF_RECORD_MISC_FORK_EXEC`: perf made the record for a process that was already running.
const FORK_EXEC: u16 = 1 << 13;
/// `PERF_RECORD_MISC_BUILD_ID_SIZE`: the length of the build-id is given.
const BUILD_ID_SIZE: u16 = 1 << 15;
/// `PROT_WRITE` and `PROT_EXEC`.
const WRITE: u32 = 2;
const EXEC: u32 = 4;

/// Flags of `PERF_RECORD_AUX`.
pub mod aux_flags {
    #![allow(missing_docs)]
    pub const TRUNCATED: u64 = 1;
    pub const OVERWRITE: u64 = 2;
    pub const PARTIAL: u64 = 4;
    pub const COLLISION: u64 = 8;
    pub const FORMAT: u64 = 0xFF00;
    /// The bytes of one trace unit, without formatter frames (`…_CORESIGHT_FORMAT_RAW`).
    pub const FORMAT_RAW: u64 = 0x0100;
}

/// `PERF_RECORD_AUX`: trace was written to a buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AuxRecord {
    /// The offset in the buffer.
    pub offset: u64,
    /// The number of bytes.
    pub size: u64,
    /// Flags.
    pub flags: u64,
    /// Who, when, where.
    pub sample: SampleId,
    /// Its process image, by index; see [`Processes`].
    pub image: Option<usize>,
    /// Its position in the file.
    pub at: usize,
}

/// `PERF_RECORD_AUXTRACE`: a saved part of a buffer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stored {
    /// The offset of its first byte in the buffer.
    pub offset: u64,
    /// The CPU of the buffer; `None` if it belongs to a thread.
    pub cpu: Option<u32>,
    /// The thread of the buffer, if it belongs to one.
    pub tid: u32,
    /// The range of its bytes in the file.
    pub bytes: Range<usize>,
}

/// `PERF_RECORD_AUX_OUTPUT_HW_ID`: the trace ID of a CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct HardwareId {
    /// The CPU.
    pub cpu: u32,
    /// The trace ID.
    pub trace_id: u8,
    /// The sink within which the ID is unique; `None` if it is unique in the system.
    pub sink: Option<u32>,
}

/// The contents of a recording.
#[derive(Debug, Default)]
pub struct Recording {
    /// The program that wrote the recording.
    pub writer: &'static str,
    /// The command line of the recording.
    pub command: Option<String>,
    /// The trace units.
    pub units: Option<EtmInfo>,
    /// Trace IDs given by records.
    pub hardware_ids: Vec<HardwareId>,
    /// In order of time.
    pub aux: Vec<AuxRecord>,
    /// In file order.
    pub stored: Vec<Stored>,
    /// Processes and their mappings.
    pub processes: Processes,
    /// Build-ids by path.
    pub build_ids: HashMap<String, BuildId>,
    /// Whether the kernel reported switches of all tasks, so that the trace is that of CPUs.
    pub cpu_wide: bool,
    /// The conversion from ticks of the cores' counters to times.
    pub clock: Option<PerfClock>,
    /// Which threads ran at which times.
    pub switches: Switches,
    /// Notes on what was left out.
    pub notes: Vec<PerfNote>,
}

/// A record whose order in time matters.
#[derive(Debug)]
enum Timed {
    Process(Event),
    Aux(AuxRecord),
}

/// Data that is collected while the records are read.
#[derive(Default)]
struct Collected {
    timed: Vec<(u64, Timed)>,
    too_many: bool,
    lost: u64,
    /// The trace units, or the position of a faulty record.
    units: Option<Result<EtmInfo, (usize, InfoError)>>,
    unread: u64,
    ids: HashSet<HardwareId>,
    other_ids: u64,
    ids_without_cpu: u64,
}

/// A number of records, and the note on them.
type Counted = (u64, fn(u64) -> PerfNote);

impl Recording {
    /// Reads all records of files, and adds the files to `bytes`.
    ///
    /// # Errors
    ///
    /// If a file is faulty.
    pub fn read(files: &mut [(PathBuf, PerfFile)], bytes: &mut Bytes) -> Result<Self, ImportError> {
        let mut out = Self::default();
        let mut collected = Collected::default();
        let several = files.len() > 1;
        for (path, file) in files {
            let first = bytes.add(file.bytes.clone());
            let place = (first, file.bytes.len());
            let read = file.records(&mut |record| {
                out.record(&record, &mut collected, place);
                Ok(())
            });
            let cut = read.map_err(|error| ImportError::input(path, error))?;
            if let Some(cut) = cut {
                let name = path.file_name().unwrap_or_default().to_string_lossy();
                out.notes.push(PerfNote::CutFile {
                    file: several.then(|| name.into_owned()),
                    at: cut.at,
                    fault: cut.text,
                });
            }
            out.sections(file);
            if let Some(Err((at, error))) = &collected.units {
                return Err(ImportError::input(path, fault(*at, error.to_string())));
            }
        }
        let counted: [Counted; 4] = [
            (collected.lost, |count| PerfNote::LostRecords { count }),
            (collected.unread, |count| PerfNote::ShortRecords { count }),
            (collected.other_ids, |count| PerfNote::HardwareIdVersion {
                count,
            }),
            (collected.ids_without_cpu, |count| {
                PerfNote::HardwareIdWithoutCpu { count }
            }),
        ];
        let counted = counted.into_iter().filter(|(count, _)| *count > 0);
        out.notes.extend(counted.map(|(count, note)| note(count)));
        if collected.too_many {
            let limit = MAX_EVENTS;
            out.notes.push(PerfNote::ManyEvents { limit });
        }
        if let Some(Ok(units)) = collected.units {
            out.units = Some(units);
        }
        out.switches.sort();
        // A stable sort: records with the same time, and those without a time, keep their order.
        collected.timed.sort_by_key(|(time, _)| *time);
        for (time, timed) in collected.timed {
            match timed {
                Timed::Process(event) => out.processes.take(event, time),
                Timed::Aux(mut aux) => {
                    aux.image = aux.sample.pid.and_then(|pid| out.processes.current(pid));
                    out.aux.push(aux);
                }
            }
        }
        Ok(out)
    }

    /// Reads a record. `place` is the position of the first byte of its file, and the length of the
    /// file.
    fn record(&mut self, record: &Record<'_>, collected: &mut Collected, place: (usize, usize)) {
        let mut fields = record.fields();
        let known = match record.kind {
            kind::MMAP | kind::MMAP2 => mapping(record).map(|(pid, mapping)| {
                collected.event(record, Event::Map { pid, mapping });
            }),
            kind::COMM => (|| {
                let (pid, tid) = (fields.u32()?, fields.u32()?);
                let name = fields.text().into();
                let exec = record.misc & COMM_EXEC != 0;
                let event = Event::Comm {
                    pid,
                    tid,
                    name,
                    exec,
                };
                collected.event(record, event);
                Some(())
            })(),
            kind::FORK => (|| {
                let (pid, parent, tid) = (fields.u32()?, fields.u32()?, fields.u32()?);
                let event = Event::Fork {
                    pid,
                    parent,
                    tid,
                    inherits: record.misc & FORK_EXEC == 0,
                };
                collected.event(record, event);
                Some(())
            })(),
            kind::AUX => (|| {
                let aux = AuxRecord {
                    offset: fields.u64()?,
                    size: fields.u64()?,
                    flags: fields.u64()?,
                    sample: record.sample,
                    image: None,
                    at: place.0 + record.at,
                };
                collected.timed(record, Timed::Aux(aux));
                Some(())
            })(),
            kind::ITRACE_START => Some(()),
            kind::SWITCH_CPU_WIDE => {
                self.cpu_wide = true;
                fields.u32();
                let other = fields.u32();
                self.switch(record, other);
                other.map(|_| ())
            }
            kind::SWITCH => {
                self.switch(record, None);
                Some(())
            }
            kind::AUX_OUTPUT_HW_ID => self.hardware_id(record, collected),
            kind::LOST => {
                fields.u64();
                collected.lost = collected.lost.saturating_add(fields.u64().unwrap_or(1));
                Some(())
            }
            kind::AUXTRACE_INFO => {
                let read = || EtmInfo::read(fields).map_err(|error| (record.at, error));
                collected.units.get_or_insert_with(read);
                Some(())
            }
            kind::AUXTRACE => self.stored(record, place),
            kind::TIME_CONV => {
                let clock = clock(fields);
                self.clock = self.clock.or(clock);
                clock.map(|_| ())
            }
            kind::HEADER_BUILD_ID => self.build_id(record.misc, fields),
            _ => Some(()),
        };
        collected.unread += u64::from(known.is_none());
    }

    /// Adds a switch. `other` is the thread before or after the thread of the record.
    fn switch(&mut self, record: &Record<'_>, other: Option<u32>) {
        let sample = &record.sample;
        if let (Some(cpu), Some(time)) = (sample.cpu, sample.time) {
            let (before, after) = match record.misc & SWITCH_OUT != 0 {
                true => (sample.tid, other),
                false => (other, sample.tid),
            };
            self.switches.take(cpu, time, before, after);
        }
    }

    fn stored(&mut self, record: &Record<'_>, (first, length): (usize, usize)) -> Option<()> {
        let mut fields = record.fields();
        let (size, offset) = (fields.u64()?, fields.u64()?);
        let (_reference, _index) = (fields.u64()?, fields.u32()?);
        let (tid, cpu) = (fields.u32()?, fields.u32()?);
        let begin = record.at + 8 + record.body.len();
        let size = usize::try_from(size).unwrap_or(usize::MAX);
        let end = begin.saturating_add(size);
        if end > length {
            self.notes.push(PerfNote::CutTrace {
                at: record.at,
                bytes: size,
            });
        }
        self.stored.push(Stored {
            offset,
            cpu: (cpu != u32::MAX).then_some(cpu),
            tid,
            bytes: first + begin.min(length)..first + end.min(length),
        });
        Some(())
    }

    /// Reads the trace ID in bits 7:0, from minor version 1 the sink in 39:8, the minor version in
    /// 59:56, and the major version in 63:60 (`include/linux/coresight-pmu.h`).
    fn hardware_id(&mut self, record: &Record<'_>, collected: &mut Collected) -> Option<()> {
        let id = record.fields().u64()?;
        let (major, minor) = (id >> 60, id >> 56 & 0xF);
        if major != 0 {
            collected.other_ids += 1;
            return Some(());
        }
        let Some(cpu) = record.sample.cpu else {
            collected.ids_without_cpu += 1;
            return Some(());
        };
        let found = HardwareId {
            cpu,
            trace_id: (id & 0x7F) as u8,
            sink: (minor >= 1).then_some((id >> 8) as u32),
        };
        if self.hardware_ids.len() < MAX_IDS && collected.ids.insert(found) {
            self.hardware_ids.push(found);
        }
        Some(())
    }

    /// Reads the fields of a build-id record: process, 20 bytes of build-id followed by their
    /// number, path.
    fn build_id(&mut self, misc: u16, mut fields: Fields<'_>) -> Option<()> {
        fields.u32()?;
        let bytes = fields.bytes(24)?;
        let given = usize::from(bytes[20]);
        let id = match misc & BUILD_ID_SIZE != 0 {
            true => BuildId::new(&bytes[..given.min(20)]),
            false => BuildId::padded(&bytes[..20]),
        };
        let path = fields.text();
        if let Some(id) = id {
            self.build_ids.entry(path).or_insert(id);
        }
        Some(())
    }

    fn sections(&mut self, file: &PerfFile) {
        if self.writer.is_empty() {
            self.writer = "perf";
        }
        if let Some(meta) = file.feature(feature::SIMPLEPERF_META_INFO) {
            self.writer = "simpleperf";
            // Names and values, each followed by a zero byte.
            let mut words = meta.split(|byte| *byte == 0);
            while let (Some(name), Some(value)) = (words.next(), words.next()) {
                if name == b"system_wide_collection" && value == b"true" {
                    self.cpu_wide = true;
                }
            }
        }
        let mut ids = file.feature(feature::BUILD_ID).unwrap_or(&[]);
        loop {
            let mut fields = Fields::new(ids, file.big);
            let header = fields.u32().zip(fields.u16()).zip(fields.u16());
            let Some(((_, misc), size)) = header.filter(|(_, size)| *size >= 8) else {
                break;
            };
            let Some((entry, rest)) = ids.split_at_checked(size.into()) else {
                break;
            };
            self.build_id(misc, Fields::new(&entry[8..], file.big));
            ids = rest;
        }
        let command = file.feature(feature::CMDLINE).and_then(|section| {
            let mut fields = Fields::new(section, file.big);
            let count = fields.u32()?;
            let words = (0..count).map_while(|_| {
                let length = fields.u32()? as usize;
                let bytes = fields.bytes(length)?;
                Some(fields.again(bytes).text())
            });
            Some(words.collect::<Vec<_>>().join(" "))
        });
        self.command = self.command.take().or(command);
    }
}

impl Collected {
    fn timed(&mut self, record: &Record<'_>, timed: Timed) {
        if self.timed.len() >= MAX_EVENTS {
            self.too_many = true;
            return;
        }
        self.timed.push((record.sample.time.unwrap_or(0), timed));
    }

    fn event(&mut self, record: &Record<'_>, event: Event) {
        self.timed(record, Timed::Process(event));
    }
}

/// Reads the shift, the multiplier, the time of tick 0; in newer records also a tick and the
/// counter's bits.
fn clock(mut fields: Fields<'_>) -> Option<PerfClock> {
    let (shift, multiplier, zero) = (fields.u64()?, fields.u64()?, fields.u64()?);
    let (near, mask) = fields.u64().zip(fields.u64()).unwrap_or((0, 0));
    Some(PerfClock {
        zero,
        multiplier,
        shift: u32::try_from(shift).ok().filter(|shift| *shift < 64)?,
        near,
        mask: if mask == 0 { u64::MAX } else { mask },
    })
}

/// The process and the mapping of an MMAP or MMAP2 record.
fn mapping(record: &Record<'_>) -> Option<(u32, Mapping)> {
    let mut fields = record.fields();
    let (pid, _tid) = (fields.u32()?, fields.u32()?);
    let (address, length, offset) = (fields.u64()?, fields.u64()?, fields.u64()?);
    let (mut build_id, mut protection) = (None, EXEC);
    if record.kind == kind::MMAP2 {
        let file = fields.bytes(24)?;
        if record.misc & MMAP_BUILD_ID != 0 {
            build_id = BuildId::new(&file[4..][..usize::from(file[0]).min(20)]);
        }
        protection = fields.u32()?;
        fields.u32()?;
    } else if record.misc & MMAP_DATA != 0 {
        protection = 0;
    }
    let mapping = Mapping {
        address,
        length,
        offset,
        path: fields.text(),
        build_id,
        executable: protection & EXEC != 0,
        writable: protection & WRITE != 0,
    };
    Some((pid, mapping))
}
