//! Core files of a whole Linux system (vmcore, `/proc/kcore`, QEMU's `dump-guest-memory`): physical
//! memory, and the tables of the kernel as its VMCOREINFO describes them.
//!
//! VMCOREINFO is text in lines `KEY=VALUE` (Linux, Documentation/admin-guide/kdump/vmcoreinfo.rst). It
//! is in a note of the file, or in the note that the kernel keeps in memory.

use super::notes::{Notes, Thread};
use super::{Frame, Header, PT_LOAD, limit, part};
use crate::import::fields::Fields;
use crate::import::{BuildId, ImportError, Imported, Options, programs};
use crate::mapped::Mapped;
use crate::program::elf::{Elf, Machine};
use crate::snapshot::memory::translated;
use crate::snapshot::model::{Cluster, Device, DeviceClass, Dump, Snapshot};
use crate::translation::KernelTables;
use object::{Object, ObjectSymbol};
use std::collections::BTreeMap;
use std::path::Path;

/// The name of the note.
const NAME: &[u8] = b"VMCOREINFO\0";
/// The bytes of its header and padded name.
const HEADER: usize = 12 + 12;
/// The kernel gives its text a page, of which the largest has 64 KiB.
const MOST_TEXT: usize = 1 << 16;

/// What VMCOREINFO says, by key.
#[derive(Debug)]
pub struct Info(BTreeMap<String, String>);

impl Info {
    /// Reads the text.
    fn read(text: &[u8]) -> Self {
        let text = String::from_utf8_lossy(text);
        let lines = text.lines().filter_map(|line| line.split_once('='));
        let trimmed = |text: &str| text.trim_matches([' ', '\0']).to_owned();
        Self(
            lines
                .map(|(key, value)| (trimmed(key), trimmed(value)))
                .collect(),
        )
    }

    /// That of a core file, if it is one of a whole system.
    pub fn of(bytes: &[u8], frame: &Frame, notes: &Notes) -> Option<Self> {
        if let Some(text) = &notes.vmcoreinfo {
            return Some(Self::read(text));
        }
        // QEMU writes physical memory without virtual addresses, or with the same ones.
        let mut loads = frame.of_kind(PT_LOAD);
        if loads.any(|load| load.address != 0 && load.address != load.physical) {
            return None;
        }
        // Segments may overlap in the file: it is searched once.
        in_memory(bytes, frame.big).map(Self::read)
    }

    fn text(&self, key: &str) -> Option<&str> {
        self.0.get(key).map(String::as_str)
    }

    /// A number, which has `0x` before hexadecimal digits.
    fn number(&self, key: &str) -> Option<u64> {
        let text = self.text(key)?;
        match text.strip_prefix("0x") {
            Some(digits) => u64::from_str_radix(digits, 16).ok(),
            None => text.parse().ok(),
        }
    }

    /// The address of a symbol, which never has `0x`, and other such numbers.
    fn address(&self, key: &str) -> Option<u64> {
        let text = self.text(key)?;
        u64::from_str_radix(text.strip_prefix("0x").unwrap_or(text), 16).ok()
    }

    /// The tables of the kernel.
    fn tables(&self) -> Result<KernelTables, String> {
        let missing = |key: &str| format!("VMCOREINFO has no {key}");
        let number = |key: &str| self.number(key).ok_or_else(|| missing(key));
        let table = "SYMBOL(swapper_pg_dir)";
        let table = self.address(table).ok_or_else(|| missing(table))?;
        // Virtual minus physical addresses of the kernel's image.
        let key = "NUMBER(kimage_voffset)";
        let offset = self.address(key).ok_or_else(|| missing(key))?;
        let size = self
            .number("NUMBER(TCR_EL1_T1SZ)")
            .filter(|size| *size < 64);
        let bits = match size {
            Some(size) => 64 - size,
            None => number("NUMBER(VA_BITS)")?,
        };
        Ok(KernelTables {
            high_table: table.wrapping_sub(offset),
            granule: number("PAGESIZE")?,
            high_bits: u32::try_from(bits).map_err(|_| missing("possible VA_BITS"))?,
        })
    }
}

/// The text of the note that the kernel keeps in memory, found in the file.
fn in_memory(bytes: &[u8], big: bool) -> Option<&[u8]> {
    memchr::memmem::find_iter(bytes, NAME).find_map(|at| {
        let header = at.checked_sub(12)?;
        let mut fields = Fields::new(&bytes[header..], big);
        let (name, size, _) = (fields.u32()?, fields.u32()?, fields.u32()?);
        let size = usize::try_from(size)
            .ok()
            .filter(|size| *size <= MOST_TEXT)?;
        let text = bytes.get(header + HEADER..)?.get(..size)?;
        (name as usize == NAME.len() && text.starts_with(b"OSRELEASE=")).then_some(text)
    })
}

/// The bytes that the file has of a segment.
fn held<'b>(bytes: &'b [u8], load: &Header) -> &'b [u8] {
    let there = (bytes.len() as u64).saturating_sub(load.offset);
    part(bytes, load.offset, load.in_file.min(there)).unwrap_or(&[])
}

/// The address of a segment in physical memory; `/proc/kcore` has -1 where it is not contiguous
/// there, and 0 in old kernels.
fn physical(load: &Header) -> Option<u64> {
    let none = load.physical == u64::MAX || load.physical == 0 && load.address != 0;
    (!none).then_some(load.physical)
}

/// The dumps of the segments that `wanted` selects, in the order of the file.
fn dumps(
    bytes: &Mapped,
    frame: &Frame,
    space: &str,
    out: &mut Imported,
    wanted: impl Fn(&Header) -> Option<u64>,
) -> Vec<Dump> {
    let mut dumps = Vec::new();
    for (index, load) in frame.of_kind(PT_LOAD).enumerate() {
        let length = held(bytes, load).len();
        let Some(address) = wanted(load).filter(|_| length > 0) else {
            continue;
        };
        let file = format!("memory/{index}_{address:x}.bin");
        let begin = load.offset as usize;
        out.files
            .insert(file.clone(), bytes.part(begin..begin + length));
        dumps.push(Dump {
            section: format!("dump{}", dumps.len() + 1),
            file,
            address,
            length: Some(length as u64),
            space: Some(space.to_owned()),
            ..Dump::default()
        });
    }
    dumps
}

/// The core file of a whole system.
///
/// # Errors
///
/// If the program of the kernel that the user names cannot be read.
pub fn imported(
    path: &Path,
    (bytes, frame): (&Mapped, &Frame),
    mut threads: Vec<Thread>,
    info: &Info,
    options: &Options,
) -> Result<Imported, ImportError> {
    let mut out = Imported {
        kind: "core file of a Linux system".to_owned(),
        ..Imported::default()
    };
    if let Some(release) = info.text("OSRELEASE") {
        out.notes
            .push(format!("{}: Linux {release}", path.display()));
    }
    let cut = frame.of_kind(PT_LOAD);
    let cut = cut.filter(|load| (held(bytes, load).len() as u64) < load.in_file);
    let cut = cut.count();
    if cut > 0 {
        let text = "parts of the memory are cut off: the core file is not whole";
        out.notes.push(format!("{cut} {text}"));
    }
    let ram = dumps(bytes, frame, "P", &mut out, physical);
    let mapped = dumps(bytes, frame, "N", &mut out, |load| match physical(load) {
        None => Some(load.address),
        Some(_) => None,
    });
    limit(&mut threads, mapped.len(), &mut out.notes);
    let tables = info.tables();
    let mut sections = Vec::new();
    match &tables {
        Ok(tables) => {
            out.notes.push(format!(
                "the kernel's translation table is at physical {:#x}: high addresses of {} bits \
                 are translated, addresses of processes are not",
                tables.high_table, tables.high_bits
            ));
            sections.push(translated::section(tables, "VMCOREINFO"));
        }
        Err(reason) => out
            .notes
            .push(format!("virtual addresses are not translated: {reason}")),
    }
    kernel(info, options, &mut out)?;
    let mut devices: Vec<Device> = threads
        .into_iter()
        .enumerate()
        .map(|(index, thread)| Device {
            key: format!("device{index}"),
            file: format!("cpu_{index}.ini"),
            name: format!("cpu_{index}"),
            class: DeviceClass::Core,
            kind: if frame.is_64bit { "ARMv8-A" } else { "ARMv7-A" }.to_owned(),
            other: vec![("tid".to_owned(), thread.tid.to_string())],
            registers: thread.registers,
            dumps: mapped.clone(),
            other_sections: sections.clone(),
            ..Device::default()
        })
        .collect();
    let cluster = Cluster {
        name: "cluster0".to_owned(),
        devices: devices.iter().map(|device| device.name.clone()).collect(),
        ..Cluster::default()
    };
    devices.push(Device {
        key: format!("device{}", devices.len()),
        file: "ram.ini".to_owned(),
        name: "RAM".to_owned(),
        class: DeviceClass::MemorySpace,
        dumps: ram,
        ..Device::default()
    });
    out.snapshot = Snapshot {
        version: "1.0".to_owned(),
        devices,
        clusters: vec![cluster],
        other_sections: std::mem::take(&mut out.snapshot.other_sections),
        ..Snapshot::default()
    };
    out.record_origin();
    Ok(out)
}

/// Adds the kernel's program for its names, at the address at which it ran.
fn kernel(info: &Info, options: &Options, out: &mut Imported) -> Result<(), ImportError> {
    let offset = info.address("KERNELOFFSET");
    if let Some(offset) = offset {
        out.notes.push(format!(
            "KERNELOFFSET: the kernel ran {offset:#x} above its link address"
        ));
    }
    let Some(path) = &options.vmlinux else {
        let text = "--vmlinux FILE names the kernel's program: without it there are no names";
        out.notes.push(text.to_owned());
        return Ok(());
    };
    let elf = Elf::open(path)?;
    if elf.machine != Machine::AArch64 && elf.machine != Machine::Arm {
        return Err(ImportError::input(path, "is not a program for Arm"));
    }
    let own = BuildId::of_elf(elf.bytes()).map(|id| id.to_string());
    let (ran, own) = (info.text("BUILD-ID"), own.as_deref());
    if let (Some(ran), Some(own)) = (ran.filter(|ran| !ran.is_empty()), own)
        && ran != own
    {
        return Err(ImportError::input(
            path,
            format!("has build-id {own}, but that of the kernel that ran is {ran}"),
        ));
    }
    let offset = offset.or_else(|| {
        let there = info.address("SYMBOL(swapper_pg_dir)")?;
        let linked = address_of(&elf, "swapper_pg_dir")?;
        Some(there.wrapping_sub(linked))
    });
    let Some(offset) = offset else {
        out.notes
            .push("where the kernel ran is not known: its program is left out".to_owned());
        return Ok(());
    };
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let file = out.add("images", &name, elf.whole().clone(), elf.path.clone());
    programs::record(0, file, offset, out);
    Ok(())
}

fn address_of(elf: &Elf, name: &str) -> Option<u64> {
    let file = object::File::parse(elf.bytes()).ok()?;
    let mut symbols = file.symbols();
    let found = symbols.find(|symbol| symbol.name() == Ok(name));
    found.map(|symbol| symbol.address())
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "OSRELEASE=6.1.0\nPAGESIZE=4096\nSYMBOL(swapper_pg_dir)=ffff800009a2d000\n\
        NUMBER(VA_BITS)=48\nNUMBER(kimage_voffset)=0xffff7fffc8000000\nNUMBER(TCR_EL1_T1SZ)=0x10\n\
        KERNELOFFSET=1a00000\n";

    #[test]
    fn tables_of_the_kernel() {
        let info = Info::read(TEXT.as_bytes());
        let tables = KernelTables {
            high_table: 0x41a2_d000,
            granule: 4096,
            high_bits: 48,
        };
        assert_eq!(info.tables(), Ok(tables));
        assert_eq!(info.address("KERNELOFFSET"), Some(0x1a0_0000));
        let without = Info::read(b"PAGESIZE=4096\nSYMBOL(swapper_pg_dir)=0\n");
        let reason = without.tables().unwrap_err();
        assert_eq!(reason, "VMCOREINFO has no NUMBER(kimage_voffset)");
    }

    #[test]
    fn the_note_is_found_in_memory() {
        let note = |size: u32| {
            let mut note = [11_u32, size, 0].map(u32::to_le_bytes).concat();
            note.extend(b"VMCOREINFO\0\0");
            note.extend(TEXT.as_bytes());
            note
        };
        let whole = note(TEXT.len() as u32);
        // The name alone, then the note.
        let memory = [&b"VMCOREINFO\0....."[..], &whole, b"rest"].concat();
        assert_eq!(in_memory(&memory, false), Some(TEXT.as_bytes()));
        assert_eq!(in_memory(&note(u32::MAX), false), None);
        assert_eq!(in_memory(&whole[..30], false), None);
        assert_eq!(in_memory(b"VMCOREINFO\0", false), None);
    }
}
