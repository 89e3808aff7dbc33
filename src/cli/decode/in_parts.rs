//! Decodes the parts of a buffer on several threads.
//!
//! The text is the same as from a single thread, which writes the text of each source in pages of
//! [`PAGE`] bytes.

use super::Format;
use super::job::{Decoded, Job, PAGE, Stopped};
use armsnap::capture::CaptureBuffer;
use armsnap::decode::parts::{Output, PartError, Role, Sizes, decode_in_parts};
use armsnap::mapped;
use armsnap::report::listing::{Counts, Listed, RunningCounts, Unfollowed};
use std::io::{self, Write};
use std::sync::{Mutex, PoisonError};

/// Maximum size of a part in bytes of trace, if something is printed.
const PART: u64 = 512 << 10;
/// Maximum size of a part in bytes of trace, if nothing is printed.
const SILENT_PART: u64 = 4 << 20;
/// Minimum size of a part in bytes of trace, except for the last one.
const LEAST_PART: u64 = 64 << 10;
/// Minimum number of parts for each thread, so that all threads have work until the end.
const PARTS: u64 = 8;
/// Bytes of text that may wait for the text of earlier parts.
const WAITING: usize = 32 << 20;
/// Maximum number of written texts whose memory is kept for reuse.
const KEPT: usize = 32;

impl From<PartError> for Stopped {
    fn from(error: PartError) -> Self {
        Self::Decoder(error.to_string())
    }
}

/// The output of a source for a piece.
#[derive(Default)]
struct Taken {
    text: Vec<u8>,
    packets: u64,
    counts: Counts,
    running: RunningCounts,
    unfollowed: Option<Unfollowed>,
}

impl Output for Taken {
    fn bytes(&self) -> usize {
        self.text.len() + self.running.bytes()
    }
}

/// Text of a source that is not yet written.
#[derive(Default)]
struct Waiting {
    texts: Vec<Vec<u8>>,
    bytes: usize,
}

impl Waiting {
    fn write(&mut self, out: &mut impl Write, written: &Texts) -> io::Result<()> {
        self.bytes = 0;
        for text in self.texts.drain(..) {
            out.write_all(&text)?;
            written.keep(text);
        }
        Ok(())
    }
}

/// Empty texts, kept to reuse their memory.
#[derive(Default)]
struct Texts(Mutex<Vec<Vec<u8>>>);

impl Texts {
    fn empty(&self) -> Vec<u8> {
        let mut texts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        texts.pop().unwrap_or_default()
    }

    fn keep(&self, text: Vec<u8>) {
        let mut texts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if texts.len() < KEPT && text.capacity() > 0 {
            texts.push(text);
        }
    }
}

impl Job<'_> {
    /// Decodes a buffer in parts; `None` if that is not worthwhile.
    pub(super) fn in_parts<'b>(
        &'b self,
        buffer: &'b CaptureBuffer,
        out: &mut impl Write,
        mut progress: impl FnMut(u64),
    ) -> Result<Option<Decoded>, Stopped> {
        let make = |_: Role| {
            let sources = buffer.sources.iter();
            let decoders = sources.map(|source| {
                let mut decoder = self.decoder(buffer, source).map_err(Stopped::Decoder)?;
                decoder.output().count_later();
                Ok((source.trace_id, decoder))
            });
            decoders.collect()
        };
        let texts = Texts::default();
        let take = |listed: &mut (dyn Listed + 'b), packets| {
            let taken = Taken {
                packets,
                counts: listed.counts(),
                running: listed.running_counts(),
                unfollowed: listed.unfollowed(),
                text: match listed.text() {
                    text if text.is_empty() => Vec::new(),
                    text => text.replace(texts.empty()),
                },
            };
            listed.reset();
            taken
        };
        let mut decoded = Decoded::default();
        let mut unfollowed = vec![None; buffer.sources.len()];
        let mut cycles = vec![0_u64; buffer.sources.len()];
        let mut spare = Vec::new();
        let mut waiting: Vec<Waiting> = Vec::new();
        waiting.resize_with(buffer.sources.len(), Waiting::default);
        let mut give = |outputs: Vec<Taken>, done| {
            if mapped::is_cut() {
                mapped::whole()?;
            }
            for (index, mut taken) in outputs.into_iter().enumerate() {
                let running = &taken.running;
                running.complete(cycles[index], &mut taken.text, &mut spare);
                cycles[index] += running.cycles();
                decoded.packets += taken.packets;
                decoded.counts += taken.counts;
                Unfollowed::add(&mut unfollowed[index], taken.unfollowed);
                let waiting = &mut waiting[index];
                waiting.bytes += taken.text.len();
                waiting.texts.push(taken.text);
                if waiting.bytes >= PAGE {
                    waiting.write(out, &texts)?;
                }
            }
            progress(done);
            Ok::<(), Stopped>(())
        };
        let sizes = self.sizes(buffer.bytes());
        let totals = decode_in_parts(buffer, sizes, self.jobs, &make, &take, &mut give)?;
        if totals.is_none() {
            return Ok(None);
        }
        decoded.totals = totals;
        for (index, source) in buffer.sources.iter().enumerate() {
            let note = unfollowed[index].map(|unfollowed| self.unfollowed(source, &unfollowed));
            decoded.notes.extend(note);
            waiting[index].write(out, &texts)?;
        }
        Ok(Some(decoded))
    }

    fn sizes(&self, total: u64) -> Sizes {
        let most = match self.format {
            Format::None => SILENT_PART,
            Format::Text | Format::Jsonl | Format::Binary => PART,
        };
        let fair = total / (PARTS * self.jobs as u64);
        Sizes {
            piece: self.piece(),
            part: fair.clamp(LEAST_PART, most),
            output: WAITING,
            lead_in: None,
        }
    }
}
