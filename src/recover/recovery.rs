//! Past values of one core, on demand.

use super::final_state::FinalState;
use super::status::{Known, Level, Limit, Registers};
use super::window::Window;
use crate::timeline::{History, Position};

/// Bounds of a recovery.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// The most memory that it takes, in bytes; before what fits nothing is known.
    pub most_bytes: usize,
    /// Which values are shown.
    pub level: Level,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            most_bytes: 512 << 20,
            level: Level::Inferred,
        }
    }
}

/// Past registers and memory of one core.
///
/// Each question is answered from as much history before the end as it needs, decoded and solved
/// the first time. `goes_on` is asked many times a second; where it says no, the answer is `None`,
/// and what was done until then is kept.
#[derive(Debug)]
pub struct Recovery {
    facts: FinalState,
    options: Options,
    window: Window,
}

impl Recovery {
    /// Starts with nothing computed.
    #[must_use]
    pub fn new(facts: FinalState, options: Options) -> Self {
        Self {
            facts,
            options,
            window: Window::default(),
        }
    }

    /// The level that is shown.
    #[must_use]
    pub fn level(&self) -> Level {
        self.options.level
    }

    /// Changes the level; nothing is computed again for it.
    pub fn set_level(&mut self, level: Level) {
        self.options.level = level;
    }

    /// The step of a position; `None` inside where it is not reached or nothing is to be shown.
    fn reach(
        &mut self,
        history: &mut History,
        position: Position,
        goes_on: &mut dyn FnMut() -> bool,
    ) -> Option<Option<u32>> {
        if self.options.level == Level::Off {
            return Some(None);
        }
        let most = self.options.most_bytes;
        self.window
            .reach(history, &self.facts, position, most, goes_on)
    }

    /// The registers before the instruction at a position is executed.
    pub fn registers(
        &mut self,
        history: &mut History,
        position: Position,
        goes_on: &mut dyn FnMut() -> bool,
    ) -> Option<Registers> {
        let Some(step) = self.reach(history, position, goes_on)? else {
            return Some(Registers::unknown());
        };
        let mut found = self.window.registers(&self.facts, step);
        for slot in &mut found.0 {
            *slot = slot.filter(|known| self.options.level.shows(known.status));
        }
        Some(found)
    }

    /// Memory before the instruction at a position is executed, byte by byte.
    pub fn memory(
        &mut self,
        history: &mut History,
        position: Position,
        address: u64,
        out: &mut [Option<Known<u8>>],
        goes_on: &mut dyn FnMut() -> bool,
    ) -> Option<()> {
        out.fill(None);
        let Some(step) = self.reach(history, position, goes_on)? else {
            return Some(());
        };
        self.window.memory(&self.facts, step, address, out);
        for slot in out {
            *slot = slot.filter(|known| self.options.level.shows(known.status));
        }
        Some(())
    }

    /// For development.
    #[doc(hidden)]
    pub fn statistics(&self) -> String {
        let w = &self.window;
        format!(
            "steps {} nodes {} relations {} accesses {} events {} cells {} bytes {}",
            w.course.len(),
            w.solver.graph.nodes(),
            w.solver.graph.relations.len(),
            w.solver.accesses.len(),
            w.solver.cells.events.len(),
            w.solver.cells.all.len(),
            w.bytes()
        )
    }

    /// What ends proof, as far as history was looked at.
    pub fn limits(&mut self, history: &mut History) -> Vec<Limit> {
        let mut out = Vec::new();
        self.window.start(history);
        if !self.window.ends {
            out.push(Limit::EndUnknown);
        }
        if self.facts.other_writers {
            out.push(Limit::OtherWriters);
        } else if self.window.solver.memory_contradicts {
            out.push(Limit::Contradiction);
        }
        out
    }
}
