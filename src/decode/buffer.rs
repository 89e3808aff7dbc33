//! A snapshot's trace buffers, piece by piece through the decoders of their sources.

use super::source::Decoding;
use crate::formatter::{Deformatter, Demux, FrameKind};
use crate::quantity::{BufferOffset, TraceId};
use crate::snapshot::Loaded;
use crate::snapshot::map::Mapped;
use crate::snapshot::model::BufferFormat;
use crate::snapshot::topology::{self, TraceSource};
use crate::stop;

/// What to decode of a snapshot.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Names of the sources; all if empty.
    pub sources: Vec<String>,
    /// Names of the buffers; all if empty.
    pub buffers: Vec<String>,
}

/// Bytes of a buffer after which the memory that mapped them is given back: whole pages.
const RELEASED: usize = 4 << 20;

/// One buffer and the sources in it that are to be decoded.
#[derive(Clone, Debug)]
pub struct Sources {
    /// Its index in the model.
    pub buffer: usize,
    /// Its files, in order.
    pub parts: Vec<Mapped>,
    /// How frames lie in it; `None` if it holds one source's bytes.
    pub frames: Option<FrameKind>,
    /// The sources.
    pub sources: Vec<TraceSource>,
}

/// The buffers of a snapshot that are to be decoded.
#[derive(Clone, Debug, Default)]
pub struct Buffers {
    /// In the order of their sections in the trace metadata.
    pub buffers: Vec<Sources>,
    /// What is assumed, one line each.
    pub notes: Vec<String>,
    /// Which buffers cannot be decoded and why, one line each.
    pub faults: Vec<String>,
}

/// Why nothing can be decoded.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BuffersError {
    /// The snapshot has no trace.
    #[error("the snapshot has no trace")]
    NoTrace,
    /// A name that the snapshot does not have.
    #[error("no trace {what} {name:?}; there are: {}", if known.is_empty() { "none" } else { known })]
    Unknown {
        /// `source` or `buffer`.
        what: &'static str,
        /// What was asked for.
        name: String,
        /// The names there are.
        known: String,
    },
}

impl Buffers {
    /// The buffers and sources that `options` ask for. A name that the snapshot does not have
    /// is an error that lists those it has.
    pub fn of(loaded: &Loaded, options: &Options) -> Result<Self, BuffersError> {
        let Some(trace) = &loaded.snapshot.trace else {
            return Err(BuffersError::NoTrace);
        };
        let sources = topology::sources(loaded);
        let buffer_names: Vec<&str> = trace.buffers.iter().map(|b| &*b.name).collect();
        let mut source_names: Vec<&str> = sources.iter().map(|s| &*s.name).collect();
        source_names.dedup();
        known("buffer", &options.buffers, &buffer_names)?;
        known("source", &options.sources, &source_names)?;
        let wanted =
            |names: &[String], name: &str| names.is_empty() || names.iter().any(|n| n == name);
        let mut found = Self::default();
        // The reference takes buffers in the order of their sections, not of `buffers=`.
        let mut order: Vec<_> = trace.buffers.iter().enumerate().collect();
        order.sort_by_key(|(_, buffer)| buffer.place.line);
        for (index, buffer) in order {
            if !wanted(&options.buffers, &buffer.name) {
                continue;
            }
            let mut sources: Vec<_> = sources
                .iter()
                .filter(|s| s.buffer == index && wanted(&options.sources, &s.name))
                .cloned()
                .collect();
            let frames = match &buffer.format {
                BufferFormat::Coresight => Some(FrameKind::Memory),
                BufferFormat::DstreamCoresight => Some(FrameKind::Dstream),
                BufferFormat::SourceData => None,
                BufferFormat::Other(_) | BufferFormat::Missing => {
                    found.faults.push(format!(
                        "{}: buffer {}: its format is not known, it is left out",
                        buffer.place, buffer.name
                    ));
                    continue;
                }
            };
            if frames.is_none() && sources.len() > 1 {
                let named = sources.iter().position(|s| s.name == buffer.name);
                let chosen = sources.swap_remove(named.unwrap_or(0));
                found.notes.push(format!(
                    "{}: buffer {}: unformatted, so it holds one source: {} is decoded",
                    buffer.place, buffer.name, chosen.name
                ));
                sources = vec![chosen];
            }
            match topology::buffer_parts(loaded, index) {
                Ok(parts) => found.buffers.push(Sources {
                    buffer: index,
                    parts,
                    frames,
                    sources,
                }),
                Err(error) => found.faults.push(error.to_string()),
            }
        }
        Ok(found)
    }
}

fn known(what: &'static str, wanted: &[String], names: &[&str]) -> Result<(), BuffersError> {
    match wanted.iter().find(|name| !names.contains(&&***name)) {
        None => Ok(()),
        Some(name) => Err(BuffersError::Unknown {
            what,
            name: name.clone(),
            known: names.join(", "),
        }),
    }
}

impl Sources {
    /// Bytes of the buffer.
    pub fn bytes(&self) -> u64 {
        self.parts.iter().map(|part| part.len() as u64).sum()
    }

    /// Decodes the buffer in pieces of up to `piece` bytes. `decoders` belong to trace IDs; of
    /// several with one ID the first counts. After each piece and each source `laid_up` is
    /// called with the index of the decoder.
    pub fn decode<O: ?Sized, X>(
        &self,
        decoders: &mut [(TraceId, Box<dyn Decoding<O> + '_>)],
        piece: usize,
        mut laid_up: impl FnMut(usize, &mut O) -> Result<(), X>,
    ) -> Result<(), X> {
        let ids: Vec<_> = decoders.iter().map(|(id, _)| *id).collect();
        let mut demux = Demux::only(&ids);
        let mut deformatter = self.frames.map(Deformatter::new);
        let mut offset = 0;
        let total = self.bytes();
        if total == 0 {
            for (index, (_, decoder)) in decoders.iter_mut().enumerate() {
                decoder.end(BufferOffset(0));
                laid_up(index, decoder.output())?;
            }
        }
        for part in &self.parts {
            let mut read = 0;
            let mut released = 0;
            for bytes in part.chunks(piece.max(1)) {
                stop::check();
                let last = offset + bytes.len() as u64 == total;
                match &mut deformatter {
                    Some(d) => d.feed(BufferOffset(offset), bytes, last, &mut demux),
                    None => demux.unformatted(ids[0], BufferOffset(offset), bytes),
                }
                offset += bytes.len() as u64;
                for (index, (id, decoder)) in decoders.iter_mut().enumerate() {
                    if ids[..index].contains(id) {
                        continue;
                    }
                    decoder.piece(demux.stream_mut(*id), last);
                    if last {
                        decoder.end(BufferOffset(total));
                    }
                    laid_up(index, decoder.output())?;
                }
                read += bytes.len();
                if read - released >= RELEASED {
                    let whole = read / RELEASED * RELEASED;
                    part.release(released..whole);
                    released = whole;
                }
            }
        }
        Ok(())
    }
}
