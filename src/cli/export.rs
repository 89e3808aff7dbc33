//! `armsnap export`: what trace says about programs, in the formats of other tools.

use super::Failure;
use super::analysis::{Analysis, AnalysisArguments};
use super::output::{self, Output};
use armsnap::export::{Analysed, ExportError, callgrind, compilers, drcov, folded, lcov};
use armsnap::profile::Nothing;
use clap::{Args, ValueEnum};
use std::io::{BufWriter, Write};
use std::path::PathBuf;
use std::process::ExitCode;

/// Write coverage, profiles, time lines or tables of the trace of a snapshot
#[derive(Args)]
pub struct Arguments {
    #[command(flatten)]
    analysis: AnalysisArguments,

    /// The format
    #[arg(long = "as", value_enum, value_name = "FORMAT")]
    format: Format,

    /// The file to write
    #[arg(short, long, value_name = "FILE")]
    output: PathBuf,

    /// Overwrite the file
    #[arg(long)]
    force: bool,

    /// The program that `autofdo`, `llvm-profgen` and `bolt` describe (default: the one in which
    /// most instructions were executed)
    #[arg(long, value_name = "FILE")]
    program: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Format {
    /// Stacks and instructions, for flame graphs
    Folded,
    /// Lines, functions and branches, for lcov and genhtml
    Lcov,
    /// Blocks by module and offset, for Lighthouse
    Drcov,
    /// Instructions and calls, for callgrind_annotate and KCachegrind
    Callgrind,
    /// Ranges and branches of a program, for create_llvm_prof
    Autofdo,
    /// Ranges and branches of a program, for llvm-profgen --unsymbolized-profile
    LlvmProfgen,
    /// Ranges and branches of a program, for perf2bolt -pa
    Bolt,
}

/// Writes an export.
pub fn run(arguments: &Arguments) -> Result<ExitCode, Failure> {
    let analysis = arguments.analysis.open()?;
    output::not_named(&arguments.output, &analysis.loaded)?;
    let out = Output::new(Some(&arguments.output), arguments.force)?;
    let mut out = BufWriter::new(out);
    write(arguments, &analysis, &mut out)?;
    let out = out.into_inner().map_err(|error| error.into_error())?;
    out.finish()?;
    Ok(match analysis.faulty {
        true => ExitCode::FAILURE,
        false => ExitCode::SUCCESS,
    })
}

fn write(arguments: &Arguments, analysis: &Analysis, out: &mut impl Write) -> Result<(), Failure> {
    let profiles = analysis.run(|_| Nothing)?;
    let tracks: Vec<_> = profiles
        .into_iter()
        .map(|(track, profile, Nothing)| (track, profile))
        .collect();
    let analysed = Analysed {
        tracks: &tracks,
        programs: &analysis.programs,
    };
    let program = arguments.program.as_deref();
    let compilers = |form, out| compilers::write(&analysed, form, program, out);
    match arguments.format {
        Format::Folded => folded::write(&analysed, out),
        Format::Lcov => lcov::write(&analysed, out),
        Format::Drcov => drcov::write(&analysed, out),
        Format::Callgrind => callgrind::write(&analysed, out),
        Format::Autofdo => compilers(compilers::Form::AutoFdo, out),
        Format::LlvmProfgen => compilers(compilers::Form::LlvmProfgen, out),
        Format::Bolt => compilers(compilers::Form::Bolt, out),
    }
    .map_err(|error| match error {
        ExportError::Io(error) => Failure::Io(error),
        error => Failure::Input(error.to_string()),
    })
}
