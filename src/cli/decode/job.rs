//! Decodes a buffer with one decoder per source, on one or several threads.
//!
//! With several threads, parts of the buffer are decoded independently ([`super::in_parts`]). If the
//! trace cannot be split, each thread deformats the whole buffer and decodes a group of sources. The
//! pages of text return through bounded channels, in the order in which a single thread would have
//! written them.

use super::{Format, Level};
use armsnap::capture::{Capture, CaptureBuffer, CaptureSource};
use armsnap::decode::{Decoding, Programs, Totals, decode_buffer};
use armsnap::mapped;
use armsnap::quantity::TraceId;
use armsnap::report::listing::text_buffer::TextBuffer;
use armsnap::report::listing::{
    self, Counts, LineForm, Listed, ListingDecoder, Unfollowed, records,
};
use armsnap::snapshot::OpenSnapshot;
use std::io::{self, Write};
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::thread::{self, ScopedJoinHandle};

/// The number of bytes of trace decoded at once. Their listing is kept in memory, and an atom of a
/// few bits may become a line.
const PIECE: usize = 16 << 10;
/// The number of bytes of trace decoded at once if nothing is printed.
const SILENT_PIECE: usize = 256 << 10;
/// The size at which text is written out.
pub(super) const PAGE: usize = 1 << 20;
/// The number of pages of a source that may wait for another source.
const WAITING: usize = 4;

/// Counts of what was decoded, and notes.
#[derive(Clone, Debug, Default)]
pub struct Decoded {
    /// The number of packets.
    pub packets: u64,
    /// Counts of the listing.
    pub counts: Counts,
    /// Bytes by trace ID; `None` if nothing was decoded.
    pub totals: Option<Totals>,
    /// Notes for the user, one line each.
    pub notes: Vec<String>,
}

/// Why decoding stopped.
pub enum Stopped {
    /// The output cannot be written.
    Io(io::Error),
    /// A decoder cannot be created, or its state cannot be used for another part.
    Decoder(String),
}

impl From<io::Error> for Stopped {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

/// The decoder of a source, and its trace ID.
pub(super) type SourceDecoder<'a> = (TraceId, Box<dyn Decoding<dyn Listed + 'a> + 'a>);

/// Settings shared by the decoders of all sources.
pub struct Job<'a> {
    /// The snapshot.
    pub loaded: &'a OpenSnapshot,
    /// Code and symbols.
    pub programs: &'a Programs,
    /// The buffers and sources that are decoded.
    pub capture: &'a Capture,
    /// How far to decode.
    pub level: Level,
    /// What to print.
    pub format: Format,
    /// The maximum number of threads.
    pub jobs: usize,
    /// Whether the lines of all sources of a buffer are merged by time.
    pub by_time: bool,
}

impl Job<'_> {
    /// Decodes a buffer; `progress` receives the number of bytes done.
    pub fn decode(
        &self,
        buffer: &CaptureBuffer,
        out: &mut impl Write,
        mut progress: impl FnMut(u64),
    ) -> Result<Decoded, Stopped> {
        match (buffer.sources.len(), self.jobs) {
            (0, _) => Ok(Decoded::default()),
            _ if self.by_time => self.by_time(buffer, out, progress),
            (_, 1) => self.on_one(buffer, out, progress),
            _ => match self.in_parts(buffer, out, &mut progress)? {
                Some(decoded) => Ok(decoded),
                None => self.on_several(buffer, out, progress),
            },
        }
    }

    fn on_one(
        &self,
        buffer: &CaptureBuffer,
        out: &mut impl Write,
        mut progress: impl FnMut(u64),
    ) -> Result<Decoded, Stopped> {
        let mut done = 0;
        self.group(buffer, &buffer.sources, |index, text| {
            if let Some(text) = text {
                out.write_all(text.bytes())?;
                text.clear();
            }
            if index == 0 {
                done += self.piece() as u64;
                progress(done.min(buffer.bytes()));
            }
            Ok(())
        })
    }

    /// Decodes a group of sources. After every piece, `send` receives the index of each source,
    /// with its text if that fills a page; at the end it receives the rest of each source's text.
    pub(super) fn group(
        &self,
        buffer: &CaptureBuffer,
        sources: &[CaptureSource],
        mut send: impl FnMut(usize, Option<&mut TextBuffer>) -> Result<(), Stopped>,
    ) -> Result<Decoded, Stopped> {
        let mut decoders = self.decoders(buffer, sources)?;
        let totals = decode_buffer(buffer, &mut decoders, self.piece(), |index, listed| {
            if mapped::is_cut() {
                mapped::whole()?;
            }
            let text = listed.text();
            let full = text.len() >= PAGE;
            send(index, full.then_some(text))
        })?;
        self.decoded(&mut decoders, sources, totals, send)
    }

    /// Makes the decoders of some sources.
    pub(super) fn decoders<'b>(
        &'b self,
        buffer: &CaptureBuffer,
        sources: &[CaptureSource],
    ) -> Result<Vec<SourceDecoder<'b>>, Stopped> {
        let mut decoders = Vec::new();
        for source in sources {
            let decoder = self.decoder(buffer, source).map_err(Stopped::Decoder)?;
            let decoder: Box<dyn Decoding<_>> = decoder;
            decoders.push((source.trace_id, decoder));
        }
        Ok(decoders)
    }

    /// Returns what the decoders of some sources counted. `send` receives the index of each source,
    /// with the rest of its text.
    pub(super) fn decoded(
        &self,
        decoders: &mut [SourceDecoder<'_>],
        sources: &[CaptureSource],
        totals: Totals,
        mut send: impl FnMut(usize, Option<&mut TextBuffer>) -> Result<(), Stopped>,
    ) -> Result<Decoded, Stopped> {
        let mut decoded = Decoded {
            totals: Some(totals),
            ..Decoded::default()
        };
        for (index, ((_, decoder), source)) in decoders.iter_mut().zip(sources).enumerate() {
            decoded.packets += decoder.packets();
            let listed = decoder.output();
            decoded.counts += listed.counts();
            let unfollowed = listed.unfollowed();
            decoded
                .notes
                .extend(unfollowed.map(|u| self.unfollowed(source, &u)));
            let text = listed.text();
            text.end();
            send(index, Some(text))?;
        }
        Ok(decoded)
    }

    fn on_several(
        &self,
        buffer: &CaptureBuffer,
        out: &mut impl Write,
        mut progress: impl FnMut(u64),
    ) -> Result<Decoded, Stopped> {
        let size = buffer.sources.len().div_ceil(self.jobs);
        thread::scope(|scope| {
            let mut pages = Vec::new();
            let mut workers = Vec::new();
            for group in buffer.sources.chunks(size) {
                // Written pages are returned, to reuse their memory.
                let (written, empty) = channel();
                let (senders, receivers): (Vec<SyncSender<_>>, Vec<_>) =
                    group.iter().map(|_| sync_channel(WAITING)).unzip();
                pages.extend(receivers.into_iter().map(|filled| Pages {
                    filled,
                    written: written.clone(),
                }));
                workers.push(scope.spawn(move || {
                    self.group(buffer, group, |index, text| {
                        let gone = |_| io::ErrorKind::BrokenPipe.into();
                        let text =
                            text.map(|text| text.replace(empty.try_recv().unwrap_or_default()));
                        senders[index].send(text).map_err(gone).map_err(Stopped::Io)
                    })
                }));
            }
            let written = write_in_order(&pages, out, |pieces| {
                progress((pieces * self.piece() as u64).min(buffer.bytes()));
            });
            // Threads that are still sending end here.
            drop(pages);
            joined(workers, written)
        })
    }

    /// Describes the branches of a source that cannot be followed.
    pub(super) fn unfollowed(&self, source: &CaptureSource, unfollowed: &Unfollowed) -> String {
        let device = &self.loaded.snapshot.devices[source.device];
        let more = match unfollowed.times - 1 {
            0 => String::new(),
            more => format!(" and at {more} more places"),
        };
        let branch = match unfollowed.branch {
            Some(end) => format!("an indirect branch, the instruction before {end},"),
            None => "an indirect branch".to_owned(),
        };
        let (stack, switch) = (
            source.config.return_stack(),
            source.config.return_stack_bit(),
        );
        let what = match (stack, switch) {
            (Some(true), Some(bit)) => format!(
                "and no return address is stacked: trace is lost, the code is not what ran, or the \
                 return stack was off, though {bit} says that it was on"
            ),
            (_, Some(bit)) => format!(
                "so nothing is followed up to the next address: the return stack was on, though \
                 {bit} says that it was off, or trace is lost, or the code is not what ran"
            ),
            (_, None) => {
                "so that nothing is followed up to the next address: trace is lost, or the \
                          code is not what ran"
                    .to_owned()
            }
        };
        format!(
            "{}: {}: at offset {:#x}{more} trace continues after {branch} whose target it does not \
             contain, {what}",
            device.place, source.name, unfollowed.first.0
        )
    }

    pub(super) fn piece(&self) -> usize {
        match self.format {
            Format::None => SILENT_PIECE,
            Format::Text | Format::Jsonl | Format::Binary => PIECE,
        }
    }

    pub(super) fn decoder<'b>(
        &'b self,
        buffer: &CaptureBuffer,
        source: &CaptureSource,
    ) -> Result<ListingDecoder<'b>, String> {
        let form = match self.format {
            Format::Text => LineForm::Text,
            Format::Jsonl => LineForm::JsonLines,
            Format::Binary => {
                let number = records::number(self.capture, buffer, source);
                LineForm::Records(
                    number.ok_or("--format binary: the capture has more than 65536 sources")?,
                )
            }
            Format::None => LineForm::Counts,
        };
        let level = match self.level {
            Level::Packets => listing::Level::Packets,
            Level::Elements => listing::Level::Elements,
            Level::Branches => listing::Level::Branches,
            Level::Instructions => listing::Level::Instructions,
        };
        let form = (level, form);
        let mut decoder = listing::decoder(self.loaded, self.programs, (buffer, source), form)?;
        if self.by_time {
            decoder.output().text().keep_stretches();
        }
        Ok(decoder)
    }
}

/// Returns what threads decoded whose text was `written`.
pub(super) fn joined(
    workers: Vec<ScopedJoinHandle<'_, Result<Decoded, Stopped>>>,
    written: io::Result<()>,
) -> Result<Decoded, Stopped> {
    let mut decoded = Decoded::default();
    let mut stopped = None;
    for worker in workers {
        match worker.join() {
            Ok(Ok(part)) => {
                decoded.packets += part.packets;
                decoded.counts += part.counts;
                // The totals are the same in every group.
                decoded.totals = part.totals;
                decoded.notes.extend(part.notes);
            }
            Ok(Err(why)) => stopped = stopped.or(Some(why)),
            Err(panic) => std::panic::resume_unwind(panic),
        }
    }
    // A write error is the cause of closed channels, so it is reported first.
    written?;
    stopped.map_or(Ok(decoded), Err)
}

/// The channels for the pages of one source, to the writer and back.
struct Pages {
    filled: Receiver<Option<Vec<u8>>>,
    written: Sender<Vec<u8>>,
}

/// Writes the pages of all sources: a page or none from each in turn, until no source has any more.
/// `piece` receives the number of finished rounds.
fn write_in_order(
    pages: &[Pages],
    out: &mut impl Write,
    mut piece: impl FnMut(u64),
) -> io::Result<()> {
    for round in 1.. {
        let mut more = false;
        for source in pages {
            let Ok(page) = source.filled.recv() else {
                continue;
            };
            more = true;
            if let Some(page) = page {
                out.write_all(&page)?;
                // A source that has ended no longer receives pages.
                let _ = source.written.send(page);
            }
        }
        if !more {
            break;
        }
        piece(round);
    }
    Ok(())
}
