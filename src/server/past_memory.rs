//! Selects the memory shown at past positions without determining what was written.
//!
//! Dumps were taken when the core halted, and the trace does not contain earlier writes. Past
//! positions show only memory that is assumed constant: read-only sections of programs, and the
//! straight line of code that is executed there. Other known memory is recovered.
//!
//! One writable word is also shown: the pointer to the dynamic linker's list, which the linker sets
//! once, before the program's first instruction. GDB 17 and later read it each time they read the
//! list, and drop the symbols of libraries if that fails.

use std::ops::Range;

use gdbstub::common::Tid;

use super::endpoint::Endpoint;
use super::positions::Positions;
use armsnap_history::recover::Constants;
use armsnap_history::timeline::PointKind;
use armsnap_snapshot::program::elf::Elf;
use armsnap_snapshot::snapshot::libraries::LinkMap;

/// How memory is read at past positions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Mode {
    /// Memory that may have been written since is not shown.
    #[default]
    Unavailable,
    /// All memory as it was when the core halted.
    Final,
}

/// What is known about memory at past positions.
#[derive(Debug, Default)]
pub(super) struct PastMemory {
    pub mode: Mode,
    /// `None` before the first use.
    constants: Option<Constants>,
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
        positions: &Positions,
        thread: Tid,
        address: u64,
        length: usize,
    ) -> usize {
        let past = positions.past(thread);
        let Some(past) = past.filter(|_| self.mode != Mode::Final) else {
            return length;
        };
        let line = match past.place.kind {
            PointKind::Instruction { range, .. } => Some((range.start.0, range.end.0)),
            PointKind::Gap(_) | PointKind::Halted => None,
        };
        let constants = self.constants.get_or_insert_with(|| constants(endpoint));
        let core = endpoint.cores.get(thread.get() - 1);
        let changed = core.map(|core| core.memory.changed());
        let end = address.saturating_add(length as u64);
        let mut at = address;
        while at < end {
            let constant = constants.length_at(at);
            let steady = changed.map_or(u64::MAX, |changed| changed.steady(at));
            // The end of a line that includes the last address is 0.
            let executed = line
                .filter(|(start, end)| (*start..=end.wrapping_sub(1)).contains(&at))
                .map_or(0, |(_, end)| end.wrapping_sub(at));
            let count = constant.min(steady).max(executed);
            if count == 0 {
                break;
            }
            at = at.saturating_add(count);
        }
        usize::try_from(at.min(end) - address).unwrap_or(length)
    }
}

/// Returns the memory of all programs that is shown.
fn constants(endpoint: &Endpoint) -> Constants {
    let programs = || endpoint.programs().map(|program| &program.elf);
    let mut constants = Constants::of(programs());
    for word in programs().filter_map(|program| list_pointer(endpoint, program)) {
        constants.add_constant(word);
    }
    constants
}

/// Where a program's dynamic section points to the dynamic linker's list.
fn list_pointer(endpoint: &Endpoint, program: &Elf) -> Option<Range<u64>> {
    let core = endpoint.cores.first()?;
    let list = LinkMap::of(program, (&core.memory, core.space.space))?;
    Some(list.pointer).filter(|word| !word.is_empty())
}
