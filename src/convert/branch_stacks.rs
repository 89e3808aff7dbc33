//! The branches of a trace as samples with branch stacks in a `perf.data` file, which profilers read
//! without a decoder of trace.
//!
//! Each branch is in one stack, in the order of execution. Where execution is not known, and around
//! exceptions, a record has only a source or only a target, as those of Arm's BRBE; the other
//! address is 0. Each executed straight line is between the target of a record and the source of
//! the next one, so that readers count it.

use super::perf_data::{Event, Records, Section, header, mappings, text, write_sections};
use super::{Error, Note};
use armsnap_analysis::export::spool::Spool;
use armsnap_analysis::profile::{GapSeen, Listener, Moment, Track};
use armsnap_arch::arch::{Architecture, branch};
use armsnap_arch::quantity::Isa;
use armsnap_history::decode::Programs;
use armsnap_snapshot::program::elf::Elf;
use armsnap_snapshot::snapshot::OpenSnapshot;
use armsnap_trace::element::{Context, Exception};
use armsnap_trace::flow::{InstructionKind, Range};
use std::collections::HashMap;
use std::io::Write;

/// The process ID, which is also the ID of its first thread.
const PROCESS: u32 = 1000;
/// The largest number of records in a stack that perf uses as callers.
const LONGEST: usize = 127;
/// The number of records from which a stack ends at the next branch that enters no function.
const LONG: usize = 96;

/// Parts of a sample: IP, TID, PERIOD, BRANCH_STACK, IDENTIFIER.
const SAMPLE_TYPE: u64 = 1 | 1 << 1 | 1 << 8 | 1 << 11 | 1 << 16;
/// Branches of all kinds, of programs and the kernel.
const ANY: u64 = 1 | 1 << 1 | 1 << 3;
/// The record of a sample, and `misc` of one of a program.
const SAMPLE: u32 = 9;
const USER: u16 = 2;

/// A record: source and target; 0 is not known.
type Entry = (u64, u64);

/// The straight line executed last.
#[derive(Clone, Copy)]
struct Line {
    /// Its last instruction.
    last: u64,
    /// The address after it.
    end: u64,
    /// It ends with a branch that was taken.
    branches: bool,
    /// That branch may enter a function.
    enters: bool,
}

/// Makes the samples of one track while it is decoded.
pub struct Branches<'a> {
    track: Track,
    thread: u32,
    images: Vec<&'a Elf>,
    /// The last instruction of lines of T32 code.
    lasts: HashMap<(u64, u64), u64>,
    line: Option<Line>,
    /// Oldest first.
    stack: Vec<Entry>,
    samples: u64,
    spool: Spool,
}

impl<'a> Branches<'a> {
    /// Starts the samples of a track, which is the thread with this number, from 0.
    pub fn new(programs: &'a Programs, track: &Track, number: u32) -> Self {
        Self {
            track: track.clone(),
            thread: PROCESS + number,
            images: programs.images_of(track.core),
            lasts: HashMap::new(),
            line: None,
            stack: Vec::with_capacity(LONGEST),
            samples: 0,
            spool: Spool::new(),
        }
    }

    /// Ends a line whose continuation is not known.
    fn cut(&mut self) {
        if let Some(line) = self.line.take() {
            self.push((line.last, 0), false);
        }
    }

    /// Adds a record; `enters` tells whether its branch may enter a function.
    fn push(&mut self, entry: Entry, enters: bool) {
        self.stack.push(entry);
        let length = self.stack.len();
        if length >= LONGEST || length >= LONG && !enters {
            self.sample();
            // The line that starts here is between this record and the next one.
            if entry.1 != 0 {
                self.stack.push((0, entry.1));
            }
        }
    }

    /// Writes a sample with the stack.
    fn sample(&mut self) {
        let Some(&(from, to)) = self.stack.last() else {
            return;
        };
        let mut body = Vec::with_capacity(48 + 24 * self.stack.len());
        let branches = self.stack.iter().filter(|entry| entry.0 != 0).count() as u64;
        body.extend(1_u64.to_le_bytes());
        body.extend(if to == 0 { from } else { to }.to_le_bytes());
        body.extend(PROCESS.to_le_bytes());
        body.extend(self.thread.to_le_bytes());
        body.extend(branches.to_le_bytes());
        body.extend((self.stack.len() as u64).to_le_bytes());
        for (from, to) in self.stack.drain(..).rev() {
            // Whether it was predicted is not known.
            for word in [from, to, 0] {
                body.extend(word.to_le_bytes());
            }
        }
        let mut record = Records::default();
        // A stack is shorter than the longest record.
        if record.record(SAMPLE, USER, &body).is_ok() {
            self.spool.put(record.bytes());
            self.samples += record.bytes().len() as u64;
        }
    }

    /// The address of the last instruction of a line.
    fn last(&mut self, line: &Range) -> u64 {
        let (start, end) = (line.start.0, line.end.0);
        if line.isa != Isa::T32 {
            return end.saturating_sub(4).max(start);
        }
        let images = &self.images;
        *self.lasts.entry((start, end)).or_insert_with(|| {
            let code = images.iter().find_map(|image| image.slice(start));
            let mut here = start;
            while let Some(bytes) = code.and_then(|code| code.get((here - start) as usize..)) {
                let &[first, second, ..] = bytes else { break };
                let after = here + branch::size(Isa::T32, [first, second]) as u64;
                if after >= end {
                    return here;
                }
                here = after;
            }
            end.saturating_sub(2).max(start)
        })
    }
}

impl Listener for Branches<'_> {
    const STRAIGHT: bool = true;

    fn straight(&mut self, _: &Moment, line: &Range, _: Option<&Context>) {
        let start = line.start.0;
        match self.line {
            Some(last) if last.branches => self.push((last.last, start), last.enters),
            Some(last) if last.end == start => {}
            _ => {
                self.cut();
                self.push((0, start), true);
            }
        }
        let kind = line.last.kind;
        let is_branch = matches!(kind, InstructionKind::Branch | InstructionKind::Indirect);
        let indirect = kind == InstructionKind::Indirect && !line.last.returns;
        self.line = Some(Line {
            last: self.last(line),
            end: line.end.0,
            branches: is_branch && line.last.taken,
            enters: line.last.link || indirect,
        });
    }

    fn unknown_path(&mut self, _: &Moment, _: u32, _: Option<&Context>) {
        self.cut();
    }

    fn exception(&mut self, _: &Moment, _: &Exception) {
        self.cut();
    }

    fn gap(&mut self, _: &GapSeen) {
        self.cut();
    }
}

/// Writes the samples of all tracks.
///
/// # Errors
///
/// If nothing was executed, or writing fails.
pub fn write(
    loaded: &OpenSnapshot,
    programs: &Programs,
    tracks: Vec<Branches<'_>>,
    out: &mut impl Write,
) -> Result<Vec<Note>, Error> {
    let mut tracks: Vec<Branches<'_>> = tracks
        .into_iter()
        .filter(|track| track.track.core.is_some() && track.track.follows)
        .collect();
    for track in &mut tracks {
        track.cut();
        track.sample();
    }
    tracks.retain(|track| track.samples > 0);
    let Some(core) = tracks.first().and_then(|track| track.track.core) else {
        return Err(Error::Usage(
            "no core executed anything: perf.data would have no samples".to_owned(),
        ));
    };
    let mut records = Records::default();
    let images: Vec<&Elf> = programs.images().collect();
    let name = images.iter().find(|image| !image.is_library());
    let name = name.and_then(|image| image.path.file_name());
    let name = name.map_or_else(|| "armsnap".into(), |name| name.to_string_lossy());
    records.comm(PROCESS, &name);
    for track in tracks.iter().filter(|track| track.thread != PROCESS) {
        records.comm(track.thread, &name);
    }
    let mut notes = Vec::new();
    let mapped: usize = images
        .iter()
        .map(|image| mappings(image, PROCESS, &mut records))
        .sum();
    if mapped == 0 {
        notes.push(Note::NoProgram);
    }
    let samples: u64 = tracks.iter().map(|track| track.samples).sum();
    let architecture = Architecture::detect(&loaded.snapshot.devices[core]).architecture;
    let sections = [
        Section::build_ids(&images),
        Section::architecture(architecture),
        Section::branch_stack(),
    ];
    // Branch instructions. With a period of 1, perf would take them for those of Intel's BTS.
    let event = Event {
        kind: 0,
        config: 4,
        period: LONG as u64,
        sample_type: SAMPLE_TYPE,
        flags: 1 | 1 << 18,
        branches: ANY,
    };
    let data = records.bytes().len() as u64 + samples;
    let begin = header(data, &event, &sections);
    out.write_all(&begin)?;
    out.write_all(records.bytes())?;
    for track in tracks {
        track.spool.copy_to(out)?;
    }
    write_sections(begin.len() as u64 + data, &sections, out)?;
    Ok(notes)
}

impl Section {
    /// Feature 2: the build-ids of programs.
    fn build_ids(images: &[&Elf]) -> Self {
        let mut bytes = Vec::new();
        for image in images {
            let Some(id) = image.build_id().filter(|id| !id.is_empty()) else {
                continue;
            };
            let used = id.len().min(20);
            let mut identity = [0; 24];
            identity[..used].copy_from_slice(&id[..used]);
            identity[20] = used as u8;
            let name = text(&image.path.to_string_lossy());
            let Ok(size) = u16::try_from(8 + 4 + identity.len() + name.len()) else {
                continue;
            };
            // Of a program, with the size of the build-id.
            bytes.extend(67_u32.to_le_bytes());
            bytes.extend((USER | 1 << 15).to_le_bytes());
            bytes.extend(size.to_le_bytes());
            bytes.extend(u32::MAX.to_le_bytes());
            bytes.extend(identity);
            bytes.extend(name);
        }
        Self { feature: 2, bytes }
    }

    /// Feature 15: there are branch stacks.
    fn branch_stack() -> Self {
        Self {
            feature: 15,
            bytes: Vec::new(),
        }
    }
}
