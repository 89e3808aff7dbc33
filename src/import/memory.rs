//! Dumps of memory: raw bytes, Intel HEX, Motorola S-records.

use super::note::{MemoryForm, Note};
use super::options::NamedProgram;
use super::{ImportError, Imported, imported};
use crate::mapped::Mapped;
use crate::snapshot::model::Dump;
use std::collections::BTreeMap;

/// A run of bytes at an address.
type Run = (u64, Mapped);

/// The dumps of the files that the user names.
///
/// # Errors
///
/// If a file cannot be read, or raw bytes have no address.
pub fn dumps(files: &[NamedProgram], out: &mut Imported) -> Result<Vec<Dump>, ImportError> {
    let mut dumps: Vec<Dump> = Vec::new();
    for named in files {
        let bytes = imported::map(&named.path)?;
        let fault = |text: String| ImportError::input(&named.path, text);
        let (form, runs) = match first_record(&bytes) {
            Some(b':') => (
                MemoryForm::IntelHex,
                records(&bytes, hex_record).map_err(fault)?,
            ),
            Some(b'S') => (
                MemoryForm::SRecords,
                records(&bytes, s_record).map_err(fault)?,
            ),
            _ => {
                let Some(address) = named.address else {
                    return Err(ImportError::Usage(format!(
                        "--memory {}: holds raw bytes: expected their address after @",
                        named.path.display()
                    )));
                };
                (MemoryForm::Raw, vec![(address, bytes)])
            }
        };
        // The addresses of records are moved; that of raw bytes is already their own.
        let moved = named
            .address
            .filter(|_| form != MemoryForm::Raw)
            .unwrap_or(0);
        let count: usize = runs.iter().map(|(_, bytes)| bytes.len()).sum();
        out.notes.push(Note::Memory {
            path: named.path.clone(),
            form,
            bytes: count,
            runs: runs.len(),
        });
        for (address, bytes) in runs {
            let address = address.wrapping_add(moved);
            let file = format!("memory/given{}_{address:x}.bin", dumps.len());
            dumps.push(Dump {
                file: file.clone(),
                address,
                length: Some(bytes.len() as u64),
                ..Dump::default()
            });
            out.files.insert(file, bytes);
        }
    }
    Ok(dumps)
}

/// The first character of a file whose first line is a record: `:` or `S`, and hexadecimal digits.
fn first_record(bytes: &[u8]) -> Option<u8> {
    let line = bytes.split(|byte| *byte == b'\n').next()?;
    let line = line[..line.len().min(600)].trim_ascii();
    let (&first, rest) = line.split_first()?;
    let digits = rest.len() >= 8 && rest.iter().all(u8::is_ascii_hexdigit);
    (digits && matches!(first, b':' | b'S')).then_some(first)
}

/// The memory in records so far.
#[derive(Debug, Default)]
struct Memory {
    /// Runs by address.
    runs: BTreeMap<u64, Vec<u8>>,
    /// The address and length of the run to which the last record was added.
    open: Option<(u64, u64)>,
    /// What is added to the addresses of the next records.
    base: u64,
    ended: bool,
}

impl Memory {
    fn add(&mut self, address: u64, data: &[u8]) {
        if let Some((start, length)) = &mut self.open
            && start.wrapping_add(*length) == address
            && let Some(run) = self.runs.get_mut(start)
        {
            run.extend(data);
            *length += data.len() as u64;
            return;
        }
        self.runs.insert(address, data.to_vec());
        self.open = Some((address, data.len() as u64));
    }
}

/// Reads records, one per line, with `each`.
fn records(
    bytes: &[u8],
    each: impl Fn(&[u8], &mut Memory) -> Result<(), String>,
) -> Result<Vec<Run>, String> {
    let mut memory = Memory::default();
    for (number, line) in bytes.split(|byte| *byte == b'\n').enumerate() {
        let line = line.trim_ascii();
        if line.is_empty() || memory.ended {
            continue;
        }
        each(line, &mut memory).map_err(|text| format!("line {}: {text}", number + 1))?;
    }
    let runs = memory
        .runs
        .into_iter()
        .filter(|(_, bytes)| !bytes.is_empty());
    Ok(runs
        .map(|(address, bytes)| (address, bytes.into()))
        .collect())
}

/// Decodes pairs of hexadecimal digits.
fn digits(text: &[u8]) -> Result<Vec<u8>, String> {
    let digit = |byte: u8| (byte as char).to_digit(16);
    let pairs = text.chunks(2).map(|pair| match *pair {
        [high, low] => Some((digit(high)? << 4 | digit(low)?) as u8),
        _ => None,
    });
    let bytes: Option<Vec<u8>> = pairs.collect();
    bytes.ok_or_else(|| "expected pairs of hexadecimal digits".to_owned())
}

fn big_endian(bytes: &[u8]) -> u64 {
    bytes
        .iter()
        .fold(0, |value, &byte| value << 8 | u64::from(byte))
}

/// `:` count, 16-bit address, type, data, checksum: the sum of all bytes is 0.
fn hex_record(line: &[u8], memory: &mut Memory) -> Result<(), String> {
    let text = line
        .strip_prefix(b":")
        .ok_or("expected a record that starts with :")?;
    let bytes = digits(text)?;
    let [count, high, low, kind, rest @ ..] = &bytes[..] else {
        return Err("record cut short".to_owned());
    };
    let Some((checksum, data)) = rest.split_last() else {
        return Err("record cut short".to_owned());
    };
    if data.len() != usize::from(*count) {
        return Err(format!("{} bytes of data: expected {count}", data.len()));
    }
    let sum = bytes.iter().fold(0_u8, |sum, byte| sum.wrapping_add(*byte));
    if sum != 0 {
        let wanted = checksum.wrapping_sub(sum);
        return Err(format!("checksum {checksum:02x}: expected {wanted:02x}"));
    }
    let address = u64::from(*high) << 8 | u64::from(*low);
    match (*kind, data.len()) {
        (0, _) => memory.add(memory.base.wrapping_add(address), data),
        (1, _) => memory.ended = true,
        (2, 2) => memory.base = big_endian(data) << 4,
        (4, 2) => memory.base = big_endian(data) << 16,
        // The entry point.
        (3 | 5, 4) => {}
        _ => return Err(format!("record of type {kind:02x}: expected 00 to 05")),
    }
    Ok(())
}

/// `S`, type, count, address of 2 to 4 bytes, data, checksum: the sum of all bytes is 0xFF.
fn s_record(line: &[u8], memory: &mut Memory) -> Result<(), String> {
    let text = line
        .strip_prefix(b"S")
        .ok_or("expected a record that starts with S")?;
    let (&kind, text) = text.split_first().ok_or("record cut short")?;
    let bytes = digits(text)?;
    let (Some((&count, rest)), Some(checksum)) = (bytes.split_first(), bytes.last()) else {
        return Err("record cut short".to_owned());
    };
    if rest.len() != usize::from(count) {
        return Err(format!("{} bytes: expected {count}", rest.len()));
    }
    let sum = bytes.iter().fold(0_u8, |sum, byte| sum.wrapping_add(*byte));
    if sum != 0xFF {
        let wanted = checksum.wrapping_sub(sum).wrapping_add(0xFF);
        return Err(format!("checksum {checksum:02x}: expected {wanted:02x}"));
    }
    let address_bytes = match kind {
        b'1' => 2,
        b'2' => 3,
        b'3' => 4,
        b'0' | b'5'..=b'9' => return Ok(()),
        _ => return Err(format!("record S{}: expected S0 to S9", kind as char)),
    };
    let Some((address, data)) = rest.split_at_checked(address_bytes) else {
        return Err("record cut short".to_owned());
    };
    let data = &data[..data.len().saturating_sub(1)];
    memory.add(big_endian(address), data);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(
        text: &str,
        each: fn(&[u8], &mut Memory) -> Result<(), String>,
    ) -> Result<Vec<(u64, Vec<u8>)>, String> {
        let runs = records(text.as_bytes(), each)?;
        Ok(runs
            .into_iter()
            .map(|(at, bytes)| (at, bytes.to_vec()))
            .collect())
    }

    #[test]
    fn intel_hex_with_segments_and_linear_addresses() {
        let text = ":020000040800F2\r\n:0400100001020304E2\n:0200140005 06DF\n".replace(' ', "");
        let text = text + ":020000021000EC\n:01000000AA55\n:00000001FF\nrest";
        assert_eq!(
            of(&text, hex_record).unwrap(),
            [
                (0x1_0000, vec![0xAA]),
                (0x0800_0010, vec![1, 2, 3, 4, 5, 6])
            ]
        );
        let wrong = of(":0400100001020304E3\n", hex_record).unwrap_err();
        assert_eq!(wrong, "line 1: checksum e3: expected e2");
        assert!(of(":0400\n", hex_record).is_err());
        assert!(
            of(":05001000010203E5\n", hex_record)
                .unwrap_err()
                .contains("expected 5")
        );
    }

    #[test]
    fn s_records_of_all_lengths() {
        let text =
            "S00600004844521B\nS1051000AABB85\nS205010000CC2D\nS30620000000DDFC\nS9030000FC\n";
        assert_eq!(
            of(text, s_record).unwrap(),
            [
                (0x1000, vec![0xAA, 0xBB]),
                (0x1_0000, vec![0xCC]),
                (0x2000_0000, vec![0xDD])
            ]
        );
        assert!(
            of("S1051000AABB86\n", s_record)
                .unwrap_err()
                .contains("expected 85")
        );
        assert!(of("SX051000AABB85\n", s_record).unwrap_err().contains("SX"));
    }

    #[test]
    fn what_is_no_record_is_raw() {
        assert_eq!(first_record(b":0400100001020304E2\n"), Some(b':'));
        assert_eq!(first_record(b"S1051000AABB85\n"), Some(b'S'));
        assert_eq!(first_record(b"S\0\x01"), None);
        assert_eq!(first_record(b""), None);
    }
}
