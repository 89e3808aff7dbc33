//! Checks the trace metadata (3.3) and the registers that decoding needs (4.2).

use super::{Checker, Need};
use crate::capture::{Capture, LeftOut, Protocol, Reason, TraceArchitecture, registers};
use crate::snapshot::model::{Buffer, BufferFormat, Device, DeviceClass, Trace};
use crate::snapshot::topology;
use std::collections::{HashMap, HashSet};

/// The section that lists the registers that decoding needs; the specification is older than ETE.
const fn section(protocol: Protocol) -> &'static str {
    match protocol {
        Protocol::Etmv3 => "4.2.1",
        Protocol::Ptm => "4.2.2",
        Protocol::Etmv4 => "4.2.3",
        Protocol::Itm => "4.2.4",
        Protocol::Stm => "4.2.5",
        Protocol::Ete => "",
    }
}

impl Checker<'_> {
    pub(super) fn trace(&mut self) {
        let snapshot = self.snapshot;
        let all = snapshot.devices.iter();
        let sources: Vec<&Device> = all
            .filter(|device| device.class == DeviceClass::TraceSource)
            .collect();
        for source in &sources {
            self.source(source);
        }
        let Some(trace) = &snapshot.trace else {
            if let Some(source) = sources.first() {
                let text = format!("{} is a trace source, but there is no trace", source.name);
                self.wrong(Need::RequiredForTrace, &source.listed, "3.1.4", text);
            }
            return;
        };
        self.buffers(trace);
        self.core_sources(trace);
        self.source_buffers(trace);
        self.joins(trace);
    }

    fn source(&mut self, source: &Device) {
        let Some(protocol) = Protocol::of(source) else {
            let text = match TraceArchitecture::of(source) {
                TraceArchitecture::Unknown if source.kind.is_empty() => return,
                TraceArchitecture::Unknown => {
                    format!("{}: unknown trace protocol {}", source.name, source.kind)
                }
                architecture => {
                    format!("{}: trace of {architecture} cannot be decoded", source.name)
                }
            };
            self.advice(&source.place, "3.2.1", text);
            return;
        };
        let registers = registers::registers(protocol).iter();
        let mut unread = Vec::new();
        for known in registers.filter(|known| known.is_needed(protocol)) {
            if known.of(source).is_none() {
                let (name, id) = (known.names[0], known.id);
                if !known.matters(source) {
                    unread.push(name);
                    continue;
                }
                let text = format!("{}: no register {name} ({id:#x})", source.name);
                self.wrong(
                    Need::RequiredForTrace,
                    &source.place,
                    section(protocol),
                    text,
                );
            }
        }
        if !unread.is_empty() {
            let text = format!(
                "{}: no register {}: required, but not needed for decoding this trace",
                source.name,
                unread.join(", ")
            );
            self.advice(&source.place, section(protocol), text);
        }
    }

    fn buffers(&mut self, trace: &Trace) {
        const SECTION: &str = "3.3.2";
        if trace.buffers.is_empty() {
            let text = "no trace buffers".into();
            self.wrong(Need::RequiredForTrace, &trace.place, "3.3.1", text);
        }
        let mut names: HashMap<&str, &str> = HashMap::new();
        for buffer in &trace.buffers {
            let id = buffer.id.as_str();
            let wrong = |what: &str| format!("[{id}] {what}");
            let reserved = ["core_trace_sources", "source_buffers", "trace_buffers"];
            if reserved.iter().any(|name| name.eq_ignore_ascii_case(id)) {
                let text = wrong("is the name of another section");
                self.wrong(Need::RequiredForTrace, &buffer.place, "3.3.1", text);
            }
            if buffer.name.is_empty() {
                let text = wrong("has no name");
                self.wrong(Need::RequiredForTrace, &buffer.place, SECTION, text);
            } else if let Some(first) = names.insert(&buffer.name, id) {
                let text = format!("[{id}] name {} is that of [{first}]", buffer.name);
                self.wrong(Need::RequiredForTrace, &buffer.place, SECTION, text);
            }
            match &buffer.format {
                BufferFormat::Missing => {
                    let text = wrong("has no format");
                    self.wrong(Need::RequiredForTrace, &buffer.place, SECTION, text);
                }
                BufferFormat::Other(format) => {
                    let text = format!("[{id}] unknown format {format}");
                    self.advice(&buffer.place, SECTION, text);
                }
                BufferFormat::DstreamCoresight => {
                    let text = wrong("format dstream_coresight is beyond the specification");
                    self.advice(&buffer.place, SECTION, text);
                }
                BufferFormat::Coresight | BufferFormat::SourceData => {}
            }
            self.buffer_files(trace, buffer);
        }
    }

    fn buffer_files(&mut self, trace: &Trace, buffer: &Buffer) {
        let id = &buffer.id;
        if buffer.files.is_empty() {
            let text = format!("[{id}] has no file");
            return self.wrong(Need::RequiredForTrace, &buffer.place, "3.3.2", text);
        }
        let lengths = buffer.files.iter();
        let lengths = lengths.map(|file| self.loaded.length(&trace.place.file, file));
        let Ok(lengths) = lengths.collect::<Result<Vec<u64>, _>>() else {
            return;
        };
        let length = lengths.iter().fold(0, |sum: u64, &l| sum.saturating_add(l));
        if length == 0 {
            let text = format!("[{id}] has no bytes");
            self.advice(&buffer.place, "3.3.2", text);
        } else if buffer.format == BufferFormat::Coresight && length % 16 != 0 {
            let text = format!("[{id}] {length} bytes are not whole frames of 16");
            self.advice(&buffer.place, "3.3.2", text);
        }
    }

    fn core_sources(&mut self, trace: &Trace) {
        const SECTION: &str = "3.3.3";
        let mut core_of: HashMap<usize, usize> = HashMap::new();
        for line in &trace.core_sources {
            let core = self.named(&line.core, &line.place, SECTION, "core");
            match core.map(|index| &self.snapshot.devices[index].class) {
                Some(DeviceClass::Core) => {}
                Some(_) => {
                    let text = format!("{} is not a core", line.core);
                    self.wrong(Need::RequiredForTrace, &line.place, SECTION, text);
                }
                None => {
                    let text = format!("there is no core {}", line.core);
                    self.wrong(Need::RequiredForTrace, &line.place, SECTION, text);
                }
            }
            let source = match line.source.starts_with('@') {
                true => self.names.source(&line.source),
                false => self.named(&line.source, &line.place, SECTION, "trace source"),
            };
            let Some(source) = source else {
                let text = format!("there is no trace source {}", line.source);
                self.wrong(Need::RequiredForTrace, &line.place, SECTION, text);
                continue;
            };
            if self.snapshot.devices[source].class != DeviceClass::TraceSource {
                let text = format!("{} is not a trace source", line.source);
                self.wrong(Need::RequiredForTrace, &line.place, SECTION, text);
            }
            if let Some(core) = core
                && *core_of.entry(source).or_insert(core) != core
            {
                let text = format!("{} traces another core too: the first is used", line.source);
                self.wrong(Need::RequiredForTrace, &line.place, SECTION, text);
            }
        }
    }

    fn source_buffers(&mut self, trace: &Trace) {
        const SECTION: &str = "3.3.4";
        let lines = trace.source_buffers.as_deref().unwrap_or(&[]);
        if lines.is_empty() && trace.buffers.len() > 1 {
            let text = "no [source_buffers], but several trace buffers".into();
            self.wrong(Need::RequiredForTrace, &trace.place, SECTION, text);
        }
        let (names, ids) = (trace.buffer_names(), trace.buffer_ids());
        for line in lines {
            if self
                .named(&line.source, &line.place, SECTION, "trace source")
                .is_none()
            {
                let text = format!("there is no trace source {}", line.source);
                self.wrong(Need::RequiredForTrace, &line.place, SECTION, text);
            }
            for name in &line.buffers {
                match names.find(name) {
                    Some(index) if trace.buffers[index].name == *name => {}
                    Some(index) => {
                        let found = &trace.buffers[index].name;
                        let text = format!("buffer {name} is {found} where it is defined");
                        self.advice(&line.place, SECTION, text);
                    }
                    None if ids.find(name).is_some() => {
                        let text = format!("{name} is a buffer's ID: expected its name");
                        self.advice(&line.place, SECTION, text);
                    }
                    None => {
                        let text = format!("there is no trace buffer {name}");
                        self.wrong(Need::RequiredForTrace, &line.place, SECTION, text);
                    }
                }
            }
        }
    }

    /// Checks that each trace source is in a buffer and has a core, and reports what [`Capture`] leaves
    /// out.
    fn joins(&mut self, trace: &Trace) {
        let snapshot = self.snapshot;
        let sources = topology::sources(snapshot);
        let joined: HashSet<usize> = sources.iter().map(|source| source.device).collect();
        let explicit: HashSet<usize> = trace
            .core_sources
            .iter()
            .filter_map(|line| self.names.source(&line.source))
            .collect();
        for (index, device) in snapshot.devices.iter().enumerate() {
            if device.class != DeviceClass::TraceSource {
                continue;
            }
            if !joined.contains(&index) {
                let text = format!("{} is in no trace buffer", device.name);
                self.advice(&device.place, "3.3.4", text);
            } else if Protocol::of(device).is_some_and(Protocol::needs_core)
                && !explicit.contains(&index)
            {
                let text = format!("no core is given for {}", device.name);
                self.wrong(Need::RequiredForTrace, &trace.place, "3.3.3", text);
            }
        }
        let (capture, _) = Capture::open(self.loaded);
        for buffer in &capture.buffers {
            for source in &buffer.sources {
                let device = &snapshot.devices[source.device];
                let id = source.trace_id;
                if buffer.frames.is_some()
                    && registers::trace_id(device).is_some()
                    && (id.0 == 0 || id.0 >= 0x70)
                {
                    let text = format!("{}: trace ID {:#x} is reserved", device.name, id.0);
                    self.advice(&device.place, "4.2", text);
                }
            }
            for left in &buffer.left_out {
                self.left_out(trace, buffer.index, left);
            }
        }
    }

    fn left_out(&mut self, trace: &Trace, buffer: usize, left: &LeftOut) {
        let (device, buffer) = (&self.snapshot.devices[left.device], &trace.buffers[buffer]);
        match &left.reason {
            Reason::DuplicateId { id, first } if registers::trace_id(device).is_some() => {
                let text = format!(
                    "{}: trace ID {:#x} is that of {first} in the same buffer",
                    device.name, id.0
                );
                self.wrong(Need::RequiredForTrace, &device.place, "4.2", text);
            }
            Reason::Unformatted { decoded } => {
                let text = format!(
                    "{decoded} and {} are in [{}], which has one source only",
                    device.name, buffer.id
                );
                self.wrong(Need::RequiredForTrace, &buffer.place, "3.3.2", text);
            }
            _ => {}
        }
    }
}
