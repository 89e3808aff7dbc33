//! Dumps of CrashCatcher, of a Cortex-M that failed: binary, or as hexadecimal digits in a log.
//!
//! The layout is that of its `Core/src/CrashCatcher.c`: signature, flags, registers, regions of memory.

use super::core_file::register;
use super::fields::Fields;
use super::note::CrashCatcherNote;
use super::{ImportError, Imported, Options, programs};
use armsnap_snapshot::budget::Budget;
use armsnap_snapshot::mapped::Mapped;
use armsnap_snapshot::snapshot::model::{Device, DeviceClass, Dump, Register, Snapshot};
use std::path::Path;

/// The signature, up to the major version.
const SIGNATURE: [u8; 2] = [0x63, 0x43];
/// The major versions: 2 has no MSP, PSP and xPSR of the handler.
const VERSIONS: std::ops::RangeInclusive<u8> = 2..=3;
/// The flag of floating-point registers.
const FLOATING_POINT: u32 = 1;
/// What follows the memory if the stack of CrashCatcher overflowed.
const OVERFLOWED: [u8; 4] = [0xac, 0xce, 0x55, 0xed];
/// The maximum number of regions of memory in a small dump; each [`BYTES_EACH`] bytes allow one more.
const LEAST_REGIONS: usize = 1 << 10;
const BYTES_EACH: usize = 64;

/// The number of bytes of a log that are searched for a dump.
const SEARCHED: usize = 64 << 20;

/// Whether a file is a dump, or a log with one; `head` is its start.
pub fn is_dump(head: &[u8], whole: impl FnOnce() -> Option<Mapped>) -> bool {
    is_binary(head) || super::zephyr::is_text(head) && whole().is_some_and(|bytes| has_dump(&bytes))
}

fn has_dump(bytes: &[u8]) -> bool {
    let bytes = &bytes[..bytes.len().min(SEARCHED)];
    // Most logs have no line that begins with the signature.
    let has = |text: &[u8]| memchr::memmem::find(bytes, text).is_some();
    (has(b"634302") || has(b"634303")) && lines(bytes).any(|(_, line)| begins(line))
}

fn is_binary(bytes: &[u8]) -> bool {
    bytes.starts_with(&SIGNATURE)
        && bytes.get(2).is_some_and(|major| VERSIONS.contains(major))
        && bytes.get(3) == Some(&0)
}

/// The lines of a log, with their numbers.
fn lines(bytes: &[u8]) -> impl Iterator<Item = (usize, &[u8])> {
    let lines = bytes.split(|byte| *byte == b'\n').enumerate();
    lines.map(|(index, line)| (index + 1, line.trim_ascii()))
}

/// Whether a line of a log is the signature.
fn begins(line: &[u8]) -> bool {
    digits(line).is_some_and(|bytes| bytes.len() == 4 && is_binary(&bytes))
}

/// Pairs of hexadecimal digits.
fn digits(line: &[u8]) -> Option<Vec<u8>> {
    let digit = |byte: u8| Some(char::from(byte).to_digit(16)? as u8);
    let pairs = line.chunks(2).map(|pair| match *pair {
        [high, low] => Some(digit(high)? << 4 | digit(low)?),
        _ => None,
    });
    pairs.collect()
}

/// Reads a dump from the bytes of a file; `path` is its name.
///
/// # Errors
///
/// If it ends in its registers.
pub fn import_bytes(
    path: &Path,
    bytes: Mapped,
    options: &Options,
) -> Result<Imported, ImportError> {
    let mut out = Imported {
        kind: "dump of CrashCatcher".to_owned(),
        ..Imported::default()
    };
    let bytes = match is_binary(&bytes) {
        true => bytes,
        false => of_log(&bytes, &mut out).into(),
    };
    let mut fields = Fields::new(&bytes, false);
    let registers = registers(&mut fields)
        .ok_or_else(|| ImportError::input(path, "dump of CrashCatcher cut in its registers"))?;
    let mut dumps = memory(&bytes, fields, &mut out);
    dumps.extend(programs::dumps(&options.elf, &mut out)?);
    for (index, dump) in dumps.iter_mut().enumerate() {
        dump.section = format!("dump{}", index + 1);
    }
    out.snapshot = Snapshot {
        version: "1.0".to_owned(),
        devices: vec![Device {
            key: "device0".to_owned(),
            file: "cpu_0.ini".to_owned(),
            name: "cpu0".to_owned(),
            class: DeviceClass::Core,
            kind: "ARMv7-M".to_owned(),
            registers,
            dumps,
            ..Device::default()
        }],
        other_sections: std::mem::take(&mut out.snapshot.other_sections),
        ..Snapshot::default()
    };
    out.record_origin();
    Ok(out)
}

/// The bytes of the first dump in a log: lines of digits, up to the first other line.
fn of_log(bytes: &[u8], out: &mut Imported) -> Vec<u8> {
    let mut dump = Vec::new();
    let mut lines = lines(bytes).skip_while(|(_, line)| !begins(line));
    for (number, line) in &mut lines {
        if line.is_empty() || begins(line) && !dump.is_empty() {
            break;
        }
        let Some(read) = digits(line) else {
            out.notes
                .push(CrashCatcherNote::EndsAt { line: number }.into());
            break;
        };
        dump.extend(read);
    }
    if lines.any(|(_, line)| begins(line)) {
        out.notes.push(CrashCatcherNote::More.into());
    }
    dump
}

/// Reads signature, flags and registers; `None` if the dump ends in them.
fn registers(fields: &mut Fields<'_>) -> Option<Vec<Register>> {
    let major = fields.bytes(4)?[2];
    let flags = fields.u32()?;
    let mut names: Vec<String> = (0..13).map(|number| format!("R{number}")).collect();
    names.extend(["SP", "LR", "PC", "xPSR"].map(str::to_owned));
    let mut out = Vec::new();
    for name in names {
        let value = fields.bytes(4)?;
        out.push(register(&name, value, fields));
    }
    if major >= 3 {
        // MSP and PSP are those of the handler, after it saved registers, and so is xPSR.
        fields.bytes(12)?;
    }
    if flags & FLOATING_POINT != 0 {
        for number in 0..16 {
            let value = fields.bytes(8)?;
            out.push(register(&format!("D{number}"), value, fields));
        }
        let value = fields.bytes(4)?;
        out.push(register("FPSCR", value, fields));
    }
    Some(out)
}

/// Reads the regions of memory. Fault status registers are memory, too.
fn memory(bytes: &Mapped, mut fields: Fields<'_>, out: &mut Imported) -> Vec<Dump> {
    let mut dumps = Vec::new();
    let mut claims = super::claims::Claims::default();
    let written = Budget::of(bytes.len(), 1, 0);
    let most = LEAST_REGIONS + bytes.len() / BYTES_EACH;
    while !fields.rest().is_empty() {
        if fields.rest() == OVERFLOWED {
            out.notes.push(CrashCatcherNote::Overflowed.into());
            break;
        }
        let at = bytes.len() - fields.rest().len();
        let (Some(first), Some(last)) = (fields.u32(), fields.u32()) else {
            out.notes.push(CrashCatcherNote::Cut { at }.into());
            break;
        };
        let begin = bytes.len() - fields.rest().len();
        let there = fields.rest().len().min(last.saturating_sub(first) as usize);
        if last < first || dumps.len() >= most {
            out.notes.push(CrashCatcherNote::Cut { at }.into());
            break;
        }
        if there < (last - first) as usize {
            out.notes.push(CrashCatcherNote::Cut { at }.into());
        }
        fields.bytes(there);
        let range = u64::from(first)..u64::from(first) + there as u64;
        for range in claims.take(range) {
            if !written.take(range.end - range.start) {
                break;
            }
            let begin = begin + (range.start - u64::from(first)) as usize;
            let length = (range.end - range.start) as usize;
            let file = format!("memory/{:x}.bin", range.start);
            out.files
                .insert(file.clone(), bytes.part(begin..begin + length));
            dumps.push(Dump {
                file,
                address: range.start,
                length: Some(length as u64),
                ..Dump::default()
            });
        }
    }
    dumps
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The registers in System Control Space that the dump has as memory: CFSR to BFAR.
    const FAULT_STATUS: u32 = 0xe000_ed28;

    /// A dump with counting registers and two regions.
    fn dump(flags: u32) -> Vec<u8> {
        let mut out = vec![0x63, 0x43, 3, 0];
        out.extend(flags.to_le_bytes());
        let count = 20 + if flags & FLOATING_POINT != 0 { 33 } else { 0 };
        out.extend((0..count).flat_map(u32::to_le_bytes));
        for (first, bytes) in [(0x2000_0000_u32, &[7; 16][..]), (FAULT_STATUS, &[1; 20])] {
            out.extend(first.to_le_bytes());
            out.extend((first + bytes.len() as u32).to_le_bytes());
            out.extend(bytes);
        }
        out
    }

    fn read(bytes: Vec<u8>) -> Imported {
        assert!(is_dump(&bytes, || Some(bytes.clone().into())));
        import_bytes(Path::new("dump"), bytes.into(), &Options::default()).unwrap()
    }

    fn ranges(imported: &Imported) -> Vec<(u64, u64)> {
        let dumps = imported.snapshot.devices[0].dumps.iter();
        dumps
            .map(|dump| (dump.address, dump.length.unwrap()))
            .collect()
    }

    #[test]
    fn registers_and_memory() {
        for (flags, count) in [(0, 17), (FLOATING_POINT, 34)] {
            let found = read(dump(flags));
            let device = &found.snapshot.devices[0];
            assert_eq!(device.registers.len(), count);
            assert_eq!(device.registers[15].name, "PC");
            assert_eq!(device.registers[15].value.as_u64(), Some(15));
            let wanted = [(0x2000_0000, 16), (FAULT_STATUS.into(), 20)];
            assert_eq!(ranges(&found), wanted);
            assert!(found.notes.is_empty(), "{:?}", found.notes);
        }
        let mut overflowed = dump(0);
        overflowed.extend(OVERFLOWED);
        assert_eq!(
            read(overflowed).notes,
            [CrashCatcherNote::Overflowed.into()]
        );
        let cut = dump(0)[..dump(0).len() - 4].to_vec();
        let cut = read(cut);
        assert_eq!(ranges(&cut)[1], (FAULT_STATUS.into(), 16));
        assert_eq!(cut.notes.len(), 1);
        let short = dump(0)[..40].to_vec();
        let path = Path::new("dump");
        assert!(import_bytes(path, short.into(), &Options::default()).is_err());
    }

    #[test]
    fn dumps_in_logs() {
        let dump = dump(0);
        let mut log =
            "booting\r\n\r\nCRASH ENCOUNTERED\r\nEnable logging and then press any key\r\n\r\n"
                .to_owned();
        for line in [&dump[..4], &dump[4..8], &dump[8..60], &dump[60..]] {
            log.extend(line.iter().map(|byte| format!("{byte:02X}")));
            log.push_str("\r\n");
        }
        let end = "\r\nEnd of dump\r\n";
        let found = read(format!("{log}{end}").into_bytes());
        assert_eq!(ranges(&found).len(), 2);
        assert!(found.notes.is_empty(), "{:?}", found.notes);
        let twice = read(format!("{log}{end}{log}").into_bytes());
        assert_eq!(twice.notes, [CrashCatcherNote::More.into()]);
        let noisy = read(format!("{log}garbage").into_bytes());
        assert_eq!(noisy.notes.len(), 1);
        assert!(!has_dump(b"63430300 is not a line of digits"));
    }
}
