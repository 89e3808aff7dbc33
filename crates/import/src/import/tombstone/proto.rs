//! Tombstones as protobuf (Android, system/core, debuggerd/proto/tombstone.proto).

use super::report::{Frame, Mapping, Report, Thread, untagged};
use super::wire::{Message, Value};
use crate::import::note::TombstoneNote;
use armsnap_snapshot::snapshot::signals::Signal;

/// The maximum length of names, paths and messages in bytes.
const LONGEST: usize = 1024;
/// The maximum number of registers of a thread, and of frames that are used.
const MAX_REGISTERS: usize = 128;
const MAX_FRAMES: usize = 256;
/// Numbers of fields of the tombstone.
const ARCHITECTURE: u64 = 1;
const TIMESTAMP: u64 = 4;
const PID: u64 = 5;

/// Whether bytes are the start of a tombstone: it begins with the architecture (0 is left out), the
/// fingerprint of the build, its revision, and the time, `2025-11-24 16:26:18…`.
pub fn is_tombstone(head: &[u8]) -> bool {
    let mut last = 0;
    for (number, value) in Message::new(head) {
        if number <= last || number > PID {
            return false;
        }
        last = number;
        let fits = match (number, value) {
            (ARCHITECTURE, Value::Number(architecture)) => architecture < 1000,
            (TIMESTAMP, Value::Bytes(time)) => return is_time(time),
            (2..TIMESTAMP, Value::Bytes(_)) => true,
            _ => false,
        };
        if !fits {
            return false;
        }
    }
    false
}

fn is_time(text: &[u8]) -> bool {
    let shape = b"dddd-dd-dd dd:dd:dd";
    text.len() >= shape.len()
        && shape.iter().zip(text).all(|(shape, byte)| match shape {
            b'd' => byte.is_ascii_digit(),
            _ => shape == byte,
        })
}

/// Reads a tombstone.
///
/// # Errors
///
/// If it is of another architecture.
pub fn read(bytes: &[u8]) -> Result<Report, String> {
    let mut out = Report::default();
    let mut message = Message::new(bytes);
    let architecture = Message::new(bytes)
        .find(|(number, _)| *number == ARCHITECTURE)
        .map_or(0, |(_, value)| value.number());
    out.wide = match architecture {
        0 => false,
        1 => true,
        other => {
            let name = match other {
                2 => "x86",
                3 => "x86_64",
                4 => "riscv64",
                _ => "another architecture",
            };
            return Err(super::text::other(name));
        }
    };
    for (number, value) in message.by_ref() {
        match number {
            6 => out.failed = value.number() as u32,
            9 if out.command.is_empty() => out.command = value.text(LONGEST),
            10 => out.signal = signal(value, out.wide),
            14 => out.notes.push(TombstoneNote::Abort(value.text(LONGEST))),
            15 => {
                let cause = Message::new(value.bytes()).find(|(number, _)| *number == 1);
                let cause = cause.map(|(_, text)| TombstoneNote::Cause(text.text(LONGEST)));
                out.notes.extend(cause.filter(|_| out.notes.len() < 8));
            }
            16 => {
                let entry = Message::new(value.bytes()).find(|(number, _)| *number == 2);
                let thread = entry.map(|(_, thread)| thread_of(thread, &mut out));
                out.threads.extend(thread);
            }
            17 => {
                let mapping = mapping(value);
                if mapping.path.starts_with('/') {
                    out.mappings.push(mapping);
                }
            }
            _ => {}
        }
    }
    let left = message.rest().len();
    if left > 0 {
        let at = bytes.len() - left;
        out.notes.push(TombstoneNote::Cut { at });
    }
    Ok(out)
}

fn signal(value: Value<'_>, wide: bool) -> Option<Signal> {
    let (mut number, mut code, mut address, mut has_address) = (0, 0, 0, false);
    for (field, value) in Message::new(value.bytes()) {
        match field {
            1 => number = value.number() as u32,
            3 => code = value.number() as i32,
            8 => has_address = value.number() != 0,
            9 => address = value.number(),
            _ => {}
        }
    }
    Signal::raised(number, code, has_address.then_some(address), wide)
}

/// Reads a thread, whose memory is added to the report.
fn thread_of(value: Value<'_>, report: &mut Report) -> Thread {
    let mut out = Thread::default();
    for (field, value) in Message::new(value.bytes()) {
        match field {
            1 => out.tid = value.number() as u32,
            2 => out.name = value.text(LONGEST),
            3 if out.registers.len() < MAX_REGISTERS => {
                let (mut name, mut number) = (String::new(), 0);
                for (field, value) in Message::new(value.bytes()) {
                    match field {
                        1 => name = value.text(8),
                        2 => number = value.number(),
                        _ => {}
                    }
                }
                out.registers.push((name, number.into()));
            }
            4 if out.frames.len() < MAX_FRAMES => out.frames.push(frame(value)),
            5 => {
                let (mut address, mut bytes) = (0, &[][..]);
                for (field, value) in Message::new(value.bytes()) {
                    match field {
                        3 => address = value.number(),
                        4 => bytes = value.bytes(),
                        _ => {}
                    }
                }
                report.add_memory(untagged(address, report.wide), bytes);
            }
            _ => {}
        }
    }
    out
}

fn frame(value: Value<'_>) -> Frame {
    let mut out = Frame::default();
    for (field, value) in Message::new(value.bytes()) {
        match field {
            1 => out.linked = value.number(),
            2 => out.pc = Some(value.number()),
            6 => out.path = value.text(LONGEST),
            8 => out.build_id = value.text(LONGEST),
            _ => {}
        }
    }
    out
}

fn mapping(value: Value<'_>) -> Mapping {
    let mut out = Mapping::default();
    let mut end = 0;
    for (field, value) in Message::new(value.bytes()) {
        match field {
            1 => out.first = value.number(),
            2 => end = value.number(),
            3 => out.offset = value.number(),
            6 => out.code = value.number() != 0,
            7 => out.path = value.text(LONGEST),
            8 => out.build_id = value.text(LONGEST),
            _ => {}
        }
    }
    out.length = end.saturating_sub(out.first);
    out
}
