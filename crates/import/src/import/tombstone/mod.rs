//! Tombstones of Android (debuggerd), of programs on ARM64 and ARM: as text, as protobuf, and in the
//! log.
//!
//! Memory is that in the file, followed by the read-only parts of modules that are found by their
//! build-ids.

mod modules;
mod proto;
mod report;
mod text;
mod wire;

use super::claims::Claims;
use super::core_file::register;
use super::fields::Fields;
use super::images::Images;
use super::note::{CoreFileNote, TombstoneNote};
use super::paths::{Names, plain};
use super::{ImportError, Imported, Options};
use armsnap_snapshot::mapped::Mapped;
use armsnap_snapshot::snapshot::model::{Cluster, Device, DeviceClass, Dump, Register, Snapshot};
use report::{Report, Thread};
use std::path::Path;

/// The file of the memory that the tombstone has.
const MEMORY: &str = "memory/tombstone.bin";
/// The maximum number of dumps of all threads together: each thread lists all parts. Each
/// [`BYTES_EACH`] bytes of a file allow one more.
const LEAST_DUMPS: usize = 1 << 12;
const MAX_DUMPS: usize = 1 << 20;
const BYTES_EACH: usize = 32;

/// Whether a file is a tombstone, or a log with one; `head` is its start.
pub fn is_tombstone(head: &[u8], whole: impl FnOnce() -> Option<Mapped>) -> bool {
    proto::is_tombstone(head)
        || super::zephyr::is_text(head) && whole().is_some_and(|bytes| text::has_tombstone(&bytes))
}

/// Reads a tombstone from its bytes; `path` is its name.
///
/// # Errors
///
/// If it is of another architecture, or has no registers.
pub fn import_bytes(
    path: &Path,
    bytes: Mapped,
    options: &Options,
) -> Result<Imported, ImportError> {
    let fault = |text: String| ImportError::input(path, text);
    let report = match proto::is_tombstone(&bytes) {
        true => proto::read(&bytes),
        false => text::read(&bytes),
    };
    let report = report.map_err(fault)?;
    if report
        .threads
        .iter()
        .all(|thread| thread.registers.is_empty())
    {
        return Err(fault(
            "tombstone without registers of ARM64 or ARM".to_owned(),
        ));
    }
    let mut out = Imported {
        kind: "tombstone of Android".to_owned(),
        ..Imported::default()
    };
    out.notes
        .extend(report.notes.iter().cloned().map(Into::into));
    let most = LEAST_DUMPS + bytes.len() / BYTES_EACH;
    let mut claims = Claims::default();
    let mut dumps = memory(&report, &mut claims, &mut out);
    let mut images = Images::new(options)?;
    modules::dumps(
        &report,
        &mut images,
        (&mut claims, most),
        &mut dumps,
        &mut out,
    );
    for (index, dump) in dumps.iter_mut().enumerate() {
        dump.section = format!("dump{}", index + 1);
    }
    let devices = devices(&report, &dumps, most, &mut out);
    let cluster = Cluster {
        name: "cluster0".to_owned(),
        devices: devices.iter().map(|device| device.name.clone()).collect(),
        ..Cluster::default()
    };
    out.snapshot = Snapshot {
        version: "1.0".to_owned(),
        devices,
        clusters: vec![cluster],
        other_sections: std::mem::take(&mut out.snapshot.other_sections),
        ..Snapshot::default()
    };
    images.report(&mut out.notes);
    out.record_origin();
    Ok(out)
}

/// The memory in the tombstone, in one file.
fn memory(report: &Report, claims: &mut Claims, out: &mut Imported) -> Vec<Dump> {
    let (mut dumps, mut file) = (Vec::new(), Vec::new());
    for (address, bytes) in &report.memory {
        let last = address.saturating_add(bytes.len() as u64);
        for range in claims.take(*address..last) {
            let begin = (range.start - address) as usize;
            let length = range.end - range.start;
            dumps.push(Dump {
                file: MEMORY.to_owned(),
                address: range.start,
                offset: Some(file.len() as u64),
                length: Some(length),
                ..Dump::default()
            });
            file.extend(&bytes[begin..begin + length as usize]);
        }
    }
    if !dumps.is_empty() {
        out.files.insert(MEMORY.to_owned(), file.into());
    }
    dumps
}

/// The threads as cores, first the one that failed.
fn devices(report: &Report, dumps: &[Dump], most: usize, out: &mut Imported) -> Vec<Device> {
    let mut threads: Vec<&Thread> = report.threads.iter().collect();
    threads.sort_by_key(|thread| (thread.tid != report.failed, thread.tid));
    let most = (most.min(MAX_DUMPS) / dumps.len().max(1)).max(1);
    if threads.len() > most {
        let note = TombstoneNote::ManyThreads {
            threads: threads.len(),
            parts: dumps.len(),
            used: most,
        };
        out.notes.push(note.into());
        threads.truncate(most);
    }
    let mut names = Names::default();
    let devices = threads.iter().enumerate().map(|(index, thread)| {
        let name = names.unique(&format!("{}-{}", plain(&thread.name), thread.tid));
        let mut other = vec![("tid".to_owned(), thread.tid.to_string())];
        let signal = report.signal.as_ref();
        if let Some(signal) = signal.filter(|_| thread.tid == report.failed) {
            other.extend(signal.entries());
            let note = CoreFileNote::Ended {
                core: name.clone(),
                signal: signal.describe(report.wide),
            };
            out.notes.push(note.into());
        }
        Device {
            key: format!("device{index}"),
            file: format!("cpu_{index}.ini"),
            name,
            class: DeviceClass::Core,
            kind: if report.wide { "ARMv8-A" } else { "ARMv7-A" }.to_owned(),
            other,
            registers: registers(thread, report.wide),
            dumps: dumps.to_vec(),
            ..Device::default()
        }
    });
    devices.collect()
}

/// The registers of a thread, each once.
fn registers(thread: &Thread, wide: bool) -> Vec<Register> {
    let mut out: Vec<Register> = Vec::new();
    for (printed, value) in &thread.registers {
        let Some((name, size)) = named(printed, wide) else {
            continue;
        };
        if out.iter().all(|known| known.name != name) {
            let bytes = &value.to_le_bytes()[..size];
            out.push(register(&name, bytes, &Fields::new(bytes, false)));
        }
    }
    out
}

/// A register by the name in a tombstone: its name, and its size in bytes.
fn named(printed: &str, wide: bool) -> Option<(String, usize)> {
    let number = |letter: char, most: u32| {
        let number: u32 = printed.strip_prefix(letter)?.parse().ok()?;
        (number <= most).then(|| format!("{}{number}", letter.to_ascii_uppercase()))
    };
    let name = |name: &str, size| Some((name.to_owned(), size));
    match (printed, wide) {
        ("pc", true) => name("PC", 8),
        ("sp", true) => name("SP", 8),
        ("lr", true) => name("X30", 8),
        ("pc", false) => name("PC", 4),
        ("sp", false) => name("SP", 4),
        ("lr", false) => name("LR", 4),
        ("sl", false) => name("R10", 4),
        ("fp", false) => name("R11", 4),
        ("ip", false) => name("R12", 4),
        ("scr", false) => name("FPSCR", 4),
        ("pstate" | "pst" | "cpsr", _) => name("CPSR", 4),
        ("fpsr", true) => name("FPSR", 4),
        ("fpcr", true) => name("FPCR", 4),
        (_, true) => {
            let of_vector = || number('v', 31).map(|name| (name, 16));
            number('x', 30).map(|name| (name, 8)).or_else(of_vector)
        }
        (_, false) => {
            let of_vector = || number('d', 31).map(|name| (name, 8));
            number('r', 12).map(|name| (name, 4)).or_else(of_vector)
        }
    }
}
