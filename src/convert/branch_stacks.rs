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
use armsnap_analysis::profile::{GapSeen, Listener, Moment, Track, last_at};
use armsnap_arch::arch::Architecture;
use armsnap_arch::quantity::Isa;
use armsnap_history::decode::{Image, Programs};
use armsnap_snapshot::program::elf::Elf;
use armsnap_snapshot::snapshot::OpenSnapshot;
use armsnap_trace::element::{Context, Exception};
use armsnap_trace::flow::{CodeImage, ContextKey, InstructionKind, Range, View};
use std::collections::HashMap;
use std::io::Write;

/// The process ID, which is also the ID of its first thread.
const PROCESS: u32 = 1000;
/// The largest number of records in a stack that perf uses as callers.
const LONGEST: usize = 127;

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
}

/// Makes the samples of one track while it is decoded.
pub struct Branches<'a> {
    track: Track,
    thread: u32,
    code: Image<'a>,
    /// The last instruction of lines of T32 code.
    lasts: HashMap<(u64, u64, View), u64>,
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
            code: Image(track.core.and_then(|core| programs.memory(core))),
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
            self.push((line.last, 0));
        }
    }

    /// Adds a record. A full stack ends with its source only, and the next one begins with it: readers
    /// take a record with only a target for a call from elsewhere.
    fn push(&mut self, entry: Entry) {
        if self.stack.len() + 1 >= LONGEST {
            if entry.0 != 0 {
                self.stack.push((entry.0, 0));
            }
            self.sample();
            if entry.1 == 0 {
                return;
            }
        }
        self.stack.push(entry);
    }

    /// Writes a sample with the stack.
    fn sample(&mut self) {
        let Some(&(from, to)) = self.stack.last() else {
            return;
        };
        let mut body = Vec::with_capacity(48 + 24 * self.stack.len());
        let whole = |entry: &&Entry| entry.0 != 0 && entry.1 != 0;
        let branches = self.stack.iter().filter(whole).count().max(1) as u64;
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
    fn last(&mut self, line: &Range, context: Option<&Context>) -> u64 {
        let code = self.code;
        let find = |view| last_at(&code, view, line.isa, line.start, line.end).0;
        if line.isa != Isa::T32 {
            return find(View::default());
        }
        let view = code.view(&context.map(ContextKey::from).unwrap_or_default());
        let known = self.lasts.entry((line.start.0, line.end.0, view));
        *known.or_insert_with(|| find(view))
    }
}

impl Listener for Branches<'_> {
    const STRAIGHT: bool = true;

    fn straight(&mut self, _: &Moment, line: &Range, context: Option<&Context>) {
        let start = line.start.0;
        match self.line {
            Some(last) if last.branches => self.push((last.last, start)),
            Some(last) if last.end == start => {}
            _ => {
                self.cut();
                self.push((0, start));
            }
        }
        let kind = line.last.kind;
        let is_branch = matches!(kind, InstructionKind::Branch | InstructionKind::Indirect);
        self.line = Some(Line {
            last: self.last(line, context),
            end: line.end.0,
            branches: is_branch && line.last.taken,
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
        period: LONGEST as u64,
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

#[cfg(test)]
mod tests {
    use super::*;
    use armsnap_arch::quantity::Address;
    use armsnap_trace::flow::LastInstruction;
    use std::io::Read;

    /// The records of each sample, oldest first.
    fn stacks(mut branches: Branches<'_>) -> Vec<Vec<Entry>> {
        branches.cut();
        branches.sample();
        let mut bytes = Vec::new();
        let mut file = branches.spool.into_file().unwrap();
        file.read_to_end(&mut bytes).unwrap();
        let word = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap());
        let mut all = Vec::new();
        let mut at = 0;
        while at < bytes.len() {
            let count = word(at + 40) as usize;
            let entries = (0..count).map(|index| at + 48 + 24 * index);
            all.push(entries.map(|at| (word(at), word(at + 8))).rev().collect());
            at += 48 + 24 * count;
        }
        all
    }

    #[test]
    fn a_branch_and_the_line_after_it_are_in_one_stack() {
        let mut branches = Branches {
            track: Track {
                name: String::new(),
                core: None,
                source: 0,
                source_name: String::new(),
                follows: true,
            },
            thread: PROCESS,
            code: Image::default(),
            lasts: HashMap::new(),
            line: None,
            stack: Vec::new(),
            samples: 0,
            spool: Spool::new(),
        };
        let lines = [(0x1000, 0x1008), (0x2000, 0x2004)];
        for (start, end) in lines.into_iter().cycle().take(1000) {
            let line = Range {
                start: Address(start),
                end: Address(end),
                isa: Isa::A64,
                instructions: (end - start) as u32 / 4,
                last: LastInstruction::CALL,
            };
            branches.straight(&Moment::default(), &line, None);
        }
        let stacks = stacks(branches);
        let all: Vec<Entry> = stacks.concat();
        let taken = all.iter().filter(|(from, to)| *from != 0 && *to != 0);
        assert_eq!(taken.count(), 999);
        // Only the start of the trace has no source: another one would count as one more call.
        assert_eq!(all.iter().filter(|(from, _)| *from == 0).count(), 1);
        assert_eq!(stacks[0][0], (0, 0x1000));
        let mut straight = 0;
        for stack in &stacks {
            assert!(stack.len() <= LONGEST);
            assert_eq!(stack.last().unwrap().1, 0);
            straight += stack
                .windows(2)
                .filter(|pair| pair[0].1 <= pair[1].0)
                .count();
        }
        assert_eq!(straight, 1000);
    }
}
