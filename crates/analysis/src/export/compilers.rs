//! Profiles for compilers and linkers: the text input of AutoFDO's `create_llvm_prof`, as
//! simpleperf writes it; unsymbolised profiles of `llvm-profgen`; pre-aggregated profiles of
//! `perf2bolt`.
//!
//! Each describes one program, by addresses in its file; `llvm-profgen` uses distances from the
//! first executable segment instead.

use super::images::hexadecimal;
use super::{Analysed, ExportError, Note, clean, hidden};
use crate::profile::{EdgeKind, Profile};
use armsnap_snapshot::program::elf::Elf;
use std::collections::BTreeMap;
use std::fmt::{Display, Write as _};
use std::io::Write;
use std::path::Path;

/// The format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// For `create_llvm_prof --profiler=text`.
    AutoFdo,
    /// For `llvm-profgen --unsymbolized-profile`.
    LlvmProfgen,
    /// For `perf2bolt -pa`.
    Bolt,
}

/// Straight lines and branches of one program, by addresses in its file.
#[derive(Default)]
struct Counts {
    /// By first and last instruction.
    lines: BTreeMap<(u64, u64), u64>,
    /// Taken branches; the target is `None` if they leave the program.
    branches: BTreeMap<(u64, Option<u64>), u64>,
}

/// Writes the counts of the program at `path`, which may be another copy of the same build. Without
/// `path`, writes those of the program in which most instructions were executed; a library is
/// chosen only if no program was executed. Returns a note that names it.
///
/// # Errors
///
/// If no program was executed, or the output cannot be written.
pub fn write(
    analysed: &Analysed<'_>,
    form: Form,
    path: Option<&Path>,
    out: &mut impl Write,
) -> Result<Note, ExportError> {
    let image = match path {
        Some(path) => named(analysed, path)?,
        None => most_executed(analysed).ok_or_else(|| {
            ExportError::Unfit(
                "no known program was executed: --elf names the program of the cores".to_owned(),
            )
        })?,
    };
    let counts = counts(analysed, image);
    let text = match form {
        Form::AutoFdo => auto_fdo(analysed, image, &counts),
        Form::LlvmProfgen => llvm_profgen(&counts, image.text_base()),
        Form::Bolt => bolt(analysed, image),
    };
    out.write_all(text.as_bytes())?;
    Ok(describes(analysed, image))
}

/// The program of the cores that the user named.
fn named<'a>(analysed: &Analysed<'a>, path: &Path) -> Result<&'a Elf, ExportError> {
    let shown = path.display();
    let unfit = |error: &dyn Display| ExportError::Unfit(format!("{shown}: {error}"));
    let absolute = dunce::canonicalize(path).map_err(|error| unfit(&error))?;
    let images = || analysed.programs.images();
    if let Some(image) = images().find(|image| image.path == absolute) {
        return Ok(image);
    }
    let given = Elf::open(path).map_err(|error| ExportError::Unfit(error.to_string()))?;
    images()
        .find(|image| image.is_build_of(&given))
        .ok_or_else(|| {
            let known: Vec<String> = images().map(|i| i.path.display().to_string()).collect();
            unfit(&format_args!(
                "expected a program of the cores ({}); --elf names one",
                match known.is_empty() {
                    true => "none is known".to_owned(),
                    false => known.join(", "),
                }
            ))
        })
}

fn describes(analysed: &Analysed<'_>, image: &Elf) -> Note {
    let shown = |elf: &Elf| elf.path.display().to_string();
    let others = analysed.programs.images();
    let others = others.filter(|other| !std::ptr::eq(*other, image));
    let others = others.map(|other| (shown(other), executed_in(analysed, other)));
    let mut others: Vec<(String, u64)> = others.filter(|(_, executed)| *executed > 0).collect();
    others.sort_by_key(|(_, executed)| std::cmp::Reverse(*executed));
    Note::Describes {
        program: shown(image),
        executed: executed_in(analysed, image),
        others,
    }
}

/// The profiles of the cores that may have run a program.
fn profiles<'a>(analysed: &Analysed<'a>, image: &Elf) -> impl Iterator<Item = &'a Profile> {
    let programs = analysed.programs;
    let tracks = analysed.tracks.iter().filter(move |(track, _)| {
        let images = programs.images_of(track.core);
        images.iter().any(|own| std::ptr::eq(*own, image))
    });
    tracks.map(|(_, profile)| profile)
}

fn executed_in(analysed: &Analysed<'_>, image: &Elf) -> u64 {
    let spans = profiles(analysed, image).flat_map(|profile| profile.code.blocks());
    let inside = spans.filter(|block| image.slice(block.start.0).is_some());
    inside
        .map(|block| block.count().saturating_mul(block.instructions.into()))
        .fold(0, u64::saturating_add)
}

fn most_executed<'a>(analysed: &Analysed<'a>) -> Option<&'a Elf> {
    let images = analysed.programs.images();
    let counted = images.map(|image| (executed_in(analysed, image), image));
    let found = counted.filter(|(count, _)| *count > 0);
    let most = found.max_by_key(|(count, image)| (!image.is_library(), *count));
    most.map(|(_, image)| image)
}

/// The address in the file; `None` outside the program.
fn in_file(image: &Elf, address: u64) -> Option<u64> {
    let inside = image.slice(address).is_some();
    inside.then(|| address.wrapping_sub(image.offset))
}

fn counts(analysed: &Analysed<'_>, image: &Elf) -> Counts {
    let mut counts = Counts::default();
    let mut line = |start: u64, last: u64, count: u64| {
        if let (Some(start), Some(last)) = (in_file(image, start), in_file(image, last)) {
            *counts.lines.entry((start, last)).or_insert(0) += count;
        }
    };
    for profile in profiles(analysed, image) {
        for block in profile.code.blocks() {
            line(block.start.0, block.last_at.0, block.count());
        }
        for part in profile.code.parts() {
            line(part.range.start.0, part.last_at.0, part.count);
        }
    }
    for edge in edges(analysed, image) {
        if let Some(from) = in_file(image, edge.0) {
            let to = in_file(image, edge.1);
            *counts.branches.entry((from, to)).or_insert(0) += edge.2;
        }
    }
    counts
}

/// The taken branches: from, to, count.
fn edges(analysed: &Analysed<'_>, image: &Elf) -> Vec<(u64, u64, u64)> {
    let all = profiles(analysed, image).flat_map(|profile| profile.code.edges());
    let taken = all.filter(|edge| edge.kind != EdgeKind::NotTaken);
    taken
        .map(|edge| (edge.from.0, edge.to.0, edge.count))
        .collect()
}

fn auto_fdo(analysed: &Analysed<'_>, image: &Elf, counts: &Counts) -> String {
    let mut text = String::new();
    lines_and_branches(&mut text, counts, Some("0\n"));
    if let Some(mut id) = image.build_id() {
        id.resize(id.len().max(20), 0);
        let _ = writeln!(text, "// build_id: 0x{}", hexadecimal(&id));
    }
    let path = clean(&image.path.display().to_string());
    let _ = writeln!(text, "// {path}");
    for (track, profile) in analysed.tracks {
        if let Some(gaps) = hidden(track, profile) {
            let _ = writeln!(text, "// {}", clean(&gaps));
        }
    }
    text
}

fn llvm_profgen(counts: &Counts, base: u64) -> String {
    let less = |address: u64| address.saturating_sub(base);
    let lines = counts.lines.iter();
    let branches = counts.branches.iter();
    let counts = Counts {
        lines: lines
            .map(|((start, last), count)| ((less(*start), less(*last)), *count))
            .collect(),
        // Branches that leave the program have no address for their target.
        branches: branches
            .filter_map(|((from, to), count)| Some(((less(*from), Some(less((*to)?))), *count)))
            .collect(),
    };
    let mut text = String::new();
    lines_and_branches(&mut text, &counts, None);
    text
}

/// Writes the counts, with `between` between the two tables.
fn lines_and_branches(text: &mut String, counts: &Counts, between: Option<&str>) {
    let _ = writeln!(text, "{}", counts.lines.len());
    for ((start, last), count) in &counts.lines {
        let _ = writeln!(text, "{start:x}-{last:x}:{count}");
    }
    text.push_str(between.unwrap_or_default());
    let _ = writeln!(text, "{}", counts.branches.len());
    for ((from, to), count) in &counts.branches {
        let _ = writeln!(text, "{from:x}->{:x}:{count}", to.unwrap_or(0));
    }
}

/// Branches (B) and the straight lines between them (F), as in last branch records. BOLT counts a
/// line once for each branch that ends it. Addresses are written as `BUILD-ID:OFFSET`.
fn bolt(analysed: &Analysed<'_>, image: &Elf) -> String {
    let mut branches: BTreeMap<(Option<u64>, Option<u64>), u64> = BTreeMap::new();
    for (from, to, count) in edges(analysed, image) {
        let ends = (in_file(image, from), in_file(image, to));
        if ends == (None, None) {
            continue;
        }
        *branches.entry(ends).or_insert(0) += count;
    }
    let mut lines: BTreeMap<(u64, u64), u64> = BTreeMap::new();
    for profile in profiles(analysed, image) {
        for block in profile.code.blocks() {
            if let (Some(start), Some(last)) = (
                in_file(image, block.start.0),
                in_file(image, block.last_at.0),
            ) {
                *lines.entry((start, last)).or_insert(0) += block.count();
            }
        }
    }
    let program = image.build_id().map(|id| hexadecimal(&id) + ":");
    let program = program.unwrap_or_default();
    let place = |address: &Option<u64>| match address {
        Some(address) => format!("{program}{address:x}"),
        None => "0".to_owned(),
    };
    let mut text = String::new();
    for ((from, to), count) in &branches {
        let _ = writeln!(text, "B {} {} {count} 0", place(from), place(to));
    }
    for ((start, last), count) in &lines {
        let _ = writeln!(text, "F {program}{start:x} {program}{last:x} {count}");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn branches_out_of_the_program_have_no_offset() {
        let counts = Counts {
            lines: [((0x1000, 0x1008), 3)].into(),
            branches: [((0x1008, Some(0x1004)), 2), ((0x1008, None), 1)].into(),
        };
        assert_eq!(llvm_profgen(&counts, 0x1000), "1\n0-8:3\n1\n8->4:2\n");
        let mut text = String::new();
        lines_and_branches(&mut text, &counts, None);
        assert!(text.ends_with("2\n1008->0:1\n1008->1004:2\n"), "{text}");
    }
}
