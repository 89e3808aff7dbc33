//! Code that was generated at run time, as the JIT compiler saved it (Linux,
//! `tools/perf/Documentation/jitdump-specification.txt`).

use super::fields::Fields;
use std::collections::HashMap;
use std::ops::Range;

/// `JiTD`.
const MAGIC: u32 = 0x4A69_5444;
/// Types of records.
const CODE_LOAD: u32 = 0;
const CODE_MOVE: u32 = 1;
/// The maximum number of functions that are read.
const MOST: usize = 1 << 20;

/// A function in memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Code {
    /// Its address.
    pub address: u64,
    /// The range of its bytes in the file.
    pub bytes: Range<usize>,
    /// Its number, by which later move records identify it.
    index: u64,
}

/// Whether a path is that of a jitdump: `jit-PID.dump`.
pub fn is_jitdump(path: &str) -> bool {
    let name = path.rsplit('/').next().unwrap_or_default();
    let number = name
        .strip_prefix("jit-")
        .and_then(|name| name.strip_suffix(".dump"));
    number.is_some_and(|number| !number.is_empty() && number.bytes().all(|b| b.is_ascii_digit()))
}

/// Returns the functions in the order in which they were generated, and a note if the file is cut
/// short.
///
/// # Errors
///
/// If the bytes are not a jitdump; the error is the reason.
pub fn read(bytes: &[u8]) -> Result<(Vec<Code>, Option<String>), String> {
    first(bytes, MOST)
}

/// Returns the first functions, at most `most`.
fn first(bytes: &[u8], most: usize) -> Result<(Vec<Code>, Option<String>), String> {
    let mut head = Fields::new(bytes, false);
    let big = match head.u32() {
        Some(MAGIC) => false,
        Some(other) if other.swap_bytes() == MAGIC => true,
        _ => return Err("is no jitdump: expected 0x4a695444 at its start".to_owned()),
    };
    let mut head = Fields::new(&bytes[4..], big);
    let size = head.u32().zip(head.u32());
    let Some((version, size)) = size.filter(|(_, size)| (40..=4096).contains(size)) else {
        return Err("jitdump cut in its header".to_owned());
    };
    if version != 1 {
        return Err(format!("jitdump of version {version}: expected 1"));
    }
    let mut out: Vec<Code> = Vec::new();
    // By number, the latest entry of each function.
    let mut newest: HashMap<u64, usize> = HashMap::new();
    let mut at = size as usize;
    while at < bytes.len() && out.len() < most {
        let mut fields = Fields::new(&bytes[at..], big);
        let Some(((kind, size), _time)) = fields.u32().zip(fields.u32()).zip(fields.u64()) else {
            break;
        };
        let end = at.saturating_add(size as usize);
        let record = bytes.get(at + 16..end).filter(|_| size >= 16);
        let Some(record) = record else {
            break;
        };
        let code = match kind {
            CODE_LOAD => loaded(Fields::new(record, big), at + 16),
            CODE_MOVE => moved(Fields::new(record, big), |index| {
                Some(&out[*newest.get(&index)?])
            }),
            _ => None,
        };
        if let Some(code) = code {
            newest.insert(code.index, out.len());
            out.push(code);
        }
        at = end;
    }
    let cut = (at < bytes.len()).then(|| match out.len() < most {
        true => format!("at byte {at:#x}: a record is cut short: the code before it is used"),
        false => format!("more than {most} functions: those from byte {at:#x} on are left out"),
    });
    Ok((out, cut))
}

/// Reads a load record: process, thread, address, address of the code, size, index, name, code.
fn loaded(mut fields: Fields<'_>, at: usize) -> Option<Code> {
    let whole = fields.rest().len();
    fields.u64()?;
    let (_virtual, address, size, index) =
        (fields.u64()?, fields.u64()?, fields.u64()?, fields.u64()?);
    fields.text();
    let size = usize::try_from(size).ok()?;
    fields.rest().get(..size)?;
    let begin = at + (whole - fields.rest().len());
    Some(Code {
        address,
        bytes: begin..begin + size,
        index,
    })
}

/// Reads a move record: process, thread, address, old and new address of the code, size, index.
fn moved<'c>(mut fields: Fields<'_>, known: impl Fn(u64) -> Option<&'c Code>) -> Option<Code> {
    fields.u64()?;
    let (_virtual, _old, address, _size, index) = (
        fields.u64()?,
        fields.u64()?,
        fields.u64()?,
        fields.u64()?,
        fields.u64()?,
    );
    Some(Code {
        address,
        ..known(index)?.clone()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(kind: u32, words: &[u64], rest: &[u8]) -> Vec<u8> {
        let body: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        let size = 16 + body.len() + rest.len();
        let mut out = kind.to_le_bytes().to_vec();
        out.extend((size as u32).to_le_bytes());
        out.extend(7_u64.to_le_bytes());
        out.extend(body);
        out.extend(rest);
        out
    }

    fn file(records: &[Vec<u8>]) -> Vec<u8> {
        let mut out = MAGIC.to_le_bytes().to_vec();
        for word in [1_u32, 40, 183, 0, 55, 0, 0, 0, 0] {
            out.extend(word.to_le_bytes());
        }
        out.extend(records.concat());
        out
    }

    #[test]
    fn code_is_loaded_and_moved() {
        let load = |address, index, code: &[u8]| {
            let words = [1 << 32 | 55, address, address, code.len() as u64, index];
            record(CODE_LOAD, &words, &[b"name\0", code].concat())
        };
        let bytes = file(&[
            load(0x1000, 1, b"code"),
            record(2, &[0, 1], b"lines"),
            load(0x2000, 2, b"more"),
            record(CODE_MOVE, &[55, 0x1000, 0x1000, 0x3000, 4, 1], b""),
            record(CODE_MOVE, &[55, 0x1000, 0x1000, 0x9000, 4, 7], b""),
        ]);
        let (code, cut) = read(&bytes).unwrap();
        let found: Vec<_> = code
            .iter()
            .map(|code| (code.address, &bytes[code.bytes.clone()]))
            .collect();
        assert_eq!(
            found,
            [(0x1000, &b"code"[..]), (0x2000, b"more"), (0x3000, b"code")]
        );
        assert_eq!(cut, None);
        for length in 0..bytes.len() {
            if let Ok((code, _)) = read(&bytes[..length]) {
                assert!(code.iter().all(|code| code.bytes.end <= length));
            }
        }
        let (code, cut) = first(&bytes, 1).unwrap();
        assert_eq!(code.len(), 1);
        let wanted = "more than 1 functions: those from byte 0x69 on are left out";
        assert_eq!(cut.as_deref(), Some(wanted));
        assert!(read(b"\x7fELF").is_err());
        assert!(is_jitdump("/tmp/x/jit-12.dump") && !is_jitdump("/tmp/jit-.dump"));
    }
}
