//! `armsnap dwt`: what a DWT reported, added up or as rows.

mod rows;

use super::listing::{Lines, ListingArguments};
use super::output::{self, Output};
use super::serve::open_svd;
use super::software::{self, ClockArguments, Traced};
use super::{Failure, OutputArguments, SnapshotArguments};
use armsnap::capture::{CaptureBuffer, CaptureSource, Protocol, Selection};
use armsnap::decode::{Decoding, ProgramOptions, Programs, decode_buffer};
use armsnap::export::rows::Form;
use armsnap::mapped;
use armsnap::program::data_symbols;
use armsnap::program::symbols::Symbols;
use armsnap::quantity::TraceId;
use armsnap::report::software::decoder;
use armsnap::report::software::dwt::{Dwt, Names, Summary, addresses, variables};
use armsnap::svd::Svd;
use clap::{Args, ValueEnum};
use rows::{Rows, Table};
use std::io::{self, BufWriter, Write};
use std::path::PathBuf;
use std::process::ExitCode;

/// The number of bytes of trace decoded at once.
const PIECE: usize = 16 << 10;

/// The arguments of `dwt`.
#[derive(Args)]
pub struct Arguments {
    /// The input: also raw SWO.
    #[command(flatten)]
    snapshot: SnapshotArguments,

    /// Only this trace source (repeatable)
    #[arg(long, value_name = "NAME")]
    source: Vec<String>,

    /// A program that the core runs (repeatable). Default: an ELF file in the snapshot's directory
    /// that matches the dumps. It provides the names of functions and variables
    #[arg(long, value_name = "FILE")]
    elf: Vec<PathBuf>,

    /// A description of the peripherals in CMSIS-SVD: addresses in them get names
    #[arg(long, value_name = "FILE")]
    svd: Option<PathBuf>,

    #[command(flatten)]
    clock: ClockArguments,

    /// Write the events of one kind in their order, instead of adding them up
    #[arg(long, value_enum)]
    table: Option<Table>,

    /// The form of a table
    #[arg(long = "as", value_enum, default_value_t = RowForm::Csv, requires = "table")]
    form: RowForm,

    /// Write the table to a file instead of standard output
    #[arg(short, value_name = "FILE", requires = "table")]
    output: Option<PathBuf>,

    /// Overwrite the file
    #[arg(long)]
    force: bool,

    /// Print JSON
    #[arg(long, conflicts_with = "table")]
    json: bool,

    #[command(flatten)]
    listing: ListingArguments,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum RowForm {
    /// Comma-separated values
    Csv,
    /// JSON Lines
    Jsonl,
}

/// What is made of the events of a source.
struct Track {
    names: Names,
    summary: Summary,
    rows: Option<Rows>,
}

/// Prints what a DWT reported.
pub fn run(arguments: &Arguments) -> Result<ExitCode, Failure> {
    let selection = Selection {
        sources: arguments.source.clone(),
        ..Selection::default()
    };
    let timed = arguments.clock.prescaler.is_none();
    let mut traced = software::open(&arguments.snapshot, &selection, timed)?;
    for buffer in &mut traced.capture.buffers {
        let is_itm = |source: &CaptureSource| source.protocol == Protocol::Itm;
        buffer.sources.retain(is_itm);
    }
    if let Some(path) = &arguments.output {
        output::not_named(path, &traced.loaded)?;
    }
    let programs = programs(&traced, &arguments.elf)?;
    let svd = arguments.svd.as_deref().map(open_svd).transpose()?;
    let mut summaries = Vec::new();
    let mut out = match arguments.table {
        Some(table) => {
            let out = Output::new(arguments.output.as_deref(), arguments.force)?;
            let mut out = BufWriter::new(out);
            let form = match arguments.form {
                RowForm::Csv => Form::Csv,
                RowForm::Jsonl => Form::Jsonl,
            };
            rows::header(&mut out, table, form)?;
            Some((out, table, form))
        }
        None => None,
    };
    for buffer in &traced.capture.buffers {
        let mut tracks: Vec<Track> = Vec::new();
        for source in &buffer.sources {
            tracks.push(Track {
                names: names(&traced, source, &programs, svd.as_ref()),
                summary: Summary::new(&source.name),
                rows: out.as_ref().map(|(_, table, form)| {
                    Rows::new(&source.name, *table, *form, arguments.clock.clock)
                }),
            });
        }
        decode(
            arguments,
            buffer,
            &mut tracks,
            out.as_mut().map(|(out, ..)| out),
        )?;
        for mut track in tracks {
            track.summary.finish(&track.names);
            summaries.push(track.summary);
        }
    }
    match out {
        Some((out, ..)) => out.into_inner().map_err(io::Error::from)?.finish()?,
        None => {
            let texts = summaries
                .iter()
                .map(|summary| summary.text(arguments.clock.clock));
            let text = texts.collect::<Vec<_>>().join("\n");
            let output = OutputArguments {
                json: arguments.json,
                listing: arguments.listing,
            };
            output.print(&summaries, text, Lines::Plain)?;
        }
    }
    Ok(match traced.faulty {
        true => ExitCode::FAILURE,
        false => ExitCode::SUCCESS,
    })
}

/// Decodes a buffer. Each track receives the events of its source.
fn decode(
    arguments: &Arguments,
    buffer: &CaptureBuffer,
    tracks: &mut [Track],
    mut out: Option<&mut BufWriter<Output>>,
) -> io::Result<()> {
    let made = |source: &CaptureSource| -> (TraceId, Box<dyn Decoding<Dwt>>) {
        let dwt = Dwt::new(arguments.clock.of(source));
        (source.trace_id, decoder(source, dwt))
    };
    let mut decoders: Vec<_> = buffer.sources.iter().map(made).collect();
    decode_buffer(buffer, &mut decoders, PIECE, |index, dwt| {
        if mapped::is_cut() {
            mapped::whole()?;
        }
        let track = &mut tracks[index];
        for event in dwt.take() {
            track.summary.add(&event);
            if let Some(rows) = &mut track.rows {
                rows.add(&event, &track.names);
            }
        }
        match (&mut track.rows, &mut out) {
            (Some(rows), Some(out)) => out.write_all(rows.take().as_bytes()),
            _ => Ok(()),
        }
    })?;
    for track in tracks {
        if let (Some(rows), Some(out)) = (&mut track.rows, &mut out) {
            rows.finish();
            out.write_all(rows.take().as_bytes())?;
        }
    }
    Ok(())
}

/// Returns the programs that the user names, or the one in the snapshot.
fn programs(traced: &Traced, named: &[PathBuf]) -> Result<Programs, Failure> {
    let options = ProgramOptions {
        named,
        as_memory: false,
        symbols: false,
    };
    let programs = Programs::of(&traced.loaded, &traced.capture, &options);
    let (programs, notes) = programs.map_err(|error| Failure::Input(error.to_string()))?;
    super::print_notes(&notes);
    Ok(programs)
}

/// Returns the names for a source.
fn names(traced: &Traced, source: &CaptureSource, programs: &Programs, svd: Option<&Svd>) -> Names {
    let mut symbols = Symbols::default();
    for program in programs.images() {
        // An unreadable program provides no names.
        let _ = symbols.add_file(program);
    }
    let variable = |address: u32| {
        let mut images = programs.images();
        let name = images.find_map(|program| data_symbols::at(program, address.into()));
        name.or_else(|| svd?.name_of(address.into()))
            .unwrap_or_else(|| format!("{address:#010x}"))
    };
    let matched = addresses(&traced.loaded, source);
    let named = variables(&traced.loaded, source);
    let both = named.into_iter().zip(matched);
    let names = both.map(|(name, address)| name.or_else(|| address.map(variable)));
    let mut names = names.collect::<Vec<_>>().into_iter();
    Names {
        symbols,
        variables: std::array::from_fn(|_| names.next().flatten()),
    }
}
