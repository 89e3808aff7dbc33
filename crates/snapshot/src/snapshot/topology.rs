//! The topology of a snapshot: the buffer and the core of each trace source (sections 3.3.3 and
//! 3.3.4).
//!
//! Names are compared exactly and then ignoring case, as the specification's own example requires
//! (3.3.5). [`crate::capture`] interprets the trace protocols.

use super::model::{Device, DeviceClass, Note, Severity, Snapshot, Trace};
use std::collections::{HashMap, HashSet};

/// A trace source in one trace buffer, according to the metadata.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlacedSource {
    /// Index in [`Snapshot::devices`].
    pub device: usize,
    /// Index in [`Trace::buffers`].
    pub buffer: usize,
    /// `N` of `(stream:N)`: the trace ID is that of the source plus this number.
    pub stream: Option<u32>,
    /// Index of the core that it traces, if `[core_trace_sources]` names an existing one.
    pub core: Option<usize>,
    /// Whether `[core_trace_sources]` names a core for it, existing or not.
    pub core_written: bool,
}

/// An index of names, looked up exactly or else ignoring case. The first of equal names is found.
#[derive(Clone, Debug, Default)]
pub struct Names<'a> {
    exact: HashMap<&'a str, usize>,
    folded: HashMap<String, usize>,
}

impl<'a> Names<'a> {
    /// Collects names in order of their indices.
    pub fn new(names: impl Iterator<Item = &'a str>) -> Self {
        let mut out = Self::default();
        for (index, name) in names.enumerate() {
            out.exact.entry(name).or_insert(index);
            let folded = out.folded.entry(name.to_ascii_lowercase());
            folded.or_insert(index);
        }
        out
    }

    /// Returns the index of a name.
    pub fn find(&self, name: &str) -> Option<usize> {
        let exact = self.exact.get(name);
        exact
            .or_else(|| self.folded.get(&name.to_ascii_lowercase()))
            .copied()
    }
}

impl Trace {
    /// Returns the names of the buffers.
    pub fn buffer_names(&self) -> Names<'_> {
        Names::new(self.buffers.iter().map(|buffer| buffer.name.as_str()))
    }

    /// Returns the IDs of the buffers, which some writers use instead of names.
    pub fn buffer_ids(&self) -> Names<'_> {
        Names::new(self.buffers.iter().map(|buffer| buffer.id.as_str()))
    }
}

impl Snapshot {
    /// Returns the devices, by the names that other parts of the snapshot use for them.
    pub fn device_names(&self) -> DeviceNames<'_> {
        let mut locations = HashMap::new();
        for (index, device) in self.devices.iter().enumerate() {
            if let Some(written) = &device.location {
                locations.entry(location(written)).or_insert(index);
            }
        }
        DeviceNames {
            names: Names::new(self.devices.iter().map(|device| device.name.as_str())),
            locations,
        }
    }
}

/// The indices of devices, by name and by location. The first of several equal names or locations
/// is found.
#[derive(Clone, Debug)]
pub struct DeviceNames<'a> {
    names: Names<'a>,
    locations: HashMap<Location, usize>,
}

impl DeviceNames<'_> {
    /// Returns the index of the device with this name.
    pub fn find(&self, name: &str) -> Option<usize> {
        self.names.find(name)
    }

    /// Returns the index of the trace source that `[core_trace_sources]` gives as its name, or as
    /// `@` and its location.
    pub fn source(&self, written: &str) -> Option<usize> {
        match written.strip_prefix('@') {
            Some(written) => self.locations.get(&location(written)).copied(),
            None => self.find(written),
        }
    }
}

/// The parts of a location: keys and values.
type Location = Vec<(String, String)>;

/// Reads a location. Equal locations may be written in different ways: `address:0x1000` is
/// `address:0X00001000`.
fn location(written: &str) -> Location {
    let parts = written.split(',').map(|part| {
        let (key, value) = part.split_once(':').unwrap_or(("", part));
        let value = match super::registers::parse_u64(value) {
            Some(number) => number.to_string(),
            None => value.trim().to_ascii_lowercase(),
        };
        (key.trim().to_ascii_lowercase(), value)
    });
    parts.collect()
}

/// Returns the only core of a snapshot; `None` if there is not exactly one.
pub fn only_core(snapshot: &Snapshot) -> Option<usize> {
    let devices = snapshot.devices.iter().enumerate();
    let mut cores = devices.filter(|(_, device)| device.class == DeviceClass::Core);
    let (only, _) = cores.next()?;
    cores.next().is_none().then_some(only)
}

/// Returns the trace sources in the order of buffers; within a buffer, in the order of
/// `[source_buffers]` or, without that section, of the device list. A source with data in several
/// buffers appears once for each of them.
pub fn sources(snapshot: &Snapshot) -> Vec<PlacedSource> {
    let Some(trace) = &snapshot.trace else {
        return Vec::new();
    };
    let lines = trace.source_buffers.as_deref().unwrap_or(&[]);
    let (names, ids) = (trace.buffer_names(), trace.buffer_ids());
    let devices = snapshot.device_names();
    let mut found: Vec<(usize, usize, Option<u32>)> = Vec::new();
    for line in lines {
        let Some(device) = devices.find(&line.source) else {
            continue;
        };
        for name in &line.buffers {
            if let Some(buffer) = names.find(name).or_else(|| ids.find(name)) {
                found.push((buffer, device, line.stream));
            }
        }
    }
    if is_unplaced(trace) {
        found.extend(trace_sources(snapshot).map(|device| (0, device, None)));
    }
    // The sort is stable: lines of one buffer keep their order.
    found.sort_by_key(|&(buffer, _, _)| buffer);
    let mut seen = HashSet::new();
    found.retain(|entry| seen.insert(*entry));

    let mut core_of: HashMap<usize, Option<usize>> = HashMap::new();
    for line in &trace.core_sources {
        if let Some(source) = devices.source(&line.source) {
            let named = devices.find(&line.core);
            let first = core_of.entry(source).or_default();
            *first = first.or(named.filter(|&device| may_be_core(&snapshot.devices[device])));
        }
    }
    let placed = found
        .into_iter()
        .map(|(buffer, device, stream)| PlacedSource {
            device,
            buffer,
            stream,
            core: core_of.get(&device).copied().flatten(),
            core_written: core_of.contains_key(&device),
        });
    placed.collect()
}

/// Returns a note on the assumptions made by [`sources`].
pub fn assumed(snapshot: &Snapshot) -> Option<Note> {
    let trace = snapshot.trace.as_ref()?;
    (is_unplaced(trace) && trace_sources(snapshot).nth(1).is_some()).then(|| Note {
        place: trace.place.clone(),
        severity: Severity::Warning,
        section: "3.3.4",
        text: "no [source_buffers]: all trace sources are taken to be in the one buffer".into(),
    })
}

/// Whether a device that `[core_trace_sources]` names as a core may be one, even if its class is
/// missing.
fn may_be_core(device: &Device) -> bool {
    !matches!(
        device.class,
        DeviceClass::TraceSource | DeviceClass::MemorySpace
    )
}

/// Whether the metadata fails to name the sources of the only buffer.
fn is_unplaced(trace: &Trace) -> bool {
    let lines = trace.source_buffers.as_deref().unwrap_or(&[]);
    lines.is_empty() && trace.buffers.len() == 1
}

fn trace_sources(snapshot: &Snapshot) -> impl Iterator<Item = usize> + '_ {
    let devices = snapshot.devices.iter().enumerate();
    devices
        .filter(|(_, device)| device.class == DeviceClass::TraceSource)
        .map(|(index, _)| index)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::snapshot::OpenSnapshot;
    use crate::snapshot::files::InMemory;
    use std::sync::Arc;

    fn load(trace: &str, devices: &[&str]) -> OpenSnapshot {
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
        OpenSnapshot::from_files(Arc::new(files), "snapshot.ini").unwrap()
    }

    const TWO: &str = "[trace_buffers]\nbuffers=buffer2,buffer1,\n\
        [buffer1]\nname=ETB_1\nfile=a.bin\nformat=source_data\n\
        [buffer2]\nname=ETB_2\nfile=a.bin, b.bin\nformat=coresight\n";

    fn rows(loaded: &OpenSnapshot) -> Vec<(&str, usize, Option<usize>, Option<u32>)> {
        let devices = &loaded.snapshot.devices;
        sources(&loaded.snapshot)
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
        let parts = loaded.buffer_parts(0).unwrap();
        assert_eq!(parts.iter().map(|p| p.len()).collect::<Vec<_>>(), [2, 1]);
        assert!(loaded.buffer_parts(2).is_err());
        assert!(loaded.notes.is_empty(), "{:?}", loaded.notes);
    }

    #[test]
    fn one_buffer_needs_no_source_list() {
        let one = "[trace_buffers]\nbuffers=b\n[b]\nname=B\nfile=a.bin\nformat=coresight\n";
        let loaded = load(
            one,
            &[
                "name=cpu\nclass=core",
                "name=P\nclass=trace_source\ntype=PFT1.1",
                "name=I\nclass=trace_source\ntype=ITM",
            ],
        );
        assert_eq!(rows(&loaded), [("P", 0, None, None), ("I", 0, None, None)]);
        assert_eq!(only_core(&loaded.snapshot), Some(0));
        let notes: Vec<String> = loaded.notes.iter().map(Note::to_string).collect();
        assert_eq!(notes.len(), 1, "{notes:?}");
        assert!(notes[0].starts_with("t.ini:1: no [source_buffers]"));
    }

    #[test]
    fn a_missing_core_is_not_assigned() {
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
    fn only_cores_are_assigned() {
        let loaded = load(
            &format!(
                "{TWO}[source_buffers]\nP=ETB_1\n[core_trace_sources]\nother=P\nI=P\ncpu=P\n\
                 second=P"
            ),
            &[
                "name=I\nclass=trace_source\ntype=ITM",
                "name=P\nclass=trace_source\ntype=PTM1.0",
                "name=cpu\nclass=core",
                "name=second\nclass=core",
            ],
        );
        assert_eq!(rows(&loaded), [("P", 1, Some(2), None)]);
    }
}
