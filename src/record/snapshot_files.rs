//! The files of a recorded snapshot: devices, trace metadata, memory and trace.
//!
//! Writes the snapshot format, independent of where the state came from.

use super::note::Note;
use super::protocol::{Timestamps, TraceOptions};
use super::replay_file::Start;
use super::tracing::Summary;
use armsnap_arch::arch::Space;
use armsnap_snapshot::linux::module_names;
use armsnap_snapshot::mapped::Mapped;
use armsnap_snapshot::snapshot::changed::{self, Carrier, Changed};
use armsnap_snapshot::snapshot::core_files;
use armsnap_snapshot::snapshot::libraries::LIBRARIES;
use armsnap_snapshot::snapshot::model::{
    Buffer, BufferFormat, Cluster, CoreSource, Device, DeviceClass, Dump, OtherSection, Register,
    Snapshot, SourceBuffers, Trace,
};
use armsnap_snapshot::snapshot::program;
use armsnap_snapshot::snapshot::recording::Recording;
use armsnap_snapshot::snapshot::replay::Inputs;
use armsnap_snapshot::snapshot::signals::Signal;
use armsnap_snapshot::snapshot::write::{self, WriteError};
use armsnap_trace::data_addresses::Addresses;
use armsnap_trace::protocol;
use object::{Object, ObjectSegment};
use std::collections::BTreeMap;
use std::ops::Range;
use std::path::Path;

/// The state of a core at the end of the recording.
#[derive(Clone, Debug, Default)]
pub struct RecordedCore {
    /// Its name.
    pub name: String,
    /// Its type (`Cortex-A57`).
    pub kind: String,
    /// Its registers.
    pub registers: Vec<Register>,
    /// Its number in the recording, if it executed an instruction.
    pub number: Option<u32>,
    /// The signal that ended the program in this core: Linux's number.
    pub signal: Option<u32>,
}

/// A region of memory.
#[derive(Clone, Debug)]
pub struct SavedRegion {
    /// Its first address.
    pub address: u64,
    /// Its bytes.
    pub bytes: Mapped,
}

impl SavedRegion {
    /// Returns its addresses.
    pub fn range(&self) -> Range<u64> {
        self.address..self.address.saturating_add(self.bytes.len() as u64)
    }
}

/// Returns the memory of a program that the program cannot change: its segments without write
/// access.
pub fn read_only(program: &[u8], moved: u64) -> Vec<SavedRegion> {
    let Ok(file) = object::File::parse(program) else {
        return Vec::new();
    };
    let segments = file.segments().filter(|segment| {
        matches!(segment.flags(), object::SegmentFlags::Elf { p_flags, .. }
            if p_flags.0 & object::elf::PF_W.0 == 0)
    });
    let regions = segments.filter_map(|segment| {
        let bytes = segment.data().ok().filter(|bytes| !bytes.is_empty())?;
        Some(SavedRegion {
            address: segment.address().wrapping_add(moved),
            bytes: bytes.to_vec().into(),
        })
    });
    regions.collect()
}

/// Pieces of physical memory in one file, one after another.
#[derive(Clone, Debug)]
pub struct Ram {
    /// The bytes of all pieces.
    pub bytes: Mapped,
    /// The addresses of each piece.
    pub pieces: Vec<Range<u64>>,
}

impl Ram {
    /// Returns the pieces: their addresses and bytes.
    pub fn pieces(&self) -> Vec<(u64, &[u8])> {
        let mut rest = &*self.bytes;
        let pieces = self.pieces.iter().map_while(|piece| {
            let length = usize::try_from(piece.end - piece.start).ok()?;
            let bytes;
            (bytes, rest) = rest.split_at_checked(length)?;
            Some((piece.start, bytes))
        });
        pieces.collect()
    }

    fn dumps(&self) -> impl Iterator<Item = Dump> {
        let mut offset = 0;
        self.pieces.iter().zip(1..).map(move |(piece, number)| {
            let length = piece.end - piece.start;
            let at = offset;
            offset += length;
            Dump {
                section: format!("dump{number}"),
                file: RAM.to_owned(),
                space: Some(Space::P.name().to_owned()),
                address: piece.start,
                length: Some(length),
                offset: Some(at),
                ..Dump::default()
            }
        })
    }
}

/// Removes the largest ranges until the remaining ones have at most `most` bytes. Returns a note
/// that names the removed ranges.
pub fn fit(ranges: &mut Vec<Range<u64>>, most: u64) -> Option<Note> {
    let length = |range: &Range<u64>| range.end.saturating_sub(range.start);
    ranges.sort_by_key(length);
    let mut sum = 0_u64;
    let fitting = ranges.iter().take_while(|range| {
        sum = sum.saturating_add(length(range));
        sum <= most
    });
    let without = ranges.split_off(fitting.count());
    ranges.sort_by_key(|range| range.start);
    let bytes = without.iter().map(length).fold(0, u64::saturating_add);
    (!without.is_empty()).then(|| Note::MemoryLimit {
        bytes,
        ranges: without.into_iter().rev().collect(),
        limit: most,
    })
}

/// The contents of a recorded snapshot.
#[derive(Clone, Debug, Default)]
pub struct Contents {
    /// The description in snapshot.ini.
    pub description: String,
    /// The cores.
    pub cores: Vec<RecordedCore>,
    /// The memory of all cores.
    pub memory: Vec<SavedRegion>,
    /// The physical memory of a system.
    pub ram: Option<Ram>,
    /// The program: file name, contents, and load bias.
    pub program: Option<(String, Mapped, u64)>,
    /// Whether the program provides names only, and no memory.
    pub names_only: bool,
    /// The names of a kernel's modules: an ELF file.
    pub module_names: Option<Mapped>,
    /// The address at which a Linux kernel runs: that of `_text`.
    pub kernel: Option<u64>,
    /// The libraries that the program loaded: `DT_SONAME` or file name, and contents.
    pub libraries: Vec<(String, Mapped)>,
    /// The trace buffer.
    pub trace: Option<Mapped>,
    /// The data addresses of cores: the name of each core, and its file.
    pub data_addresses: Vec<(String, Mapped)>,
    /// The state of a Linux program at its start.
    pub start: Start,
    /// What the program started with and what entered it: the names of its cores, by number, and the file.
    pub replay: Option<(Vec<String>, Mapped)>,
    /// Code that changed during the recording.
    pub changed: Changed,
    /// The section `[recording]`.
    pub recording: Recording,
}

const BUFFER: &str = "ETB_0";
const TRACE: &str = "trace.bin";
const RAM: &str = "ram.bin";
const REPLAY: &str = "replay.bin";

impl Contents {
    /// Returns the snapshot's files, by path.
    pub fn files(
        &self,
        options: &TraceOptions,
        etm: protocol::Core,
        summary: &Summary,
    ) -> Result<BTreeMap<String, Mapped>, WriteError> {
        let options = TraceOptions {
            timestamps: match summary.timestamps {
                true => Timestamps::Always,
                false => Timestamps::Never,
            },
            ..*options
        };
        let snapshot = self.snapshot(&options, etm, summary);
        let mut files = write::texts(&snapshot)?;
        for region in &self.memory {
            files.insert(file_of(region), region.bytes.clone());
        }
        if let Some(ram) = &self.ram {
            files.insert(RAM.to_owned(), ram.bytes.clone());
        }
        if let Some((name, bytes, _)) = &self.program {
            let name = program_name(name);
            files.insert(name, bytes.clone());
        }
        if let Some(bytes) = &self.module_names {
            files.insert(module_names::FILE.to_owned(), bytes.clone());
        }
        for (name, bytes) in &self.libraries {
            if let Some(path) = library(name) {
                files.entry(path).or_insert_with(|| bytes.clone());
            }
        }
        if let Some(trace) = &self.trace {
            files.insert(TRACE.to_owned(), trace.clone());
        }
        for (index, (_, bytes)) in self.data_addresses.iter().enumerate() {
            files.insert(addresses_file(index), bytes.clone());
        }
        if let Some((_, bytes)) = &self.replay {
            files.insert(REPLAY.to_owned(), bytes.clone());
        }
        if !self.changed.is_empty() {
            let text = self.changed.write();
            files.insert(changed::FILE.to_owned(), text.into_bytes().into());
        }
        Ok(files)
    }

    /// Returns a function that reads the halfword at an address from the saved memory or, where
    /// none is saved, from the program.
    pub fn halves(&self) -> impl Fn(u64) -> Option<u16> {
        let of_memory = self.memory.iter();
        let mut pieces: Vec<(u64, &[u8])> = of_memory
            .map(|region| (region.address, &*region.bytes))
            .collect();
        pieces.sort_by_key(|piece| piece.0);
        let program = self.program.as_ref().filter(|_| !self.names_only);
        let program = program.map(|(_, bytes, moved)| {
            let file = object::File::parse(&**bytes).ok();
            (file, *moved)
        });
        move |address| {
            let after = pieces.partition_point(|piece| piece.0 <= address);
            let piece = after.checked_sub(1).map(|before| pieces[before]);
            let half = piece.and_then(|(begin, bytes)| {
                let offset = usize::try_from(address - begin).ok()?;
                bytes.get(offset..)?.first_chunk().copied()
            });
            let in_program = || {
                let (file, moved) = program.as_ref()?;
                let address = address.wrapping_sub(*moved);
                let mut segments = file.as_ref()?.segments();
                let found = segments.find_map(|s| s.data_range(address, 2).ok().flatten())?;
                found.first_chunk().copied()
            };
            half.or_else(in_program).map(u16::from_le_bytes)
        }
    }

    fn addresses_section(&self) -> Option<OtherSection> {
        let entries = self.data_addresses.iter().enumerate();
        let entries = entries.map(|(index, (core, _))| (core.clone(), addresses_file(index)));
        core_files::section::<Addresses<Mapped>>(entries.collect())
    }

    fn replay_section(&self) -> Option<OtherSection> {
        let cores = self.replay.iter().flat_map(|(cores, _)| cores);
        let entries = cores.map(|core| (core.clone(), REPLAY.to_owned()));
        core_files::section::<Inputs>(entries.collect())
    }

    fn snapshot(&self, options: &TraceOptions, etm: protocol::Core, summary: &Summary) -> Snapshot {
        let mut dumps: Vec<Dump> = self.memory.iter().enumerate().map(dump).collect();
        dumps.extend(self.ram.iter().flat_map(Ram::dumps));
        let mut devices: Vec<Device> = Vec::new();
        let add = |mut device: Device, file: String, devices: &mut Vec<Device>| {
            device.key = format!("device{}", devices.len());
            device.file = file;
            devices.push(device);
        };
        for (index, core) in self.cores.iter().enumerate() {
            let signal = core.signal.map(|number| Signal {
                number,
                information: Vec::new(),
            });
            let device = Device {
                name: core.name.clone(),
                class: DeviceClass::Core,
                kind: core.kind.clone(),
                registers: core.registers.clone(),
                dumps: dumps.clone(),
                other: signal.map(|signal| signal.entries()).unwrap_or_default(),
                ..Device::default()
            };
            add(device, format!("cpu_{index}.ini"), &mut devices);
        }
        let mut core_sources = Vec::new();
        let mut source_buffers = Vec::new();
        for (index, core) in self.cores.iter().enumerate() {
            let traced = summary.cores.iter();
            let mut traced = traced.filter(|traced| Some(traced.0) == core.number);
            let (Some((_, id)), true) = (traced.next(), self.trace.is_some()) else {
                continue;
            };
            let name = format!("{}_{index}", options.protocol.name().to_ascii_uppercase());
            core_sources.push(CoreSource {
                core: core.name.clone(),
                source: name.clone(),
                ..CoreSource::default()
            });
            source_buffers.push(SourceBuffers {
                source: name.clone(),
                buffers: vec![BUFFER.to_owned()],
                ..SourceBuffers::default()
            });
            let versions = self.changed.versions() > 1;
            let vmids = versions && self.changed.carrier() == Carrier::Vmid;
            let context_ids = summary.context_ids || versions && !vmids;
            let device = options.device(*id, etm, name, [context_ids, vmids]);
            add(device, format!("trace_{index}.ini"), &mut devices);
        }
        let trace = self.trace.as_ref().map(|_| Trace {
            file: "trace.ini".to_owned(),
            buffers: vec![Buffer {
                id: "buffer0".to_owned(),
                name: BUFFER.to_owned(),
                files: vec![TRACE.to_owned()],
                format: BufferFormat::Coresight,
                ..Buffer::default()
            }],
            core_sources,
            source_buffers: Some(source_buffers),
            ..Trace::default()
        });
        Snapshot {
            version: "1.0".to_owned(),
            description: Some(self.description.clone()),
            clusters: vec![Cluster {
                name: "cluster0".to_owned(),
                devices: self.cores.iter().map(|core| core.name.clone()).collect(),
                ..Cluster::default()
            }],
            devices,
            trace,
            other_sections: self
                .program
                .iter()
                .map(|(name, _, offset)| {
                    let file = program_name(name);
                    program_section("program", file, *offset, self.names_only)
                })
                .chain(
                    self.module_names.iter().map(|_| {
                        program_section("program2", module_names::FILE.to_owned(), 0, true)
                    }),
                )
                .chain(self.kernel.map(program::kernel_section))
                .chain(self.changed.section())
                .chain(self.recording.section())
                .chain(self.addresses_section())
                .chain(self.replay_section())
                .collect(),
            ..Snapshot::default()
        }
    }
}

/// Returns the program's file name in the snapshot: unique, and valid in an .ini file.
fn program_name(name: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    let name: String = name
        .chars()
        .map(|c| if plain(c) { c } else { '_' })
        .collect();
    let taken = name == LIBRARIES
        || name == changed::FILE
        || [".ini", ".bin"].iter().any(|end| name.ends_with(end));
    match name.trim_matches('.') {
        "" => "program.elf".to_owned(),
        _ if taken => format!("{name}.elf"),
        _ => name,
    }
}

/// Returns the path of a library in the snapshot, or `None` if its name is not a file name.
fn library(name: &str) -> Option<String> {
    let is_name = Path::new(name).file_name() == Some(name.as_ref());
    is_name.then(|| format!("{LIBRARIES}/{name}"))
}

fn program_section(name: &str, file: String, offset: u64, names_only: bool) -> OtherSection {
    let mut entries = vec![
        ("file".to_owned(), file),
        ("offset".to_owned(), format!("{offset:#x}")),
    ];
    entries.extend(names_only.then(|| ("memory".to_owned(), "none".to_owned())));
    OtherSection {
        name: name.to_owned(),
        entries,
        ..OtherSection::default()
    }
}

fn addresses_file(core: usize) -> String {
    format!("data_addresses_{core}.bin")
}

fn file_of(region: &SavedRegion) -> String {
    format!("memory_{:x}.bin", region.address)
}

fn dump((index, region): (usize, &SavedRegion)) -> Dump {
    Dump {
        section: format!("dump{}", index + 1),
        file: file_of(region),
        address: region.address,
        length: Some(region.bytes.len() as u64),
        ..Dump::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libraries_are_stored_inside_the_snapshot() {
        assert_eq!(library("libc.so.6").unwrap(), "libraries/libc.so.6");
        for name in ["", ".", "..", "/lib/libc.so.6", "../libc.so.6", "lib/"] {
            assert_eq!(library(name), None, "{name}");
        }
    }

    #[test]
    fn the_largest_ranges_are_left_out() {
        let all = vec![0x1000..0x2000, 0x2000..0x9000, 0x10000..0x11000, 0..0x800];
        let mut ranges = all.clone();
        assert_eq!(fit(&mut ranges, 0x9800), None);
        assert_eq!(ranges.len(), 4);
        let note = fit(&mut ranges, 0x97ff).unwrap();
        assert_eq!(ranges, [0..0x800, 0x1000..0x2000, 0x10000..0x11000]);
        assert_eq!(
            note.to_string(),
            "28672 bytes of memory are left out, at 0x2000-0x8fff: all would be more than \
             --memory 38911"
        );
        let mut ranges = all.clone();
        let text = fit(&mut ranges, 0).unwrap().to_string();
        assert!(text.contains("0x1000-0x1fff, …: "), "{text}");
        assert_eq!(ranges, []);
        let mut ranges = vec![0..u64::MAX, 0..u64::MAX, 1..2];
        assert!(fit(&mut ranges, u64::MAX - 1).is_some());
        assert_eq!(ranges, std::slice::from_ref(&(1..2)));
    }
}
