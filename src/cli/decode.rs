//! `armsnap decode`: the trace of a snapshot as packets, elements, branches or instructions.

use super::{Failure, SnapshotArguments};
use armsnap::decode::{
    Buffers, Core, Decoding, ElementStage, Flowing, Image, Options, Profile, Setup, Source,
    Sources, Visitor,
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
use armsnap::report::listing::{Counts, Lines, Listed};
use armsnap::report::symbols::Symbols;
use armsnap::snapshot::Loaded;
use armsnap::snapshot::elf::Elf;
use armsnap::snapshot::memory::CoreMemory;
use armsnap::snapshot::topology::TraceSource;
use clap::{Args, ValueEnum};
use std::collections::BTreeMap;
use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// Decode the trace of a snapshot
#[derive(Args)]
pub struct Arguments {
    #[command(flatten)]
    snapshot: SnapshotArguments,

    /// How far to decode
    #[arg(long, value_enum, default_value_t = Level::Elements)]
    level: Level,

    /// What to print
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,

    /// Decode this trace source only (repeatable)
    #[arg(long, value_name = "NAME")]
    source: Vec<String>,

    /// Decode this trace buffer only (repeatable)
    #[arg(long, value_name = "NAME")]
    buffer: Vec<String>,

    /// The program: names functions and source lines (repeatable)
    #[arg(long, value_name = "FILE")]
    elf: Vec<PathBuf>,

    /// Write to a file instead of standard output
    #[arg(short, value_name = "FILE")]
    output: Option<PathBuf>,

    /// Overwrite the file
    #[arg(long)]
    force: bool,

    /// How many processor cores to use (default: all)
    #[arg(long, value_name = "N")]
    jobs: Option<std::num::NonZero<usize>>,

    /// Print what was decoded and how fast, as one JSON object on the last line
    #[arg(long)]
    stats: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Level {
    /// Packets with their bytes
    Packets,
    /// What was executed, and everything beside it
    Elements,
    /// Branch targets, events, exceptions and time: no code image needed
    Branches,
    /// Each executed instruction, disassembled
    Instructions,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Format {
    /// Aligned lines for people
    Text,
    /// JSON Lines for programs
    Jsonl,
    /// Nothing
    None,
}

/// Bytes of trace decoded at once. Their listing is kept in memory, and an atom of a few bits
/// may become a line.
const PIECE: usize = 16 << 10;
/// The same where nothing is printed.
const SILENT_PIECE: usize = 256 << 10;
/// Text that is written out at once.
const PAGE: usize = 1 << 20;

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
#[derive(Debug, Default)]
struct Stats {
    bytes: u64,
    packets: u64,
    counts: Counts,
    wall: Duration,
    cpu: Duration,
}

fn cpu_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::new(
        time.tv_sec.try_into().unwrap_or(0),
        time.tv_nsec.try_into().unwrap_or(0),
    )
}

/// Decodes.
pub fn run(arguments: &Arguments) -> Result<ExitCode, Failure> {
    let loaded = arguments.snapshot.open()?;
    let options = Options {
        sources: arguments.source.clone(),
        buffers: arguments.buffer.clone(),
    };
    let buffers = Buffers::of(&loaded, &options).map_err(Failure::Decode)?;
    for note in &buffers.notes {
        eprintln!("{note}");
    }
    let memories = memories(&loaded, &buffers);
    let symbols = symbols(&arguments.elf)?;
    let mut out = super::output::Output::new(arguments.output.as_deref(), arguments.force)?;
    let mut stats = Stats::default();
    let job = Job {
        arguments,
        loaded: &loaded,
        memories: &memories,
        symbols: symbols.as_ref(),
    };
    for sources in &buffers.buffers {
        job.decode(sources, &mut out, &mut stats)?;
    }
    out.finish()?;
    if arguments.stats {
        print_stats(&stats)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// The symbols of the programs that the user named.
fn symbols(paths: &[PathBuf]) -> Result<Option<Symbols>, Failure> {
    let mut symbols = Symbols::default();
    for path in paths {
        let elf = Elf::open(path).map_err(|error| Failure::Decode(error.to_string()))?;
        if let Err(reason) = symbols.add(elf.bytes()) {
            eprintln!("{}: {reason}", path.display());
        }
    }
    Ok((!symbols.is_empty()).then_some(symbols))
}

/// The memory of each core that is traced, by the index of its device.
fn memories(loaded: &Loaded, buffers: &Buffers) -> BTreeMap<usize, CoreMemory> {
    let cores = buffers
        .buffers
        .iter()
        .flat_map(|buffer| &buffer.sources)
        .filter_map(|source| source.core);
    let devices = &loaded.snapshot.devices;
    cores
        .map(|core| (core, CoreMemory::new(loaded, &devices[core])))
        .collect()
}

/// What the decoders of all sources share.
struct Job<'a> {
    arguments: &'a Arguments,
    loaded: &'a Loaded,
    memories: &'a BTreeMap<usize, CoreMemory>,
    symbols: Option<&'a Symbols>,
}

impl<'a> Job<'a> {
    fn decode(
        &self,
        sources: &'a Sources,
        out: &mut impl Write,
        stats: &mut Stats,
    ) -> Result<(), Failure> {
        let mut decoders = Vec::new();
        for source in &sources.sources {
            match self.decoder(sources, source) {
                Ok(decoder) => decoders.push(decoder),
                Err(note) => eprintln!("{note}"),
            }
        }
        if decoders.is_empty() {
            return Ok(());
        }
        let piece = match self.arguments.format {
            Format::None => SILENT_PIECE,
            Format::Text | Format::Jsonl => PIECE,
        };
        let (wall, cpu) = (Instant::now(), cpu_time());
        sources.decode(&mut decoders, piece, |_, listed| {
            let text = listed.text();
            if text.len() >= PAGE {
                out.write_all(text.bytes())?;
                text.clear();
            }
            Ok::<(), io::Error>(())
        })?;
        for (_, decoder) in &mut decoders {
            stats.packets += decoder.packets();
            let listed = decoder.output();
            stats.counts += listed.counts();
            out.write_all(listed.text().bytes())?;
        }
        stats.bytes += sources.bytes();
        stats.wall += wall.elapsed();
        stats.cpu += cpu_time().saturating_sub(cpu);
        Ok(())
    }

    /// The decoder of one source and its trace ID, or why it has none.
    fn decoder(
        &self,
        sources: &Sources,
        source: &TraceSource,
    ) -> Result<(TraceId, Decoder<'a>), String> {
        let mut notes = Vec::new();
        let setup = Setup::of(self.loaded, source, &mut notes)?;
        for note in notes {
            eprintln!("{note}");
        }
        let id = setup.trace_id();
        // An unformatted buffer has no IDs. Its elements carry the one that the trace unit was
        // given, as the reference does.
        let shown = match (sources.frames, self.arguments.level) {
            (None, Level::Packets) => TraceId(0),
            _ => id,
        };
        let trace = self.loaded.snapshot.trace.as_ref();
        let buffer = trace.map_or("", |trace| &trace.buffers[sources.buffer].name);
        let decoder = match self.arguments.format {
            Format::Jsonl => {
                let lines = JsonLines::new(&source.name, buffer, shown);
                self.make(&setup, source, lines)
            }
            Format::Text => self.make(&setup, source, TextLines::new(shown, self.symbols)),
            Format::None => self.make(&setup, source, NoLines::default()),
        }?;
        Ok((id, decoder))
    }

    fn make<L: Lines + 'a>(
        &self,
        setup: &Setup,
        source: &TraceSource,
        lines: L,
    ) -> Result<Decoder<'a>, String> {
        let core = source.core;
        let devices = &self.loaded.snapshot.devices;
        setup.visit(Make {
            level: self.arguments.level,
            lines,
            counts_cycles: setup.counts_cycles(),
            m_profile: core.is_some_and(|core| Core::of(&devices[core]).profile == Profile::M),
            image: Image(core.and_then(|core| self.memories.get(&core))),
            symbols: self.symbols,
        })
    }
}

fn print_stats(stats: &Stats) -> Result<(), Failure> {
    let wall = stats.wall.as_secs_f64();
    let line = serde_json::json!({
        "bytes": stats.bytes,
        "cpu_seconds": stats.cpu.as_secs_f64(),
        "wall_seconds": wall,
        "mb_per_s": if wall > 0.0 { stats.bytes as f64 / 1e6 / wall } else { 0.0 },
        "packets": stats.packets,
        "ranges": stats.counts.ranges,
        "instructions": stats.counts.instructions,
        "elements": stats.counts.elements,
    });
    writeln!(io::stdout().lock(), "{line}")?;
    Ok(())
}
