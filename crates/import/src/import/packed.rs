//! Compressed inputs: `systemd-coredump`, `gzip` and others compress core files.

use armsnap_snapshot::mapped::{self, Mapped};
use ruzstd::decoding::{FrameDecoder, StreamingDecoder};
use std::fs::File;
use std::io::{self, BufRead, Read, Seek, SeekFrom, Write};
use std::path::Path;

/// The maximum number of bytes outside zero pages, and of all bytes, to which one byte may expand,
/// beyond [`ALLOWED`].
const MAX_RATIO: u64 = 256;
const MAX_RATIO_WITH_ZEROS: u64 = 4096;
/// The number of decompressed bytes that is always allowed.
const ALLOWED: u64 = 64 << 20;
/// The maximum memory of the xz decompressor, in KiB: `xz -9` needs 65 MiB.
const XZ_MEMORY: u32 = 68 << 10;
/// The size of a page; a page of zeros takes no space in a sparse file.
const PAGE: usize = 4096;
/// The number of bytes that are held in memory at once.
const PIECE: usize = 1 << 20;
/// The magic number of skippable frames of Zstandard and LZ4 (RFC 8878, 3.1.2), whose low four bits
/// may have any value.
const SKIPPABLE: u32 = 0x184D_2A50;

/// A format of compressed files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// gzip.
    Gzip,
    /// bzip2.
    Bzip2,
    /// xz.
    Xz,
    /// Zstandard.
    Zstandard,
    /// The frame format of LZ4.
    Lz4,
}

impl Format {
    /// The format of a file that starts with these bytes.
    pub fn of(bytes: &[u8]) -> Option<Self> {
        Some(match bytes {
            [0x1f, 0x8b, 8, ..] => Self::Gzip,
            [b'B', b'Z', b'h', b'1'..=b'9', 0x31, 0x41, ..] => Self::Bzip2,
            [0xfd, b'7', b'z', b'X', b'Z', 0, ..] => Self::Xz,
            [0x28, 0xb5, 0x2f, 0xfd, ..] => Self::Zstandard,
            [0x04, 0x22, 0x4d, 0x18, ..] | [0x02, 0x21, 0x4c, 0x18, ..] => Self::Lz4,
            _ => return None,
        })
    }

    /// Its name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Gzip => "gzip",
            Self::Bzip2 => "bzip2",
            Self::Xz => "xz",
            Self::Zstandard => "Zstandard",
            Self::Lz4 => "LZ4",
        }
    }

    /// Returns a reader of the contents of a file in this format.
    fn reader(self, packed: &[u8]) -> Box<dyn Read + '_> {
        match self {
            Self::Gzip => Box::new(flate2::read::MultiGzDecoder::new(packed)),
            Self::Bzip2 => Box::new(bzip2::read::MultiBzDecoder::new(packed)),
            Self::Xz => {
                let reader = lzma_rust2::XzReader::new_mem_limit(packed, true, XZ_MEMORY);
                Box::new(reader)
            }
            Self::Zstandard => Box::new(Frames {
                rest: packed,
                current: None,
                open: |rest| {
                    let decoder = StreamingDecoder::new(rest).map_err(io::Error::other)?;
                    Ok(Frame::Zstandard(Box::new(decoder)))
                },
            }),
            Self::Lz4 => Box::new(Frames {
                rest: packed,
                current: None,
                open: |rest| {
                    let decoder = lz4_flex::frame::FrameDecoder::new(rest);
                    Ok(Frame::Lz4(Box::new(decoder)))
                },
            }),
        }
    }
}

/// A frame that is being read.
enum Frame<'p> {
    Zstandard(Box<StreamingDecoder<&'p [u8], FrameDecoder>>),
    Lz4(Box<lz4_flex::frame::FrameDecoder<&'p [u8]>>),
}

/// A sequence of frames.
struct Frames<'p> {
    rest: &'p [u8],
    current: Option<Frame<'p>>,
    open: fn(&'p [u8]) -> io::Result<Frame<'p>>,
}

impl Read for Frames<'_> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        loop {
            let Some(current) = &mut self.current else {
                if self.rest.is_empty() {
                    return Ok(0);
                }
                let word = |at: usize| {
                    let bytes = self.rest.get(at..at + 4)?;
                    Some(u32::from_le_bytes(bytes.try_into().ok()?))
                };
                if word(0).is_some_and(|magic| magic & !0xf == SKIPPABLE) {
                    let size = word(4).map_or(usize::MAX, |size| size as usize);
                    let size = size.saturating_add(8).min(self.rest.len());
                    self.rest.consume(size);
                } else {
                    self.current = Some((self.open)(self.rest)?);
                }
                continue;
            };
            let count = match current {
                Frame::Zstandard(decoder) => decoder.read(out)?,
                Frame::Lz4(decoder) => decoder.read(out)?,
            };
            if count > 0 || out.is_empty() {
                return Ok(count);
            }
            let before = self.rest.len();
            self.rest = match self.current.take() {
                Some(Frame::Zstandard(decoder)) => decoder.into_inner(),
                Some(Frame::Lz4(decoder)) => decoder.into_inner(),
                None => &[],
            };
            if self.rest.len() == before {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
    }
}

/// The first bytes of a file, decompressed if it is compressed, and the format in which it is.
///
/// # Errors
///
/// If the file cannot be read.
pub fn head(path: &Path, most: u64) -> io::Result<(Vec<u8>, Option<Format>)> {
    let head = mapped::head(path, most)?;
    let Some(format) = Format::of(&head) else {
        return Ok((head, None));
    };
    let packed = mapped::map(path)?;
    let mut out = Vec::new();
    // Whatever can be read is enough.
    let _ = format.reader(&packed).take(most).read_to_end(&mut out);
    Ok((out, Some(format)))
}

/// Calls `use_it` with a reader of the contents of a file, decompressed if it is compressed, and
/// with whether it is.
pub fn read<T>(path: &Path, use_it: impl FnOnce(&mut dyn Read, bool) -> T) -> io::Result<T> {
    let bytes = mapped::map(path)?;
    Ok(match Format::of(&bytes) {
        Some(format) => use_it(&mut *format.reader(&bytes), true),
        None => use_it(&mut &*bytes, false),
    })
}

/// The bytes of an input, decompressed if it is compressed, into a temporary file that no longer
/// has a name.
///
/// # Errors
///
/// If it cannot be read, cannot be unpacked, or expands out of proportion.
pub fn map(path: &Path) -> Result<Mapped, String> {
    let bytes = mapped::map_input(path).map_err(|error| error.to_string())?;
    let Some(format) = Format::of(&bytes) else {
        return Ok(bytes);
    };
    temporary(format.name(), bytes.len() as u64, |out| {
        unpack(format.reader(&bytes), out)
    })
}

/// The bytes that `fill` writes into a temporary file that no longer has a name; `packed` is the number of bytes from
/// which they are decompressed, and `name` their format.
///
/// # Errors
///
/// If the input cannot be decompressed, expands out of proportion, or no file can be written.
pub fn temporary(
    name: &str,
    packed: u64,
    fill: impl FnOnce(&mut Sparse<'_>) -> Result<(), Failed>,
) -> Result<Mapped, String> {
    let made = tempfile::Builder::new().prefix("armsnap-").tempfile();
    let directory = std::env::temp_dir();
    let cannot = |error: io::Error| {
        format!(
            "{name}: cannot be unpacked into {}: {error}",
            directory.display()
        )
    };
    let mut file = made.map_err(cannot)?;
    let mut out = Sparse::new(file.as_file_mut(), packed);
    fill(&mut out).and_then(|()| out.end()).map_err(|failed| match failed {
        Failed::Input(error) => format!("{name}: {error}"),
        Failed::Output(error) => cannot(error),
        Failed::Large(bytes) => format!(
            "{name}: unpacked, it has more than {bytes} bytes, which is out of proportion: unpack it first"
        ),
    })?;
    mapped::map(file.path()).map_err(cannot)
}

/// Why a file cannot be decompressed.
#[derive(Debug)]
pub enum Failed {
    /// It is damaged.
    Input(io::Error),
    /// The output cannot be written.
    Output(io::Error),
    /// It decompresses to more than this number of bytes.
    Large(u64),
}

/// A sparse file that grows in proportion to what it is decompressed from.
pub struct Sparse<'f> {
    out: &'f mut File,
    /// The number of bytes, and of those outside zero pages.
    length: u64,
    written: u64,
    most: u64,
    most_in_all: u64,
}

impl<'f> Sparse<'f> {
    fn new(out: &'f mut File, packed: u64) -> Self {
        Self {
            out,
            length: 0,
            written: 0,
            most: ALLOWED + packed.saturating_mul(MAX_RATIO),
            most_in_all: ALLOWED + packed.saturating_mul(MAX_RATIO_WITH_ZEROS),
        }
    }

    /// Appends bytes.
    pub fn push(&mut self, piece: &[u8]) -> Result<(), Failed> {
        for page in piece.chunks(PAGE) {
            let is_zero = page.iter().all(|byte| *byte == 0);
            let moved = match is_zero {
                true => (self.out.seek(SeekFrom::Current(page.len() as i64))).map(drop),
                false => self.out.write_all(page),
            };
            moved.map_err(Failed::Output)?;
            self.written += if is_zero { 0 } else { page.len() as u64 };
        }
        self.length += piece.len() as u64;
        match () {
            () if self.written > self.most => Err(Failed::Large(self.most)),
            () if self.length > self.most_in_all => Err(Failed::Large(self.most_in_all)),
            () => Ok(()),
        }
    }

    /// Ends the file with the last byte.
    fn end(&self) -> Result<(), Failed> {
        self.out.set_len(self.length).map_err(Failed::Output)
    }
}

/// Decompresses into a sparse file.
fn unpack(mut reader: impl Read, out: &mut Sparse<'_>) -> Result<(), Failed> {
    let mut piece = Vec::with_capacity(PIECE);
    loop {
        piece.clear();
        let read = (&mut reader).take(PIECE as u64).read_to_end(&mut piece);
        read.map_err(Failed::Input)?;
        if piece.is_empty() {
            return Ok(());
        }
        out.push(&piece)?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn unpacked(format: Format, packed: &[u8]) -> Result<Vec<u8>, Failed> {
        let mut file = tempfile::tempfile().unwrap();
        let mut out = Sparse::new(&mut file, packed.len() as u64);
        unpack(format.reader(packed), &mut out)?;
        out.end()?;
        file.seek(SeekFrom::Start(0)).unwrap();
        let mut out = Vec::new();
        file.read_to_end(&mut out).unwrap();
        Ok(out)
    }

    fn packed(format: Format, bytes: &[u8]) -> Vec<u8> {
        match format {
            Format::Gzip => {
                let level = flate2::Compression::fast();
                let mut encoder = flate2::write::GzEncoder::new(Vec::new(), level);
                encoder.write_all(bytes).unwrap();
                encoder.finish().unwrap()
            }
            Format::Bzip2 => {
                let level = bzip2::Compression::fast();
                let mut encoder = bzip2::write::BzEncoder::new(Vec::new(), level);
                encoder.write_all(bytes).unwrap();
                encoder.finish().unwrap()
            }
            Format::Zstandard => {
                let level = ruzstd::encoding::CompressionLevel::Fastest;
                ruzstd::encoding::compress_to_vec(bytes, level)
            }
            Format::Lz4 => {
                let mut encoder = lz4_flex::frame::FrameEncoder::new(Vec::new());
                encoder.write_all(bytes).unwrap();
                encoder.finish().unwrap()
            }
            Format::Xz => unreachable!("no encoder is built in"),
        }
    }

    #[test]
    fn frames_follow_each_other_and_zeros_stay() {
        let mut bytes: Vec<u8> = (0..100_000_u32).flat_map(u32::to_le_bytes).collect();
        bytes.resize(3 << 20, 0);
        for format in [Format::Gzip, Format::Bzip2, Format::Zstandard, Format::Lz4] {
            let one = packed(format, &bytes);
            assert_eq!(Format::of(&one), Some(format));
            assert!(unpacked(format, &one).unwrap() == bytes, "{format:?}");
            let mut two = one.clone();
            if matches!(format, Format::Zstandard | Format::Lz4) {
                two.extend([0x53, 0x2a, 0x4d, 0x18, 3, 0, 0, 0, 1, 2, 3]);
            }
            two.extend(&one);
            let wanted = [&bytes[..], &bytes].concat();
            assert!(unpacked(format, &two).unwrap() == wanted, "{format:?}");
            let cut = unpacked(format, &one[..one.len() / 2]);
            assert!(matches!(cut, Err(Failed::Input(_))), "{format:?}");
        }
    }

    #[test]
    fn what_is_out_of_proportion_is_refused() {
        let mut file = tempfile::tempfile().unwrap();
        let ones = unpack(io::repeat(1), &mut Sparse::new(&mut file, 1000));
        assert!(matches!(ones, Err(Failed::Large(most)) if most == ALLOWED + 256_000));
        let zeros = unpack(io::repeat(0), &mut Sparse::new(&mut file, 1000));
        assert!(matches!(zeros, Err(Failed::Large(_))));
    }
}
