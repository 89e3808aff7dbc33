//! `armsnap decode`: lists trace as packets, elements, branches or instructions.

mod by_time;
mod destination;
mod in_parts;
pub mod input;
mod job;
mod live;
pub mod waiting;
mod writers;

use super::listing::{Lines, ListingArguments};
use super::progress::Progress;
use super::{Failure, SnapshotArguments, print_notes};
use armsnap::capture::{Capture, CaptureBuffer, CaptureSource, Selection, SelectionError};
use armsnap::decode::{ProgramOptions, Programs, silence};
use armsnap::report::listing::{Counts, records};
use armsnap::snapshot::OpenSnapshot;
use armsnap::snapshot::model::Severity;
use clap::{Args, ValueEnum};
use destination::Destination;
use input::Input;
use job::{Job, Stopped};
use std::io::{self, IsTerminal, Write};
use std::num::NonZero;
use std::path::{Path, PathBuf};
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

    /// A program that the cores run (repeatable). Default: an ELF file in the snapshot's directory
    /// that matches the dumps. It provides the names of functions and source lines
    #[arg(long, value_name = "FILE")]
    elf: Vec<PathBuf>,

    /// Do not read code from the program where dumps lack it
    #[arg(long)]
    no_elf_memory: bool,

    /// Merge the lines of all sources of a buffer by their timestamps (only with `--level elements` or
    /// `instructions`)
    #[arg(long, conflicts_with_all = ["follow", "like"])]
    by_time: bool,

    /// Also decode what is appended to the trace buffer's file, as it appears. Ends when the
    /// processes that write the file have closed it, if they can be seen, or on Ctrl-C
    #[arg(short, long)]
    follow: bool,

    /// If the input is -, the trace is read from standard input as it arrives. This snapshot has
    /// its trace sources and the code
    #[arg(long, value_name = "SNAPSHOT")]
    like: Option<PathBuf>,

    /// Write to a file instead of standard output
    #[arg(short, value_name = "FILE")]
    output: Option<PathBuf>,

    /// Overwrite the file
    #[arg(long)]
    force: bool,

    /// Number of processor cores to use (default: all)
    #[arg(long, value_name = "N")]
    jobs: Option<NonZero<usize>>,

    /// Print counts and speed as one JSON object on the last line
    #[arg(long)]
    stats: bool,

    #[command(flatten)]
    listing: ListingArguments,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Level {
    /// Packets with their bytes
    Packets,
    /// Executed ranges, exceptions, contexts, timestamps and other events
    Elements,
    /// Branch targets, events, exceptions and time: no code image needed
    Branches,
    /// Each executed instruction, disassembled
    Instructions,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// Aligned text
    Text,
    /// JSON Lines
    Jsonl,
    /// A binary record of 32 bytes for each branch, event, exception, context or time (only with
    /// `--level branches`)
    Binary,
    /// Nothing
    None,
}

/// Counts of what was decoded.
#[derive(Debug, Default)]
struct Stats {
    bytes: u64,
    packets: u64,
    counts: Counts,
    wall: Duration,
    /// Processor time, if known.
    cpu: Option<Duration>,
}

/// Returns the processor time of this process, on systems with a simple interface to it.
fn cpu_time() -> Option<Duration> {
    #[cfg(unix)]
    {
        let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
        let (seconds, rest) = (time.tv_sec.try_into(), time.tv_nsec.try_into());
        Some(Duration::new(seconds.ok()?, rest.ok()?))
    }
    #[cfg(not(unix))]
    None
}

impl Arguments {
    /// Whether trace is decoded while it arrives.
    pub fn is_live(&self) -> bool {
        live::is_live(self)
    }

    /// Refuses binary records where nothing could read them.
    fn permits_records(&self) -> Result<(), Failure> {
        if self.level != Level::Branches {
            let text = "--format binary: expected --level branches, the only one with records";
            return Err(Failure::Usage(text.to_owned()));
        }
        let standard = self
            .output
            .as_deref()
            .is_none_or(|path| path == Path::new("-"));
        if standard && (self.stats || io::stdout().is_terminal()) {
            let text = "--format binary: expected -o FILE: a terminal shows no records, and --stats \
                        would print among them";
            return Err(Failure::Usage(text.to_owned()));
        }
        Ok(())
    }

    /// Returns the snapshot that has the trace sources.
    fn snapshot(&self) -> Result<SnapshotArguments, Failure> {
        let mut snapshot = self.snapshot.clone();
        match (live::is_standard_input(&snapshot.snapshot), &self.like) {
            (true, Some(like)) => snapshot.snapshot.clone_from(like),
            (false, None) => {}
            (true, None) => {
                return Err(Failure::Usage(
                    "-: expected --like SNAPSHOT, whose trace sources write to standard input; \
                     armsnap import --raw makes one of a part of the trace"
                        .to_owned(),
                ));
            }
            (false, Some(_)) => {
                let text = "--like: expected - as the input, which is standard input";
                return Err(Failure::Usage(text.to_owned()));
            }
        }
        Ok(snapshot)
    }
}

/// Decodes the trace of a snapshot.
pub fn run(arguments: &Arguments) -> Result<ExitCode, Failure> {
    let in_file = arguments.output.is_some();
    let lines = match arguments.format {
        Format::Text => arguments.listing.lines(Lines::Trace, in_file),
        Format::Jsonl | Format::Binary | Format::None => Lines::Plain,
    };
    if arguments.format == Format::Binary {
        arguments.permits_records()?;
    }
    if arguments.by_time && !matches!(arguments.level, Level::Elements | Level::Instructions) {
        let text =
            "--by-time: expected --level elements or instructions: other lines have no times";
        return Err(Failure::Usage(text.to_owned()));
    }
    // The pager runs from before the first note until the user leaves it.
    let _pager = match in_file
        || matches!(arguments.format, Format::Binary | Format::None)
        || arguments.is_live()
    {
        true => None,
        false => arguments.listing.page()?,
    };
    let (loaded, named) = arguments.snapshot()?.open_with(&arguments.elf)?;
    let selection = Selection {
        sources: arguments.source.clone(),
        buffers: arguments.buffer.clone(),
        without_files: arguments.is_live(),
    };
    let (mut capture, notes) =
        Capture::select(&loaded, &selection).map_err(|error| match error {
            SelectionError::Unknown { .. } => Failure::Usage(error.to_string()),
            _ => Failure::Input(error.to_string()),
        })?;
    let faulty = notes.iter().any(|note| note.severity == Severity::Error);
    print_notes(&notes);
    let needs_code = matches!(arguments.level, Level::Elements | Level::Instructions);
    let options = ProgramOptions {
        named: &named,
        as_memory: needs_code && !arguments.no_elf_memory,
        symbols: match arguments.level {
            Level::Packets | Level::Branches => false,
            Level::Elements => arguments.format == Format::Text,
            Level::Instructions => arguments.format != Format::None,
        },
    };
    if let Some(path) = &arguments.output {
        super::output::not_named(path, &loaded)?;
    }
    if arguments.is_live() && capture.buffers.len() > 1 {
        capture.buffers.retain(|buffer| !buffer.sources.is_empty());
    }
    let out = super::output::Output::new(arguments.output.as_deref(), arguments.force)?;
    let input = arguments.is_live();
    let input = input.then(|| live::input(arguments, &loaded, &capture, &out));
    let mut input = input.transpose()?;
    let mut out = Destination::new(out, arguments.format, lines);
    if arguments.format == Format::Binary {
        out.write_all(&records::header(&capture))?;
    }
    let (programs, notes) = Programs::of(&loaded, &capture, &options)
        .map_err(|error| Failure::Input(error.to_string()))?;
    if needs_code {
        print_notes(&notes);
        print_notes(&without_core(&loaded, &capture));
    }
    let every = std::thread::available_parallelism();
    let jobs = arguments.jobs.or(every.ok()).map_or(1, NonZero::get);
    let job = Job {
        loaded: &loaded,
        programs: &programs,
        capture: &capture,
        level: arguments.level,
        format: arguments.format,
        jobs,
        by_time: arguments.by_time,
    };
    // Sources that were not selected are still known by their trace IDs.
    let whole = Selection {
        sources: Vec::new(),
        ..selection
    };
    let (mut all, _) = Capture::select(&loaded, &whole).unwrap_or_default();
    let is_decoded = |whole: &CaptureBuffer| {
        let mut buffers = capture.buffers.iter();
        buffers.any(|buffer| buffer.index == whole.index)
    };
    all.buffers.retain(is_decoded);
    let mut stats = Stats::default();
    let mut progress = Progress::new(capture.buffers.iter().map(CaptureBuffer::bytes).sum());
    for (buffer, whole) in capture.buffers.iter().zip(&all.buffers) {
        let (wall, cpu) = (Instant::now(), cpu_time());
        let decoded = match &mut input {
            Some(input) => job.live(buffer, whole, input, &mut out),
            None => job.decode(buffer, &mut out, |bytes| {
                progress.at(stats.bytes + bytes);
            }),
        };
        let decoded = decoded.map_err(|stopped| match stopped {
            Stopped::Io(error) => Failure::Io(error),
            Stopped::Decoder(why) => Failure::Input(why),
        })?;
        stats.wall += wall.elapsed();
        let used = cpu_time()
            .zip(cpu)
            .map(|(now, then)| now.saturating_sub(then));
        stats.cpu = used.map(|used| stats.cpu.unwrap_or_default() + used);
        print_notes(&decoded.notes);
        if input.is_none() {
            print_notes(&silence(&loaded, whole, decoded.totals.as_ref()));
        }
        // An imported recording has one buffer for each time that its trace unit ran.
        for part in &buffer.parts {
            part.release(0..part.len());
        }
        stats.packets += decoded.packets;
        stats.counts += decoded.counts;
        if !buffer.sources.is_empty() {
            stats.bytes += input.as_ref().map_or(buffer.bytes(), Input::bytes);
        }
    }
    drop(progress);
    print_notes(&programs.taken_from_others());
    print_notes(&programs.missing_processes());
    out.into_inner()?.finish()?;
    if arguments.stats {
        print_stats(&stats)?;
    }
    Ok(if faulty {
        ExitCode::FAILURE
    } else {
        ExitCode::SUCCESS
    })
}

/// Returns a note for each source without a core.
pub(super) fn without_core(loaded: &OpenSnapshot, capture: &Capture) -> Vec<String> {
    let sources = capture.buffers.iter().flat_map(|buffer| &buffer.sources);
    let lacking = sources.filter(|source| source.core.is_none() && source.protocol.needs_core());
    let note = |source: &CaptureSource| {
        let place = &loaded.snapshot.devices[source.device].place;
        format!(
            "{place}: {}: no core is assigned to it: its code is not known",
            source.name
        )
    };
    lacking.map(note).collect()
}

fn print_stats(stats: &Stats) -> Result<(), Failure> {
    let wall = stats.wall.as_secs_f64();
    let line = serde_json::json!({
        "bytes": stats.bytes,
        "cpu_seconds": stats.cpu.map(|cpu| cpu.as_secs_f64()),
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
