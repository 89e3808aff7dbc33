//! The short form of a report, for terminals: the same figures as on the page.

use super::data::{ExceptionRow, FunctionRow, PageData, Spread};
use std::io::{self, Write};

/// Number of functions listed.
const FUNCTIONS: usize = 10;

/// Writes the summary of a page.
///
/// # Errors
///
/// If `out` cannot be written.
pub fn write_summary(page: &PageData, mut out: impl Write) -> io::Result<()> {
    writeln!(out, "{}", page.title)?;
    let widest = page
        .totals
        .iter()
        .map(|(_, value, _)| value.to_string().len());
    let widest = widest.max().unwrap_or(0);
    for (_, value, title) in &page.totals {
        writeln!(out, "  {value:>widest$}  {title}")?;
    }
    let hottest: Vec<&FunctionRow> = page
        .functions
        .iter()
        .filter(|function| function.own > 0)
        .take(FUNCTIONS)
        .collect();
    if !hottest.is_empty() {
        let row = "           self    self %         total       calls  function";
        writeln!(out, "\nHottest functions\n{row}")?;
        for function in hottest {
            let part = 100.0 * function.own as f64 / page.instructions.max(1) as f64;
            writeln!(
                out,
                "  {:>13}  {part:>6.1}  {:>13}  {:>10}  {}",
                function.own, function.total, function.calls, function.name
            )?;
        }
    }
    if !page.exceptions.is_empty() {
        writeln!(
            out,
            "\nExceptions, entry to return: minimum, median, maximum"
        )?;
        for exception in &page.exceptions {
            writeln!(out, "  {}", exception_line(exception))?;
        }
    }
    if !page.gaps.is_empty() {
        writeln!(out, "\nGaps")?;
        for gap in &page.gaps {
            let track = &page.tracks[gap.track].name;
            writeln!(out, "  {:>6}  {}: {}", gap.count, track, gap.reason)?;
        }
    }
    Ok(())
}

fn exception_line(exception: &ExceptionRow) -> String {
    let mut line = format!(
        "{}: {} taken {}, returned {}",
        exception.track, exception.name, exception.taken, exception.returned
    );
    let mut add = |spread: Option<Spread>, unit: &str| {
        if let Some([minimum, median, maximum]) = spread {
            line += &format!("; {minimum}, {median}, {maximum} {unit}");
        }
    };
    add(exception.instructions, "instructions");
    add(exception.cycles, "cycles");
    add(exception.time, "ticks of the timestamp");
    line
}
