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
    let mut failed = None;
    let mut single = Vec::new();
    for (architecture, histories) in &mut first {
        let threads = histories.traced();
        let others = second.iter_mut().find(|(other, _)| other == architecture);
        let Some((_, others)) = others else {
            single.extend(threads.into_iter().map(|(_, name)| name));
            continue;
        };
        let (pairs, without) = paired(threads, others.traced());
        single.extend(without);
        for (thread, counterpart) in pairs {
            if summary.difference.is_some() {
                break;
            }
            is_compared = true;
            match histories.differ(thread, (others, counterpart), &Cancel::default()) {
                Ok(None) => {}
                Ok(Some(compared)) => {
                    summary.are_builds |= compared.are_builds;
                    if let Some([a, b]) = compared.unknown {
                        say(format_args!(
                            "not all registers are known at {a} in the first recording and {b} in the second \
                             one: system calls from there on, and registers at the end that are not known, \
                             are not compared"
                        ));
                    }
                    summary.difference = summary.difference.take().or(compared.difference);
                }
                Err(error) => {
                    failed.get_or_insert(error);
                }
            }
        }
    }
    for (architecture, others) in &mut second {
        if !first.iter().any(|(other, _)| other == architecture) {
            single.extend(others.traced().into_iter().map(|(_, name)| name));
        }
    }
    if is_compared && !single.is_empty() {
        let names = single.join(", ");
        say(format_args!(
            "not compared, because only one recording has a thread of that name: {names}"
        ));
    }
    match failed {
        Some(error) if summary.difference.is_some() => say(error),
        Some(error) => return Err(Failure::Usage(error.to_string())),
        None => {}
    }
    if is_compared {
        return Ok(summary);
    }
    Err(Failure::Usage(
        "nothing to compare: no two cores of the same architecture have a trace that can be followed (armsnap info)"
            .to_owned(),
    ))
}

/// Pairs threads by name; where both recordings have one thread only, these. Returns the pairs, and the
/// names of the threads that have no counterpart.
fn paired<T: Copy>(
    threads: Vec<(T, String)>,
    mut others: Vec<(T, String)>,
) -> (Vec<(T, T)>, Vec<String>) {
    if let ([(thread, _)], [(other, _)]) = (&threads[..], &others[..]) {
        return (vec![(*thread, *other)], Vec::new());
    }
    let mut pairs = Vec::new();
    let mut without = Vec::new();
    for (thread, name) in threads {
        match others.iter().position(|(_, other)| *other == name) {
            Some(at) => pairs.push((thread, others.remove(at).0)),
            None => without.push(name),
        }
    }
    without.extend(others.into_iter().map(|(_, name)| name));
    (pairs, without)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_are_paired_by_name_and_each_once() {
        let named = |names: &[&str]| {
            let names = names.iter().map(|name| (*name).to_owned());
            names.enumerate().collect::<Vec<(usize, String)>>()
        };
        let numbers = |a: &[&str], b: &[&str]| {
            let (pairs, without) = paired(named(a), named(b));
            (pairs, without.join(" "))
        };
        assert_eq!(
            numbers(&["a", "b"], &["b", "a"]),
            (vec![(0, 1), (1, 0)], String::new())
        );
        assert_eq!(numbers(&["a"], &["b"]), (vec![(0, 0)], String::new()));
        assert_eq!(numbers(&["a", "b"], &["b"]), (vec![(1, 0)], "a".to_owned()));
        assert_eq!(
            numbers(&["a", "a"], &["a", "c"]),
            (vec![(0, 0)], "a c".to_owned())
        );
    }
}
