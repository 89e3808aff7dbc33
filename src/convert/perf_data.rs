//! A snapshot's trace as a `perf.data` file, which Linux perf decodes.
//!
//! Each core becomes a thread of one process, whose trace is in a separate buffer, as written by
//! `perf record --per-thread`: perf then needs no context IDs in the trace. Programs and libraries
//! become mappings with build-ids; code that only dumps contain cannot be represented.

use super::Error;
use super::note::Note;
use armsnap_arch::arch::{Architecture, RegisterFile, state};
use armsnap_arch::quantity::{BufferOffset, TraceId};
use armsnap_snapshot::capture::{Capture, CaptureBuffer, CaptureSource, Protocol};
use armsnap_snapshot::program::elf::Elf;
use armsnap_snapshot::snapshot::memory::CoreMemory;
use armsnap_snapshot::snapshot::program::Program;
use armsnap_snapshot::snapshot::{OpenSnapshot, libraries};
use armsnap_trace::formatter::encode::Encoder;
use armsnap_trace::formatter::{Deformatter, Demux};
use object::{Object, ObjectSegment, SegmentFlags, elf::PF_X};
use std::collections::BTreeSet;
use std::io::Write;
use std::ops::RangeInclusive;

/// The process ID, which is also the ID of its first thread.
const PROCESS: u32 = 1000;
/// The number of the PMU: arbitrary, but the attribute and the trace units must agree.
const PMU: u64 = 8;
/// `sample_type`: IP, TID, IDENTIFIER. Without TIME, perf decodes each buffer separately.
const SAMPLE_TYPE: u64 = 1 | 1 << 1 | 1 << 16;
/// `sample_type`: CPU. Without it perf looks for buffers of threads; with it, perf assigns the
/// trace IDs given in records.
const SAMPLE_CPU: u64 = 1 << 7;
/// The number of bytes of a buffer deformatted at once.
const PIECE: usize = 1 << 20;
/// The sizes in bytes of the header, and of an attribute with the location of its IDs.
const HEADER: u64 = 104;
const ATTRIBUTE: u64 = 144;

/// Types of records, and bits of `misc`.
const COMM: u32 = 3;
const MMAP2: u32 = 10;
const AUX: u32 = 11;
const ITRACE_START: u32 = 12;
const HW_ID: u32 = 21;
const AUXTRACE_INFO: u32 = 70;
const AUXTRACE: u32 = 71;
const USER: u16 = 2;
const COMM_EXEC: u16 = 1 << 13;
const MMAP_BUILD_ID: u16 = 1 << 14;

/// The size in bytes of an AUXTRACE record, without the trace that follows it.
const AUXTRACE_SIZE: u64 = 48;

/// A traced core.
struct Traced<'c> {
    core: usize,
    thread: u32,
    trace: Vec<(&'c CaptureBuffer, &'c CaptureSource)>,
}

/// Trace of a core to be stored, from one buffer.
struct Stored<'c> {
    core: &'c Traced<'c>,
    buffer: &'c CaptureBuffer,
    source: &'c CaptureSource,
    id: TraceId,
    /// The offset in the core's trace.
    offset: u64,
    /// The number of bytes.
    length: u64,
}

/// Writes the trace of a snapshot; `version` (1 or 2) is the layout of the records that describe
/// trace units. Returns notes on what was left out.
///
/// # Errors
///
/// If the snapshot has no trace that perf can decode, or writing fails.
pub fn write(
    loaded: &OpenSnapshot,
    version: u64,
    out: &mut impl Write,
) -> Result<Vec<Note>, Error> {
    let (capture, notes) = Capture::open(loaded);
    let mut notes: Vec<Note> = notes.into_iter().map(Note::Snapshot).collect();
    let devices = &loaded.snapshot.devices;
    let mut traced: Vec<Traced<'_>> = Vec::new();
    for core in 0..devices.len() {
        let (trace, left_out) = capture.following(&loaded.snapshot, core);
        notes.extend(left_out.into_iter().map(Note::Snapshot));
        if !trace.is_empty() {
            traced.push(Traced {
                core,
                thread: PROCESS + traced.len() as u32,
                trace,
            });
        }
    }
    if traced.is_empty() {
        return Err(Error::Usage(
            "the snapshot has no trace that follows a core: perf.data cannot hold it".to_owned(),
        ));
    }
    let mut records = Records {
        with_cpu: version >= 2,
        ..Records::default()
    };
    let programs = programs(loaded, &traced);
    let name = programs.first().and_then(|elf| elf.path.file_name());
    let name = name.map_or_else(|| "armsnap".into(), |name| name.to_string_lossy());
    for core in &traced {
        records.comm(core.thread, &name);
    }
    let mut mapped = 0;
    for elf in &programs {
        mapped += mappings(elf, traced[0].thread, &mut records);
    }
    if mapped == 0 {
        notes.push(Note::NoProgram);
    }
    let mut body = Vec::from(3_u64.to_le_bytes());
    for word in [version, PMU << 32 | traced.len() as u64, 0] {
        body.extend(word.to_le_bytes());
    }
    let ids = ids(&traced)?;
    for ((cpu, core), id) in (0..).zip(&traced).zip(&ids) {
        body.extend(unit(loaded, core.trace[0].1, (cpu, *id)));
    }
    records.record(AUXTRACE_INFO, 0, &body)?;
    let mut stores: Vec<Stored<'_>> = Vec::new();
    for (cpu, core) in traced.iter().enumerate() {
        let body = words32(&[PROCESS, core.thread]);
        records.event(ITRACE_START, 0, body, core.thread);
        let id = ids[cpu];
        if version >= 2 {
            // Minor version 0: IDs are unique in the system.
            let mut record = Vec::from(u64::from(id.0).to_le_bytes());
            records.sample(&mut record, core.thread, cpu as u32);
            records.record(HW_ID, 0, &record)?;
        }
        let mut offset = 0;
        for (buffer, source) in &core.trace {
            let length = framed(buffer, source, id, &mut |_| Ok(()))?;
            if length == 0 {
                continue;
            }
            let mut aux = Vec::new();
            for word in [offset, length, 0] {
                aux.extend(u64::to_le_bytes(word));
            }
            records.event(AUX, 0, aux, core.thread);
            stores.push(Stored {
                core,
                buffer,
                source,
                id,
                offset,
                length,
            });
            offset += length;
        }
    }
    // The trace comes last, so that perf knows all other records when it decodes it.
    let stored = stores.iter().map(|stored| AUXTRACE_SIZE + stored.length);
    let stored: u64 = stored.sum();
    let begin = HEADER + 8 + ATTRIBUTE;
    let data = records.bytes.len() as u64 + stored;
    let sections_at = begin + data;
    let mut index = Vec::new();
    let mut at = begin + records.bytes.len() as u64;
    for stored in &stores {
        index.extend(at.to_le_bytes());
        index.extend(AUXTRACE_SIZE.to_le_bytes());
        at += AUXTRACE_SIZE + stored.length;
    }
    let architecture = Architecture::detect(&devices[traced[0].core]).architecture;
    let index = [&(stores.len() as u64).to_le_bytes()[..], &index].concat();
    let sections = [
        Section::architecture(architecture),
        Section {
            feature: 18,
            bytes: index,
        },
    ];
    let event = Event {
        kind: PMU as u32,
        config: 0,
        period: 1,
        sample_type: SAMPLE_TYPE | if records.with_cpu { SAMPLE_CPU } else { 0 },
        // Disabled, exclude_kernel, exclude_hv, sample_id_all.
        flags: 1 | 1 << 5 | 1 << 6 | 1 << 18,
        branches: 0,
    };
    out.write_all(&header(data, &event, &sections))?;
    out.write_all(&records.bytes)?;
    for stored in stores {
        let mut body = Vec::new();
        for word in [stored.length, stored.offset, 0] {
            body.extend(u64::to_le_bytes(word));
        }
        let thread = stored.core.thread;
        body.extend(words32(&[thread - PROCESS, thread, u32::MAX, 0]));
        let mut record = Records::default();
        record.record(AUXTRACE, 0, &body)?;
        out.write_all(&record.bytes)?;
        framed(stored.buffer, stored.source, stored.id, &mut |bytes| {
            out.write_all(bytes)
        })?;
    }
    write_sections(sections_at, &sections, out)?;
    Ok(notes)
}

/// A feature of the file, described after the data.
pub(super) struct Section {
    /// Its number.
    pub feature: u32,
    /// The description.
    pub bytes: Vec<u8>,
}

impl Section {
    /// Feature 6: the architecture of the machine.
    pub fn architecture(architecture: Architecture) -> Self {
        let machine = if architecture == Architecture::AArch64 {
            "aarch64"
        } else {
            "armv7l"
        };
        let mut bytes = Vec::from(64_u32.to_le_bytes());
        bytes.extend(machine.as_bytes());
        bytes.resize(68, 0);
        Self { feature: 6, bytes }
    }
}

/// Writes the features, in order of their numbers, at an offset in the file: their places, then
/// their bytes.
pub(super) fn write_sections(
    at: u64,
    sections: &[Section],
    out: &mut impl Write,
) -> std::io::Result<()> {
    let mut at = at + 16 * sections.len() as u64;
    for section in sections {
        out.write_all(&at.to_le_bytes())?;
        out.write_all(&(section.bytes.len() as u64).to_le_bytes())?;
        at += section.bytes.len() as u64;
    }
    for section in sections {
        out.write_all(&section.bytes)?;
    }
    Ok(())
}

/// The event of the samples or of the trace.
pub(super) struct Event {
    /// Its PMU.
    pub kind: u32,
    /// What the PMU counts.
    pub config: u64,
    /// The count between samples.
    pub period: u64,
    /// The parts of samples.
    pub sample_type: u64,
    /// The bits after them.
    pub flags: u64,
    /// Which branches stacks contain.
    pub branches: u64,
}

/// The header, the ID of the event, and its attribute.
pub(super) fn header(data: u64, event: &Event, sections: &[Section]) -> Vec<u8> {
    let mut out = b"PERFILE2".to_vec();
    let attributes = HEADER + 8;
    let begin = attributes + ATTRIBUTE;
    let features = sections.iter().map(|section| section.feature);
    let bits = features.fold(0_u64, |bits, feature| bits | 1 << feature);
    for word in [
        HEADER, ATTRIBUTE, attributes, ATTRIBUTE, begin, data, 0, 0, bits, 0, 0, 0,
    ] {
        out.extend(word.to_le_bytes());
    }
    out.extend(1_u64.to_le_bytes());
    let mut attribute = words32(&[event.kind, 128]);
    // Config, period, sample type, read format, flags, two unused words, branches.
    for word in [
        event.config,
        event.period,
        event.sample_type,
        0,
        event.flags,
        0,
        0,
        0,
        event.branches,
    ] {
        attribute.extend(u64::to_le_bytes(word));
    }
    attribute.resize(128, 0);
    out.extend(attribute);
    for word in [HEADER, 8] {
        out.extend(u64::to_le_bytes(word));
    }
    out
}

/// Consecutive records.
#[derive(Debug, Default)]
pub(super) struct Records {
    bytes: Vec<u8>,
    /// Whether kernel records include their CPU.
    with_cpu: bool,
}

impl Records {
    /// The bytes of the records so far.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Names a thread of the process.
    pub fn comm(&mut self, thread: u32, name: &str) {
        let mut body = words32(&[PROCESS, thread]);
        body.extend(text(&name.chars().take(15).collect::<String>()));
        let misc = USER | if thread == PROCESS { COMM_EXEC } else { 0 };
        self.event(COMM, misc, body, thread);
    }

    /// Adds a record.
    ///
    /// # Errors
    ///
    /// If it is too long.
    pub fn record(&mut self, kind: u32, misc: u16, body: &[u8]) -> Result<(), Error> {
        let size = u16::try_from(8 + body.len()).map_err(|_| {
            Error::Usage("perf.data cannot hold a record of more than 64 KiB".to_owned())
        })?;
        self.bytes.extend(kind.to_le_bytes());
        self.bytes.extend(misc.to_le_bytes());
        self.bytes.extend(size.to_le_bytes());
        self.bytes.extend(body);
        Ok(())
    }

    /// Adds a kernel record on a thread. A record that is too long is left out.
    fn event(&mut self, kind: u32, misc: u16, mut body: Vec<u8>, thread: u32) {
        self.sample(&mut body, thread, thread - PROCESS);
        let _ = self.record(kind, misc, &body);
    }

    fn sample(&self, body: &mut Vec<u8>, thread: u32, cpu: u32) {
        body.extend(words32(&[PROCESS, thread]));
        if self.with_cpu {
            body.extend(words32(&[cpu, 0]));
        }
        body.extend(1_u64.to_le_bytes());
    }
}

fn words32(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

/// Text, followed by zeros up to a multiple of 8.
pub(super) fn text(text: &str) -> Vec<u8> {
    let mut out = text.as_bytes().to_vec();
    out.resize((text.len() + 1).next_multiple_of(8), 0);
    out
}

/// The programs of the first traced core, and their libraries.
fn programs(loaded: &OpenSnapshot, traced: &[Traced<'_>]) -> Vec<Elf> {
    let device = &loaded.snapshot.devices[traced[0].core];
    let architecture = Architecture::detect(device).architecture;
    let space = state::current_space(&RegisterFile::read(device, architecture)).space;
    let mut memory = CoreMemory::new(loaded, device);
    memory.share(loaded, traced[0].core);
    let memory = (&memory, space);
    let programs = Program::of_cores(loaded, &[], architecture, &[memory]);
    let mut out: Vec<Elf> = programs.into_iter().map(|program| program.elf).collect();
    if let Some(program) = out.first() {
        out.extend(libraries::of_program(loaded, program, memory));
    }
    out
}

/// Adds the mappings of a program's code. Returns their number.
pub(super) fn mappings(elf: &Elf, thread: u32, records: &mut Records) -> usize {
    let Ok(file) = object::File::parse(elf.bytes()) else {
        return 0;
    };
    let id = file.build_id().ok().flatten().unwrap_or(&[]);
    let mut count = 0;
    for segment in file.segments() {
        let executable = matches!(segment.flags(),
            SegmentFlags::Elf { p_flags, .. } if p_flags.0 & PF_X.0 != 0);
        let (offset, size) = segment.file_range();
        if !executable || size == 0 || segment.data().is_err() {
            continue;
        }
        // Whole pages are mapped.
        let before = offset & 0xFFF;
        let address = segment
            .address()
            .wrapping_add(elf.offset)
            .wrapping_sub(before);
        let length = (size + before).next_multiple_of(0x1000);
        let mut body = words32(&[PROCESS, PROCESS]);
        for word in [address, length, offset - before] {
            body.extend(word.to_le_bytes());
        }
        let mut identity = [0; 24];
        let used = id.len().min(20);
        identity[0] = used as u8;
        identity[4..4 + used].copy_from_slice(&id[..used]);
        body.extend(identity);
        // PROT_READ and PROT_EXEC; MAP_PRIVATE.
        body.extend(words32(&[5, 2]));
        body.extend(text(&elf.path.to_string_lossy()));
        let misc = USER | if used > 0 { MMAP_BUILD_ID } else { 0 };
        records.event(MMAP2, misc, body, thread);
        count += 1;
    }
    count
}

/// The trace ID of each core in the file: its own, or another one if that is reserved or already
/// used by another core (CoreSight Architecture Specification, trace IDs). The formatter frames are
/// regenerated, so the IDs may change.
fn ids(traced: &[Traced<'_>]) -> Result<Vec<TraceId>, Error> {
    const VALID: RangeInclusive<u8> = 1..=0x6F;
    let own = |core: &Traced<'_>| core.trace[0].1.trace_id.0;
    let mut used: BTreeSet<u8> = traced.iter().map(own).collect();
    let mut given = BTreeSet::new();
    let ids = traced.iter().map(|core| {
        let id = own(core);
        if VALID.contains(&id) && given.insert(id) {
            return Ok(TraceId(id));
        }
        let free = VALID.clone().find(|id| used.insert(*id));
        free.map(TraceId).ok_or_else(|| {
            let most = VALID.count();
            Error::Usage(format!(
                "a system has at most {most} trace IDs: there are more cores"
            ))
        })
    });
    ids.collect()
}

/// The data block of a trace unit: magic, CPU, number of parameters, parameters.
fn unit(loaded: &OpenSnapshot, source: &CaptureSource, (cpu, trace_id): (u64, TraceId)) -> Vec<u8> {
    let device = &loaded.snapshot.devices[source.device];
    let (magic, names): (u64, &[(&str, u64, u64)]) = match source.protocol {
        Protocol::Etmv3 | Protocol::Ptm => (
            0x3030_3030_3030_3030,
            &[
                ("ETMCR", 0x00, 0),
                ("ETMTRACEIDR", 0x80, 0),
                ("ETMCCER", 0x7A, 0),
                ("ETMIDR", 0x79, 0x4100_F310),
            ],
        ),
        protocol => (
            match protocol {
                Protocol::Ete => 0x5050_5050_5050_5050,
                _ => 0x4040_4040_4040_4040,
            },
            &[
                ("TRCCONFIGR", 0x04, 0xC1),
                ("TRCTRACEIDR", 0x10, 0),
                ("TRCIDR0", 0x78, 0x2800_0EA1),
                ("TRCIDR1", 0x79, 0x4100_F403),
                ("TRCIDR2", 0x7A, 0x488),
                ("TRCIDR8", 0x60, 0),
                ("TRCAUTHSTATUS", 0x3EE, 0xCC),
                ("TRCDEVARCH", 0x3EF, 0x4771_5A13),
            ],
        ),
    };
    let names = match source.protocol {
        Protocol::Etmv4 => &names[..7],
        _ => names,
    };
    let mut out = Vec::new();
    let mut word = |word: u64| out.extend(word.to_le_bytes());
    word(magic);
    word(cpu);
    word(names.len() as u64);
    for &(name, id, assumed) in names {
        let register = device.component_register(&[name], id);
        let value = register.and_then(|register| register.value.as_u64());
        word(match name.ends_with("TRACEIDR") {
            true => trace_id.0.into(),
            false => value.unwrap_or(assumed),
        });
    }
    out
}

/// Writes the trace of a source in formatter frames with only its ID; returns their size in bytes.
/// Called twice, once only for the size, so that the trace need not be kept in memory.
fn framed(
    buffer: &CaptureBuffer,
    source: &CaptureSource,
    id: TraceId,
    write: &mut dyn FnMut(&[u8]) -> std::io::Result<()>,
) -> Result<u64, Error> {
    let own = source.trace_id;
    let mut demux = Demux::only(&[own]);
    let mut frames = buffer.frames.map(Deformatter::new);
    let (mut encoder, mut out) = (Encoder::new(), Vec::new());
    let (mut at, mut written) = (0, 0);
    let total = buffer.bytes();
    for part in &buffer.parts {
        for (index, bytes) in part.chunks(PIECE).enumerate() {
            let last = at + bytes.len() as u64 == total;
            match &mut frames {
                Some(frames) => frames.feed(BufferOffset(at), bytes, last, &mut demux),
                None => demux.unformatted(own, BufferOffset(at), bytes),
            }
            at += bytes.len() as u64;
            encoder.write(id, demux.stream(own).payload(), &mut out);
            demux.clear();
            written += out.len() as u64;
            write(&out)?;
            out.clear();
            part.release(index * PIECE..index * PIECE + bytes.len());
        }
    }
    encoder.finish(&mut out);
    written += out.len() as u64;
    write(&out)?;
    Ok(written)
}
