//! Records compressed by `perf record --compression-level`: one Zstandard stream, split into
//! records.
//!
//! perf flushes the stream after each piece and never ends its frame (RFC 8878, section 3.1.1).

use ruzstd::decoding::FrameDecoder;
use std::io::Read;

/// The maximum number of bytes to which a byte may expand, beyond [`ALLOWED`]: compression usually
/// makes records about ten times smaller.
const MAX_RATIO: u64 = 256;
/// The number of decompressed bytes that is always allowed.
const ALLOWED: u64 = 64 << 20;
/// The maximum size of a frame header (RFC 8878, 3.1.1.1).
const FRAME_HEADER: usize = 18;
/// An empty last block, which ends a frame.
const END: [u8; 3] = [1, 0, 0];

/// Why decompression stopped.
#[derive(Debug)]
pub enum Stopped<E> {
    /// The stream is damaged.
    Damaged(String),
    /// The receiver of the bytes failed.
    Inner(E),
}

/// A stream that is being decompressed.
#[derive(Default)]
pub struct Inflate {
    decoder: Option<FrameDecoder>,
    input: Vec<u8>,
    output: Vec<u8>,
    taken: u64,
    given: u64,
}

impl std::fmt::Debug for Inflate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Inflate").finish_non_exhaustive()
    }
}

impl Inflate {
    /// Decompresses bytes. `each` is called with all decompressed bytes that have not been used
    /// yet, and returns how many of them it used.
    pub fn feed<E>(
        &mut self,
        bytes: &[u8],
        each: &mut dyn FnMut(&[u8]) -> Result<usize, E>,
    ) -> Result<(), Stopped<E>> {
        self.taken += bytes.len() as u64;
        self.input.extend_from_slice(bytes);
        let mut used = 0;
        while let Some(length) = self.step(used)? {
            used += length;
            self.hand_out(each)?;
        }
        self.input.drain(..used);
        Ok(())
    }

    /// Ends the frame: the decoder returns the bytes that it kept for later references.
    pub fn end<E>(
        &mut self,
        each: &mut dyn FnMut(&[u8]) -> Result<usize, E>,
    ) -> Result<(), Stopped<E>> {
        if let Some(decoder) = &mut self.decoder
            && !decoder.is_finished()
        {
            decoder.decode_from_to(&END, &mut []).map_err(damaged)?;
            self.hand_out(each)?;
        }
        Ok(())
    }

    /// The number of unused bytes, compressed and decompressed.
    pub fn rest(&self) -> usize {
        self.input.len() + self.output.len()
    }

    /// Decodes a frame header or one block, starting at `used`. Returns its size in bytes; `None`
    /// if it is incomplete.
    fn step<E>(&mut self, used: usize) -> Result<Option<usize>, Stopped<E>> {
        let input = &self.input[used..];
        let Some(decoder) = self
            .decoder
            .as_mut()
            .filter(|decoder| !decoder.is_finished())
        else {
            if input.is_empty() {
                return Ok(None);
            }
            let mut rest = input;
            let mut decoder = self.decoder.take().unwrap_or_default();
            if let Err(error) = decoder.reset(&mut rest) {
                // The header may continue in the next record.
                return match input.len() < FRAME_HEADER {
                    true => Ok(None),
                    false => Err(damaged(error)),
                };
            }
            self.decoder = Some(decoder);
            return Ok(Some(input.len() - rest.len()));
        };
        // A block: 1 bit last, 2 bits type, 21 bits size (RFC 8878, 3.1.1.2). Blocks are decoded
        // one at a time, so that the output is bounded.
        let Some(&[a, b, c]) = input.first_chunk() else {
            return Ok(None);
        };
        let header = u32::from_le_bytes([a, b, c, 0]);
        let content = match header >> 1 & 3 {
            1 => 1,
            _ => header >> 3,
        };
        let Some(block) = input.get(..3 + content as usize) else {
            return Ok(None);
        };
        let (read, _) = decoder.decode_from_to(block, &mut []).map_err(damaged)?;
        if read == 0 {
            return Err(Stopped::Damaged("a block of no known form".to_owned()));
        }
        Ok(Some(read))
    }

    fn hand_out<E>(
        &mut self,
        each: &mut dyn FnMut(&[u8]) -> Result<usize, E>,
    ) -> Result<(), Stopped<E>> {
        let Some(decoder) = &mut self.decoder else {
            return Ok(());
        };
        let ready = decoder.can_collect();
        let there = self.output.len();
        self.given += ready as u64;
        if self.given > ALLOWED + MAX_RATIO * self.taken {
            return Err(Stopped::Damaged(format!(
                "{} compressed bytes expand to more than {} bytes, which perf never writes",
                self.taken, self.given
            )));
        }
        self.output.resize(there + ready, 0);
        decoder
            .read_exact(&mut self.output[there..])
            .map_err(|error| Stopped::Damaged(error.to_string()))?;
        let used = each(&self.output).map_err(Stopped::Inner)?;
        self.output.drain(..used);
        Ok(())
    }
}

fn damaged<E>(error: impl std::fmt::Display) -> Stopped<E> {
    Stopped::Damaged(format!("compressed records are damaged: {error}"))
}
