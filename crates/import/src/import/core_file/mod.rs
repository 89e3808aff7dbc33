//! Core files of Linux programs, of QEMU, and of whole Linux systems, for AArch64 and Arm.
//!
//! Memory comes from the core file if it is there, and otherwise from the mapped files: the
//! read-only parts of programs and libraries.

mod flattened;
mod kdump;
mod kernel_names;
mod notes;
mod profile;
mod sve;
mod thread_notes;
mod vmcore;

use super::claims::Claims;
use super::fields::Fields;
use super::images::Images;
use super::note::{CoreFileNote, Note};
use super::paths::{Names, plain};
use super::wanted::Wanted;
use super::{BuildId, ImportError, Imported, NamedProgram, Options, programs};
use armsnap_snapshot::budget::Budget;
use armsnap_snapshot::mapped::Mapped;
use armsnap_snapshot::program::elf::Elf;
use armsnap_snapshot::snapshot::libraries::LIBRARIES;
use armsnap_snapshot::snapshot::model::{Cluster, Device, DeviceClass, Dump, Snapshot};
pub(in crate::import) use notes::register;
use notes::{Notes, Thread};
use object::{Object, elf};
use std::collections::BTreeMap;
use std::ops::Range;
use std::path::Path;

const PT_LOAD: u32 = elf::PT_LOAD.0;
const PT_NOTE: u32 = elf::PT_NOTE.0;
const PF_X: u32 = elf::PF_X.0;
const PF_W: u32 = elf::PF_W.0;
const ET_CORE: u16 = elf::ET_CORE.0;
const SIGTRAP: u32 = 5;
const EM_ARM: u16 = elf::EM_ARM.0;
const EM_AARCH64: u16 = elf::EM_AARCH64.0;
/// `e_phnum` if there are more headers than it can express: section header 0 contains the number.
const PN_XNUM: u16 = elf::PN_XNUM;

/// The maximum number of dumps of all threads together: each thread lists all parts.
const MAX_DUMPS: usize = 1 << 23;
/// The limit for the smallest core file; each [`BYTES_EACH`] bytes add one.
const LEAST_DUMPS: usize = 1 << 16;
const BYTES_EACH: usize = 64;
/// All parts of memory together may be this many times as large as the file: parts seldom share
/// bytes.
const MAX_SHARED: u64 = 2;

/// The size in bytes of the largest page.
const LARGEST_PAGE: u64 = 64 << 10;

/// Whether bytes are the start of a core file.
pub fn is_core_file(bytes: &[u8]) -> bool {
    let big = bytes.get(5) == Some(&2);
    let kind = bytes
        .get(16..18)
        .and_then(|kind| Fields::new(kind, big).u16());
    bytes.starts_with(b"\x7fELF") && kind == Some(ET_CORE)
}

/// Whether bytes are the start of a core file of a whole system that is not an ELF file: flattened,
/// or compressed by makedumpfile.
pub fn is_system_file(bytes: &[u8]) -> bool {
    flattened::is_flattened(bytes) || kdump::is_kdump(bytes)
}

/// A program header.
#[derive(Clone, Copy, Debug, Default)]
struct Header {
    kind: u32,
    flags: u32,
    offset: u64,
    address: u64,
    physical: u64,
    in_file: u64,
    in_memory: u64,
}

/// The program headers of an ELF file.
#[derive(Debug, Default)]
struct ProgramHeaders {
    big: bool,
    is_64bit: bool,
    machine: u16,
    headers: Vec<Header>,
}

impl ProgramHeaders {
    /// Reads the headers of an ELF image; `read` takes an offset and a length and returns the bytes
    /// there.
    fn read<'b>(read: impl Fn(u64, u64) -> Option<&'b [u8]>) -> Option<Self> {
        let identity = read(0, 64)?;
        if !identity.starts_with(b"\x7fELF") {
            return None;
        }
        let (is_64bit, big) = (identity[4] == 2, identity[5] == 2);
        let mut fields = Fields::new(&identity[18..], big);
        let machine = fields.u16()?;
        fields.bytes(4)?;
        let word = |fields: &mut Fields<'_>| match is_64bit {
            true => fields.u64(),
            false => fields.u32().map(u64::from),
        };
        let (_entry, headers_at, sections_at) =
            (word(&mut fields)?, word(&mut fields)?, word(&mut fields)?);
        fields.bytes(6)?;
        let (size, count) = (fields.u16()?, fields.u16()?);
        // Smaller entries would overlap, so that the file could contain more of them than it has
        // bytes for.
        let least = if is_64bit { 56 } else { 32 };
        if count > 0 && size < least {
            return None;
        }
        let mut count = u64::from(count);
        if count == u64::from(PN_XNUM) {
            // `sh_info` of section header 0.
            let at = sections_at.checked_add(if is_64bit { 44 } else { 28 })?;
            count = Fields::new(read(at, 4)?, big).u32()?.into();
        }
        let mut headers = Vec::new();
        for index in 0..count {
            let at = headers_at.checked_add(index.checked_mul(size.into())?)?;
            let Some(bytes) = read(at, least.into()) else {
                break;
            };
            let mut fields = Fields::new(bytes, big);
            let kind = fields.u32()?;
            let mut header = Header {
                kind,
                flags: if is_64bit { fields.u32()? } else { 0 },
                offset: word(&mut fields)?,
                address: word(&mut fields)?,
                physical: word(&mut fields)?,
                in_file: word(&mut fields)?,
                in_memory: word(&mut fields)?,
            };
            if !is_64bit {
                header.flags = fields.u32()?;
            }
            headers.push(header);
        }
        Some(Self {
            big,
            is_64bit,
            machine,
            headers,
        })
    }

    fn of_kind(&self, kind: u32) -> impl Iterator<Item = &Header> + Clone {
        self.headers
            .iter()
            .filter(move |header| header.kind == kind)
    }
}

/// A part of `bytes`; `None` if it is out of bounds.
fn part(bytes: &[u8], offset: u64, length: u64) -> Option<&[u8]> {
    let begin = usize::try_from(offset).ok()?;
    let end = begin.checked_add(usize::try_from(length).ok()?)?;
    bytes.get(begin..end)
}

/// Reads a core file from its bytes; `path` is its name.
///
/// # Errors
///
/// If the file is damaged, or of another architecture.
pub fn import_bytes(
    path: &Path,
    bytes: Mapped,
    options: &Options,
) -> Result<Imported, ImportError> {
    let fault = |text: String| ImportError::input(path, text);
    let bytes = match flattened::is_flattened(&bytes) {
        true => flattened::rearranged(path, &bytes)?,
        false => bytes,
    };
    let mut left_out = Vec::new();
    let (bytes, layout) = match kdump::is_kdump(&bytes) {
        true => kdump::read(path, bytes, &mut left_out)?,
        false => {
            let layout = ProgramHeaders::read(|at, length| part(&bytes, at, length));
            let layout = layout.ok_or_else(|| fault("core file cut in its headers".to_owned()))?;
            (bytes, layout)
        }
    };
    if ![EM_ARM, EM_AARCH64].contains(&layout.machine) {
        return Err(fault(format!(
            "core file for machine {} of ELF: expected AArch64 (183) or Arm (40)",
            layout.machine
        )));
    }
    let mut notes = Notes::default();
    let mut read = Claims::default();
    for header in layout.of_kind(PT_NOTE) {
        let begin = usize::try_from(header.offset)
            .unwrap_or(usize::MAX)
            .min(bytes.len());
        let length = usize::try_from(header.in_file).unwrap_or(usize::MAX);
        let end = begin.saturating_add(length).min(bytes.len());
        // Segments may overlap in the file, whose bytes are read only once.
        for range in read.take(begin as u64..end as u64) {
            let bytes = &bytes[range.start as usize..range.end as usize];
            notes.take(bytes, layout.big, layout.is_64bit);
        }
    }
    if let Some(system) = notes.system {
        return Err(fault(format!(
            "core file of {system}: expected one of Linux or QEMU; lldb -c FILE PROGRAM opens it"
        )));
    }
    if notes.threads.is_empty() {
        return Err(fault("core file without a thread (NT_PRSTATUS)".to_owned()));
    }
    notes.share_masks();
    let mut out = Imported {
        notes: left_out,
        ..Imported::default()
    };
    if let Some(info) = vmcore::info(&bytes, &layout, &notes) {
        return vmcore::imported(path, (&bytes, &layout), notes, &info, options, out);
    }
    out.kind = "core file".to_owned();
    let core_type = if layout.is_64bit {
        "ARMv8-A"
    } else if profile::is_m_profile(&notes, &options.elf)? {
        notes.threads.iter_mut().for_each(profile::rename);
        "ARMv7-M"
    } else {
        "ARMv7-A"
    };
    // Without a list of mapped files (QEMU), only the user can name the programs.
    let programs = match notes.files.is_empty() {
        true => programs::dumps(&placed(&options.elf, notes.entry, &mut out)?, &mut out)?,
        false => Vec::new(),
    };
    let mut images = Images::new(options)?;
    if notes.files.is_empty() {
        images.use_all();
        if options.elf.is_empty() {
            out.notes.push(CoreFileNote::NoProgram.into());
        }
    }
    let core = CoreFile {
        core_type,
        bytes,
        layout,
        notes,
        images,
        out,
        memory: BTreeMap::new(),
        programs,
    };
    Ok(core.imported())
}

struct CoreFile<'o> {
    /// The type of the cores.
    core_type: &'static str,
    bytes: Mapped,
    layout: ProgramHeaders,
    notes: Notes,
    images: Images<'o>,
    out: Imported,
    /// By address: the bytes of the file.
    memory: BTreeMap<u64, Range<usize>>,
    /// The memory of the programs that the user names.
    programs: Vec<Dump>,
}

/// The programs at the addresses where they were loaded; for the first one, the address follows
/// from its entry point.
fn placed(
    named: &[NamedProgram],
    entry: Option<u64>,
    out: &mut Imported,
) -> Result<Vec<NamedProgram>, ImportError> {
    let mut placed = named.to_vec();
    if let (Some(first), Some(entry)) = (placed.first_mut(), entry)
        && first.address.is_none()
    {
        let elf = Elf::open(&first.path)?;
        let linked = object::File::parse(elf.bytes()).map_or(entry, |file| file.entry());
        // Bit 0 may contain the instruction set.
        let bias = (entry & !1).wrapping_sub(linked & !1);
        if bias != 0 {
            let lowest = elf.segments.iter().map(|segment| segment.address).min();
            let address = programs::page(lowest.unwrap_or(0)).wrapping_add(bias);
            let note = CoreFileNote::Loaded {
                path: first.path.clone(),
                address,
                entry,
            };
            out.notes.push(note.into());
            first.address = Some(address);
        }
    }
    Ok(placed)
}

/// Drops the last threads if all threads together would have more dumps than are plausible for a
/// core file of this size.
fn limit(threads: &mut Vec<Thread>, dumps: usize, size: usize, notes: &mut Vec<Note>) {
    let in_all = (LEAST_DUMPS + size / BYTES_EACH).min(MAX_DUMPS);
    let most = (in_all / dumps.max(1)).max(1);
    if threads.len() > most {
        let note = CoreFileNote::ManyThreads {
            threads: threads.len(),
            parts: dumps,
            used: most,
        };
        notes.push(note.into());
        threads.truncate(most);
    }
}

impl CoreFile<'_> {
    fn imported(mut self) -> Imported {
        let dumps = self.dumps();
        self.out.notes.extend(self.notes.left_out());
        let mut names = Names::default();
        let name = plain(self.notes.name.as_deref().unwrap_or("thread"));
        let mut threads = std::mem::take(&mut self.notes.threads);
        limit(
            &mut threads,
            dumps.len(),
            self.bytes.len(),
            &mut self.out.notes,
        );
        let devices: Vec<Device> = threads
            .into_iter()
            .enumerate()
            .map(|(index, thread)| {
                let mut other = vec![("tid".to_owned(), thread.tid.to_string())];
                let name = names.unique(&format!("{name}-{}", thread.tid));
                if let Some(signal) = thread.received() {
                    other.extend(signal.entries());
                    // GDB reports SIGTRAP if nothing else is known. The other threads have the same
                    // signal.
                    if index == 0 && signal.number != SIGTRAP {
                        let note = CoreFileNote::Ended {
                            core: name.clone(),
                            signal: signal.describe(self.layout.is_64bit),
                        };
                        self.out.notes.push(note.into());
                    }
                }
                Device {
                    key: format!("device{index}"),
                    file: format!("cpu_{index}.ini"),
                    name,
                    class: DeviceClass::Core,
                    kind: self.core_type.to_owned(),
                    other,
                    registers: thread.registers,
                    dumps: dumps.clone(),
                    ..Device::default()
                }
            })
            .collect();
        let cluster = Cluster {
            name: "cluster0".to_owned(),
            devices: devices.iter().map(|device| device.name.clone()).collect(),
            ..Cluster::default()
        };
        let programs = std::mem::take(&mut self.out.snapshot.other_sections);
        self.out.snapshot = Snapshot {
            version: "1.0".to_owned(),
            devices,
            clusters: vec![cluster],
            other_sections: programs,
            ..Snapshot::default()
        };
        self.images.report(&mut self.out.notes);
        self.out.record_origin();
        self.out
    }

    /// The memory in the core file, followed by that of mapped files.
    fn dumps(&mut self) -> Vec<Dump> {
        let mut dumps = Vec::new();
        let mut claims = Claims::default();
        let mut cut = 0;
        // Each part becomes a file.
        let written = Budget::of(self.bytes.len(), MAX_SHARED, 0);
        let mut shared = 0;
        let loads: Vec<Header> = self.layout.of_kind(PT_LOAD).copied().collect();
        for load in loads.iter().filter(|load| load.in_file > 0) {
            let begin = usize::try_from(load.offset)
                .unwrap_or(usize::MAX)
                .min(self.bytes.len());
            let length = usize::try_from(load.in_file).unwrap_or(usize::MAX);
            let end = begin.saturating_add(length).min(self.bytes.len());
            cut += usize::from((end - begin) < length);
            // QEMU writes physical addresses only.
            let address = match load.address {
                0 => load.physical,
                address => address,
            };
            // The missing bytes need not equal those of the mapped files.
            let last = address.saturating_add(load.in_file);
            let there = address.saturating_add((end - begin) as u64);
            for range in claims.take(address..last) {
                let range = range.start..range.end.min(there);
                if range.is_empty() {
                    continue;
                }
                if !written.take(range.end - range.start) {
                    shared += 1;
                    continue;
                }
                let skipped = (range.start - address) as usize;
                let length = (range.end - range.start) as usize;
                let in_file = begin + skipped..begin + skipped + length;
                let file = format!("memory/{:x}.bin", range.start);
                self.out
                    .files
                    .insert(file.clone(), self.bytes.part(in_file.clone()));
                self.memory.insert(range.start, in_file);
                dumps.push(Dump {
                    section: format!("dump{}", dumps.len() + 1),
                    file,
                    address: range.start,
                    length: Some(length as u64),
                    ..Dump::default()
                });
            }
        }
        if cut > 0 {
            let note = CoreFileNote::CutMemory { parts: cut };
            self.out.notes.push(note.into());
        }
        if shared > 0 {
            let note = CoreFileNote::SharedMemory { parts: shared };
            self.out.notes.push(note.into());
        }
        // Writable memory may differ from the mapped file.
        for load in loads.iter().filter(|load| load.flags & PF_W != 0) {
            claims.take(load.address..load.address.saturating_add(load.in_memory));
        }
        self.mapped_files(&mut claims, &mut dumps);
        dumps.append(&mut self.programs);
        for (index, dump) in dumps.iter_mut().enumerate() {
            dump.section = format!("dump{}", index + 1);
        }
        dumps
    }

    fn mapped_files(&mut self, claims: &mut Claims, dumps: &mut Vec<Dump>) {
        let files = std::mem::take(&mut self.notes.files);
        let mut ids: BTreeMap<&str, Option<BuildId>> = BTreeMap::new();
        for file in files.iter().filter(|file| file.offset == 0) {
            let id = build_id(|at, length| self.at(file.start.checked_add(at)?, length));
            let known = ids.entry(&file.path).or_default();
            *known = known.take().or(id);
        }
        let entry = self.notes.entry;
        let program = files
            .iter()
            .find(|file| entry.is_some_and(|entry| (file.start..file.end).contains(&entry)));
        let program = program.map(|file| file.path.clone());
        let mut recorded: BTreeMap<String, (bool, String, u64)> = BTreeMap::new();
        for file in &files {
            let wanted = Wanted {
                path: file.path.clone(),
                build_id: ids.get(&*file.path).cloned().flatten(),
            };
            let range = file.offset
                ..file
                    .offset
                    .saturating_add(file.end.saturating_sub(file.start));
            let mut loads = self.layout.of_kind(PT_LOAD);
            let load = loads.find(|load| load.address == file.start);
            let code = load.is_some_and(|load| load.flags & PF_X != 0);
            let found = self.images.find(&wanted).or_else(|| {
                let place = (range.clone(), file.start, code);
                self.images.at_its_addresses(&wanted, place)
            });
            let Some(elf) = found else {
                self.images.missing.insert(wanted);
                continue;
            };
            let is_program = program.as_ref() == Some(&file.path);
            let name = file.path.rsplit('/').next().unwrap_or_default();
            let folder = if is_program { "images" } else { LIBRARIES };
            let (files, dumped) = (self.out.files.len(), dumps.len());
            let path = self
                .out
                .add(folder, name, elf.whole().clone(), elf.path.clone());
            let is_new = self.out.files.len() > files;
            let mut is_recorded = false;
            if let Some(bias) = programs::bias(&elf, range, file.start, code) {
                let entry = (!is_program, path.clone(), bias);
                recorded.entry(file.path.clone()).or_insert(entry);
                is_recorded = true;
            }
            self.file_memory(&elf, &path, file, claims, dumps);
            if is_new && !is_recorded && dumps.len() == dumped {
                self.out.remove(&path);
            }
        }
        let mut recorded: Vec<_> = recorded.into_values().collect();
        recorded.sort_by_key(|(library, ..)| *library);
        // GDB finds the libraries through the list of the dynamic linker.
        for (index, (_, path, bias)) in recorded.iter().filter(|found| !found.0).enumerate() {
            programs::record(index, path.clone(), *bias, &mut self.out);
        }
    }

    /// Adds the parts of a mapping that are not in the core file because they were not changed
    /// after they were mapped.
    fn file_memory(
        &self,
        elf: &Elf,
        path: &str,
        file: &notes::MappedFile,
        claims: &mut Claims,
        dumps: &mut Vec<Dump>,
    ) {
        let length = elf.bytes().len() as u64;
        let there = length.saturating_sub(file.offset);
        let end = file.end.min(file.start.saturating_add(there));
        for range in claims.take(file.start..end.max(file.start)) {
            dumps.push(Dump {
                section: format!("dump{}", dumps.len() + 1),
                file: path.to_owned(),
                address: range.start,
                offset: Some(file.offset + (range.start - file.start)),
                length: Some(range.end - range.start),
                ..Dump::default()
            });
        }
    }

    /// The bytes of memory at an address, if the core file contains them.
    fn at(&self, address: u64, length: u64) -> Option<&[u8]> {
        let (begin, range) = self.memory.range(..=address).next_back()?;
        part(&self.bytes[range.clone()], address - begin, length)
    }
}

/// The build-id of a file that is mapped from its start: the kernel saves the first page. `read`
/// takes an offset and a length and returns the bytes of the file there.
fn build_id<'b>(read: impl Fn(u64, u64) -> Option<&'b [u8]>) -> Option<BuildId> {
    let read = |at: u64, length| {
        let within = at.checked_add(length)? <= LARGEST_PAGE;
        within.then(|| read(at, length))?
    };
    let layout = ProgramHeaders::read(read)?;
    // Segments that do not overlap are together no longer than the page.
    let mut left = LARGEST_PAGE;
    layout.of_kind(PT_NOTE).find_map(|note| {
        left = left.checked_sub(note.in_file)?;
        let bytes = read(note.offset, note.in_file)?;
        let mut fields = Fields::new(bytes, layout.big);
        loop {
            let (name, size, kind) = (fields.u32()?, fields.u32()?, fields.u32()?);
            let name = fields.bytes((name as usize).checked_next_multiple_of(4)?)?;
            let contents = fields.bytes((size as usize).checked_next_multiple_of(4)?)?;
            // NT_GNU_BUILD_ID.
            if kind == 3 && name == b"GNU\0" {
                return BuildId::new(contents.get(..size as usize)?);
            }
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn program_headers_do_not_overlap() {
        let mut file = vec![0; 64 + 4 * 56];
        file[..6].copy_from_slice(b"\x7fELF\x02\x01");
        file[32] = 64;
        let read = |file: &[u8]| ProgramHeaders::read(|at, length| part(file, at, length));
        for (size, count, wanted) in [(56, 2, Some(2)), (64, 9, Some(3)), (0, 9, None)] {
            file[54] = size;
            file[56] = count;
            assert_eq!(read(&file).map(|layout| layout.headers.len()), wanted);
        }
    }

    #[test]
    fn a_build_id_is_searched_in_one_page() {
        const NOTES: usize = 1000;
        let mut file = vec![0; 64 + NOTES * 56];
        file[..6].copy_from_slice(b"\x7fELF\x02\x01");
        (file[32], file[54]) = (64, 56);
        file[56..58].copy_from_slice(&(NOTES as u16).to_le_bytes());
        let begin = file.len() as u64;
        file.extend([4, 0, 0, 0, 2, 0, 0, 0, 3, 0, 0, 0, b'G', b'N', b'U', 0]);
        file.extend([0xAB, 0xCD, 0, 0]);
        file.resize(2 * LARGEST_PAGE as usize, 0);
        let mut found = |offset: u64, length: u64| {
            for header in file[64..64 + NOTES * 56].chunks_exact_mut(56) {
                header[0] = PT_NOTE as u8;
                header[8..16].copy_from_slice(&offset.to_le_bytes());
                header[32..40].copy_from_slice(&length.to_le_bytes());
            }
            let read = std::cell::Cell::new(0);
            let id = build_id(|at, length| {
                read.set(read.get() + length);
                part(&file, at, length)
            });
            assert!(read.get() <= 3 * LARGEST_PAGE, "{} bytes", read.get());
            id.map(|id| id.to_string())
        };
        assert_eq!(found(begin, 20), Some("abcd".to_owned()));
        // Overlapping segments without a build-id, and one that begins within the page and ends
        // beyond it.
        assert_eq!(found(begin + 20, 8000), None);
        assert_eq!(found(begin, LARGEST_PAGE), None);
    }

    #[test]
    fn threads_have_no_more_memory_in_all_than_the_limit() {
        let threads = |count, dumps| {
            let (mut threads, mut notes) = (vec![Thread::default(); count], Vec::new());
            limit(&mut threads, dumps, 1 << 30, &mut notes);
            (threads.len(), notes.len())
        };
        assert_eq!(threads(1000, 4000), (1000, 0));
        assert_eq!(threads(1000, 0), (1000, 0));
        assert_eq!(threads(1000, MAX_DUMPS / 10), (10, 1));
        assert_eq!(threads(3, 2 * MAX_DUMPS), (1, 1));
        let (mut small, mut notes) = (vec![Thread::default(); 2000], Vec::new());
        limit(&mut small, 2000, 1 << 20, &mut notes);
        assert_eq!(small.len(), (LEAST_DUMPS + (1 << 14)) / 2000);
    }
}
