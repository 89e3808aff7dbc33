//! Device files: `[device]`, register keys, dumps (3.2).

use super::{Checker, Need};
use crate::capture::registers;
use crate::program::elf::Segment;
use crate::snapshot::model::{Device, DeviceClass, FileLine, TRACE_FRAME, TRACE_FRAME_KEY};
use crate::snapshot::registers::LAST_ID;
use armsnap_arch::arch::Space;
use std::collections::{BTreeMap, HashMap};

impl Checker<'_> {
    pub(super) fn devices(&mut self) {
        let snapshot = self.snapshot;
        let mut keys: HashMap<&str, &FileLine> = HashMap::new();
        let mut names: HashMap<&str, &FileLine> = HashMap::new();
        let mut folded: HashMap<String, &str> = HashMap::new();
        let mut locations: HashMap<String, &FileLine> = HashMap::new();
        for device in &snapshot.devices {
            let first = *keys.entry(&device.key).or_insert(&device.listed);
            if first != &device.listed {
                let text = format!("key {} again, first in line {}", device.key, first.line);
                self.wrong(Need::Required, &device.listed, "3.1.2", text);
            }
            if device.name.is_empty() {
                let text = "the device has no name".into();
                self.wrong(Need::Required, &device.place, "3.2.1", text);
            } else if let Some(first) = names.get(&*device.name) {
                let text = format!("name {} again, first in {first}", device.name);
                self.wrong(Need::Required, &device.place, "3.2.1", text);
            } else {
                names.insert(&device.name, &device.place);
                let folded = folded.entry(device.name.to_ascii_lowercase());
                let first = *folded.or_insert(&device.name);
                if first != device.name {
                    let text = format!("names {first} and {} differ in case only", device.name);
                    self.advice(&device.place, "3.2.1", text);
                }
            }
            if let Some(location) = &device.location {
                let same = locations.entry(location.to_ascii_lowercase());
                let first = *same.or_insert(&device.place);
                if first != &device.place {
                    let text = format!("location {location} again, first in {first}");
                    self.wrong(Need::Required, &device.place, "3.2.1", text);
                }
            }
            self.class_and_type(device);
            self.registers(device);
            self.dumps(device);
        }
    }

    fn class_and_type(&mut self, device: &Device) {
        match &device.class {
            DeviceClass::Missing => {
                let text = format!("{}: no class", device.name);
                self.wrong(Need::RequiredForTrace, &device.place, "3.2.1", text);
            }
            DeviceClass::Other(class) => {
                let text = format!("{}: unknown class {class}", device.name);
                self.advice(&device.place, "3.2.1", text);
            }
            DeviceClass::Core | DeviceClass::TraceSource | DeviceClass::MemorySpace => {}
        }
        if device.kind.trim().is_empty() && device.class != DeviceClass::MemorySpace {
            let text = format!("{}: no type", device.name);
            self.wrong(Need::RequiredForTrace, &device.place, "3.2.1", text);
        }
    }

    fn registers(&mut self, device: &Device) {
        let component = device.class == DeviceClass::TraceSource;
        let mut names: HashMap<&str, u32> = HashMap::new();
        for register in &device.registers {
            let name = register.name.as_str();
            let first = *names.entry(name).or_insert(register.place.line);
            if first != register.place.line {
                let text = format!("{name} again, first in line {first}: the first is used");
                self.advice(&register.place, "3.2.2", text);
            }
            let Some(id) = register.id.filter(|_| component) else {
                continue;
            };
            let known = registers::id_of(name);
            let looks_like_bytes = id > LAST_ID || known.is_some_and(|k| k != id && k * 4 == id);
            if looks_like_bytes {
                let text = format!(
                    "{name}: ID {id:#x} is an offset in bytes; IDs count words: {:#x}",
                    id / 4
                );
                self.advice(&register.place, "3.2.2", text);
            }
        }
    }

    fn dumps(&mut self, device: &Device) {
        const SECTION: &str = "3.2.3";
        let holds_memory = matches!(device.class, DeviceClass::Core | DeviceClass::MemorySpace);
        if !holds_memory && let Some(dump) = device.dumps.first() {
            let text = format!("{}: only cores and memory spaces have memory", dump.section);
            self.advice(&dump.place, SECTION, text);
        }
        let sections = &self.snapshot.other_sections;
        let of_trace_frame = sections.iter().any(|section| section.name == TRACE_FRAME);
        let mut names: HashMap<&str, u32> = HashMap::new();
        // (address, last address, space, index)
        let mut extents: Vec<(u64, u64, Space, usize)> = Vec::new();
        for (index, dump) in device.dumps.iter().enumerate() {
            let first = *names.entry(&dump.section).or_insert(dump.place.line);
            if first != dump.place.line {
                let text = format!("[{}] again, first in line {first}", dump.section);
                self.advice(&dump.place, SECTION, text);
            }
            for (key, _) in &dump.other {
                if of_trace_frame && key == TRACE_FRAME_KEY {
                    continue;
                }
                let text = format!("[{}] unknown key {key}: ignored", dump.section);
                self.advice(&dump.place, SECTION, text);
            }
            let space = self.space(device, dump.space.as_deref().unwrap_or(""), &dump.place);
            if let Some(elf) = self.loaded.elf_dump(dump) {
                let segments = elf.segments().map(|(segment, _)| segment);
                let last = |segment: &Segment| segment.end().saturating_sub(1);
                extents.extend(segments.filter_map(|s| Some((s.address, last(s), space?, index))));
                continue;
            }
            let in_file = self.loaded.length(&dump.place.file, &dump.file).ok();
            let offset = dump.offset.unwrap_or(0);
            let there = in_file.map(|length| length.saturating_sub(offset));
            if let (Some(in_file), Some(there)) = (in_file, there) {
                let wanted = dump.length.unwrap_or(0);
                if wanted > there || offset > in_file {
                    let text = format!(
                        "[{}] needs {wanted} bytes from offset {offset} of {}, which has {in_file}",
                        dump.section, dump.file
                    );
                    self.wrong(Need::Required, &dump.place, SECTION, text);
                    if there == 0 {
                        continue;
                    }
                }
            }
            let length = match (dump.length, there) {
                (Some(length), Some(there)) => length.min(there),
                (Some(length), None) | (None, Some(length)) => length,
                (None, None) => continue,
            };
            if length == 0 {
                let text = format!("[{}] has no bytes", dump.section);
                self.advice(&dump.place, SECTION, text);
                continue;
            }
            let last = dump.address.checked_add(length - 1).unwrap_or_else(|| {
                let text = format!("[{}] runs past the last address", dump.section);
                self.wrong(Need::Required, &dump.place, SECTION, text);
                u64::MAX
            });
            extents.extend(space.map(|space| (dump.address, last, space, index)));
        }
        self.overlaps(device, extents);
    }

    fn overlaps(&mut self, device: &Device, mut extents: Vec<(u64, u64, Space, usize)>) {
        extents.sort_unstable_by_key(|&(first, _, _, index)| (first, index));
        // By space: the extent with the highest end so far.
        let mut furthest: BTreeMap<Space, (u64, usize)> = BTreeMap::new();
        for (first, last, space, index) in extents {
            let mut spaces = furthest.iter();
            let other = spaces.find(|(seen, (end, _))| seen.serves(space) && *end >= first);
            if let Some((_, &(_, other))) = other {
                let (a, b) = (index.min(other), index.max(other));
                let (a, b) = (&device.dumps[a], &device.dumps[b]);
                let text = format!(
                    "[{}] overlaps [{}] of line {}, which has priority",
                    b.section, a.section, a.place.line
                );
                self.advice(&b.place, "3.2.3", text);
            }
            let end = furthest.entry(space).or_insert((last, index));
            if last > end.0 {
                *end = (last, index);
            }
        }
    }

    fn space(&mut self, device: &Device, written: &str, place: &FileLine) -> Option<Space> {
        use armsnap_arch::arch::Architecture;
        // The reader has already reported an unknown space.
        let space = Space::parse(written)?;
        if written.trim().is_empty() {
            return Some(space);
        }
        let beyond = match space {
            Space::Any | Space::El1R | Space::El2S | Space::El2N => true,
            Space::El2R | Space::Root | Space::R => true,
            Space::N | Space::S | Space::H | Space::El1N | Space::El1S | Space::El2 => false,
            Space::El3 | Space::P | Space::Sp | Space::Np => false,
        };
        if beyond {
            let text = format!("space {space} is beyond the specification");
            self.advice(place, "3.2.3", text);
        } else if device.class == DeviceClass::Core {
            let detected = Architecture::detect(device);
            let physical = matches!(space, Space::P | Space::Sp | Space::Np);
            let level = matches!(space, Space::El1N | Space::El1S | Space::El2 | Space::El3);
            let fits = match detected.architecture {
                Architecture::AArch64 => level,
                Architecture::AArch32 => !level,
                Architecture::MProfile => false,
            };
            if !fits && !physical && !detected.assumed {
                let name = detected.architecture.name();
                let text = format!("space {space} is not one of {name}");
                let section = super::cores::section(device, detected.architecture);
                self.advice(place, section, text);
            }
        }
        Some(space)
    }
}
