//! The disassembly of the executed functions, with counts.

use super::data::CodeRow;
use super::functions::{PageFunction, PageFunctions};
use crate::profile::{Profile, Spans};
use armsnap_arch::quantity::{Address, Isa};
use armsnap_snapshot::program::disassembly::Disassembler;
use armsnap_snapshot::program::symbols::{SourceLine, Symbols};
use armsnap_trace::flow::{CodeImage, View, instruction_bytes};
use std::collections::{BTreeMap, HashMap};
use std::ops::Range;

/// Maximum number of instructions on the page.
const MOST: usize = 60_000;
/// For larger functions, only the executed instructions are listed.
const LARGE: usize = 4_000;
/// Maximum size of a function in bytes. The symbol of a larger one is not trusted: only executed
/// instructions are listed, and the total number is unknown.
const WIDEST: u64 = 4 << 20;
/// Maximum length of a disassembled instruction.
const LONGEST: usize = 120;

/// What is needed to read the code of one track.
pub struct TrackCode<'a, C> {
    /// Its counts.
    pub profile: &'a Profile,
    /// Its memory.
    pub image: C,
    /// Its symbols.
    pub symbols: Option<&'a Symbols>,
    /// Its disassembler.
    pub disassembler: Disassembler,
}

/// An executed straight line: its addresses, instruction set and view.
#[derive(Clone, Copy, Debug)]
struct ExecutedRange {
    start: u64,
    end: u64,
    isa: Isa,
    view: View,
}

/// The instructions of functions, by the function's index.
#[derive(Debug, Default)]
pub struct Listing {
    /// The instructions.
    pub code: BTreeMap<u32, Vec<CodeRow>>,
    /// By function: the number of its executed instructions, and of all its instructions.
    pub sizes: HashMap<u32, (u64, u64)>,
    /// The number of functions left out because the page was full.
    pub left_out: usize,
}

/// Lists the functions in their order until the page is full. `file` receives a source file, the
/// line of an instruction in it, and the instruction's execution count; it returns the file's
/// index.
pub fn list<C: CodeImage>(
    functions: &mut PageFunctions,
    tracks: &[TrackCode<'_, C>],
    mut file: impl FnMut(&str, u32, u64) -> Option<u32>,
) -> Listing {
    let spans: Vec<Spans> = tracks
        .iter()
        .map(|track| track.profile.code.spans())
        .collect();
    let lines: Vec<Vec<ExecutedRange>> =
        tracks.iter().map(|track| executed(track.profile)).collect();
    let mut listing = Listing::default();
    let mut left = MOST;
    let unknown = functions.unknown();
    let without_function = without_function(functions, &lines);
    // Code without a known function starts at its first executed instruction.
    let mut start_of_unknown = None;
    for (index, function) in functions.iter().enumerate() {
        let lines = match unknown == Some(index as u32) {
            true => &without_function[..],
            false => of_function(functions, function, &lines[function.track]),
        };
        let Some(first) = lines.first() else {
            continue;
        };
        let track = &tracks[function.track];
        let count = |address| {
            let counts = spans.iter().map(|spans| spans.at(address));
            counts.fold(0, u64::saturating_add)
        };
        let places = places(function, lines, &track.image);
        let executed = places.iter().filter(|place| count(place.0) > 0).count();
        let index = index as u32;
        if extent(function).is_some() {
            let sizes = (executed as u64, places.len() as u64);
            listing.sizes.insert(index, sizes);
        }
        let all = places.len() <= LARGE;
        if left < if all { places.len() } else { executed } {
            listing.left_out += 1;
            continue;
        }
        let source = sources(track.symbols, &places);
        let start = function.start.map_or(first.start, |start| start.0);
        if function.start.is_none() {
            start_of_unknown = Some(start);
        }
        let rows = places.iter().filter_map(|&(address, isa, view)| {
            let times = count(address);
            // The page's script counts in floating point.
            let offset = address
                .checked_sub(start)
                .filter(|offset| *offset < 1 << 53)?;
            if times == 0 && !all {
                return None;
            }
            let (bytes, known) = instruction_bytes(&track.image, view, isa, Address(address));
            let mut text = track.disassembler.text(isa, address, &bytes[..known]);
            if let Some((at, _)) = text.char_indices().nth(LONGEST) {
                text.truncate(at);
            }
            let line = line_at(&source, address).filter(|line| line.line > 0);
            let of_file = line.and_then(|line| file(&line.file, line.line, times));
            Some((offset, times, text, line.map(|line| line.line), of_file))
        });
        let rows: Vec<CodeRow> = rows.collect();
        left -= rows.len().min(left);
        listing.code.insert(index, rows);
    }
    if let (Some(index), Some(start)) = (unknown, start_of_unknown)
        && let Some(function) = functions.iter_mut().nth(index as usize)
    {
        function.row.start = start;
    }
    listing
}

/// The executed lines that belong to no function, from the first track that has any.
fn without_function(
    functions: &PageFunctions,
    tracks: &[Vec<ExecutedRange>],
) -> Vec<ExecutedRange> {
    let mut of_tracks = tracks.iter().map(|lines| {
        let lines = lines
            .iter()
            .filter(|line| functions.at(line.start).is_none());
        lines.copied().collect::<Vec<ExecutedRange>>()
    });
    of_tracks
        .find(|lines| !lines.is_empty())
        .unwrap_or_default()
}

/// The executed lines of a track, by address.
fn executed(profile: &Profile) -> Vec<ExecutedRange> {
    let blocks = profile.code.blocks();
    let view = blocks.first().map_or(View(0), |block| block.view);
    let whole = blocks.iter().map(|block| ExecutedRange {
        start: block.start.0,
        end: block.end.0,
        isa: block.isa,
        view: block.view,
    });
    let parts = profile.code.parts();
    let parts = parts.iter().map(|part| ExecutedRange {
        start: part.range.start.0,
        end: part.range.end.0,
        isa: part.range.isa,
        view,
    });
    let mut lines: Vec<ExecutedRange> = whole.chain(parts).collect();
    lines.sort_by_key(|line| (line.start, line.end));
    lines
}

fn of_function<'l>(
    functions: &PageFunctions,
    function: &PageFunction,
    lines: &'l [ExecutedRange],
) -> &'l [ExecutedRange] {
    let Some(start) = function.start else {
        return &[];
    };
    let end = match function.end {
        Some(end) => end.0,
        None => functions.next_start(start.0).unwrap_or(u64::MAX),
    };
    let first = lines.partition_point(|line| line.start < start.0);
    let last = lines.partition_point(|line| line.start < end);
    &lines[first..last.max(first)]
}

/// The addresses of a function, if its symbol says where it ends.
fn extent(function: &PageFunction) -> Option<Range<u64>> {
    let (start, end) = (function.start?.0, function.end?.0);
    (end.saturating_sub(start) <= WIDEST).then_some(start..end)
}

/// The instructions of a function: all of them if it has an extent, otherwise the executed ones.
fn places(
    function: &PageFunction,
    lines: &[ExecutedRange],
    image: &impl CodeImage,
) -> Vec<(u64, Isa, View)> {
    let mut places = Vec::new();
    let mut next = lines.iter().peekable();
    let first = lines[0];
    let (mut isa, mut view) = (first.isa, first.view);
    let whole = extent(function);
    let Range {
        start: mut here,
        end: mut known_to,
    } = whole.clone().unwrap_or(first.start..first.end);
    loop {
        // Executed code shows where an instruction starts, and in which instruction set.
        while let Some(line) = next.next_if(|line| line.start <= here) {
            if line.start == here {
                (isa, view) = (line.isa, line.view);
            }
            if whole.is_none() {
                known_to = known_to.max(line.end);
            }
        }
        if here >= known_to {
            let Some(line) = next.peek() else {
                return places;
            };
            if whole.is_some() {
                return places;
            }
            here = line.start;
            known_to = line.end;
            continue;
        }
        let (_, known) = instruction_bytes(image, view, isa, Address(here));
        if known == 0 && whole.is_some() {
            // What follows is not in memory, at least up to the next executed line.
            let Some(line) = next.peek() else {
                return places;
            };
            here = line.start;
            continue;
        }
        let mut after = here.saturating_add(known.max(2) as u64);
        if let Some(line) = next.peek() {
            after = after.min(line.start);
        }
        if known > 0 {
            places.push((here, isa, view));
        }
        if after <= here {
            return places;
        }
        here = after;
    }
}

fn sources(
    symbols: Option<&Symbols>,
    places: &[(u64, Isa, View)],
) -> Vec<(Range<u64>, SourceLine)> {
    match (symbols, places.first(), places.last()) {
        (Some(symbols), Some(first), Some(last)) => {
            symbols.lines_of(first.0..last.0.saturating_add(4))
        }
        _ => Vec::new(),
    }
}

fn line_at(lines: &[(Range<u64>, SourceLine)], address: u64) -> Option<&SourceLine> {
    let after = lines.partition_point(|(range, _)| range.start <= address);
    let (range, line) = lines[..after].last()?;
    range.contains(&address).then_some(line)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::page::data::FunctionRow;
    use crate::profile::FunctionKind;
    use armsnap_trace::flow::Pieces;

    /// Four instructions at the start of a function, the first of which was executed, and two
    /// executed ones far after them.
    fn found(end: u64, far: u64) -> Vec<u64> {
        let function = PageFunction {
            row: FunctionRow::default(),
            kind: FunctionKind::Symbol,
            start: Some(Address(0x1000)),
            end: Some(Address(end)),
            track: 0,
        };
        let line = |start, end| ExecutedRange {
            start,
            end,
            isa: Isa::A64,
            view: View(0),
        };
        let mut memory = Pieces::default();
        memory.add(Address(0x1000), vec![0; 16]);
        memory.add(Address(far), vec![0; 8]);
        let lines = [line(0x1000, 0x1004), line(far, far + 8)];
        let places = places(&function, &lines, &memory);
        places.iter().map(|(address, ..)| *address).collect()
    }

    #[test]
    fn memory_that_is_missing_in_a_function_is_passed_over() {
        let far = 0x20_0000;
        let all = [0x1000, 0x1004, 0x1008, 0x100c, far, far + 4];
        assert_eq!(found(far + 8, far), all);
    }

    #[test]
    fn a_function_of_impossible_size_has_its_executed_instructions() {
        let far = 1 << 60;
        assert_eq!(found(u64::MAX, far), [0x1000, far, far + 4]);
    }
}
