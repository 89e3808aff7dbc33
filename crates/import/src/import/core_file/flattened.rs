//! Flattened core files, as `makedumpfile -F` writes them to a pipe: pieces with their offsets.

use crate::import::ImportError;
use crate::import::fields::Fields;
use armsnap_snapshot::mapped::Mapped;
use std::path::Path;

/// The signature at the start.
const SIGNATURE: &[u8] = b"makedumpfile\0";
/// The size of the first header (`MAX_SIZE_MDF_HEADER`).
const HEADER: usize = 4096;

/// Whether bytes are the start of a flattened core file.
pub fn is_flattened(bytes: &[u8]) -> bool {
    bytes.starts_with(SIGNATURE)
}

/// Restores the file that was flattened. Each piece has its offset and its size, big-endian; an
/// offset of -1 ends the file.
///
/// # Errors
///
/// If a piece is cut short, or its offset is far beyond what the file can hold.
pub fn rearranged(path: &Path, bytes: &[u8]) -> Result<Mapped, ImportError> {
    let fault = |text: String| ImportError::input(path, text);
    let mut fields = Fields::new(bytes.get(HEADER..).unwrap_or(&[]), true);
    // Zero pages may be missing, but not most of the file.
    let most = bytes.len().saturating_mul(4);
    let mut out: Vec<u8> = Vec::new();
    loop {
        let at = bytes.len() - fields.rest().len();
        let cut = || fault(format!("flattened core file cut at byte {at:#x}"));
        let (offset, size) = fields.u64().zip(fields.u64()).ok_or_else(cut)?;
        if offset == u64::MAX {
            return Ok(out.into());
        }
        let size = usize::try_from(size).map_err(|_| cut())?;
        let piece = fields.bytes(size).ok_or_else(cut)?;
        let begin = usize::try_from(offset).unwrap_or(usize::MAX);
        let end = begin.saturating_add(size);
        if end > most {
            return Err(fault(format!(
                "flattened core file: the piece at byte {at:#x} belongs at {offset:#x}, beyond \
                 four times what the file holds"
            )));
        }
        if out.len() < end {
            out.resize(end, 0);
        }
        out[begin..end].copy_from_slice(piece);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(pieces: &[(u64, &[u8])]) -> Vec<u8> {
        let mut out = SIGNATURE.to_vec();
        out.resize(HEADER, 0);
        for (offset, bytes) in pieces {
            out.extend(offset.to_be_bytes());
            out.extend((bytes.len() as u64).to_be_bytes());
            out.extend(*bytes);
        }
        out
    }

    #[test]
    fn pieces_in_any_order() {
        let path = Path::new("vmcore");
        let whole = file(&[(4, b"efgh"), (0, b"abcd"), (6, b"xy"), (u64::MAX, b"")]);
        assert!(is_flattened(&whole));
        assert_eq!(&*rearranged(path, &whole).unwrap(), b"abcdefxy");
        for length in 0..whole.len() - 16 {
            assert!(rearranged(path, &whole[..length]).is_err());
        }
        let far = file(&[(1 << 60, b"abcd"), (u64::MAX, b"")]);
        let error = rearranged(path, &far).unwrap_err().to_string();
        assert!(error.contains("belongs at 0x1000000000000000"), "{error}");
    }
}
