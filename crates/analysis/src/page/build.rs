//! Assembles a page's contents.

use super::blocks::BlockTable;
use super::data::{ExceptionRow, FileRow, GapRow, PageData, Spread, TrackData};
use super::functions::{self, Indexes, PageFunctions};
use super::listen::TrackListener;
use super::listing::{self, Listing, TrackCode};
use super::marks::Texts;
use super::sources::Sources;
use crate::profile::{self, Coverage, FunctionKind, Profile, Track};
use armsnap_history::decode::{Image, Programs};
use armsnap_snapshot::capture::traced_core;
use armsnap_snapshot::program::disassembly::{Disassembler, DisassemblerError};
use armsnap_snapshot::program::symbols::Symbols;
use armsnap_snapshot::snapshot::OpenSnapshot;
use armsnap_snapshot::text::one_line;
use std::path::PathBuf;

/// The input of a page.
pub struct PageInput<'a> {
    /// The title.
    pub title: &'a str,
    /// The snapshot.
    pub loaded: &'a OpenSnapshot,
    /// The programs of its cores.
    pub programs: &'a Programs,
    /// Bytes of trace decoded.
    pub bytes: u64,
    /// Each track with its figures and events.
    pub tracks: &'a [(Track, Profile, TrackListener)],
    /// Directories with source files.
    pub directories: &'a [PathBuf],
    /// Notes about assumptions and omissions.
    pub notes: Vec<String>,
}

/// Assembles a page.
///
/// # Errors
///
/// If no disassembler is available.
pub fn build(input: PageInput<'_>) -> Result<PageData, DisassemblerError> {
    let PageInput {
        loaded,
        programs,
        tracks,
        ..
    } = input;
    let profiles: Vec<&Profile> = tracks.iter().map(|(_, profile, _)| profile).collect();
    let (mut functions, indexes) = PageFunctions::of(&profiles);
    let coverage = coverage(programs, tracks);
    let mut sources = Sources::of(&coverage, input.directories);
    let mut codes = Vec::new();
    for (track, profile, _) in tracks {
        let devices = &loaded.snapshot.devices;
        let core = track.core.map(|core| traced_core(&devices[core]));
        codes.push(TrackCode {
            profile,
            image: Image(track.core.and_then(|core| programs.memory(core))),
            symbols: symbols(programs, track),
            disassembler: Disassembler::new(core.is_some_and(|core| core.is_microcontroller()))?,
        });
    }
    let listing = listing::list(&mut functions, &codes, |name, line, times| {
        sources.executed(name, line, times)
    });
    complete(&mut functions, &listing, programs, tracks, &sources);
    let mut notes = input.notes;
    notes.extend(left_out(&functions, &listing, &sources));
    let table = BlockTable::of(tracks.iter().map(|(.., listener)| &listener.blocks));
    let blocks = table.blocks().iter().map(|block| {
        let function = functions.row_at(block.start).map_or(-1, i64::from);
        (format!("{:#x}", block.start), block.instructions, function)
    });
    let blocks = blocks.collect();
    let first_times = tracks
        .iter()
        .filter_map(|(.., listener)| listener.time.first());
    let base = first_times.min().unwrap_or(0);
    let mut texts = Texts::default();
    let lines = tracks.iter().zip(&indexes);
    let lines: Vec<TrackData> = lines
        .map(|(track, indexes)| timeline(track, indexes, &table, base, &mut texts))
        .collect();
    let files = sources.into_rows();
    let totals = totals(&profiles, tracks, input.bytes, &files);
    let instructions = profiles.iter().map(|profile| profile.totals.instructions);
    Ok(PageData {
        title: one_line(input.title).into_owned(),
        made_by: format!("armsnap {}", env!("CARGO_PKG_VERSION")),
        totals,
        instructions: instructions.sum(),
        functions: functions.into_rows(),
        files,
        code: listing.code,
        blocks,
        texts: texts.into_texts(),
        time_base: base.to_string(),
        tracks: lines,
        exceptions: exceptions(tracks),
        gaps: gaps(tracks),
        notes: notes
            .iter()
            .map(|note| one_line(note).into_owned())
            .collect(),
    })
}

fn symbols<'p>(programs: &'p Programs, track: &Track) -> Option<&'p Symbols> {
    track.core.and_then(|core| programs.symbols(core))
}

/// The lines of all programs. Cores with the same programs share their symbols.
fn coverage(programs: &Programs, tracks: &[(Track, Profile, TrackListener)]) -> Coverage {
    let mut all = Coverage::default();
    let mut done: Vec<&Symbols> = Vec::new();
    for (track, ..) in tracks {
        let Some(own) = symbols(programs, track) else {
            continue;
        };
        let same = |other: &Symbols| std::ptr::eq(other, own);
        if done.iter().any(|other| same(other)) {
            continue;
        }
        done.push(own);
        let codes = tracks
            .iter()
            .filter(|(track, ..)| symbols(programs, track).is_some_and(same));
        let codes: Vec<_> = codes.map(|(_, profile, _)| &profile.code).collect();
        let found = profile::coverage(own, &programs.images_of(track.core), &codes);
        for (name, file) in found.files {
            let known = all.files.entry(name).or_default();
            for (line, count) in file.lines {
                let sum = known.lines.entry(line).or_default();
                *sum = sum.saturating_add(count);
            }
        }
    }
    all
}

/// Adds source lines and coverage to the functions.
fn complete(
    functions: &mut PageFunctions,
    listing: &Listing,
    programs: &Programs,
    tracks: &[(Track, Profile, TrackListener)],
    sources: &Sources,
) {
    for (index, function) in functions.iter_mut().take(functions::MOST).enumerate() {
        let row = &mut function.row;
        if let Some((executed, size)) = listing.sizes.get(&(index as u32)) {
            (row.executed, row.size) = (*executed, *size);
        }
        if matches!(function.kind, FunctionKind::Symbol | FunctionKind::Target)
            && let Some(symbols) = symbols(programs, &tracks[function.track].0)
            && let Some(line) = symbols.line(row.start)
        {
            row.file = sources.index(&line.file);
            row.line = Some(line.line).filter(|line| *line > 0);
        }
    }
}

fn left_out(functions: &PageFunctions, listing: &Listing, sources: &Sources) -> Vec<String> {
    let mut notes = Vec::new();
    let mut note = |count: usize, what: &str| {
        if count > 0 {
            notes.push(format!("{count} {what}"));
        }
    };
    note(
        functions.iter().len().saturating_sub(functions::MOST),
        "functions that executed the fewest instructions are left out",
    );
    note(
        listing.left_out,
        "functions are listed without disassembly: the page has no room for it",
    );
    note(
        sources.left_out(),
        "source files with the fewest executed lines are left out",
    );
    notes
}

fn timeline(
    (track, profile, listener): &(Track, Profile, TrackListener),
    indexes: &Indexes,
    table: &BlockTable,
    base: u64,
    texts: &mut Texts,
) -> TrackData {
    let function = |id: u32| {
        let index = indexes.get(id as usize).copied();
        index.filter(|index| functions::is_listed(*index))
    };
    let (unit, first, length) = match track.follows {
        true => {
            let first = listener.first;
            ("instruction", first, first + profile.totals.instructions)
        }
        false => ("message", 0, listener.messages()),
    };
    TrackData {
        name: one_line(&track.name).into_owned(),
        note: note(listener),
        first,
        length,
        unit,
        rows: listener.slices.pack(function),
        blocks: listener.blocks.pack(table),
        marks: listener.marks.pack(texts),
        time: listener.time.pack(base),
        cycles: listener.cycles.pack(0),
    }
}

/// Says what a timeline does not show.
fn note(listener: &TrackListener) -> Option<String> {
    let mut notes = Vec::new();
    let resolution = listener.slices.resolution();
    if resolution > 1 {
        notes.push(format!(
            "Calls that together span less than {resolution} instructions are drawn as one; \
             --from and --to report on a part in more detail."
        ));
    }
    if !listener.blocks.complete() {
        notes
            .push("Single blocks are shown in evenly spaced stretches, and at the end.".to_owned());
    }
    let (deeper, deepest) = listener.slices.deeper();
    if deeper > 0 {
        notes.push(format!(
            "{deeper} calls nested more than {deepest} deep are not shown."
        ));
    }
    let backward = listener.time.backward();
    if backward > 0 {
        notes.push(format!(
            "{backward} timestamps that went backward are left out."
        ));
    }
    (!notes.is_empty()).then(|| notes.join(" "))
}

fn totals(
    profiles: &[&Profile],
    tracks: &[(Track, Profile, TrackListener)],
    bytes: u64,
    files: &[FileRow],
) -> Vec<(&'static str, u64, &'static str)> {
    let sum = |of: &dyn Fn(&Profile) -> u64| profiles.iter().map(|p| of(p)).sum::<u64>();
    let calls = |profile: &Profile| {
        let functions = profile.functions.iter();
        let called = functions.filter(|(_, f)| !matches!(f.kind, FunctionKind::Exception(_)));
        called.map(|(_, f)| f.calls).sum()
    };
    let taken = |profile: &Profile| {
        let statistics = profile.exceptions.statistics();
        statistics.iter().map(|exception| exception.taken).sum()
    };
    let gaps = tracks
        .iter()
        .flat_map(|(.., listener)| listener.gaps.values());
    let messages = tracks.iter().filter(|(track, ..)| !track.follows);
    vec![
        ("bytes", bytes, "bytes of trace"),
        ("packets", sum(&|p| p.totals.packets), "packets"),
        ("elements", sum(&|p| p.totals.elements), "elements"),
        (
            "instructions",
            sum(&|p| p.totals.instructions),
            "instructions",
        ),
        (
            "ranges",
            sum(&|p| p.totals.ranges),
            "straight lines executed",
        ),
        ("calls", sum(&calls), "calls"),
        ("exceptions", sum(&taken), "exceptions"),
        (
            "messages",
            messages.map(|(.., listener)| listener.messages()).sum(),
            "messages",
        ),
        ("gaps", gaps.map(|(count, _)| count).sum(), "gaps"),
        (
            "lines_executed",
            files.iter().map(|file| file.covered).sum(),
            "source lines executed",
        ),
        (
            "lines",
            files.iter().map(|file| file.known).sum(),
            "source lines with code",
        ),
    ]
}

fn exceptions(tracks: &[(Track, Profile, TrackListener)]) -> Vec<ExceptionRow> {
    let spread = |spread: Option<profile::Spread>| -> Option<Spread> {
        spread.map(|spread| [spread.minimum, spread.median, spread.maximum])
    };
    let of_track = |(track, profile, _): &(Track, Profile, TrackListener)| {
        let statistics = profile.exceptions.statistics().into_iter();
        let rows = statistics.map(|exception| ExceptionRow {
            name: exception.name.to_owned(),
            track: one_line(&track.name).into_owned(),
            taken: exception.taken,
            returned: exception.returned,
            instructions: spread(exception.instructions),
            cycles: spread(exception.cycles),
            time: spread(exception.time),
        });
        rows.collect::<Vec<_>>()
    };
    tracks.iter().flat_map(of_track).collect()
}

fn gaps(tracks: &[(Track, Profile, TrackListener)]) -> Vec<GapRow> {
    let tracks = tracks.iter().enumerate();
    let rows = tracks.flat_map(|(index, (.., listener))| {
        let gaps = listener.gaps.iter();
        gaps.map(move |(reason, (count, place))| GapRow {
            reason: (*reason).to_owned(),
            track: index,
            count: *count,
            place: *place,
        })
    });
    rows.collect()
}
