//! Minidumps of Breakpad, Crashpad and Windows, of programs on ARM64 and ARM.
//!
//! Memory is that in the file, followed by the read-only parts of modules that are found by their
//! build-ids.

mod context;
mod modules;
mod streams;

use super::claims::Claims;
use super::images::Images;
use super::note::{CoreFileNote, MinidumpNote, Note};
use super::paths::{Names, plain};
use super::{ImportError, Imported, Options};
use armsnap_snapshot::budget::Budget;
use armsnap_snapshot::mapped::Mapped;
use armsnap_snapshot::snapshot::model::{Cluster, Device, DeviceClass, Dump, Snapshot};
use armsnap_snapshot::snapshot::signals::Signal;
use std::path::Path;
use streams::{Exception, Minidump, System};

/// The maximum number of dumps of all threads together: each thread lists all parts.
const MAX_DUMPS: usize = 1 << 20;
/// The same, and the maximum number of parts, for the smallest file; each [`BYTES_EACH`] bytes of a
/// file allow one more.
const LEAST_PARTS: usize = 1 << 12;
const BYTES_EACH: usize = 64;
/// All parts of memory together may be this many times as large as the file: the stacks are listed
/// twice, but are claimed once.
const MAX_SHARED: u64 = 2;

/// Whether bytes are the start of a minidump.
pub fn is_minidump(bytes: &[u8]) -> bool {
    bytes.starts_with(b"MDMP")
}

/// Reads a minidump from its bytes; `path` is its name.
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
    let dump = Minidump::read(&bytes).map_err(fault)?;
    let mut out = Imported {
        kind: dump.kind(),
        ..Imported::default()
    };
    out.notes.extend(dump.notes.iter().cloned().map(Into::into));
    let most = LEAST_PARTS + bytes.len() / BYTES_EACH;
    let mut claims = Claims::default();
    let mut dumps = memory(&bytes, &dump, most, &mut claims, &mut out);
    let mut images = Images::new(options)?;
    modules::dumps(
        (&bytes, &dump),
        &mut images,
        (&mut claims, most),
        &mut dumps,
        &mut out,
    );
    for (index, dump) in dumps.iter_mut().enumerate() {
        dump.section = format!("dump{}", index + 1);
    }
    let devices = devices(&bytes, &dump, &dumps, &mut out);
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

/// The memory in the file.
fn memory(
    bytes: &Mapped,
    dump: &Minidump,
    most: usize,
    claims: &mut Claims,
    out: &mut Imported,
) -> Vec<Dump> {
    let mut dumps = Vec::new();
    let written = Budget::of(bytes.len(), MAX_SHARED, 0);
    let (mut cut, mut more) = (0, 0);
    for part in &dump.memory {
        let begin = usize::try_from(part.offset).unwrap_or(usize::MAX);
        let begin = begin.min(bytes.len());
        let length = part.length.min((bytes.len() - begin) as u64);
        cut += usize::from(length < part.length);
        let last = part.address.saturating_add(length);
        for range in claims.take(part.address..last) {
            let length = range.end - range.start;
            if dumps.len() >= most || !written.take(length) {
                more += 1;
                continue;
            }
            let begin = begin + (range.start - part.address) as usize;
            let file = format!("memory/{:x}.bin", range.start);
            let held = bytes.part(begin..begin + length as usize);
            out.files.insert(file.clone(), held);
            dumps.push(Dump {
                file,
                address: range.start,
                length: Some(length),
                ..Dump::default()
            });
        }
    }
    if cut > 0 {
        out.notes
            .push(MinidumpNote::CutMemory { parts: cut }.into());
    }
    if more > 0 {
        out.notes
            .push(MinidumpNote::MoreMemory { parts: more }.into());
    }
    dumps
}

/// The threads as cores, first the one with the exception.
fn devices(bytes: &[u8], dump: &Minidump, dumps: &[Dump], out: &mut Imported) -> Vec<Device> {
    let failed = |tid: u32| dump.exception.as_ref().filter(|found| found.tid == tid);
    let mut threads: Vec<_> = dump.threads.iter().collect();
    threads.sort_by_key(|thread| failed(thread.tid).is_none());
    let in_all = (LEAST_PARTS + bytes.len() / BYTES_EACH).min(MAX_DUMPS);
    let most = (in_all / dumps.len().max(1)).max(1);
    if threads.len() > most {
        let note = MinidumpNote::ManyThreads {
            threads: threads.len(),
            parts: dumps.len(),
            used: most,
        };
        out.notes.push(note.into());
        threads.truncate(most);
    }
    let mut names = Names::default();
    let mut unknown = Vec::new();
    let devices = threads.iter().enumerate().map(|(index, thread)| {
        let failed = failed(thread.tid);
        // The exception's context is that of the instruction; the thread's own one may be that of
        // the handler.
        let places = [failed.map(|found| found.context), Some(thread.context)];
        let mut places = places.into_iter().flatten();
        let registers =
            places.find_map(|place| context::registers(dump.architecture, place.of(bytes)?));
        if registers.is_none() {
            unknown.push(thread.tid);
        }
        let name = thread.name.as_deref().unwrap_or("thread");
        let name = names.unique(&format!("{}-{}", plain(name), thread.tid));
        let mut other = vec![("tid".to_owned(), thread.tid.to_string())];
        if let Some(exception) = failed {
            let note = match signal(exception, dump) {
                Some(signal) => {
                    other.extend(signal.entries());
                    let signal = signal.describe(dump.architecture.is_64bit());
                    Some(
                        CoreFileNote::Ended {
                            core: name.clone(),
                            signal,
                        }
                        .into(),
                    )
                }
                None if exception.code == streams::REQUESTED => None,
                None => {
                    let (code, address) = (exception.code, exception.address);
                    Some(
                        MinidumpNote::Exception {
                            core: name.clone(),
                            code,
                            address,
                        }
                        .into(),
                    )
                }
            };
            out.notes.extend::<Option<Note>>(note);
        }
        Device {
            key: format!("device{index}"),
            file: format!("cpu_{index}.ini"),
            name,
            class: DeviceClass::Core,
            kind: dump.architecture.core_type().to_owned(),
            other,
            registers: registers.unwrap_or_default(),
            dumps: dumps.to_vec(),
            ..Device::default()
        }
    });
    let devices = devices.collect();
    if !unknown.is_empty() {
        let note = MinidumpNote::NoRegisters {
            threads: unknown.len(),
            first: unknown[0],
        };
        out.notes.push(note.into());
    }
    devices
}

/// The exception as a signal of Linux; `None` if it is not one.
fn signal(exception: &Exception, dump: &Minidump) -> Option<Signal> {
    let (number, information) = match dump.system {
        System::Linux => {
            let (code, address) = (exception.flags as i32, Some(exception.address));
            let is_64bit = dump.architecture.is_64bit();
            return Signal::raised(exception.code, code, address, is_64bit);
        }
        System::Windows => (from_windows(exception.code)?, Vec::new()),
        System::Apple => (from_mach(exception.code)?, Vec::new()),
        System::Other(_) => return None,
    };
    Some(Signal {
        number,
        information,
    })
}

/// The signal of an exception code of Windows (ntstatus.h).
const fn from_windows(code: u32) -> Option<u32> {
    Some(match code {
        // STATUS_ACCESS_VIOLATION, STATUS_STACK_OVERFLOW, STATUS_GUARD_PAGE_VIOLATION.
        0xC000_0005 | 0xC000_00FD | 0x8000_0001 => 11,
        // STATUS_DATATYPE_MISALIGNMENT, STATUS_IN_PAGE_ERROR.
        0x8000_0002 | 0xC000_0006 => 7,
        // STATUS_ILLEGAL_INSTRUCTION, STATUS_PRIVILEGED_INSTRUCTION.
        0xC000_001D | 0xC000_0096 => 4,
        // STATUS_FLOAT_DENORMAL_OPERAND to STATUS_INTEGER_OVERFLOW.
        0xC000_008D..=0xC000_0095 => 8,
        // STATUS_BREAKPOINT, STATUS_SINGLE_STEP.
        0x8000_0003 | 0x8000_0004 => 5,
        // STATUS_STACK_BUFFER_OVERRUN, as which __fastfail appears.
        0xC000_0409 => 6,
        _ => return None,
    })
}

/// The signal of an exception type of Mach (mach/exception_types.h).
const fn from_mach(kind: u32) -> Option<u32> {
    Some(match kind {
        1 => 11,
        2 => 4,
        3 => 8,
        6 => 5,
        _ => return None,
    })
}
