//! Decompresses pages, each of which says how it is compressed.

use super::lzo;
use ruzstd::decoding::{BlockDecodingStrategy, FrameDecoder};
use std::io::Read as _;

/// The flags of pages (`DUMP_DH_COMPRESSED_*`).
const ZLIB: u32 = 1;
const LZO: u32 = 2;
const SNAPPY: u32 = 4;
const ZSTANDARD: u32 = 0x20;

/// Decompresses pages of one size.
pub struct Pages {
    zlib: flate2::Decompress,
    snappy: snap::raw::Decoder,
    zstandard: FrameDecoder,
    page: Vec<u8>,
}

impl Pages {
    /// Creates one for pages of `size` bytes.
    pub fn new(size: usize) -> Self {
        Self {
            zlib: flate2::Decompress::new(true),
            snappy: snap::raw::Decoder::new(),
            zstandard: FrameDecoder::new(),
            page: vec![0; size],
        }
    }

    /// The page; `None` if it is damaged, or compressed in an unknown way.
    pub fn read(&mut self, flags: u32, bytes: &[u8]) -> Option<&[u8]> {
        let page = &mut *self.page;
        let length = match flags & (ZLIB | LZO | SNAPPY | ZSTANDARD) {
            0 => {
                (bytes.len() == page.len()).then(|| page.copy_from_slice(bytes))?;
                page.len()
            }
            ZLIB => {
                self.zlib.reset(true);
                let finish = flate2::FlushDecompress::Finish;
                let status = self.zlib.decompress(bytes, page, finish).ok()?;
                let whole = status == flate2::Status::StreamEnd;
                usize::try_from(self.zlib.total_out())
                    .ok()
                    .filter(|_| whole)?
            }
            LZO => {
                lzo::decompress(bytes, page)?;
                page.len()
            }
            SNAPPY => self.snappy.decompress(bytes, page).ok()?,
            ZSTANDARD => {
                let mut rest = bytes;
                self.zstandard.reset(&mut rest).ok()?;
                // Blocks after one that is beyond the page are not decompressed.
                let most = BlockDecodingStrategy::UptoBytes(page.len() + 1);
                let whole = self.zstandard.decode_blocks(&mut rest, most).ok()?;
                let length = self.zstandard.can_collect();
                if !whole || !rest.is_empty() || length != page.len() {
                    return None;
                }
                self.zstandard.read(page).ok()?
            }
            _ => return None,
        };
        (length == page.len()).then_some(page)
    }
}
