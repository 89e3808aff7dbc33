//! The log of a Linux kernel that failed (oops, panic), of ARM64 and ARM: the registers, the words
//! of the stack and the code that it prints.

mod report;

use super::note::{KernelLogNote, Note};
use super::paths::plain;
use super::{ImportError, Imported, NamedProgram, Options, programs};
use armsnap_snapshot::mapped::Mapped;
use armsnap_snapshot::program::elf::Elf;
use armsnap_snapshot::snapshot::model::{
    Device, DeviceClass, Dump, Register, RegisterValue, Snapshot,
};
use object::{Object, ObjectSymbol};
use report::{Place, Report};
use std::path::Path;

/// Whether a file is such a log; `head` is its start.
pub fn is_log(head: &[u8], whole: impl FnOnce() -> Option<Mapped>) -> bool {
    super::zephyr::is_text(head) && whole().is_some_and(|bytes| Report::read(&bytes).is_some())
}

/// Reads a log from its bytes; `path` is its name.
///
/// # Errors
///
/// If it has no registers, or a program that the user names cannot be read.
pub fn import_bytes(
    path: &Path,
    bytes: Mapped,
    options: &Options,
) -> Result<Imported, ImportError> {
    let report = Report::read(&bytes);
    let report = report.ok_or_else(|| {
        ImportError::input(
            path,
            "log of a Linux kernel without registers of ARM64 or ARM",
        )
    })?;
    let mut out = Imported {
        kind: "log of a Linux kernel".to_owned(),
        ..Imported::default()
    };
    let notes = report.notes.iter().cloned();
    out.notes.extend(notes.map(Note::KernelLog));
    let kernel = match &options.vmlinux {
        Some(path) => Some((path, Elf::open(path)?)),
        None => None,
    };
    let mut registers = report.registers.clone();
    for (name, place) in &report.places {
        let found = kernel.as_ref().and_then(|(_, elf)| address(elf, place));
        match found {
            Some(address) => {
                let address = address.wrapping_add(report.offset.unwrap_or(0));
                registers.push((name, address));
            }
            None => {
                let (register, place) = ((*name).to_owned(), place.to_string());
                let note = KernelLogNote::Symbol { register, place };
                out.notes.push(note.into());
            }
        }
    }
    let pc = registers.iter().find(|(name, _)| *name == "PC");
    let pc = pc.map(|(_, address)| *address);
    let mut dumps = Vec::new();
    let mut add = |address: u64, bytes: Vec<u8>, out: &mut Imported| {
        let file = format!("memory/{address:x}.bin");
        let length = Some(bytes.len() as u64);
        out.files.insert(file.clone(), bytes.into());
        dumps.push(Dump {
            file,
            address,
            length,
            ..Dump::default()
        });
    };
    for (address, bytes) in &report.stack {
        add(*address, bytes.clone(), &mut out);
    }
    if let Some((address, code)) = report
        .code
        .as_ref()
        .zip(pc)
        .and_then(|((before, code), pc)| {
            let begin = (pc & !1).checked_sub(*before)?;
            begin.checked_add(code.len() as u64)?;
            Some((begin, code.clone()))
        })
    {
        add(address, code, &mut out);
    }
    let mut named = options.elf.clone();
    if let Some((path, elf)) = &kernel {
        let lowest = elf.segments.iter().map(|segment| segment.address).min();
        let moved = |offset| programs::page(lowest.unwrap_or(0)).wrapping_add(offset);
        named.push(NamedProgram {
            path: (*path).clone(),
            address: report.offset.map(moved),
        });
        if report.offset.is_none() && !report.places.is_empty() {
            out.notes.push(KernelLogNote::NoOffset.into());
        }
    } else if named.is_empty() {
        out.notes.push(KernelLogNote::NoKernel.into());
    }
    dumps.extend(programs::dumps(&named, &mut out)?);
    for (index, dump) in dumps.iter_mut().enumerate() {
        dump.section = format!("dump{}", index + 1);
    }
    let name = report
        .command
        .as_deref()
        .map_or_else(|| "thread".to_owned(), plain);
    let other = report.cpu.map(|cpu| ("cpu".to_owned(), cpu.to_string()));
    out.snapshot = Snapshot {
        version: "1.0".to_owned(),
        devices: vec![Device {
            key: "device0".to_owned(),
            file: "cpu_0.ini".to_owned(),
            name,
            class: DeviceClass::Core,
            kind: if report.wide { "ARMv8-A" } else { "ARMv7-A" }.to_owned(),
            other: other.into_iter().collect(),
            registers: registers
                .iter()
                .map(|(name, value)| register(name, *value, report.wide))
                .collect(),
            dumps,
            ..Device::default()
        }],
        other_sections: std::mem::take(&mut out.snapshot.other_sections),
        ..Snapshot::default()
    };
    out.record_origin();
    Ok(out)
}

/// The address of a place in the kernel, as linked; `None` if several functions have its name, or
/// the function is larger than the one that ran.
fn address(elf: &Elf, place: &Place) -> Option<u64> {
    let file = object::File::parse(elf.bytes()).ok()?;
    let mut found = file.symbols().filter(|symbol| {
        symbol.is_definition() && symbol.name_bytes() == Ok(place.function.as_bytes())
    });
    let first = found.next()?;
    let address = first.address();
    let is_same = found.all(|symbol| symbol.address() == address) && first.size() <= place.size;
    is_same.then(|| address.wrapping_add(place.offset))
}

fn register(name: &str, value: u64, wide: bool) -> Register {
    let bytes = if wide && name != "CPSR" { 8 } else { 4 };
    Register {
        name: name.to_owned(),
        size: Some(8 * bytes as u32),
        value: RegisterValue(value.to_le_bytes()[..bytes].to_vec()),
        ..Register::default()
    }
}
