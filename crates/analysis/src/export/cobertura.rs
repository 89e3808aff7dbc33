//! Coverage in the XML format of Cobertura (coverage-04.dtd).

use super::covered::{Hit, Sums, by_directory, files};
use super::{Analysed, ExportError, comments};
use crate::profile::{BranchCoverage, FileCoverage, FunctionCoverage};
use armsnap_snapshot::text::markup;
use std::collections::BTreeMap;
use std::io::{self, Write};

/// Writes the executed lines, functions and branches of all programs.
///
/// # Errors
///
/// If there are no source lines, or the output cannot be written.
pub fn write(analysed: &Analysed<'_>, out: &mut impl Write) -> Result<(), ExportError> {
    let files = files(analysed)?;
    let sums = Sums::sum(files.values());
    writeln!(
        out,
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n\
         <!DOCTYPE coverage SYSTEM \"http://cobertura.sourceforge.net/xml/coverage-04.dtd\">"
    )?;
    comments(analysed, out)?;
    // The time would differ each time; 0 is not a time.
    writeln!(
        out,
        "<coverage {} lines-covered=\"{}\" lines-valid=\"{}\" branches-covered=\"{}\" \
         branches-valid=\"{}\" version=\"armsnap {}\" timestamp=\"0\">",
        rates(sums.lines, sums.outcomes),
        sums.lines.covered,
        sums.lines.all,
        sums.outcomes.covered,
        sums.outcomes.all,
        env!("CARGO_PKG_VERSION")
    )?;
    writeln!(out, "<packages>")?;
    for (directory, files) in by_directory(&files) {
        let sums = Sums::sum(files.iter().map(|(.., file)| *file));
        writeln!(
            out,
            "<package name=\"{}\" {}>\n<classes>",
            markup(directory),
            rates(sums.lines, sums.outcomes)
        )?;
        for (path, name, file) in files {
            class(path, name, file, out)?;
        }
        writeln!(out, "</classes>\n</package>")?;
    }
    writeln!(out, "</packages>\n</coverage>")?;
    Ok(())
}

/// The attributes that all elements but lines have. The complexity is not known.
fn rates(lines: Hit, outcomes: Hit) -> String {
    let (lines, outcomes) = (lines.rate(), outcomes.rate());
    format!("line-rate=\"{lines:.4}\" branch-rate=\"{outcomes:.4}\" complexity=\"0\"")
}

fn class(path: &str, name: &str, file: &FileCoverage, out: &mut impl Write) -> io::Result<()> {
    let sums = Sums::of(file);
    writeln!(
        out,
        "<class name=\"{}\" filename=\"{}\" {}>\n<methods>",
        markup(name),
        markup(path),
        rates(sums.lines, sums.outcomes)
    )?;
    for function in &file.functions {
        method(function, out)?;
    }
    writeln!(out, "</methods>\n<lines>")?;
    let mut branches: BTreeMap<u32, Vec<&BranchCoverage>> = BTreeMap::new();
    for branch in &file.branches {
        branches.entry(branch.line).or_default().push(branch);
    }
    for (&number, &hits) in &file.lines {
        line(number, hits, branches.get(&number), out)?;
    }
    writeln!(out, "</lines>\n</class>")
}

/// A function has its first line only: those after it may be of inlined functions.
fn method(function: &FunctionCoverage, out: &mut impl Write) -> io::Result<()> {
    let mut entered = Hit::default();
    entered.add(function.entered > 0);
    writeln!(
        out,
        "<method name=\"{}\" signature=\"\" {}><lines><line number=\"{}\" hits=\"{}\"/></lines></method>",
        markup(&function.name),
        rates(entered, entered),
        function.line,
        function.entered
    )
}

/// Each conditional branch instruction is a condition with two outcomes.
fn line(
    number: u32,
    hits: u64,
    branches: Option<&Vec<&BranchCoverage>>,
    out: &mut impl Write,
) -> io::Result<()> {
    write!(out, "<line number=\"{number}\" hits=\"{hits}\"")?;
    let Some(branches) = branches else {
        return writeln!(out, "/>");
    };
    let outcomes = branches.iter().map(|branch| {
        let (taken, not_taken) = branch.outcomes.unwrap_or_default();
        usize::from(taken > 0) + usize::from(not_taken > 0)
    });
    let outcomes: Vec<usize> = outcomes.collect();
    let (covered, all) = (outcomes.iter().sum::<usize>(), 2 * outcomes.len());
    writeln!(
        out,
        " branch=\"true\" condition-coverage=\"{}% ({covered}/{all})\">\n<conditions>",
        100 * covered / all
    )?;
    for (condition, covered) in outcomes.into_iter().enumerate() {
        let share = 50 * covered;
        writeln!(
            out,
            "<condition number=\"{condition}\" type=\"jump\" coverage=\"{share}%\"/>"
        )?;
    }
    writeln!(out, "</conditions>\n</line>")
}
