//! RAM of a Linux system in LiME's format (`format=lime`; Linux Memory Extractor, doc/README.md):
//! ranges, each preceded by a header with its physical addresses.

use super::fields::Fields;
use std::ops::Range;

/// `EMiL`, as bytes.
const MAGIC: &[u8] = b"EMiL";

/// Whether bytes are in LiME's format.
pub fn is_lime(bytes: &[u8]) -> bool {
    bytes.starts_with(MAGIC)
}

/// Returns the ranges: address, and range of bytes in the file. The last one may be cut short.
///
/// # Errors
///
/// If a header is damaged; the error is its offset, and what was expected.
pub fn ranges(bytes: &[u8]) -> Result<Vec<(u64, Range<usize>)>, String> {
    let mut fields = Fields::new(bytes, false);
    let mut out = Vec::new();
    while !fields.rest().is_empty() {
        let at = bytes.len() - fields.rest().len();
        let header = (|| {
            let magic = fields.bytes(4)?;
            let version = fields.u32()?;
            let range = (fields.u64()?, fields.u64()?);
            fields.bytes(8)?;
            (magic == MAGIC).then_some((version, range))
        })();
        let Some((version, (first, last))) = header else {
            return Err(format!("at byte {at:#x}: expected a header of LiME"));
        };
        if version != 1 {
            return Err(format!(
                "at byte {at:#x}: header of LiME of version {version}: expected 1"
            ));
        }
        let length = last.checked_sub(first).and_then(|less| less.checked_add(1));
        let Some(length) = length else {
            return Err(format!(
                "at byte {at:#x}: header of LiME: the range ends at {last:#x}, before {first:#x}"
            ));
        };
        let there = fields.rest().len();
        let length = usize::try_from(length).unwrap_or(usize::MAX).min(there);
        let begin = bytes.len() - there;
        fields.bytes(length);
        out.push((first, begin..begin + length));
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(ranges: &[(u64, u64, &[u8])]) -> Vec<u8> {
        let mut out = Vec::new();
        for (first, last, bytes) in ranges {
            out.extend(MAGIC);
            out.extend(1_u32.to_le_bytes());
            out.extend(first.to_le_bytes());
            out.extend(last.to_le_bytes());
            out.extend([0; 8]);
            out.extend(*bytes);
        }
        out
    }

    #[test]
    fn ranges_have_their_addresses() {
        let whole = file(&[(0x1000, 0x1003, b"abcd"), (0x8000_0000, 0x8000_0001, b"ef")]);
        let found = ranges(&whole).unwrap();
        assert_eq!(found, [(0x1000, 32..36), (0x8000_0000, 68..70)]);
        assert_eq!(ranges(&whole[..69]).unwrap()[1], (0x8000_0000, 68..69));
        for (damaged, wanted) in [
            (
                whole[..40].to_vec(),
                "at byte 0x24: expected a header of LiME",
            ),
            (file(&[(5, 1, b"")]), "ends at 0x1, before 0x5"),
            (file(&[(0, u64::MAX, b"")]), "before 0x0"),
        ] {
            let error = ranges(&damaged).unwrap_err();
            assert!(error.contains(wanted), "{error}");
        }
        let mut newer = whole;
        newer[4] = 2;
        assert!(
            ranges(&newer)
                .unwrap_err()
                .ends_with("version 2: expected 1")
        );
    }
}
