//! `armsnap decode`: the trace of a snapshot as packets, elements, branches or instructions.

mod job;
mod programs;

use super::progress::Progress;
use super::{Failure, SnapshotArguments, tell};
use armsnap::decode::{Buffers, BuffersError, Options, Sources};
use armsnap::report::listing::Counts;
use armsnap::text::{Form, PlainStream};
use clap::{Args, ValueEnum};
use job::{Job, Stopped};
use std::io::{self, Write};
use std::num::NonZero;
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

    /// A program of the cores (repeatable). Default: an ELF file of the snapshot's directory
    /// whose contents match the dumps. It names functions and source lines
    #[arg(long, value_name = "FILE")]
    elf: Vec<PathBuf>,

    /// Do not take code from the program where no dump is
    #[arg(long)]
    no_elf_memory: bool,

    /// Write to a file instead of standard output
    #[arg(short, value_name = "FILE")]
    output: Option<PathBuf>,

    /// Overwrite the file
    #[arg(long)]
    force: bool,

    /// How many processor cores to use (default: all)
    #[arg(long, value_name = "N")]
    jobs: Option<NonZero<usize>>,

    /// Print what was decoded and how fast, as one JSON object on the last line
    #[arg(long)]
    stats: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Level {
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
pub enum Format {
    /// Aligned lines for people
    Text,
    /// JSON Lines for programs
    Jsonl,
    /// Nothing
    None,
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
    let buffers = Buffers::of(&loaded, &options).map_err(|error| match error {
        BuffersError::NoTrace => Failure::Input(error.to_string()),
        BuffersError::Unknown { .. } => Failure::Usage(error.to_string()),
    })?;
    tell(&buffers.notes);
    tell(&buffers.faults);
    let needs_code = matches!(arguments.level, Level::Elements | Level::Instructions);
    let wanted = programs::Wanted {
        named: &arguments.elf,
        as_memory: needs_code && !arguments.no_elf_memory,
        symbols: match arguments.level {
            Level::Packets | Level::Branches => false,
            Level::Elements => arguments.format == Format::Text,
            Level::Instructions => arguments.format != Format::None,
        },
    };
    let out = super::output::Output::new(arguments.output.as_deref(), arguments.force)?;
    let form = match arguments.format {
        Format::Jsonl => Form::Json,
        Format::Text | Format::None => Form::Text,
    };
    let mut out = PlainStream::new(out, form);
    let (programs, notes) = programs::Programs::of(&loaded, &buffers, &wanted)?;
    if needs_code {
        tell(&notes);
    }
    let every = std::thread::available_parallelism();
    let jobs = arguments.jobs.or(every.ok()).map_or(1, NonZero::get);
    let job = Job {
        loaded: &loaded,
        programs: &programs,
        level: arguments.level,
        format: arguments.format,
        jobs,
    };
    let mut stats = Stats::default();
    let mut progress = Progress::new(buffers.buffers.iter().map(Sources::bytes).sum());
    for sources in &buffers.buffers {
        let mut notes = Vec::new();
        let prepared = job.prepare(sources, &mut notes);
        tell(&notes);
        let (wall, cpu) = (Instant::now(), cpu_time());
        let decoded = job.decode(sources, &prepared, &mut out, |bytes| {
            progress.at(stats.bytes + bytes);
        });
        let decoded = decoded.map_err(|stopped| match stopped {
            Stopped::Io(error) => Failure::Io(error),
            Stopped::Maker(why) => Failure::Input(why),
        })?;
        stats.wall += wall.elapsed();
        stats.cpu += cpu_time().saturating_sub(cpu);
        stats.packets += decoded.packets;
        stats.counts += decoded.counts;
        if !prepared.is_empty() {
            stats.bytes += sources.bytes();
        }
    }
    drop(progress);
    tell(&programs.taken_from_others());
    out.into_inner().finish()?;
    if arguments.stats {
        print_stats(&stats)?;
    }
    Ok(match buffers.faults[..] {
        [] => ExitCode::SUCCESS,
        _ => ExitCode::FAILURE,
    })
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
