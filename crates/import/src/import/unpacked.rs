//! Compressed files of kernel modules.

use armsnap_snapshot::budget::Budget;
use armsnap_snapshot::mapped::{self, Mapped};
use armsnap_snapshot::program::elf::{Elf, ElfError};
use std::io::{self, Read};
use std::path::Path;

/// The maximum number of bytes of a decompressed file.
const LARGEST: u64 = 256 << 20;
/// The number of bytes that are read from it at once.
const PIECE: u64 = 1 << 20;
/// All files of an input may have [`LEAST`] bytes decompressed, plus this many times their size:
/// the kernel's modules decompress to four to eight times their size, and they are linked.
pub const MAX_RATIO: u64 = 24;
/// See [`MAX_RATIO`].
pub const LEAST: u64 = 64 << 20;
/// The maximum memory of the xz decompressor, in KiB; the kernel's modules need 2 MiB.
const MEMORY: u32 = 64 << 10;

/// Decompresses a file of xz, Zstandard or gzip; `None` if it is in another format.
///
/// Its decompressed size is taken from `memory`.
pub fn unpacked(bytes: &[u8], memory: &Budget) -> Option<io::Result<Mapped>> {
    let limited = |reader: &mut dyn Read| limited(reader, memory);
    let read = match bytes {
        [0xfd, b'7', b'z', b'X', b'Z', 0, ..] => limited(&mut lzma_rust2::XzReader::new_mem_limit(
            bytes, true, MEMORY,
        )),
        [0x28, 0xb5, 0x2f, 0xfd, ..] => {
            let reader = ruzstd::decoding::StreamingDecoder::new(bytes);
            let reader = reader.map_err(io::Error::other);
            reader.and_then(|mut reader| limited(&mut reader))
        }
        [0x1f, 0x8b, ..] => limited(&mut flate2::read::MultiGzDecoder::new(bytes)),
        _ => return None,
    };
    Some(read.map(Into::into))
}

fn limited(reader: &mut dyn Read, memory: &Budget) -> io::Result<Vec<u8>> {
    let mut out = Vec::new();
    loop {
        let count = reader.take(PIECE).read_to_end(&mut out)? as u64;
        if count == 0 {
            return Ok(out);
        }
        if out.len() as u64 > LARGEST || !memory.take(count) {
            let size = out.len();
            return Err(io::Error::other(format!(
                "unpacked, it has {size} bytes or more, which is out of proportion"
            )));
        }
    }
}

/// Opens a program, which may be compressed.
///
/// # Errors
///
/// If it cannot be read, or is not a program.
pub fn open(path: &Path, memory: &Budget) -> Result<Elf, ElfError> {
    let packed = mapped::map(path).ok();
    let packed = packed.and_then(|bytes| {
        memory.grant(MAX_RATIO * bytes.len() as u64);
        unpacked(&bytes, memory)
    });
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
        let memory = Budget::new(LEAST);
        let unpacked = |bytes: &[u8]| unpacked(bytes, &memory);
        assert_eq!(&*unpacked(&packed).unwrap().unwrap(), b"a module");
        assert!(unpacked(&packed[..packed.len() - 9]).unwrap().is_err());
        assert!(unpacked(b"\x7fELF").is_none());
        assert!(unpacked(b"\xfd7zXZ\0damaged").unwrap().is_err());
        assert!(unpacked(b"\x28\xb5\x2f\xfddamaged").unwrap().is_err());
        assert!(limited(&mut io::repeat(0), &memory).is_err());
        // The budget is exhausted for other files.
        assert!(unpacked(&packed).unwrap().is_ok());
        assert!(limited(&mut io::repeat(0).take(2 << 20), &memory).is_err());
    }
}
