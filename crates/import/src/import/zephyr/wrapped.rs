//! Containers of a dump: the log of a serial console, and a flash partition.

use super::ZephyrNote;
use super::is_dump;
use crate::import::fields::Fields;
use armsnap_snapshot::mapped::Mapped;
use std::ops::Range;

/// The start of each line of the dump in a log.
const PREFIX: &[u8] = b"#CD:";
const BEGIN: &[u8] = b"BEGIN#";
const END: &[u8] = b"END#";
const ERROR: &[u8] = b"ERROR CANNOT DUMP#";
/// The number of bytes of a log that are searched for a dump.
const SEARCHED: usize = 64 << 20;

/// Whether bytes may be a log: text in any encoding that is a superset of ASCII.
pub fn is_text(bytes: &[u8]) -> bool {
    let control =
        |byte: &u8| *byte < 0x20 && !matches!(byte, b'\t' | b'\n' | b'\r' | 0x1b | 8 | 12);
    // There may be noise from the UART at the start.
    !bytes.is_empty() && bytes.iter().filter(|byte| control(byte)).count() <= bytes.len() / 16
}

/// Whether a log contains a dump.
pub fn has_dump(bytes: &[u8]) -> bool {
    let searched = &bytes[..bytes.len().min(SEARCHED)];
    memchr::memmem::find(searched, b"#CD:BEGIN#").is_some()
}

/// Returns the bytes of the first dump in a log.
pub fn of_log(bytes: &[u8], notes: &mut Vec<ZephyrNote>) -> Result<Mapped, String> {
    let (mut out, mut begun, mut ended) = (Vec::new(), false, false);
    let mut more = 0;
    let mut damaged = None;
    for (index, line) in bytes.split(|byte| *byte == b'\n').enumerate() {
        let Some(at) = memchr::memmem::find(line, PREFIX) else {
            continue;
        };
        let text = &line[at + PREFIX.len()..];
        if text.starts_with(BEGIN) {
            // The system restarted before the end of the dump.
            ended |= begun;
            more += usize::from(begun);
            begun = true;
        } else if !begun || ended {
            continue;
        } else if text.starts_with(END) {
            ended = true;
        } else if text.starts_with(ERROR) {
            notes.push(ZephyrNote::LogError { line: index + 1 });
        } else if damaged.is_none() {
            match digits(text) {
                Some(read) => out.extend(read),
                None => damaged = Some(index + 1),
            }
        }
    }
    if let Some(line) = damaged {
        notes.push(ZephyrNote::LogLine { line });
    }
    if !ended {
        notes.push(ZephyrNote::LogWithoutEnd);
    }
    if more > 0 {
        notes.push(ZephyrNote::LogHasMore { count: more });
    }
    match is_dump(&out) {
        true => Ok(out.into()),
        false => Err("the log has #CD:BEGIN#, but no core dump of Zephyr follows".to_owned()),
    }
}

/// The bytes in a line: pairs of digits, up to the end of the line or to an escape sequence of
/// colours.
fn digits(text: &[u8]) -> Option<Vec<u8>> {
    let end = text.iter().position(|byte| *byte == 0x1b);
    let text = text[..end.unwrap_or(text.len())].trim_ascii();
    let digit = |byte: u8| char::from(byte).to_digit(16);
    let pairs = text.chunks(2).map(|pair| match *pair {
        [high, low] => Some((digit(high)? << 4 | digit(low)?) as u8),
        _ => None,
    });
    pairs.collect()
}

/// The largest unit in which flash is written.
const LARGEST_UNIT: usize = 4096;

/// The offset of a dump in an image of its partition. It follows a header of 16 bytes, or 20 on
/// 64-bit systems, which is padded to the unit in which flash is written.
pub fn in_partition(bytes: &[u8]) -> Option<usize> {
    let mut fields = Fields::new(bytes, false);
    if fields.bytes(2)? != b"CD" || fields.u16()? != 1 {
        return None;
    }
    let starts = (16..=LARGEST_UNIT).step_by(4);
    let mut dumps = starts.filter(|at| bytes.get(*at..).is_some_and(is_dump));
    dumps.next()
}

/// The range of the dump in the image, with notes on its header (`struct flash_hdr_t` of
/// `coredump_backend_flash_partition.c`).
pub fn of_partition(bytes: &[u8], at: usize, notes: &mut Vec<ZephyrNote>) -> Range<usize> {
    let wide = bytes.get(at + 6) == Some(&6);
    let mut fields = Fields::new(bytes.get(4..).unwrap_or(&[]), false);
    let header = (|| {
        let size = match wide {
            true => fields.u64()?,
            false => fields.u32()?.into(),
        };
        fields.u16()?;
        Some((size, fields.u16()?, fields.u32()? as i32))
    })();
    let Some((size, checksum, error)) = header else {
        return at..bytes.len();
    };
    if error != 0 {
        notes.push(ZephyrNote::FlashError { error });
    }
    let there = (bytes.len() - at) as u64;
    if size > there {
        notes.push(ZephyrNote::FlashCut { size, there });
        return at..bytes.len();
    }
    let place = at..at + size as usize;
    let sum = bytes[place.clone()]
        .iter()
        .fold(0_u16, |sum, byte| sum.wrapping_add((*byte).into()));
    if sum != checksum {
        notes.push(ZephyrNote::FlashChecksum { checksum, sum });
    }
    place
}
