//! Selects the memory shown at past positions.
//!
//! Dumps were taken when the core halted, and the trace does not contain earlier writes. Past
//! positions show only memory that is assumed constant: read-only sections of programs, and code.
//! Without a program, a page with executed instructions is code; the decoder also assumes that it
//! is constant.
//!
//! One writable word is also shown: the pointer to the dynamic linker's list, which the linker sets
//! once, before the program's first instruction. GDB 17 and later read it each time they read the
//! list, and drop the symbols of libraries if that fails.

use std::collections::HashSet;
use std::ops::Range;

use gdbstub::common::Tid;
use object::{Object, ObjectSection, SectionFlags};

use super::endpoint::Endpoint;
use super::positions::Positions;
use crate::program::elf::Elf;
use crate::snapshot::libraries::LinkMap;
use crate::timeline::{Direction, Entry, Position};

/// Page size in bytes.
const PAGE: u64 = 0x1000;
/// Number of entries before and after a position that are searched for code.
const LINES: usize = 4096;

/// How memory is read at past positions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Mode {
    /// Memory that may have been written since is not shown.
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

impl Section {
    fn contains(&self, range: &Range<u64>) -> bool {
        self.start <= range.start && range.end <= self.end
    }
}

/// What is known about memory at past positions.
#[derive(Debug, Default)]
pub(super) struct PastMemory {
    pub mode: Mode,
    /// By address; `None` before the first use.
    sections: Option<Vec<Section>>,
    /// Pages with executed instructions found so far.
    code: HashSet<u64>,
    /// The position around which code was last searched.
    searched: Option<(Tid, Position)>,
}

impl PastMemory {
    /// Describes the mode.
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

    /// Returns how many of `length` bytes from an address are shown at the position of a core.
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
            // Recorded versions of changed code are known wherever they are.
            if let Some(Some(code)) = changed.and_then(|changed| changed.code(version, at)) {
                at = at.saturating_add(code.len() as u64);
                continue;
            }
            let (shown, until) = self.constant(endpoint, at);
            if !shown && !self.find_code(positions, thread, at) {
                break;
            }
            at = until;
        }
        usize::try_from(at.min(end) - address).unwrap_or(length)
    }

    /// Returns whether memory at an address is assumed constant, and the end of that range.
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

    /// Searches for code around the position of a core; returns whether the page of an address
    /// contains some.
    fn find_code(&mut self, positions: &mut Positions, thread: Tid, at: u64) -> bool {
        let written = |section: &Section| (section.start..section.end).contains(&at);
        if self.sections.iter().flatten().any(written) {
            return false;
        }
        let Some(position) = positions.position(thread) else {
            return false;
        };
        if self.searched != Some((thread, position))
            && let Some(history) = positions.history(thread)
        {
            for direction in [Direction::Backward, Direction::Forward] {
                for event in history.entries(position, direction).take(LINES) {
                    if let Entry::Run { range, .. } = event.entry {
                        let last = range.end.0.saturating_sub(1).max(range.start.0);
                        self.code.extend(range.start.0 / PAGE..=last / PAGE);
                    }
                }
            }
            self.searched = Some((thread, position));
        }
        self.code.contains(&(at / PAGE))
    }
}

/// Returns the loaded sections of all programs, by address.
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
    for word in endpoint
        .programs()
        .filter_map(|p| list_pointer(endpoint, &p.elf))
    {
        show(&mut all, &word);
    }
    all
}

/// Where a program's dynamic section points to the dynamic linker's list.
fn list_pointer(endpoint: &Endpoint, program: &Elf) -> Option<Range<u64>> {
    let core = endpoint.cores.first()?;
    let list = LinkMap::of(program, (&core.memory, core.space.space))?;
    Some(list.pointer).filter(|word| !word.is_empty())
}

/// Takes a range out of the writable section that contains it.
fn show(sections: &mut Vec<Section>, range: &Range<u64>) {
    let Some(at) = sections
        .iter()
        .position(|section| section.writable && section.contains(range))
    else {
        return;
    };
    let whole = sections[at];
    let parts = [
        (whole.start..range.start, true),
        (range.clone(), false),
        (range.end..whole.end, true),
    ];
    let parts = parts.into_iter().filter(|(part, _)| !part.is_empty());
    sections.splice(
        at..=at,
        parts.map(|(part, writable)| Section {
            start: part.start,
            end: part.end,
            writable,
        }),
    );
}
