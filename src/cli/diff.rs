//! `armsnap diff`: where the courses of two recordings first differ, and why.

use super::serve::Selection;
use super::{Failure, SnapshotArguments, say};
use armsnap::questions::diff::Difference;
use armsnap::server::Histories;
use armsnap::stop::Cancel;
use armsnap::text::{Form, PlainStream};
use clap::{Args, ValueEnum};
use serde::Serialize;
use std::io::{self, BufWriter, Write};
use std::path::PathBuf;
use std::process::ExitCode;

/// The format of the result.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Format {
    /// For people
    Text,
    /// A JSON object
    Json,
}

/// The arguments of `diff`.
#[derive(Args)]
pub struct Arguments {
    /// The first snapshot.
    #[command(flatten)]
    snapshot: SnapshotArguments,
    /// The snapshot to compare with: another recording of the same program
    #[arg(value_name = "OTHER")]
    other: PathBuf,
    /// How the result is printed
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
    /// Only this core (repeatable). Default: all cores
    #[arg(long, value_name = "NAME")]
    core: Vec<String>,
}

/// The result.
#[derive(Serialize)]
struct Printed {
    same: bool,
    #[serde(flatten)]
    difference: Option<Difference>,
}

/// How different builds are compared.
const BUILDS: &str = "these are different builds, compared by functions, source lines and system calls: \
     branches within a line, functions with other lines, and registers at the end are not compared";

/// What the comparisons of all threads found.
#[derive(Default)]
struct Summary {
    /// The first difference.
    difference: Option<Difference>,
    /// Whether different builds were compared.
    are_builds: bool,
}

/// Compares two snapshots. The exit status is 0 if their courses are the same, 1 if not, and 2 if
/// they cannot be compared.
pub fn run(arguments: &Arguments) -> Result<ExitCode, Failure> {
    let Summary {
        difference,
        are_builds,
    } = compare(arguments).map_err(|failure| match failure {
        Failure::Io(error) => Failure::Io(error),
        other => Failure::Usage(other.to_string()),
    })?;
    let form = match arguments.format {
        Format::Text => Form::Text,
        Format::Json => Form::Json,
    };
    let mut out = PlainStream::new(BufWriter::new(io::stdout().lock()), form);
    let same = difference.is_none();
    match (arguments.format, &difference) {
        (Format::Text, None) => writeln!(out, "the same")?,
        (Format::Text, Some(difference)) => write!(out, "{difference}")?,
        (Format::Json, _) => {
            let compared = Printed { same, difference };
            serde_json::to_writer(&mut out, &compared).map_err(io::Error::from)?;
            writeln!(out)?;
        }
    }
    if are_builds && arguments.format == Format::Text {
        writeln!(out, "{BUILDS}")?;
    }
    out.into_inner().flush()?;
    if are_builds && arguments.format == Format::Json {
        say(BUILDS);
    }
    Ok(ExitCode::from(u8::from(!same)))
}

fn compare(arguments: &Arguments) -> Result<Summary, Failure> {
    let mut summary = Summary::default();
    let [mut first, mut second] = [
        histories(arguments, arguments.snapshot.snapshot.clone())?,
        histories(arguments, arguments.other.clone())?,
    ];
    let mut is_compared = false;
    for (architecture, histories) in &mut first {
        let Some((_, others)) = second.iter_mut().find(|(other, _)| other == architecture) else {
            continue;
        };
        let (threads, counterparts) = (histories.traced(), others.traced());
        for (number, (thread, name)) in threads.iter().enumerate() {
            let named = counterparts.iter().find(|(_, other)| other == name);
            let Some((counterpart, _)) = named.or_else(|| counterparts.get(number)) else {
                continue;
            };
            is_compared = true;
            let found = histories.differ(*thread, (others, *counterpart), &Cancel::default());
            match found {
                Ok(None) => {}
                Ok(Some(compared)) => {
                    summary.are_builds |= compared.are_builds;
                    summary.difference = compared.difference;
                    if summary.difference.is_some() {
                        return Ok(summary);
                    }
                }
                Err(error) => return Err(Failure::Usage(error.to_string())),
            }
        }
    }
    if is_compared {
        return Ok(summary);
    }
    Err(Failure::Usage(
        "nothing to compare: no two cores of the same architecture have a trace that can be followed (armsnap info)"
            .to_owned(),
    ))
}

/// Opens the histories of a snapshot, by the name of their architecture.
fn histories(
    arguments: &Arguments,
    snapshot: PathBuf,
) -> Result<Vec<(&'static str, Histories)>, Failure> {
    let selection = Selection::of(&arguments.core, &[]);
    let snapshot = SnapshotArguments {
        snapshot,
        ..arguments.snapshot.clone()
    };
    let endpoints = selection.endpoints(&snapshot)?;
    let named = endpoints.into_iter().map(|endpoint| {
        let name = endpoint.architecture().name();
        (name, Histories::new(endpoint))
    });
    Ok(named.collect())
}
