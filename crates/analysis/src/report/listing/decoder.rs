//! The decoder of a source whose output is listed.

use super::branches::Branches;
use super::elements::ElementListing;
use super::instructions::InstructionListing;
use super::jsonl::JsonLines;
use super::nothing::NoLines;
use super::packets::PacketListing;
use super::records::BranchRecords;
use super::text::TextLines;
use super::{BranchLines, Lines, Listed};
use armsnap_arch::quantity::TraceId;
use armsnap_history::decode::{Image, Programs, Resumable, Source};
use armsnap_snapshot::capture::{
    CaptureBuffer, CaptureSource, Saved, Visitor, traced_core, traces_host_ids,
};
use armsnap_snapshot::program::disassembly::Disassembler;
use armsnap_snapshot::program::symbols::Symbols;
use armsnap_snapshot::snapshot::OpenSnapshot;
use armsnap_trace::flow::{Flow, FlowConfig};
use armsnap_trace::protocol::{ElementDecoder, PacketDecoder};

/// A source that is decoded into a listing.
pub type ListingDecoder<'a> = Box<dyn Resumable<dyn Listed + 'a> + 'a>;

/// How far to decode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Level {
    /// Packets with their bytes.
    Packets,
    /// Executed ranges, exceptions, contexts, timestamps and other events.
    Elements,
    /// Branch targets, events, exceptions and time: no code image needed.
    Branches,
    /// Each executed instruction, disassembled.
    Instructions,
}

/// The form of the lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LineForm {
    /// Aligned text.
    Text,
    /// JSON Lines.
    JsonLines,
    /// Binary records of branches, whatever the level, with this number of the source.
    Records(u16),
    /// No lines, only counts.
    Counts,
}

/// Makes the decoder of a source in a buffer.
///
/// # Errors
///
/// If instructions cannot be disassembled.
pub fn decoder<'a>(
    loaded: &'a OpenSnapshot,
    programs: &'a Programs,
    (buffer, source): (&CaptureBuffer, &CaptureSource),
    (level, form): (Level, LineForm),
) -> Result<ListingDecoder<'a>, String> {
    // An unformatted buffer has no IDs. Its elements carry the ID that was assigned to the
    // trace unit, as those of the reference decoder do.
    let shown = match (buffer.frames, level) {
        (None, Level::Packets) => TraceId(0),
        _ => source.trace_id,
    };
    let core = source.core;
    let devices = &loaded.snapshot.devices;
    let symbols = core.and_then(|core| programs.symbols(core));
    let make = Make {
        level,
        lines: NoLines::default(),
        counts_cycles: source.config.counts_cycles(),
        m_profile: core.is_some_and(|core| traced_core(&devices[core]).is_microcontroller()),
        image: Image(core.and_then(|core| programs.memory(core))),
        symbols,
    };
    match form {
        LineForm::JsonLines => {
            let lines = JsonLines::new(&source.name, &buffer.name, shown);
            source.visit(make.with_lines(lines.with_clock(source.clock)))
        }
        LineForm::Text => {
            let lines = TextLines::new(shown, symbols)
                .with_clock(source.clock)
                .with_host_ids(traces_host_ids(&devices[source.device]));
            source.visit(make.with_lines(lines))
        }
        LineForm::Records(number) => {
            source.visit(MakeRecords(make.with_lines(BranchRecords::new(number))))
        }
        LineForm::Counts => source.visit(make),
    }
}

struct Make<'a, L> {
    level: Level,
    lines: L,
    counts_cycles: bool,
    m_profile: bool,
    image: Image<'a>,
    symbols: Option<&'a Symbols>,
}

impl<'a, L> Make<'a, L> {
    fn with_lines<M>(self, lines: M) -> Make<'a, M> {
        Make {
            level: self.level,
            lines,
            counts_cycles: self.counts_cycles,
            m_profile: self.m_profile,
            image: self.image,
            symbols: self.symbols,
        }
    }
}

impl<'a, L: Lines + 'a> Make<'a, L> {
    fn packets<D: PacketDecoder + Saved + 'static>(self, packets: D) -> ListingDecoder<'a> {
        Box::new(Source::new(packets, PacketListing::new(self.lines)))
    }
}

impl<'a, L: BranchLines + 'a> Make<'a, L> {
    fn branches<D, E>(self, packets: D, elements: E) -> ListingDecoder<'a>
    where
        D: PacketDecoder + Saved + 'static,
        E: ElementDecoder<Packet = D::Packet> + Saved + 'static,
    {
        let branches = Branches::new(self.lines, self.counts_cycles);
        Box::new(Source::with_elements(packets, elements, branches))
    }
}

/// Makes decoders that write records of branches.
struct MakeRecords<'a>(Make<'a, BranchRecords>);

impl<'a> Visitor for MakeRecords<'a> {
    type Output = Result<ListingDecoder<'a>, String>;

    fn visit<D, E>(self, packets: D, elements: E) -> Self::Output
    where
        D: PacketDecoder + Saved + 'static,
        E: ElementDecoder<Packet = D::Packet> + Saved + 'static,
    {
        Ok(self.0.branches(packets, elements))
    }

    fn visit_flow<D, E>(self, packets: D, elements: E, _: FlowConfig) -> Self::Output
    where
        D: PacketDecoder + Saved + 'static,
        E: ElementDecoder<Packet = D::Packet> + Saved + 'static,
    {
        Ok(self.0.branches(packets, elements))
    }
}

impl<'a, L: Lines + 'a> Visitor for Make<'a, L> {
    type Output = Result<ListingDecoder<'a>, String>;

    fn visit<D, E>(self, packets: D, elements: E) -> Self::Output
    where
        D: PacketDecoder + Saved + 'static,
        E: ElementDecoder<Packet = D::Packet> + Saved + 'static,
    {
        Ok(match self.level {
            Level::Packets => self.packets(packets),
            Level::Branches => self.branches(packets, elements),
            Level::Elements | Level::Instructions => {
                let listing = ElementListing::new(self.lines);
                Box::new(Source::with_elements(packets, elements, listing))
            }
        })
    }

    fn visit_flow<D, E>(self, packets: D, elements: E, flow: FlowConfig) -> Self::Output
    where
        D: PacketDecoder + Saved + 'static,
        E: ElementDecoder<Packet = D::Packet> + Saved + 'static,
    {
        Ok(match self.level {
            Level::Packets => self.packets(packets),
            Level::Branches => self.branches(packets, elements),
            Level::Elements => {
                let flow = Flow::new(flow, self.image);
                let listing = ElementListing::new(self.lines);
                Box::new(Source::with_flow(packets, elements, flow, listing))
            }
            Level::Instructions => {
                let flow = Flow::new(flow, self.image);
                let disassembler = Disassembler::new(self.m_profile);
                let disassembler = disassembler.map_err(|error| error.to_string())?;
                let listing =
                    InstructionListing::new(self.lines, self.image, self.symbols, disassembler);
                Box::new(Source::with_flow(packets, elements, flow, listing))
            }
        })
    }
}
