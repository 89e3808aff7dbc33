//! One buffer through the decoders of its sources, on one processor core or on several.
//!
//! With several, each source or group of sources has a thread that takes the whole buffer apart
//! for itself. The pages of text come back through bounded channels in the order in which one
//! thread alone would have written them.

use super::{Format, Level, programs::Programs};
use armsnap::decode::{
    Core, Decoding, ElementStage, Flowing, Image, Profile, Setup, Source, Sources, Visitor,
};
use armsnap::flow::{Flow, FlowConfig};
use armsnap::protocol::{ElementDecoder, PacketDecoder};
use armsnap::quantity::TraceId;
use armsnap::report::disassembly::Disassembler;
use armsnap::report::listing::branches::Branches;
use armsnap::report::listing::elements::ElementListing;
use armsnap::report::listing::instructions::InstructionListing;
use armsnap::report::listing::jsonl::JsonLines;
use armsnap::report::listing::nothing::NoLines;
use armsnap::report::listing::packets::PacketListing;
use armsnap::report::listing::text::TextLines;
use armsnap::report::listing::text_buffer::TextBuffer;
use armsnap::report::listing::{Counts, Lines, Listed};
use armsnap::report::symbols::Symbols;
use armsnap::snapshot::topology::{Protocol, TraceSource};
use armsnap::snapshot::{Loaded, map};
use std::io::{self, Write};
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::thread;

/// Bytes of trace decoded at once. Their listing is kept in memory, and an atom of a few bits
/// may become a line.
const PIECE: usize = 16 << 10;
/// The same where nothing is printed.
const SILENT_PIECE: usize = 256 << 10;
/// Text that is written out at once.
const PAGE: usize = 1 << 20;
/// Pages of a source that may wait for the ones of another.
const WAITING: usize = 4;

type Decoder<'a> = Box<dyn Decoding<dyn Listed + 'a> + 'a>;

/// Makes the decoder of one source for a level and a form of listing.
struct Make<'a, L> {
    level: Level,
    lines: L,
    counts_cycles: bool,
    m_profile: bool,
    image: Image<'a>,
    symbols: Option<&'a Symbols>,
}

impl<'a, L: Lines + 'a> Visitor for Make<'a, L> {
    type Output = Result<Decoder<'a>, String>;

    fn visit<D, E>(self, packets: D, elements: E, flow: Option<FlowConfig>) -> Self::Output
    where
        D: PacketDecoder + 'static,
        E: ElementDecoder<Packet = D::Packet> + 'static,
    {
        Ok(match (self.level, flow) {
            (Level::Packets, _) => Box::new(Source::new(packets, PacketListing::new(self.lines))),
            (Level::Branches, _) => {
                let branches = Branches::new(self.lines, self.counts_cycles);
                Box::new(Source::new(packets, ElementStage::new(elements, branches)))
            }
            (Level::Elements, Some(flow)) => {
                let flow = Flow::new(flow, self.image);
                let sink = Flowing::new(flow, ElementListing::new(self.lines));
                Box::new(Source::new(packets, ElementStage::new(elements, sink)))
            }
            (Level::Instructions, Some(flow)) => {
                let flow = Flow::new(flow, self.image);
                let disassembler = Disassembler::new(self.m_profile)?;
                let listing =
                    InstructionListing::new(self.lines, self.image, self.symbols, disassembler);
                let sink = Flowing::new(flow, listing);
                Box::new(Source::new(packets, ElementStage::new(elements, sink)))
            }
            (Level::Elements | Level::Instructions, None) => {
                let sink = ElementListing::new(self.lines);
                Box::new(Source::new(packets, ElementStage::new(elements, sink)))
            }
        })
    }
}

/// What was decoded.
#[derive(Clone, Copy, Debug, Default)]
pub struct Decoded {
    /// Packets.
    pub packets: u64,
    /// Lines and what they count.
    pub counts: Counts,
}

/// Why decoding stopped.
pub enum Stopped {
    /// Nobody takes what is written, or it cannot be written.
    Io(io::Error),
    /// A decoder cannot be made.
    Maker(String),
}

impl From<io::Error> for Stopped {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

/// What the decoders of all sources share.
pub struct Job<'a> {
    /// The snapshot.
    pub loaded: &'a Loaded,
    /// Code and symbols.
    pub programs: &'a Programs,
    /// How far to decode.
    pub level: Level,
    /// What to print.
    pub format: Format,
    /// How many threads decode, at most.
    pub jobs: usize,
}

/// A source that can be decoded.
pub struct Prepared<'a> {
    source: &'a TraceSource,
    setup: Setup,
    id: TraceId,
}

impl<'a> Job<'a> {
    /// The sources of a buffer that can be decoded. What is assumed or left out goes to `notes`.
    pub fn prepare(&self, sources: &'a Sources, notes: &mut Vec<String>) -> Vec<Prepared<'a>> {
        let mut out: Vec<Prepared> = Vec::new();
        for source in &sources.sources {
            let device = &self.loaded.snapshot.devices[source.device];
            let mut left_out = |why: &str| {
                notes.push(format!(
                    "{}: {}: {why}: it is left out",
                    device.place, source.name
                ));
            };
            let stream = source.stream.unwrap_or(0);
            // ETMv4 has its data trace in stream 1 (snapshot format, 3.3.4).
            if stream > 0 && matches!(source.protocol, Protocol::Etmv4 | Protocol::Ete) {
                left_out("its data trace cannot be decoded");
                continue;
            }
            let setup = match Setup::of(self.loaded, source, notes) {
                Ok(setup) => setup,
                Err(why) => {
                    notes.push(why);
                    continue;
                }
            };
            let id = TraceId(setup.trace_id().0.wrapping_add(stream as u8) & 0x7F);
            let followed = matches!(self.level, Level::Elements | Level::Instructions);
            if followed && source.core.is_none() && source.protocol.needs_core() {
                notes.push(format!(
                    "{}: {}: no core is given for it: its code is not known",
                    device.place, source.name
                ));
            }
            if let Some(other) = out.iter().find(|other| other.id == id) {
                notes.push(format!(
                    "{}: {}: {} has its trace ID {:#04x} in the same buffer: it is left out",
                    device.place, source.name, other.source.name, id.0
                ));
                continue;
            }
            out.push(Prepared { source, setup, id });
        }
        out
    }

    /// Decodes the buffer of `sources`; `progress` is told the bytes of it that are done.
    pub fn decode(
        &self,
        sources: &Sources,
        prepared: &[Prepared],
        out: &mut impl Write,
        progress: impl FnMut(u64),
    ) -> Result<Decoded, Stopped> {
        match (prepared.len(), self.jobs) {
            (0, _) => Ok(Decoded::default()),
            (_, 1) => self.on_one(sources, prepared, out, progress),
            _ => self.on_several(sources, prepared, out, progress),
        }
    }

    fn on_one(
        &self,
        sources: &Sources,
        prepared: &[Prepared],
        out: &mut impl Write,
        mut progress: impl FnMut(u64),
    ) -> Result<Decoded, Stopped> {
        let mut done = 0;
        self.group(sources, prepared, |index, text| {
            if let Some(text) = text {
                out.write_all(text.bytes())?;
                text.clear();
            }
            if index == Some(0) {
                done += self.piece() as u64;
                progress(done.min(sources.bytes()));
            }
            Ok(())
        })
    }

    /// `send` is called for every source after every piece, and once more at the end: the text
    /// that is to be written then, if any.
    fn group(
        &self,
        sources: &Sources,
        prepared: &[Prepared],
        mut send: impl FnMut(Option<usize>, Option<&mut TextBuffer>) -> Result<(), Stopped>,
    ) -> Result<Decoded, Stopped> {
        let mut decoders = Vec::new();
        for one in prepared {
            let decoder = self.decoder(sources, one).map_err(Stopped::Maker)?;
            decoders.push((one.id, decoder));
        }
        sources.decode(&mut decoders, self.piece(), |index, listed| {
            if map::is_cut() {
                map::whole()?;
            }
            let text = listed.text();
            let full = text.len() >= PAGE;
            send(Some(index), full.then_some(text))
        })?;
        let mut decoded = Decoded::default();
        for (_, decoder) in &mut decoders {
            decoded.packets += decoder.packets();
            let listed = decoder.output();
            decoded.counts += listed.counts();
            send(None, Some(listed.text()))?;
        }
        Ok(decoded)
    }

    fn on_several(
        &self,
        sources: &Sources,
        prepared: &[Prepared],
        out: &mut impl Write,
        mut progress: impl FnMut(u64),
    ) -> Result<Decoded, Stopped> {
        let size = prepared.len().div_ceil(self.jobs);
        thread::scope(|scope| {
            let mut pages = Vec::new();
            let mut workers = Vec::new();
            for group in prepared.chunks(size) {
                // Written pages come back, so that their memory is used again.
                let (written, empty) = channel();
                let (senders, receivers): (Vec<SyncSender<_>>, Vec<_>) =
                    group.iter().map(|_| sync_channel(WAITING)).unzip();
                pages.extend(receivers.into_iter().map(|filled| Pages {
                    filled,
                    written: written.clone(),
                }));
                workers.push(scope.spawn(move || {
                    let mut last = 0;
                    self.group(sources, group, |index, text| {
                        let index = index.unwrap_or_else(|| {
                            last += 1;
                            last - 1
                        });
                        let gone = |_| io::ErrorKind::BrokenPipe.into();
                        let text =
                            text.map(|text| text.replace(empty.try_recv().unwrap_or_default()));
                        senders[index].send(text).map_err(gone).map_err(Stopped::Io)
                    })
                }));
            }
            let written = write_in_order(&pages, out, |pieces| {
                progress((pieces * self.piece() as u64).min(sources.bytes()));
            });
            // Whoever still sends ends here.
            drop(pages);
            let mut decoded = Decoded::default();
            let mut stopped = None;
            for worker in workers {
                match worker.join() {
                    Ok(Ok(part)) => {
                        decoded.packets += part.packets;
                        decoded.counts += part.counts;
                    }
                    Ok(Err(why)) => stopped = stopped.or(Some(why)),
                    Err(panic) => std::panic::resume_unwind(panic),
                }
            }
            // That nobody took the pages any more follows from the failure to write.
            written?;
            stopped.map_or(Ok(decoded), Err)
        })
    }

    fn piece(&self) -> usize {
        match self.format {
            Format::None => SILENT_PIECE,
            Format::Text | Format::Jsonl => PIECE,
        }
    }

    fn decoder<'b>(&'b self, sources: &Sources, one: &Prepared<'b>) -> Result<Decoder<'b>, String> {
        // An unformatted buffer has no IDs. Its elements carry the one that the trace unit was
        // given, as the reference does.
        let shown = match (sources.frames, self.level) {
            (None, Level::Packets) => TraceId(0),
            _ => one.id,
        };
        let trace = self.loaded.snapshot.trace.as_ref();
        let buffer = trace.map_or("", |trace| &trace.buffers[sources.buffer].name);
        let symbols = one.source.core.and_then(|core| self.programs.symbols(core));
        match self.format {
            Format::Jsonl => {
                let lines = JsonLines::new(&one.source.name, buffer, shown);
                self.make(one, symbols, lines)
            }
            Format::Text => self.make(one, symbols, TextLines::new(shown, symbols)),
            Format::None => self.make(one, symbols, NoLines::default()),
        }
    }

    fn make<'b, L: Lines + 'b>(
        &'b self,
        one: &Prepared<'b>,
        symbols: Option<&'b Symbols>,
        lines: L,
    ) -> Result<Decoder<'b>, String> {
        let core = one.source.core;
        let devices = &self.loaded.snapshot.devices;
        one.setup.visit(Make {
            level: self.level,
            lines,
            counts_cycles: one.setup.counts_cycles(),
            m_profile: core.is_some_and(|core| Core::of(&devices[core]).profile == Profile::M),
            image: Image(core.and_then(|core| self.programs.memory(core))),
            symbols,
        })
    }
}

/// The pages of one source, to the writer and back.
struct Pages {
    filled: Receiver<Option<Vec<u8>>>,
    written: Sender<Vec<u8>>,
}

/// Writes what comes from the sources: a page or none from each in turn, until the first one has
/// no more; `piece` is told how many rounds there were.
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
                // At its end a source needs none any more.
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
