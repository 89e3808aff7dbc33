//! Programs (ELF files) used in addition to the memory in dumps: found in a snapshot's directory by
//! their contents, or named by the user, and compared with the dumps.
//!
//! Independent of architectures and debuggers.

use std::ffi::OsStr;
use std::ops::Range;

use super::elf_files::is_plain_name;
use super::memory::CoreMemory;
use super::model::{OtherSection, Snapshot};
use super::note::ProgramNote;
use super::recorded::Recorded;
use super::{OpenSnapshot, paths};
use crate::program::elf::{Comparison, Elf, Segment};
use armsnap_arch::arch::{Architecture, Space};
use armsnap_arch::quantity::Address;
use object::{Object, ObjectSymbol};

/// The maximum number of bytes of a program that are compared with dumps.
const COMPARED: u64 = 4 << 20;
/// The number of memory accesses allowed for one comparison, in addition to those for each region
/// of memory.
const FEW_LOOKUPS: usize = 1 << 16;
/// The maximum number of gaps between dumps that are listed individually.
const MAX_GAPS: usize = 64;

/// A core's memory, and the space in which the core sees it.
pub type Seen<'m> = (&'m CoreMemory, Space);

/// A program.
#[derive(Clone, Debug)]
pub struct Program {
    /// The contents of the file.
    pub elf: Elf,
    /// The result of comparing it with the dumps.
    pub comparison: Comparison,
    /// Whether the user named it; otherwise it was found.
    pub named: bool,
    /// Whether it provides only names, not memory.
    names_only: bool,
}

impl Program {
    /// Compares a program with each memory and keeps the best match.
    pub fn new(elf: Elf, memories: &[Seen], named: bool) -> Self {
        let mut left = lookups(memories);
        Self::compared(elf, memories, named, &mut left)
    }

    /// Same as [`Self::new`], with at most `left` memory accesses.
    fn compared(elf: Elf, memories: &[Seen], named: bool, left: &mut usize) -> Self {
        let compared = memories
            .iter()
            .map(|(memory, space)| compare(&elf, memory, *space, left));
        // Memories of other cores may have other programs at the same addresses.
        let quality = |result: &Comparison| (result.matches(), result.agreeing(), result.compared);
        let best = compared.max_by_key(quality);
        Self {
            comparison: best.unwrap_or_default(),
            elf,
            named,
            names_only: false,
        }
    }

    /// Returns the ELF file in a snapshot's directory (dump files included) that best matches
    /// memory.
    fn find(loaded: &OpenSnapshot, architecture: Architecture, memories: &[Seen]) -> Option<Self> {
        // One limit for all candidates: many files and many dumps must not all be compared
        // pairwise.
        let mut left = lookups(memories);
        let elfs = loaded
            .elf_files()
            .iter()
            .filter(|elf| elf.fits(architecture));
        let found = elfs.filter_map(|elf| {
            let program = Self::compared(elf.clone(), memories, false, &mut left);
            program.comparison.matches().then_some(program)
        });
        // Of two equal matches, the larger file is the one with debug information.
        found.max_by_key(|program| (program.comparison.agreeing(), program.elf.bytes().len()))
    }

    /// Returns the program recorded in snapshot.ini, or else the one found by its contents.
    pub fn of_snapshot(
        loaded: &OpenSnapshot,
        architecture: Architecture,
        memories: &[Seen],
    ) -> Option<Self> {
        let all = Self::all_of_snapshot(loaded, architecture, memories);
        all.into_iter().next()
    }

    /// Returns the programs recorded in snapshot.ini, or else the one found by its contents.
    fn all_of_snapshot(
        loaded: &OpenSnapshot,
        architecture: Architecture,
        memories: &[Seen],
    ) -> Vec<Self> {
        let recorded = Recorded::all(&loaded.snapshot).into_iter();
        let recorded: Vec<Self> = recorded
            .filter_map(|recorded| {
                let elf = open(&recorded, loaded)?;
                (elf.fits(architecture)).then(|| Self {
                    names_only: recorded.names_only,
                    ..Self::new(elf, memories, false)
                })
            })
            .collect();
        if !recorded.is_empty() {
            return recorded;
        }
        let found = Self::find(loaded, architecture, memories);
        found.into_iter().collect()
    }

    /// Returns the programs for cores of one architecture: the ones named by the user, or else the
    /// snapshot's own.
    pub fn of_cores(
        loaded: &OpenSnapshot,
        named: &[Elf],
        architecture: Architecture,
        memories: &[Seen],
    ) -> Vec<Self> {
        if named.is_empty() {
            return Self::all_of_snapshot(loaded, architecture, memories);
        }
        let fitting = named.iter().filter(|elf| elf.fits(architecture));
        let mut programs: Vec<Self> = Vec::new();
        let mut has_kernel = false;
        for elf in fitting {
            let moved = kernel(&loaded.snapshot).and_then(|text| kernel_offset(elf, text));
            has_kernel |= moved.is_some();
            let elf = elf.clone().moved(moved.unwrap_or(0));
            programs.push(Self::new(elf, memories, true));
        }
        // The program that matches memory comes first, because a file need not name its profile.
        programs.sort_by_key(|program| !program.comparison.matches());
        if !programs.is_empty() {
            // If the names of a kernel are recorded, they are kept beside the user's programs. The
            // user's program of the kernel replaces the first recorded one; the others are those of
            // modules.
            let recorded = Recorded::all(&loaded.snapshot).into_iter();
            let recorded = recorded.skip(usize::from(has_kernel));
            let recorded = recorded.filter(|recorded| recorded.names_only);
            programs.extend(recorded.filter_map(|recorded| {
                let elf = open(&recorded, loaded).filter(|elf| elf.fits(architecture))?;
                Some(Self {
                    names_only: true,
                    ..Self::new(elf, memories, false)
                })
            }));
        }
        programs
    }

    /// Adds the program's segments to the memory of a core, after everything else. Returns notes on
    /// the memory that is read from the program in `space`.
    pub fn add_to(&self, memory: &mut CoreMemory, space: Space) -> Vec<ProgramNote> {
        if self.names_only {
            return Vec::new();
        }
        let path = &self.elf.path;
        let mut notes = Vec::new();
        let mut left = lookups(&[(memory, space)]);
        for segment in &self.elf.segments {
            let room = MAX_GAPS - notes.len();
            let gaps = gaps(memory, space, segment, &mut left).take(room);
            notes.extend(gaps.map(|gap| ProgramNote::Gap {
                range: addresses(gap),
                program: path.clone(),
                writable: segment.writable,
            }));
        }
        if notes.len() == MAX_GAPS || left == 0 {
            let program = path.clone();
            notes.push(ProgramNote::FurtherGaps { program });
        }
        add_segments(memory, &self.elf);
        notes
    }

    /// Returns notes on how the program matches the dumps. Where they differ, the dump is used.
    pub fn notes(&self) -> Vec<ProgramNote> {
        if self.names_only {
            return Vec::new();
        }
        let compared = &self.comparison;
        let mut notes = vec![ProgramNote::Compared {
            program: self.elf.path.clone(),
            named: self.named,
            compared: compared.compared,
            differing: compared.differing,
            changed: compared.changed,
        }];
        let ranges = compared.ranges.iter().cloned();
        notes.extend(ranges.map(|range| ProgramNote::Differ {
            range: addresses(range),
        }));
        notes
    }
}

fn addresses(range: Range<u64>) -> Range<Address> {
    Address(range.start)..Address(range.end)
}

/// Adds the segments of a program to the memory of a core, after everything else.
pub fn add_segments(memory: &mut CoreMemory, elf: &Elf) {
    let path = elf.path.display().to_string();
    for segment in &elf.segments {
        // Only virtual memory, of all security states.
        for space in [Space::N, Space::S, Space::R, Space::Root] {
            memory.add_region(Address(segment.address), elf.mapped(segment), space, &path);
        }
    }
}

/// The section of snapshot.ini with the address of a Linux kernel; other readers ignore it.
const KERNEL: &str = "kernel";

/// Returns the section for a kernel whose symbol `_text` is at an address.
pub fn kernel_section(text: u64) -> OtherSection {
    OtherSection {
        name: KERNEL.to_owned(),
        entries: vec![("text".to_owned(), format!("{text:#x}"))],
        ..OtherSection::default()
    }
}

/// Returns the address of the symbol `_text` of the recorded Linux kernel.
pub fn kernel(snapshot: &Snapshot) -> Option<u64> {
    let mut sections = snapshot.other_sections.iter();
    let section = sections.find(|section| section.name == KERNEL)?;
    let text = section.entries.iter().find(|(key, _)| key == "text");
    u64::from_str_radix(text?.1.trim().strip_prefix("0x")?, 16).ok()
}

/// Returns the offset by which a Linux kernel (`vmlinux`) was moved, if the file is one.
fn kernel_offset(elf: &Elf, text: u64) -> Option<u64> {
    let file = object::File::parse(elf.bytes()).ok()?;
    let name = |name: &str| file.symbols().find(|symbol| symbol.name() == Ok(name));
    name("linux_banner")?;
    Some(text.wrapping_sub(name("_text")?.address()))
}

/// Opens a recorded program at its address. Paths are not trusted: the program must be in the
/// snapshot's directory, or among its files if these are in memory.
fn open(recorded: &Recorded, loaded: &OpenSnapshot) -> Option<Elf> {
    if !is_plain_name(OsStr::new(&recorded.file)) {
        return None;
    }
    let elf = if loaded.root.as_os_str().is_empty() {
        let files = loaded.files();
        Elf::read(
            files.path(&recorded.file),
            files.bytes(&recorded.file).ok()?,
        )
    } else {
        Elf::open(&paths::resolve(&loaded.root, &recorded.file, false).ok()?)
    };
    let mut elf = elf.ok()?.moved(recorded.offset);
    elf.segments
        .retain(|segment| !(recorded.read_only && segment.writable));
    Some(elf)
}

/// Returns the limit of memory accesses for programs: a few for each region, plus [`FEW_LOOKUPS`].
fn lookups(memories: &[Seen]) -> usize {
    let regions = memories.iter().map(|(memory, _)| memory.regions().len());
    FEW_LOOKUPS + 4 * regions.sum::<usize>()
}

/// Compares a program with memory, with at most `left` memory accesses.
fn compare(elf: &Elf, memory: &CoreMemory, space: Space, left: &mut usize) -> Comparison {
    elf.compare(COMPARED, |address| {
        if *left == 0 {
            return Err(u64::MAX);
        }
        *left -= 1;
        let known = memory.slice(Address(address), space);
        if known.is_empty() {
            let next = memory.next(Address(address), space);
            Err(next.map_or(u64::MAX, |next| next.0 - address))
        } else {
            Ok(known)
        }
    })
}

/// Returns the addresses of a segment that are missing from memory, found with at most `left`
/// memory accesses.
fn gaps<'a>(
    memory: &'a CoreMemory,
    space: Space,
    segment: &'a Segment,
    left: &'a mut usize,
) -> impl Iterator<Item = Range<u64>> + 'a {
    let mut at = segment.address;
    std::iter::from_fn(move || {
        while at < segment.end() && *left > 0 {
            *left -= 1;
            let known = memory.slice(Address(at), space).len() as u64;
            if known > 0 {
                at = at.saturating_add(known);
                continue;
            }
            let next = memory.next(Address(at), space);
            let end = next.map_or(segment.end(), |next| next.0.min(segment.end()));
            return Some(std::mem::replace(&mut at, end)..end);
        }
        None
    })
}

#[cfg(test)]
mod tests {
    use super::super::{OpenOptions, OpenSnapshot};
    use super::*;
    use crate::program::elf::small_elf::small_elf;

    /// Returns a snapshot with a dump at an address and a program that contains it.
    fn snapshot(section: &str, code_at: u64) -> (tempfile::TempDir, OpenSnapshot) {
        let directory = tempfile::tempdir().unwrap();
        let write = |name: &str, bytes: &[u8]| {
            std::fs::write(directory.path().join(name), bytes).unwrap();
        };
        write("p.elf", &small_elf(b"code", b"data"));
        write("code.bin", b"code");
        let list = format!("[snapshot]\nversion=1.0\n[device_list]\nd=cpu.ini\n{section}");
        write("snapshot.ini", list.as_bytes());
        let cpu = "[device]\nname=cpu\nclass=core\ntype=ARMv8-A\n[dump]\nfile=code.bin\n";
        write("cpu.ini", format!("{cpu}address={code_at:#x}\n").as_bytes());
        let loaded = Snapshot::open(directory.path(), &OpenOptions::default()).unwrap();
        (directory, loaded)
    }

    fn program(loaded: &OpenSnapshot) -> Option<Program> {
        let memory = CoreMemory::new(loaded, &loaded.snapshot.devices[0]);
        Program::of_snapshot(loaded, Architecture::AArch64, &[(&memory, Space::Any)])
    }

    #[test]
    fn a_program_is_that_of_the_core_with_its_code() {
        let (directory, _) = snapshot("d2=other.ini\n", 0x1000);
        let write = |name: &str, bytes: &[u8]| {
            std::fs::write(directory.path().join(name), bytes).unwrap();
        };
        // As many bytes differ in this core as agree in the other one.
        write("other.bin", b"none");
        let cpu = "[device]\nname=other\nclass=core\ntype=ARMv8-A\n[dump]\nfile=other.bin\n";
        write("other.ini", format!("{cpu}address=0x1000\n").as_bytes());
        let loaded = Snapshot::open(directory.path(), &OpenOptions::default()).unwrap();
        let memories: Vec<CoreMemory> = loaded
            .snapshot
            .devices
            .iter()
            .map(|device| CoreMemory::new(&loaded, device))
            .collect();
        let mut seen: Vec<Seen> = memories.iter().map(|memory| (memory, Space::Any)).collect();
        assert_eq!(seen.len(), 2);
        for _ in 0..2 {
            let found = Program::of_snapshot(&loaded, Architecture::AArch64, &seen);
            assert!(found.unwrap().comparison.matches());
            seen.reverse();
        }
    }

    #[test]
    fn programs_are_in_the_memory_of_all_security_states() {
        let (directory, loaded) = snapshot("", 0x1000);
        let mut memory = CoreMemory::new(&loaded, &loaded.snapshot.devices[0]);
        let elf = Elf::open(&directory.path().join("p.elf")).unwrap();
        let data = elf.segments.last().unwrap().address;
        add_segments(&mut memory, &elf);
        for space in [Space::N, Space::El1S, Space::El3, Space::Root, Space::El2R] {
            assert!(!memory.slice(Address(data), space).is_empty(), "{space}");
        }
        assert!(memory.slice(Address(data), Space::P).is_empty());
    }

    #[test]
    fn a_recorded_program_is_placed_at_its_offset() {
        let (_directory, loaded) = snapshot(
            "[program]\nfile=p.elf\noffset=0x5500000000\n",
            0x55_0000_1000,
        );
        let found = program(&loaded).unwrap();
        assert_eq!(found.elf.segments[0].address, 0x55_0000_1000);
        assert_eq!(found.elf.offset, 0x55_0000_0000);
        assert_eq!(
            (found.comparison.compared, found.comparison.differing),
            (4, 0)
        );
    }

    #[test]
    fn a_kernel_is_placed_where_it_ran() {
        use crate::program::symbol_file::{Function, write};
        let function = |name: &str, address| Function {
            name: name.to_owned(),
            address,
            size: 4,
        };
        let linked = 0xffff_8000_0800_0000;
        let file = |names: [&str; 2]| {
            let all = [function(names[0], linked), function(names[1], linked + 4)];
            let text = (".text".to_owned(), linked..linked + 0x1000);
            let bytes = write(&all, &[text], &[]);
            Elf::read("vmlinux".into(), bytes.into()).unwrap()
        };
        let text = linked + 0x20_0000;
        let vmlinux = file(["_text", "linux_banner"]);
        assert_eq!(kernel_offset(&vmlinux, text), Some(0x20_0000));
        assert_eq!(kernel_offset(&file(["_text", "main"]), text), None);
        let section = format!("[kernel]\ntext={text:#x}\n[program]\nfile=p.elf\nmemory=none\n");
        let (_directory, loaded) = snapshot(&section, 0x1000);
        assert_eq!(kernel(&loaded.snapshot), Some(text));
        let memory = CoreMemory::new(&loaded, &loaded.snapshot.devices[0]);
        let of = |elf: Elf| {
            let seen = [(&memory, Space::Any)];
            let programs = Program::of_cores(&loaded, &[elf], Architecture::AArch64, &seen);
            let programs = programs.iter();
            let found = programs.map(|program| (program.elf.offset, program.names_only));
            found.collect::<Vec<_>>()
        };
        assert_eq!(of(vmlinux), [(0x20_0000, false)]);
        // The recorded names are kept beside another program.
        assert_eq!(of(file(["_start", "main"])), [(0, false), (0, true)]);
    }

    #[test]
    fn without_a_valid_record_the_contents_identify_the_program() {
        for section in [
            "",
            "[program]\n",
            "[program]\nfile=../p.elf\n",
            "[program]\nfile=code.bin\n",
            "[program]\nfile=p.elf\noffset=x\n",
            "[program]\nfile=missing.elf\noffset=1\n",
        ] {
            let (_directory, loaded) = snapshot(section, 0x1000);
            assert_eq!(program(&loaded).unwrap().elf.offset, 0, "{section}");
            let (_directory, loaded) = snapshot(section, 0x5000);
            assert!(program(&loaded).is_none(), "{section}");
        }
    }
}
