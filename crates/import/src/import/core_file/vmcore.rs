//! Core files of a whole Linux system (vmcore, `/proc/kcore`, QEMU's `dump-guest-memory`): physical
//! memory, and the tables of the kernel as its VMCOREINFO describes them.
//!
//! VMCOREINFO is in a note of the file, or in the note that the kernel keeps in memory.

use super::notes::Notes;
use super::{Header, MAX_SHARED, PT_LOAD, ProgramHeaders, kernel_names, limit, part};
use crate::import::note::CoreFileNote;
use crate::import::{BuildId, ImportError, Imported, Options, programs};
use armsnap_arch::arch::pointer_auth;
use armsnap_snapshot::budget::Budget;
use armsnap_snapshot::linux::Memory as _;
use armsnap_snapshot::linux::aarch32;
use armsnap_snapshot::linux::module_names::{self, ModuleNames};
use armsnap_snapshot::linux::physical::PhysicalKernel;
use armsnap_snapshot::linux::vmcoreinfo::{Info, NoValue};
use armsnap_snapshot::mapped::Mapped;
use armsnap_snapshot::program::elf::{Elf, Machine};
use armsnap_snapshot::program::kernel_symbols;
use armsnap_snapshot::snapshot::memory::translated;
use armsnap_snapshot::snapshot::model::{
    Cluster, Device, DeviceClass, Dump, Register, RegisterValue, Snapshot,
};
use armsnap_snapshot::snapshot::recording::Recording;
use object::{Object, ObjectSymbol};
use std::path::Path;

/// The VMCOREINFO of a core file, if it is one of a whole system.
pub fn info(bytes: &[u8], layout: &ProgramHeaders, notes: &Notes) -> Option<Info> {
    if let Some(text) = &notes.vmcoreinfo {
        return Some(Info::read(text));
    }
    // The core file of a program has an auxiliary vector, but no physical addresses.
    if notes.entry.is_some() || !notes.files.is_empty() {
        return None;
    }
    let loads = layout.of_kind(PT_LOAD).filter(|load| load.in_file > 0);
    let known = |load: &Header| !matches!(load.physical, 0 | u64::MAX);
    // QEMU writes physical memory without virtual addresses; other writers include those of the
    // direct mapping.
    if !loads.clone().any(known) && loads.clone().any(|load| load.address != 0) {
        return None;
    }
    // Segments may overlap in the file, which is searched only once.
    Info::find(bytes, layout.big)
}

/// The bytes of a segment that are in the file.
pub(super) fn held<'b>(bytes: &'b [u8], load: &Header) -> &'b [u8] {
    let there = (bytes.len() as u64).saturating_sub(load.offset);
    part(bytes, load.offset, load.in_file.min(there)).unwrap_or(&[])
}

/// Returns a function for the physical address of a segment; `/proc/kcore` has -1 if the segment is
/// not physically contiguous, and with old kernels 0 in all segments.
pub(super) fn physical(layout: &ProgramHeaders) -> impl Fn(&Header) -> Option<u64> + use<> {
    let loads = layout.of_kind(PT_LOAD).filter(|load| load.in_file > 0);
    let is_old = loads.clone().count() > 1 && loads.clone().all(|load| load.physical == 0);
    move |load| {
        let none = load.physical == u64::MAX || is_old && load.address != 0;
        (!none).then_some(load.physical)
    }
}

/// The dumps of the segments that `wanted` selects, in the order of the file.
fn dumps(
    bytes: &Mapped,
    layout: &ProgramHeaders,
    space: &str,
    out: &mut Imported,
    wanted: impl Fn(&Header) -> Option<u64>,
) -> Vec<Dump> {
    let mut dumps = Vec::new();
    let written = Budget::of(bytes.len(), MAX_SHARED, 0);
    let mut shared = 0;
    for (index, load) in layout.of_kind(PT_LOAD).enumerate() {
        let length = held(bytes, load).len();
        let Some(address) = wanted(load).filter(|_| length > 0) else {
            continue;
        };
        if !written.take(length as u64) {
            shared += 1;
            continue;
        }
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
    if shared > 0 {
        let note = CoreFileNote::SharedMemory { parts: shared };
        out.notes.push(note.into());
    }
    dumps
}

/// Finds the translation tables of a 32-bit kernel.
fn place(bytes: &[u8], layout: &ProgramHeaders, info: &mut Info) -> Result<(), NoValue> {
    if layout.big {
        return Err(aarch32::big_endian());
    }
    let physical = physical(layout);
    let loads = layout.of_kind(PT_LOAD);
    let segments = loads.filter_map(|load| {
        let address = Some(load.address).filter(|address| *address != 0);
        Some((address, physical(load)?, held(bytes, load)))
    });
    let segments: Vec<aarch32::KernelSegment<'_>> = segments.collect();
    aarch32::place(info, &segments)
}

/// Imports the core file of a whole system into `out`, which has the notes on how it was read.
///
/// # Errors
///
/// If the kernel's program that the user names cannot be read.
pub fn imported(
    path: &Path,
    (bytes, layout): (&Mapped, &ProgramHeaders),
    mut notes: Notes,
    info: &Info,
    options: &Options,
    mut out: Imported,
) -> Result<Imported, ImportError> {
    for mask in masks(info) {
        notes.add_to_all(&mask);
    }
    out.kind = "core file of a Linux system".to_owned();
    if let Some(release) = info.text("OSRELEASE") {
        let note = CoreFileNote::Release {
            path: path.to_owned(),
            release: release.to_owned(),
        };
        out.notes.push(note.into());
    }
    let cut = layout.of_kind(PT_LOAD);
    let cut = cut.filter(|load| (held(bytes, load).len() as u64) < load.in_file);
    let cut = cut.count();
    if cut > 0 {
        out.notes
            .push(CoreFileNote::CutMemory { parts: cut }.into());
    }
    out.notes.extend(notes.left_out());
    let physical = physical(layout);
    let ram = dumps(bytes, layout, "P", &mut out, &physical);
    let mut info = info.clone();
    let placed = match layout.is_64bit {
        true => Ok(()),
        false => place(bytes, layout, &mut info),
    };
    let tables = placed.and_then(|()| info.tables());
    let mapped = dumps(bytes, layout, "N", &mut out, |load| match physical(load) {
        // Without tables, use the direct mapping that the headers describe.
        Some(_) if tables.is_ok() || load.address == 0 => None,
        _ => Some(load.address),
    });
    let mut threads = notes.threads;
    limit(&mut threads, mapped.len(), bytes.len(), &mut out.notes);
    let mut sections = Vec::new();
    match &tables {
        Ok(tables) => {
            let note = CoreFileNote::KernelTable {
                address: tables.high_table,
                bits: tables.high_bits,
            };
            out.notes.push(note.into());
            sections.push(translated::section(tables, "VMCOREINFO"));
        }
        Err(reason) => {
            let reason = reason.clone();
            let note = CoreFileNote::NotTranslated { reason };
            out.notes.push(note.into());
        }
    }
    let panicked = kernel(path, &info, options, (bytes, layout), &mut out)?;
    let mut devices: Vec<Device> = threads
        .into_iter()
        .enumerate()
        .map(|(index, thread)| Device {
            key: format!("device{index}"),
            file: format!("cpu_{index}.ini"),
            name: format!("cpu_{index}"),
            class: DeviceClass::Core,
            kind: if layout.is_64bit {
                "ARMv8-A"
            } else {
                "ARMv7-A"
            }
            .to_owned(),
            other: vec![("tid".to_owned(), thread.tid.to_string())],
            registers: thread.registers,
            dumps: mapped.clone(),
            other_sections: sections.clone(),
            ..Device::default()
        })
        .collect();
    // Debuggers select this core.
    if let Some(core) = panicked.and_then(|cpu| devices.get(cpu)) {
        let stopped = Some(core.name.clone());
        let recording = Recording {
            stopped,
            ..Recording::default()
        };
        out.snapshot.other_sections.extend(recording.section());
        let core = core.name.clone();
        out.notes.push(CoreFileNote::Panicked { core }.into());
    }
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

/// The pointer authentication masks that the kernel reports for its own pointers.
fn masks(info: &Info) -> Vec<Register> {
    /// Bit 55, which selects the half of the address space and is not part of the code.
    const HALF: u64 = 1 << 55;
    let mask = info.number("NUMBER(KERNELPACMASK)");
    let Some(mask) = mask.map(|mask| mask & !HALF).filter(|mask| *mask != 0) else {
        return Vec::new();
    };
    let names = pointer_auth::MASKS.into_iter();
    let registers = names.map(|name| Register {
        name: name.to_owned(),
        size: Some(64),
        value: RegisterValue(mask.to_le_bytes().to_vec()),
        ..Register::default()
    });
    registers.collect()
}

/// Adds the kernel's program for its names, at the address at which the kernel ran; without a
/// program, adds the names in the kernel's memory. Returns the CPU that panicked.
fn kernel(
    core: &Path,
    info: &Info,
    options: &Options,
    (bytes, layout): (&Mapped, &ProgramHeaders),
    out: &mut Imported,
) -> Result<Option<usize>, ImportError> {
    let offset = info.address("KERNELOFFSET");
    if let Some(offset) = offset {
        out.notes.push(CoreFileNote::KernelOffset { offset }.into());
    }
    let Some(path) = &options.vmlinux else {
        // The tables of 32-bit kernels have another layout.
        let names = kernel_names::find(bytes, layout, info).filter(|_| layout.is_64bit);
        let Some(names) = names else {
            out.notes.push(CoreFileNote::NoKernel.into());
            return Ok(None);
        };
        let note = CoreFileNote::KernelNames {
            symbols: names.symbols,
            text: names.text,
        };
        out.notes.push(note.into());
        add_names(core, 0, "kernel-symbols", names.file, out);
        let symbols = kernel_symbols::placed(&names.table, names.text);
        let symbols = symbols.into_iter().flatten();
        let symbols = symbols.map(|(symbol, address, size)| (&*symbol.name, address, size));
        return Ok(of_memory(core, (bytes, layout, info), symbols, out));
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
        out.notes.push(CoreFileNote::UnplacedKernel.into());
        return Ok(None);
    };
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let file = out.add("images", &name, elf.whole().clone(), elf.path.clone());
    programs::record(0, file, offset, out);
    let Ok(file) = object::File::parse(elf.bytes()) else {
        return Ok(None);
    };
    let symbols = file.symbols().filter_map(|symbol| {
        let address = symbol.address().wrapping_add(offset);
        Some((symbol.name().ok()?, address, symbol.size()))
    });
    Ok(of_memory(core, (bytes, layout, info), symbols, out))
}

/// Adds a file of names that does not exist on disk.
fn add_names(core: &Path, index: usize, name: &str, bytes: Vec<u8>, out: &mut Imported) {
    out.files.insert(name.to_owned(), bytes.into());
    // No file has this path, so readers take the contents from the snapshot.
    let origin = std::path::absolute(core).unwrap_or_else(|_| core.to_owned());
    out.origins.insert(name.to_owned(), origin.join(name));
    programs::record(index, name.to_owned(), 0, out);
}

/// Adds the names of the modules' functions, and returns the CPU that panicked. `symbols` are the
/// kernel's.
fn of_memory<'s>(
    core: &Path,
    (bytes, layout, info): (&Mapped, &ProgramHeaders, &Info),
    symbols: impl Iterator<Item = (&'s str, u64, u64)>,
    out: &mut Imported,
) -> Option<usize> {
    let loads = layout.of_kind(PT_LOAD);
    let physical = physical(layout);
    let pieces = loads.filter_map(|load| Some((physical(load)?, held(bytes, load))));
    let kernel = PhysicalKernel::new(pieces.collect(), info)?;
    let mut panic_cpu = None;
    let symbols = symbols.inspect(|(name, address, _)| {
        if *name == "panic_cpu" {
            panic_cpu = Some(*address);
        }
    });
    if !layout.is_64bit {
        // The layouts of the modules of 32-bit kernels are not known.
        symbols.for_each(drop);
        return panicked(&kernel, layout, panic_cpu?);
    }
    match ModuleNames::find(&kernel, symbols, kernel_names::signed(info)) {
        Ok(names) => {
            if let Some(file) = names.file {
                let note = CoreFileNote::ModuleNames {
                    modules: names.modules,
                    functions: names.functions,
                };
                out.notes.push(note.into());
                add_names(core, 1, module_names::FILE, file, out);
            }
            let broken = names
                .broken
                .map(|reason| CoreFileNote::NoModules { reason });
            out.notes.extend(broken.map(Into::into));
        }
        Err(reason) => {
            let reason = reason.to_string();
            out.notes.push(CoreFileNote::NoModules { reason }.into());
        }
    }
    panicked(&kernel, layout, panic_cpu?)
}

/// The CPU that panicked; `address` is that of `panic_cpu`.
fn panicked(kernel: &PhysicalKernel<'_>, layout: &ProgramHeaders, address: u64) -> Option<usize> {
    // -1 if no CPU panicked.
    let mut cpu = [0; 4];
    let known = kernel.read(address, &mut cpu) == cpu.len();
    let cpu = match layout.big {
        true => i32::from_be_bytes(cpu),
        false => i32::from_le_bytes(cpu),
    };
    known.then(|| usize::try_from(cpu).ok()).flatten()
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

    #[test]
    fn masks_of_kernel_pointers_leave_out_the_bit_that_selects_the_half() {
        let values = |text: &str| -> Vec<(String, u64)> {
            let registers = masks(&Info::read(text.as_bytes())).into_iter();
            let value = |register: &Register| register.value.as_u64().unwrap();
            registers.map(|r| (r.name.clone(), value(&r))).collect()
        };
        let mask = 0xff7f << 48;
        assert_eq!(
            values("NUMBER(KERNELPACMASK)=0xffff000000000000\n"),
            [
                ("pauth_dmask".to_owned(), mask),
                ("pauth_cmask".to_owned(), mask)
            ]
        );
        assert!(values("NUMBER(KERNELPACMASK)=0x0\n").is_empty());
        assert!(values("NUMBER(VA_BITS)=48\n").is_empty());
    }

    #[test]
    fn memory_at_physical_0_is_told_from_unknown_addresses() {
        let high = 0xFFFF_0000_0000_0000;
        let load = |address, physical, in_file| Header {
            kind: PT_LOAD,
            address,
            physical,
            in_file,
            ..Header::default()
        };
        for (headers, wanted) in [
            // RAM from address 0, alone and with more RAM.
            (vec![load(high, 0, 16)], vec![Some(0)]),
            (
                vec![load(high, 0, 16), load(high + 0x4000, 0x4000, 16)],
                vec![Some(0), Some(0x4000)],
            ),
            (
                vec![load(high, 0, 16), load(high, u64::MAX, 16)],
                vec![Some(0), None],
            ),
            // An old /proc/kcore.
            (
                vec![load(high, 0, 16), load(high + 0x4000, 0, 16)],
                vec![None, None],
            ),
            (
                vec![load(0, 0, 16), load(0x1000, 0x1000, 16)],
                vec![Some(0), Some(0x1000)],
            ),
        ] {
            let layout = ProgramHeaders {
                big: false,
                is_64bit: true,
                machine: super::super::EM_AARCH64,
                headers,
            };
            let physical = physical(&layout);
            let found: Vec<Option<u64>> = layout.headers.iter().map(physical).collect();
            assert_eq!(found, wanted);
        }
    }
}
