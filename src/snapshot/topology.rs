//! The joins of a snapshot: which trace source is in which buffer, and traces which core
//! (sections 3.3.3 and 3.3.4).
//!
//! Names are compared exactly and then ignoring case, as the specification's own example needs
//! (3.3.5). Knows the names of trace protocols, not how they are decoded.

use super::map::Mapped;
use super::model::{Device, DeviceClass, Note, Place, Severity, Snapshot, Trace};
use super::paths::PathError;
use super::read::{Error, Loaded};
use std::collections::{HashMap, HashSet};

/// A trace protocol.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Protocol {
    /// ETM architecture 1 to 3.
    Etmv3,
    /// Program flow trace (PTM).
    Ptm,
    /// ETM architecture 4.
    Etmv4,
    /// Embedded trace extension.
    Ete,
    /// Instrumentation trace macrocell, with the DWT's packets.
    Itm,
    /// System trace macrocell.
    Stm,
    /// None of these.
    #[default]
    Unknown,
}

impl Protocol {
    /// The protocol of a trace source, from its `type` (`PFT1.1`, `ETM4.2`, `ete`), or from its
    /// registers where an ETM has no version.
    pub fn of(device: &Device) -> Self {
        let kind = device.kind.trim().to_ascii_uppercase();
        if kind.starts_with("ETE") {
            return Self::Ete;
        }
        if kind.starts_with("PTM") || kind.starts_with("PFT") {
            return Self::Ptm;
        }
        if kind.starts_with("ITM") {
            return Self::Itm;
        }
        if kind.starts_with("STM") {
            return Self::Stm;
        }
        let Some(version) = kind.strip_prefix("ETM") else {
            return Self::Unknown;
        };
        match version
            .trim_start_matches(['V', '-', '_', ' '])
            .bytes()
            .next()
        {
            Some(b'4') => Self::Etmv4,
            Some(b'1'..=b'3') => Self::Etmv3,
            _ if device.register("TRCCONFIGR").is_some() => Self::Etmv4,
            _ if device.register("ETMCR").is_some() => Self::Etmv3,
            _ => Self::Unknown,
        }
    }

    /// Those whose trace is decoded with the code of a core.
    pub const FOLLOWING: [Self; 4] = [Self::Etmv3, Self::Ptm, Self::Etmv4, Self::Ete];

    /// Its name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Etmv3 => "ETMv3",
            Self::Ptm => "PTM",
            Self::Etmv4 => "ETMv4",
            Self::Ete => "ETE",
            Self::Itm => "ITM",
            Self::Stm => "STM",
            Self::Unknown => "unknown",
        }
    }

    /// Whether its trace is decoded with the code of a core.
    pub const fn needs_core(self) -> bool {
        match self {
            Self::Etmv3 | Self::Ptm | Self::Etmv4 | Self::Ete => true,
            Self::Itm | Self::Stm | Self::Unknown => false,
        }
    }
}

/// A trace source in one trace buffer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TraceSource {
    /// Index in [`Snapshot::devices`].
    pub device: usize,
    /// The device's name.
    pub name: String,
    /// Its protocol.
    pub protocol: Protocol,
    /// Index of the core that it traces.
    pub core: Option<usize>,
    /// Index in [`super::model::Trace::buffers`].
    pub buffer: usize,
    /// `N` of `(stream:N)`: the trace ID is the source's plus this.
    pub stream: Option<u32>,
}

/// Names to find exactly or, failing that, ignoring case. The first of equal names is found.
#[derive(Clone, Debug, Default)]
pub struct Names<'a> {
    exact: HashMap<&'a str, usize>,
    folded: HashMap<String, usize>,
}

impl<'a> Names<'a> {
    /// Takes names in order of their indices.
    pub fn new(names: impl Iterator<Item = &'a str>) -> Self {
        let mut out = Self::default();
        for (index, name) in names.enumerate() {
            out.exact.entry(name).or_insert(index);
            let folded = out.folded.entry(name.to_ascii_lowercase());
            folded.or_insert(index);
        }
        out
    }

    /// The index of a name.
    pub fn find(&self, name: &str) -> Option<usize> {
        let exact = self.exact.get(name);
        exact
            .or_else(|| self.folded.get(&name.to_ascii_lowercase()))
            .copied()
    }
}

impl Trace {
    /// The names of the buffers.
    pub fn buffer_names(&self) -> Names<'_> {
        Names::new(self.buffers.iter().map(|buffer| buffer.name.as_str()))
    }

    /// The IDs of the buffers, which some writers give in place of names.
    pub fn buffer_ids(&self) -> Names<'_> {
        Names::new(self.buffers.iter().map(|buffer| buffer.id.as_str()))
    }
}

impl Snapshot {
    /// The index of the device of that name.
    pub fn device_named(&self, name: &str) -> Option<usize> {
        let devices = &self.devices;
        let exact = devices.iter().position(|d| d.name == name);
        let folded = || {
            let mut devices = devices.iter();
            devices.position(|d| d.name.eq_ignore_ascii_case(name))
        };
        exact.or_else(folded)
    }

    /// The index of the trace source that `[core_trace_sources]` writes: its name, or `@` and
    /// its location.
    pub fn source_written(&self, written: &str) -> Option<usize> {
        match written.strip_prefix('@') {
            Some(location) => {
                let same = |device: &Device| {
                    let mine = device.location.as_deref();
                    mine.is_some_and(|mine| same_location(mine, location))
                };
                self.devices.iter().position(same)
            }
            None => self.device_named(written),
        }
    }
}

/// Whether two locations have the same parts: `address:0x1000` is `address:0X00001000`.
fn same_location(a: &str, b: &str) -> bool {
    let parts = |text: &str| -> Vec<(String, String)> {
        text.split(',')
            .map(|part| {
                let (key, value) = part.split_once(':').unwrap_or(("", part));
                let value = match super::registers::parse_u64(value) {
                    Some(number) => number.to_string(),
                    None => value.trim().to_ascii_lowercase(),
                };
                (key.trim().to_ascii_lowercase(), value)
            })
            .collect()
    };
    parts(a) == parts(b)
}

/// The trace sources in order of buffers; within a buffer, in order of `[source_buffers]` or,
/// without that section, of the device list. A source whose data are in several buffers comes
/// once for each.
pub fn sources(loaded: &Loaded) -> Vec<TraceSource> {
    resolve(&loaded.snapshot).0
}

/// [`sources`], and what had to be assumed.
pub fn resolve(snapshot: &Snapshot) -> (Vec<TraceSource>, Vec<Note>) {
    let (mut out, mut notes) = (Vec::new(), Vec::new());
    let Some(trace) = &snapshot.trace else {
        return (out, notes);
    };
    let mut note = |place: &Place, section: &'static str, text: String| {
        notes.push(Note {
            place: place.clone(),
            severity: Severity::Warning,
            section,
            text,
        });
    };
    let lines = trace.source_buffers.as_deref().unwrap_or(&[]);
    let (names, ids) = (trace.buffer_names(), trace.buffer_ids());
    let mut found: Vec<(usize, usize, Option<u32>)> = Vec::new();
    for line in lines {
        let Some(device) = snapshot.device_named(&line.source) else {
            continue;
        };
        for name in &line.buffers {
            if let Some(buffer) = names.find(name).or_else(|| ids.find(name)) {
                found.push((buffer, device, line.stream));
            }
        }
    }
    let all = snapshot.devices.iter().enumerate();
    let all = all.filter(|(_, device)| device.class == DeviceClass::TraceSource);
    if lines.is_empty() && trace.buffers.len() == 1 {
        found.extend(all.map(|(device, _)| (0, device, None)));
        if found.len() > 1 {
            let text = "no [source_buffers]: all trace sources are taken to be in the one buffer";
            note(&trace.place, "3.3.4", text.into());
        }
    }
    // Stable: lines of one buffer keep their order.
    found.sort_by_key(|&(buffer, _, _)| buffer);
    let mut seen = HashSet::new();
    found.retain(|entry| seen.insert(*entry));

    let cores: Vec<usize> = snapshot
        .devices
        .iter()
        .enumerate()
        .filter(|(_, device)| device.class == DeviceClass::Core)
        .map(|(index, _)| index)
        .collect();
    let mut core_of: HashMap<usize, Option<usize>> = HashMap::new();
    for line in &trace.core_sources {
        if let Some(source) = snapshot.source_written(&line.source) {
            let first = core_of.entry(source);
            first.or_insert_with(|| snapshot.device_named(&line.core));
        }
    }
    let mut assumed = HashSet::new();
    for (buffer, index, stream) in found {
        let device = &snapshot.devices[index];
        let protocol = Protocol::of(device);
        let core = match core_of.get(&index) {
            Some(core) => *core,
            None if protocol.needs_core() && cores.len() == 1 => {
                if assumed.insert(index) {
                    let core = &snapshot.devices[cores[0]].name;
                    let text = format!(
                        "{}: no core is given for it: taken to trace {core}, the only one",
                        device.name
                    );
                    note(&trace.place, "3.3.3", text);
                }
                Some(cores[0])
            }
            None => None,
        };
        out.push(TraceSource {
            device: index,
            name: device.name.clone(),
            protocol,
            core,
            buffer,
            stream,
        });
    }
    (out, notes)
}

/// The files of the trace buffer `index`, in order. The buffer's data are their concatenation
/// (3.3.2).
pub fn buffer_parts(loaded: &Loaded, index: usize) -> Result<Vec<Mapped>, Error> {
    let trace = loaded.snapshot.trace.as_ref();
    let Some((trace, buffer)) = trace.and_then(|t| Some((t, t.buffers.get(index)?))) else {
        return Err(Error {
            place: Place {
                file: loaded.entry.clone().into(),
                line: 0,
            },
            text: format!("there is no trace buffer {index}"),
        });
    };
    let open = |file: &String| {
        let bytes = loaded.file(&trace.place.file, file);
        bytes.map_err(|problem: PathError| Error {
            place: buffer.place.clone(),
            text: format!(
                "[{}] file {}: {problem}",
                buffer.id,
                super::ini::quote(file)
            ),
        })
    };
    buffer.files.iter().map(open).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::snapshot::files::InMemory;
    use std::sync::Arc;

    fn load(trace: &str, devices: &[&str]) -> Loaded {
        let mut files = InMemory::default();
        let mut list =
            String::from("[snapshot]\nversion=1.0\n[trace]\nmetadata=t.ini\n[device_list]\n");
        for (index, device) in devices.iter().enumerate() {
            list += &format!("d{index}=d{index}.ini\n");
            files.0.insert(
                format!("d{index}.ini"),
                format!("[device]\n{device}\n").into_bytes().into(),
            );
        }
        files
            .0
            .insert("snapshot.ini".into(), list.into_bytes().into());
        files
            .0
            .insert("t.ini".into(), trace.as_bytes().to_vec().into());
        files.0.insert("a.bin".into(), vec![1, 2].into());
        files.0.insert("b.bin".into(), vec![3].into());
        Loaded::from_files(Arc::new(files), "snapshot.ini").unwrap()
    }

    const TWO: &str = "[trace_buffers]\nbuffers=buffer2,buffer1,\n\
        [buffer1]\nname=ETB_1\nfile=a.bin\nformat=source_data\n\
        [buffer2]\nname=ETB_2\nfile=a.bin, b.bin\nformat=coresight\n";

    fn rows(loaded: &Loaded) -> Vec<(&str, usize, Option<usize>, Option<u32>)> {
        let devices = &loaded.snapshot.devices;
        sources(loaded)
            .into_iter()
            .map(|s| (devices[s.device].name.as_str(), s.buffer, s.core, s.stream))
            .collect()
    }

    #[test]
    fn order_case_streams_sessions_and_several_buffers() {
        let loaded = load(
            &format!(
                "{TWO}[source_buffers]\netm_0=ETB_1\nETM_1(stream:1)=ETB_1\nETM_1=etb_2,ETB_1\n\
                 [core_trace_sources]\nCPU=ETM_0\nCPU=@address:0x10"
            ),
            &[
                "name=cpu\nclass=core",
                "name=ETM_0\nclass=trace_source\ntype=ETM4.2",
                "name=ETM_1\nclass=trace_source\ntype=etm3.5\nlocation=address:0x0010",
            ],
        );
        assert_eq!(
            rows(&loaded),
            [
                ("ETM_1", 0, Some(0), None),
                ("ETM_0", 1, Some(0), None),
                ("ETM_1", 1, Some(0), Some(1)),
                ("ETM_1", 1, Some(0), None),
            ]
        );
        let parts = buffer_parts(&loaded, 0).unwrap();
        assert_eq!(parts.iter().map(|p| p.len()).collect::<Vec<_>>(), [2, 1]);
        assert!(buffer_parts(&loaded, 2).is_err());
        assert!(loaded.notes.is_empty(), "{:?}", loaded.notes);
    }

    #[test]
    fn one_buffer_and_one_core_need_no_words() {
        let one = "[trace_buffers]\nbuffers=b\n[b]\nname=B\nfile=a.bin\nformat=coresight\n";
        let loaded = load(
            one,
            &[
                "name=cpu\nclass=core",
                "name=P\nclass=trace_source\ntype=PFT1.1",
                "name=I\nclass=trace_source\ntype=ITM",
            ],
        );
        assert_eq!(
            rows(&loaded),
            [("P", 0, Some(0), None), ("I", 0, None, None)]
        );
        let notes: Vec<String> = loaded.notes.iter().map(Note::to_string).collect();
        assert_eq!(notes.len(), 2, "{notes:?}");
        assert!(notes[1].starts_with("t.ini:1: P: no core is given"));
    }

    #[test]
    fn a_core_that_is_not_there_is_none() {
        let loaded = load(
            &format!("{TWO}[source_buffers]\nP=ETB_1\n[core_trace_sources]\nother=P"),
            &[
                "name=cpu\nclass=core",
                "name=P\nclass=trace_source\ntype=PTM1.0",
            ],
        );
        assert_eq!(rows(&loaded), [("P", 1, None, None)]);
    }

    #[test]
    fn protocols_from_types() {
        let of = |kind: &str| {
            Protocol::of(&Device {
                kind: kind.into(),
                ..Device::default()
            })
        };
        for (kind, protocol) in [
            ("PFT1.1", Protocol::Ptm),
            ("PTM1.0", Protocol::Ptm),
            ("ETM3.5", Protocol::Etmv3),
            ("ETM4", Protocol::Etmv4),
            ("etm4.2", Protocol::Etmv4),
            ("ETMv4.5", Protocol::Etmv4),
            ("ETE", Protocol::Ete),
            ("ete1.2", Protocol::Ete),
            ("ITM", Protocol::Itm),
            ("stm-500", Protocol::Stm),
            ("ETM", Protocol::Unknown),
            ("Cortex-A53", Protocol::Unknown),
            ("", Protocol::Unknown),
        ] {
            assert_eq!(of(kind), protocol, "{kind}");
        }
    }
}
