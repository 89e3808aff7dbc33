//! Compressed files of a kernel's modules.

use crate::mapped::{self, Mapped};
use crate::program::elf::{Elf, ElfError};
use std::io::{self, Read};
use std::path::Path;

/// The most bytes of an unpacked file.
const LARGEST: u64 = 256 << 20;
/// The most memory of the decompressor of xz, in KiB; the kernel's modules need 2 MiB.
const MEMORY: u32 = 64 << 10;

/// Decompresses a file of xz, Zstandard or gzip; `None` if it is in another format.
pub fn unpacked(bytes: &[u8]) -> Option<io::Result<Mapped>> {
    let read = match bytes {
        [0xfd, b'7', b'z', b'X', b'Z', 0, ..] => {
            let reader = lzma_rust2::XzReader::new_mem_limit(bytes, true, MEMORY);
            limited(reader)
        }
        [0x28, 0xb5, 0x2f, 0xfd, ..] => {
            let reader = ruzstd::decoding::StreamingDecoder::new(bytes);
            reader.map_err(io::Error::other).and_then(limited)
        }
        [0x1f, 0x8b, ..] => limited(flate2::read::MultiGzDecoder::new(bytes)),
        _ => return None,
    };
    Some(read.map(Into::into))
}

fn limited(reader: impl Read) -> io::Result<Vec<u8>> {
    let mut out = Vec::new();
    reader.take(LARGEST + 1).read_to_end(&mut out)?;
    if out.len() as u64 > LARGEST {
        let text = format!("unpacked, it has more than {LARGEST} bytes");
        return Err(io::Error::other(text));
    }
    Ok(out)
}

/// Opens a program, which may be compressed.
///
/// # Errors
///
/// If it cannot be read, or is not a program.
pub fn open(path: &Path) -> Result<Elf, ElfError> {
    let packed = mapped::map(path).ok().and_then(|bytes| unpacked(&bytes));
    let Some(bytes) = packed else {
        return Elf::open(path);
    };
    let fault = |error| ElfError::Io {
        path: path.to_owned(),
        error,
    };
    let absolute = dunce::canonicalize(path).map_err(fault)?;
    Elf::read(absolute, bytes.map_err(fault)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn gzip_is_unpacked_within_limits() {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        encoder.write_all(b"a module").unwrap();
        let packed = encoder.finish().unwrap();
        assert_eq!(&*unpacked(&packed).unwrap().unwrap(), b"a module");
        assert!(unpacked(&packed[..packed.len() - 9]).unwrap().is_err());
        assert!(unpacked(b"\x7fELF").is_none());
        assert!(unpacked(b"\xfd7zXZ\0damaged").unwrap().is_err());
        assert!(unpacked(b"\x28\xb5\x2f\xfddamaged").unwrap().is_err());
        assert!(limited(io::repeat(0)).is_err());
    }
}
