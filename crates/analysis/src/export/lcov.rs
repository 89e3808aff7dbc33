//! Coverage as a tracefile of LCOV (geninfo(1), "FILES").

use super::{Analysed, ExportError, clean, hidden};
use crate::profile::{Coverage, ExecutedCode, FileCoverage, coverage};
use armsnap_snapshot::program::symbols::Symbols;
use armsnap_snapshot::text::is_plain;
use std::io::Write;

/// Writes the executed lines, functions and branches of all programs.
///
/// # Errors
///
/// If there are no source lines, or the output cannot be written.
pub fn write(analysed: &Analysed<'_>, out: &mut impl Write) -> Result<(), ExportError> {
    let found = found(analysed)?;
    for (track, profile) in analysed.tracks {
        if let Some(text) = hidden(track, profile) {
            writeln!(out, "# {}", clean(&text))?;
        }
    }
    for (path, file) in found.iter().flat_map(|coverage| &coverage.files) {
        write_file(path, file, out)?;
    }
    Ok(())
}

/// The coverage of each set of programs.
///
/// # Errors
///
/// If there are no source lines.
pub(super) fn found(analysed: &Analysed<'_>) -> Result<Vec<Coverage>, ExportError> {
    let found = programs(analysed);
    if found.iter().all(|coverage| coverage.files.is_empty()) {
        return Err(ExportError::Unfit(
            "no source lines are known: a program with debug information is needed (--elf)"
                .to_owned(),
        ));
    }
    Ok(found)
}

/// The coverage of each set of programs.
pub fn programs(analysed: &Analysed<'_>) -> Vec<Coverage> {
    let mut groups: Vec<(&Symbols, Option<usize>, Vec<&ExecutedCode>)> = Vec::new();
    for (track, profile) in analysed.tracks {
        let symbols = track.core.and_then(|core| analysed.programs.symbols(core));
        let Some(symbols) = symbols else { continue };
        match groups
            .iter_mut()
            .find(|(known, ..)| std::ptr::eq(*known, symbols))
        {
            Some((.., codes)) => codes.push(&profile.code),
            None => groups.push((symbols, track.core, vec![&profile.code])),
        }
    }
    groups
        .iter()
        .map(|(symbols, core, codes)| {
            let images = analysed.programs.images_of(*core);
            coverage(symbols, &images, codes)
        })
        .collect()
}

fn write_file(path: &str, file: &FileCoverage, out: &mut impl Write) -> Result<(), ExportError> {
    writeln!(out, "TN:\nSF:{}", clean(path))?;
    let functions = &file.functions;
    for function in functions {
        writeln!(
            out,
            "FN:{},{}",
            function.line,
            function_name(&function.linked)
        )?;
    }
    for function in functions {
        writeln!(
            out,
            "FNDA:{},{}",
            function.entered,
            function_name(&function.linked)
        )?;
    }
    let hit = functions.iter().filter(|function| function.entered > 0);
    writeln!(out, "FNF:{}\nFNH:{}", functions.len(), hit.count())?;
    let mut reached = 0;
    for branch in &file.branches {
        let (line, number) = (branch.line, branch.number);
        match branch.outcomes {
            None => {
                writeln!(out, "BRDA:{line},{number},0,-\nBRDA:{line},{number},1,-")?;
            }
            Some((taken, not_taken)) => {
                writeln!(
                    out,
                    "BRDA:{line},{number},0,{taken}\nBRDA:{line},{number},1,{not_taken}"
                )?;
                reached += usize::from(taken > 0) + usize::from(not_taken > 0);
            }
        }
    }
    writeln!(out, "BRF:{}\nBRH:{reached}", file.branches.len() * 2)?;
    for (line, count) in &file.lines {
        writeln!(out, "DA:{line},{count}")?;
    }
    let hit = file.lines.values().filter(|count| **count > 0).count();
    writeln!(out, "LF:{}\nLH:{hit}\nend_of_record", file.lines.len())?;
    Ok(())
}

/// The linker's name; the reader shows the name in the source (`genhtml --demangle-cpp`).
fn function_name(linked: &str) -> String {
    let clean = |c: char| if c == ',' || !is_plain(c) { '_' } else { c };
    linked.chars().map(clean).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_do_not_change_the_direction_of_text() {
        assert_eq!(function_name("a\u{202E}b,c\n\u{200B}ü"), "a_b_c__ü");
        assert_eq!(clean("a\u{202E}b\u{2066}\t.c"), "a?b??.c");
    }
}
