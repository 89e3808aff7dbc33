//! Past values of one core, on demand.

use super::final_state::FinalState;
use super::status::{Known, Level, Limit, Registers, Status};
use crate::timeline::{EndAgrees, History, Position};

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
    /// Whether the trace ends at the final state.
    ends: Option<bool>,
}

impl Recovery {
    /// Starts with nothing computed.
    #[must_use]
    pub fn new(facts: FinalState, options: Options) -> Self {
        Self {
            facts,
            options,
            ends: None,
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

    fn ends(&mut self, history: &mut History) -> bool {
        *self
            .ends
            .get_or_insert_with(|| history.end_agrees() == EndAgrees::Yes)
    }

    /// The registers before the instruction at a position is executed.
    pub fn registers(
        &mut self,
        history: &mut History,
        position: Position,
        goes_on: &mut dyn FnMut() -> bool,
    ) -> Option<Registers> {
        let mut out = Registers::unknown();
        if self.options.level != Level::Off
            && goes_on()
            && position == history.end()
            && self.ends(history)
        {
            for (slot, value) in out.0.iter_mut().zip(self.facts.registers) {
                *slot = value.map(|value| Known {
                    value,
                    status: Status::Proved,
                });
            }
        }
        Some(out)
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
        if self.options.level == Level::Off || !goes_on() {
            return Some(());
        }
        let halted = position == history.end() && self.ends(history);
        for (at, slot) in (address..=u64::MAX).zip(out) {
            let mut byte = [0];
            if (halted || self.facts.memory.is_constant(at))
                && self.facts.memory.read(at, &mut byte) == 1
            {
                *slot = Some(Known {
                    value: byte[0],
                    status: Status::Proved,
                });
            }
        }
        Some(())
    }

    /// What ends proof, as far as history was looked at.
    pub fn limits(&mut self, history: &mut History) -> Vec<Limit> {
        let mut out = Vec::new();
        if !self.ends(history) {
            out.push(Limit::EndUnknown);
        }
        if self.facts.other_writers {
            out.push(Limit::OtherWriters);
        }
        out
    }
}
