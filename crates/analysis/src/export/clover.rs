//! Coverage in the XML format of Clover (clover.xsd of OpenClover).

use super::covered::{Sums, by_directory, files};
use super::{Analysed, ExportError, comments};
use crate::profile::FileCoverage;
use armsnap_snapshot::text::markup;
use std::io::{self, Write};

/// Writes the executed lines, functions and branches of all programs.
///
/// # Errors
///
/// If there are no source lines, or the output cannot be written.
pub fn write(analysed: &Analysed<'_>, out: &mut impl Write) -> Result<(), ExportError> {
    let files = files(analysed)?;
    let directories = by_directory(&files);
    writeln!(out, "<?xml version=\"1.0\" encoding=\"UTF-8\"?>")?;
    comments(analysed, out)?;
    // The time would differ each time; 0 is not a time.
    writeln!(
        out,
        "<coverage generated=\"0\" clover=\"armsnap {}\">\n<project timestamp=\"0\">",
        env!("CARGO_PKG_VERSION")
    )?;
    let counts = [("packages", directories.len()), ("files", files.len())];
    metrics(Sums::sum(files.values()), &counts, out)?;
    for (directory, files) in directories {
        writeln!(out, "<package name=\"{}\">", markup(directory))?;
        let sums = Sums::sum(files.iter().map(|(.., file)| *file));
        metrics(sums, &[("files", files.len())], out)?;
        for (path, name, file) in files {
            writeln!(
                out,
                "<file name=\"{}\" path=\"{}\">",
                markup(name),
                markup(path)
            )?;
            metrics(Sums::of(file), &[], out)?;
            lines(file, out)?;
            writeln!(out, "</file>")?;
        }
        writeln!(out, "</package>")?;
    }
    writeln!(out, "</project>\n</coverage>")?;
    Ok(())
}

/// The counts of a file or of several; lines are statements, and each outcome of a branch is a
/// conditional. `more` are numbers of parts.
fn metrics(sums: Sums, more: &[(&str, usize)], out: &mut impl Write) -> io::Result<()> {
    let Sums {
        lines,
        functions,
        outcomes,
    } = sums;
    let all = lines.all + functions.all + outcomes.all;
    let covered = lines.covered + functions.covered + outcomes.covered;
    write!(
        out,
        "<metrics complexity=\"0\" elements=\"{all}\" coveredelements=\"{covered}\" \
         conditionals=\"{}\" coveredconditionals=\"{}\" statements=\"{}\" coveredstatements=\"{}\" \
         methods=\"{}\" coveredmethods=\"{}\" classes=\"0\"",
        outcomes.all, outcomes.covered, lines.all, lines.covered, functions.all, functions.covered
    )?;
    for (name, count) in more {
        write!(out, " {name}=\"{count}\"")?;
    }
    writeln!(out, "/>")
}

/// The lines of a file: its functions, its statements, and each conditional branch.
fn lines(file: &FileCoverage, out: &mut impl Write) -> io::Result<()> {
    for function in &file.functions {
        writeln!(
            out,
            "<line num=\"{}\" type=\"method\" signature=\"{}\" count=\"{}\"/>",
            function.line,
            markup(&function.name),
            function.entered
        )?;
    }
    for (line, count) in &file.lines {
        writeln!(
            out,
            "<line num=\"{line}\" type=\"stmt\" count=\"{count}\"/>"
        )?;
    }
    for branch in &file.branches {
        let (taken, not_taken) = branch.outcomes.unwrap_or_default();
        // Readers take a line without a count for one that was not executed.
        let count = file.lines.get(&branch.line).copied().unwrap_or_default();
        writeln!(
            out,
            "<line num=\"{}\" type=\"cond\" truecount=\"{taken}\" falsecount=\"{not_taken}\" \
             count=\"{count}\"/>",
            branch.line
        )?;
    }
    Ok(())
}
