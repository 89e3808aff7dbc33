//! What of memory is shown at past positions.
//!
//! Dumps were taken when the core halted, and the trace does not tell what was written before.
//! Shown in the past is what is the same at all times: what programs say is not written to, and
//! code. Without a program, a page in which instructions were executed is code; the decoder
//! takes it to be the same at all times too.

use std::collections::HashSet;

use gdbstub::common::Tid;
use object::{Object, ObjectSection, SectionFlags};

use super::endpoint::Endpoint;
use super::positions::Positions;
use crate::timeline::{Direction, Entry, Position};

/// Pages begin at multiples of it.
const PAGE: u64 = 0x1000;
/// Straight lines before and after a position in which code is looked for.
const LINES: usize = 4096;

/// How memory is read at past positions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Mode {
    /// What may have been written since is not shown.
    #[default]
    Unavailable,
    /// All memory as it was when the core halted.
    Final,
}

/// A section of a program.
#[derive(Clone, Copy, Debug)]
struct Section {
    start: u64,
    end: u64,
    writable: bool,
}

/// What is known of memory at past positions.
#[derive(Debug, Default)]
pub(super) struct PastMemory {
    pub mode: Mode,
    /// By address; `None` before it is first asked for.
    sections: Option<Vec<Section>>,
    /// Pages with executed instructions, as far as they were met.
    code: HashSet<u64>,
    /// Around which position code was looked for last.
    looked: Option<(Tid, Position)>,
}

impl PastMemory {
    /// In words.
    pub fn describe(&self) -> &'static str {
        match self.mode {
            Mode::Unavailable => {
                "memory that may have been written since is not shown: monitor memory final \
                 shows it as it was at the end"
            }
            Mode::Final => {
                "memory is shown as it was at the end: monitor memory unavailable hides what may \
                 have been written since"
            }
        }
    }

    /// How many of `length` bytes from an address on are shown where a core stands.
    pub fn shown(
        &mut self,
        endpoint: &Endpoint,
        positions: &mut Positions,
        thread: Tid,
        address: u64,
        length: usize,
    ) -> usize {
        if self.mode == Mode::Final || positions.past(thread).is_none() {
            return length;
        }
        let changed = endpoint
            .cores
            .get(thread.get() - 1)
            .map(|core| core.memory.changed());
        let version = positions.version(thread).unwrap_or(0);
        let end = address.saturating_add(length as u64);
        let mut at = address;
        while at < end {
            // Code that changed is known in itself, wherever it lies.
            if let Some(Some(code)) = changed.and_then(|changed| changed.code(version, at)) {
                at = at.saturating_add(code.len() as u64);
                continue;
            }
            let (shown, until) = self.constant(endpoint, at);
            if !shown && !self.look(positions, thread, at) {
                break;
            }
            at = until;
        }
        usize::try_from(at.min(end) - address).unwrap_or(length)
    }

    /// Whether an address always holds the same, as far as is known, and up to where that goes.
    fn constant(&mut self, endpoint: &Endpoint, at: u64) -> (bool, u64) {
        let sections = self.sections.get_or_insert_with(|| sections(endpoint));
        let next = sections.partition_point(|section| section.start <= at);
        let inside = sections[..next].last().filter(|section| at < section.end);
        if let Some(section) = inside {
            return (!section.writable, section.end);
        }
        let page_end = (at | (PAGE - 1)).saturating_add(1);
        let until = sections
            .get(next)
            .map_or(page_end, |s| s.start.min(page_end));
        (self.code.contains(&(at / PAGE)), until)
    }

    /// Looks for code around where a core stands; whether it is in the page of an address.
    fn look(&mut self, positions: &mut Positions, thread: Tid, at: u64) -> bool {
        let written = |section: &Section| (section.start..section.end).contains(&at);
        if self.sections.iter().flatten().any(written) {
            return false;
        }
        let Some(position) = positions.position(thread) else {
            return false;
        };
        if self.looked != Some((thread, position))
            && let Some(history) = positions.history(thread)
        {
            self.looked = Some((thread, position));
            for direction in [Direction::Backward, Direction::Forward] {
                for event in history.entries(position, direction).take(LINES) {
                    if let Entry::Run { range, .. } = event.entry {
                        let last = range.end.0.saturating_sub(1).max(range.start.0);
                        self.code.extend(range.start.0 / PAGE..=last / PAGE);
                    }
                }
            }
        }
        self.code.contains(&(at / PAGE))
    }
}

/// The sections of all programs that are loaded, by address.
fn sections(endpoint: &Endpoint) -> Vec<Section> {
    let mut all = Vec::new();
    for program in endpoint.programs() {
        let Ok(file) = object::File::parse(program.elf.bytes()) else {
            continue;
        };
        for section in file.sections() {
            let SectionFlags::Elf { sh_flags, .. } = section.flags() else {
                continue;
            };
            if sh_flags.0 & object::elf::SHF_ALLOC.0 == 0 || section.size() == 0 {
                continue;
            }
            let start = section.address().wrapping_add(program.elf.offset);
            all.push(Section {
                start,
                end: start.saturating_add(section.size()),
                writable: sh_flags.0 & object::elf::SHF_WRITE.0 != 0,
            });
        }
    }
    all.sort_by_key(|section| section.start);
    all
}
