//! `armsnap export`: what trace says about programs, in the formats of other tools.

use super::Failure;
use super::analysis::{Analysis, AnalysisArguments};
use super::output::{self, Output};
use super::shards::{self, Shard};
use armsnap::convert::branch_stacks;
use armsnap::export::axis::Clock;
use armsnap::export::columns::Table;
use armsnap::export::images::Images;
#[cfg(feature = "parquet")]
use armsnap::export::parquet::{self, Sheets, TableSchemas};
use armsnap::export::rows::{self, Form, Lines, Sink};
use armsnap::export::tables::{self, Rows};
use armsnap::export::{
    Analysed, ExportError, callgrind, chrome, clover, cobertura, compilers, ctf, drcov, folded,
    lcov, perfetto,
};
use armsnap::profile::{CodeOnly, LinesOfCalls, Listener, Nothing, Profile, Track};
use armsnap::{leftovers, mapped};
use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{Args, ValueEnum};
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Write coverage, profiles, timelines or tables of the trace of a snapshot
#[derive(Args)]
pub struct Arguments {
    #[command(flatten)]
    analysis: AnalysisArguments,

    /// The format
    #[arg(long = "as", value_enum, value_name = "FORMAT")]
    format: Format,

    /// The file to write (-: standard output); for `ctf` and `parquet`, a directory
    #[arg(short, long, value_name = "FILE")]
    output: PathBuf,

    /// Overwrite the file
    #[arg(long)]
    force: bool,

    /// The program or library, or a copy of it, whose profile `autofdo`, `llvm-profgen` or `bolt`
    /// contains (default: the program that executed most instructions)
    #[arg(long, value_name = "FILE")]
    program: Option<PathBuf>,

    /// A table of `parquet` (repeatable; default: all), `jsonl` (repeatable; default: all but exec)
    /// or `csv` (default: calls)
    #[arg(long, value_parser = by_name(), value_name = "NAME")]
    table: Vec<Table>,

    /// Decode only shard I of N of the trace, for a later --join (`parquet` only)
    #[arg(long, value_name = "I/N", conflicts_with = "join")]
    shard: Option<Shard>,

    /// Join the shards in these directories instead of decoding the trace (repeatable)
    #[arg(long, value_name = "DIR", num_args = 1..)]
    join: Vec<PathBuf>,

    /// Add inlined functions to `folded` stacks, as frames marked `_[i]`; requires debug
    /// information
    #[arg(long, conflicts_with = "join")]
    inline: bool,

    /// What the timelines of `chrome`, `perfetto` and `ctf` measure (default: instructions)
    #[arg(long, value_enum, value_name = "CLOCK")]
    clock: Option<ClockName>,
}

/// Parses the name of a table.
fn by_name() -> impl TypedValueParser<Value = Table> {
    let named = |name: String| Table::ALL.into_iter().find(|table| table.name() == name);
    PossibleValuesParser::new(Table::ALL.map(Table::name))
        .map(move |name| named(name).expect("one of the possible values"))
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum ClockName {
    /// Executed instructions
    Instructions,
    /// Cycles, if the trace counts them
    Cycles,
    /// Timestamps, if there are any
    Time,
}

impl ClockName {
    const fn clock(self) -> Clock {
        match self {
            Self::Instructions => Clock::Instructions,
            Self::Cycles => Clock::Cycles,
            Self::Time => Clock::Time,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Format {
    /// Stacks and instructions, for flame graphs
    Folded,
    /// Lines, functions and branches, for lcov and genhtml
    Lcov,
    /// Lines, functions and branches as XML of Cobertura, for GitLab, Jenkins and others
    Cobertura,
    /// The same as XML of Clover
    Clover,
    /// Blocks by module and offset, for Lighthouse
    Drcov,
    /// Instructions and calls, for callgrind_annotate and KCachegrind
    Callgrind,
    /// Ranges and branches of a program, for create_llvm_prof
    Autofdo,
    /// Ranges and branches of a program without symbols, for llvm-profgen
    LlvmProfgen,
    /// Ranges and branches of a program, for perf2bolt -pa
    Bolt,
    /// Branch stacks as perf.data, for perf, llvm-profgen and perf2bolt
    Perf,
    /// Tables as Apache Parquet files, for DuckDB, Spark and others
    #[cfg(feature = "parquet")]
    Parquet,
    /// Tables with a JSON object for each row
    Jsonl,
    /// One table as comma-separated values
    Csv,
    /// A timeline as JSON, for Perfetto and chrome://tracing
    Chrome,
    /// A timeline, for Perfetto
    Perfetto,
    /// Calls and events in the Common Trace Format, for babeltrace2
    Ctf,
}

impl Arguments {
    /// Returns the selected tables.
    fn tables(&self) -> Result<Vec<Table>, Failure> {
        let mut chosen: Vec<Table> = Vec::new();
        for table in self.table.iter().copied() {
            if !chosen.contains(&table) {
                chosen.push(table);
            }
        }
        match (self.format, chosen.len()) {
            (Format::Csv, 0) => Ok(vec![Table::Calls]),
            (Format::Csv, 2..) => Err(Failure::Usage(
                "--table: a CSV file holds one table".to_owned(),
            )),
            // As text, each executed block is by far longer than its trace.
            (Format::Jsonl, 0) => {
                let all = Table::ALL.into_iter();
                Ok(all.filter(|table| *table != Table::Exec).collect())
            }
            (Format::Csv | Format::Jsonl, _) => Ok(chosen),
            #[cfg(feature = "parquet")]
            (Format::Parquet, 0) => Ok(Table::ALL.to_vec()),
            #[cfg(feature = "parquet")]
            (Format::Parquet, _) => Ok(chosen),
            (_, 0) => Ok(chosen),
            _ => Err(Failure::Usage(
                "--table: the format has no tables".to_owned(),
            )),
        }
    }
}

impl Arguments {
    /// Refuses options that the format ignores.
    fn check_format(&self) -> Result<(), Failure> {
        use Format::{Autofdo, Bolt, Chrome, Ctf, Folded, LlvmProfgen, Perfetto};
        let wrong = |text: &str| Err(Failure::Usage(text.to_owned()));
        if self.inline && self.format != Folded {
            return wrong("--inline: only folded stacks have frames of inlined functions");
        }
        if self.clock.is_some() && !matches!(self.format, Chrome | Perfetto | Ctf) {
            return wrong("--clock: only chrome, perfetto and ctf have one clock; tables have all");
        }
        if self.program.is_some() && !matches!(self.format, Autofdo | LlvmProfgen | Bolt) {
            return wrong(
                "--program: only autofdo, llvm-profgen and bolt describe one program; --elf names \
                 a program of the cores",
            );
        }
        let is_directory = match self.format {
            Ctf => true,
            #[cfg(feature = "parquet")]
            Format::Parquet => true,
            _ => false,
        };
        if is_directory && self.output == Path::new("-") {
            return wrong("-o -: ctf and parquet are directories; name one with -o DIRECTORY");
        }
        Ok(())
    }

    fn clock(&self) -> Clock {
        self.clock.map_or(Clock::Instructions, ClockName::clock)
    }

    /// Checks the options on shards.
    fn check_shards(&self, tables: &[Table]) -> Result<(), Failure> {
        let wrong = |text: &str| Err(Failure::Usage(text.to_owned()));
        if self.shard.is_none() && self.join.is_empty() {
            return Ok(());
        }
        if !self.analysis.is_whole() {
            return wrong("--shard and --join: shards are made of the whole trace");
        }
        #[cfg(feature = "parquet")]
        if self.format == Format::Parquet {
            return Ok(());
        }
        if self.format == Format::Perf && !self.join.is_empty() {
            return wrong("--join: shards do not have the order of branches that perf needs");
        }
        if self.shard.is_some() {
            return wrong(
                "--shard: only parquet has shards; --join makes the other formats of them",
            );
        }
        if tables.contains(&Table::Exec) {
            return wrong("--join: the rows of exec are in the files of the shards");
        }
        Ok(())
    }
}

/// Writes an export.
pub fn run(arguments: &Arguments) -> Result<ExitCode, Failure> {
    let tables = arguments.tables()?;
    arguments.check_format()?;
    arguments.check_shards(&tables)?;
    let mut analysis = arguments.analysis.open()?;
    analysis.shards.clone_from(&arguments.join);
    output::not_named(&arguments.output, &analysis.loaded)?;
    let path = &arguments.output;
    match arguments.format {
        Format::Ctf => write_directory(path, |to| write_ctf(arguments, &analysis, to))?,
        #[cfg(feature = "parquet")]
        Format::Parquet => write_directory(path, |to| match arguments.shard {
            Some(shard) => shards::write(shard, tables.contains(&Table::Exec), &analysis, to),
            None => write_parquet(&tables, &analysis, to),
        })?,
        _ => {
            let out = Output::new(Some(path), arguments.force)?;
            let mut out = BufWriter::new(out);
            write(arguments, &tables, &analysis, &mut out)?;
            let out = out.into_inner().map_err(|error| error.into_error())?;
            out.finish()?;
        }
    }
    Ok(analysis.exit_code())
}

/// A track with the counts collected for it.
type Profiled = (Track, Profile);

/// Decodes the trace; returns the listeners separately from the counts.
fn listen<L: Listener + Send>(
    analysis: &Analysis,
    listener: impl FnMut(&Track) -> L,
) -> Result<(Vec<Profiled>, Vec<L>), Failure> {
    let all = analysis.run(listener)?;
    let parts = all
        .into_iter()
        .map(|(track, profile, listener)| ((track, profile), listener));
    Ok(parts.unzip())
}

fn failure(error: ExportError) -> Failure {
    match error {
        ExportError::Io(error) => Failure::Io(error),
        error => Failure::Input(error.to_string()),
    }
}

fn write(
    arguments: &Arguments,
    tables: &[Table],
    analysis: &Analysis,
    out: &mut impl Write,
) -> Result<(), Failure> {
    let programs = &analysis.programs;
    let clock = arguments.clock();
    let form = match arguments.format {
        Format::Jsonl => Some(Form::Jsonl),
        Format::Csv => Some(Form::Csv),
        _ => None,
    };
    if let Some(form) = form {
        let lines = || Lines::new(form, tables);
        let lines = collect(tables, analysis, lines)?;
        return Ok(rows::write(form, tables, lines, out)?);
    }
    let mut number = 0;
    if arguments.format == Format::Chrome {
        let (tracks, events) = listen(analysis, |track| {
            number += 1;
            chrome::Events::new(clock, number, track)
        })?;
        let tracks = &tracks;
        return chrome::write(clock, &Analysed { tracks, programs }, events, out).map_err(failure);
    }
    if arguments.format == Format::Perfetto {
        let (tracks, packets) = listen(analysis, |track| {
            number += 1;
            perfetto::Packets::new(clock, number as u32, track)
        })?;
        let tracks = &tracks;
        let analysed = Analysed { tracks, programs };
        return perfetto::write(clock, &analysed, packets, out).map_err(failure);
    }
    if arguments.format == Format::Perf {
        let (_, branches) = listen(analysis, |track| {
            number += 1;
            branch_stacks::Branches::new(programs, track, number as u32 - 1)
        })?;
        let notes = branch_stacks::write(&analysis.loaded, programs, branches, out)?;
        super::print_notes(&notes);
        return Ok(());
    }
    let tracks = match arguments.format {
        Format::Folded if arguments.inline => listen(analysis, |_| LinesOfCalls)?.0,
        Format::Folded | Format::Callgrind => listen(analysis, |_| Nothing)?.0,
        _ => listen(analysis, |_| CodeOnly)?.0,
    };
    let tracks = &tracks;
    write_counts(arguments, &Analysed { tracks, programs }, out)
}

/// Writes a format based on counts.
fn write_counts(
    arguments: &Arguments,
    analysed: &Analysed<'_>,
    out: &mut impl Write,
) -> Result<(), Failure> {
    let compiler = match arguments.format {
        Format::Folded => return folded::write(analysed, out).map_err(failure),
        Format::Lcov => return lcov::write(analysed, out).map_err(failure),
        Format::Cobertura => return cobertura::write(analysed, out).map_err(failure),
        Format::Clover => return clover::write(analysed, out).map_err(failure),
        Format::Drcov => return drcov::write(analysed, out).map_err(failure),
        Format::Callgrind => return callgrind::write(analysed, out).map_err(failure),
        Format::Autofdo => compilers::Form::AutoFdo,
        Format::LlvmProfgen => compilers::Form::LlvmProfgen,
        Format::Bolt => compilers::Form::Bolt,
        // The other formats are based on time.
        _ => return Ok(()),
    };
    let program = arguments.program.as_deref();
    let note = compilers::write(analysed, compiler, program, out).map_err(failure)?;
    super::print_notes(&[note]);
    Ok(())
}

/// Collects the rows of tables; returns the sinks of the tracks, followed by the sink of all
/// tracks.
fn collect<S: Sink + Send>(
    tables: &[Table],
    analysis: &Analysis,
    sink: impl Fn() -> S,
) -> Result<Vec<S>, Failure> {
    // The rows of shards are in their own files.
    match tables.contains(&Table::Exec) && analysis.shards.is_empty() {
        true => collect_with::<S, true>(analysis, sink),
        false => collect_with::<S, false>(analysis, sink),
    }
}

fn collect_with<S: Sink + Send, const EXEC: bool>(
    analysis: &Analysis,
    sink: impl Fn() -> S,
) -> Result<Vec<S>, Failure> {
    let programs = &analysis.programs;
    let images = Images::of(programs);
    let (tracks, rows) = listen(analysis, |track| {
        Rows::<S, EXEC>::new(sink(), &images, track)
    })?;
    let tracks = &tracks;
    let analysed = Analysed { tracks, programs };
    Ok(tables::complete(&analysed, &images, rows, sink()))
}

/// Writes a directory, under another name until it is complete.
fn write_directory(
    path: &Path,
    write: impl FnOnce(&Path) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let exists = |path: &Path| path.symlink_metadata().is_ok();
    if exists(path) {
        // --force replaces files; a directory may hold anything.
        return Err(Failure::Usage(format!(
            "{} exists: a directory is not overwritten; -o names another",
            path.display()
        )));
    }
    let made = leftovers::beside(path, mapped::create_directory);
    let ((), mut temporary) =
        made.map_err(|error| Failure::Input(format!("{}: {error}", path.display())))?;
    write(temporary.path())?;
    mapped::keep_private(temporary.path())?;
    armsnap::mapped::whole()?;
    temporary.rename(path)?;
    Ok(())
}

fn write_ctf(arguments: &Arguments, analysis: &Analysis, to: &Path) -> Result<(), Failure> {
    let clock = arguments.clock();
    let (tracks, streams) = listen(analysis, |track| ctf::Stream::new(clock, track))?;
    let analysed = Analysed {
        tracks: &tracks,
        programs: &analysis.programs,
    };
    ctf::write(clock, &analysed, streams, to).map_err(failure)
}

#[cfg(feature = "parquet")]
fn write_parquet(tables: &[Table], analysis: &Analysis, to: &Path) -> Result<(), Failure> {
    let mut tables = tables.to_vec();
    if tables.contains(&Table::Exec) && !analysis.shards.is_empty() {
        tables.push(Table::Pages);
    }
    let tables = &*tables;
    let schemas = TableSchemas::of(tables).map_err(failure)?;
    let sheets = collect(tables, analysis, || Sheets::new(&schemas))?;
    parquet::write(to, &schemas, sheets).map_err(failure)
}
