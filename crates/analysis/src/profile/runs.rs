//! Counts of runs: sequences of blocks that the flow remembers as one. Most execution is in runs
//! within one function, which are counted as a whole; the counts are passed on to their blocks at
//! the end.

use super::memo::Tail;
use armsnap_trace::flow::BlockId;

/// What to do when a run is executed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum RunState {
    /// Not known yet: the run is new.
    #[default]
    New,
    /// Execute its blocks one by one: it contains calls, or belongs to several functions.
    Each,
    /// Only count it.
    Plain,
    /// Count it, except for its last block, which may leave the function.
    Leaves,
}

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct RunInfo {
    count: u64,
    /// The function of the symbols that contain its blocks; 0 without symbols.
    pub function: u32,
    /// Its blocks in the table of steps.
    first: u32,
    length: u8,
    pub state: RunState,
    /// The branch at its end.
    pub tail: Tail,
}

/// Counts by the numbers of runs.
#[derive(Debug, Default)]
pub(super) struct Runs {
    infos: Vec<RunInfo>,
    /// Index of each block, and the atom of its last instruction.
    steps: Vec<(u32, bool)>,
    /// The generation of the numbers.
    pub generation: u32,
}

impl Runs {
    /// Returns what is known about a run. A new one must be executed block by block.
    #[inline]
    pub fn get(&self, number: usize) -> RunInfo {
        let each = RunInfo {
            state: RunState::Each,
            ..RunInfo::default()
        };
        match self.infos.get(number) {
            Some(info) if info.state != RunState::New => *info,
            _ => each,
        }
    }

    #[inline]
    pub fn count(&mut self, number: usize, count: u64) {
        self.infos[number].count += count;
    }

    pub fn is_new(&self, number: usize) -> bool {
        let info = self.infos.get(number);
        info.is_none_or(|info| info.state == RunState::New)
    }

    pub fn learn(
        &mut self,
        number: usize,
        function: u32,
        (state, tail): (RunState, Tail),
        blocks: impl ExactSizeIterator<Item = (BlockId, bool)>,
    ) {
        if number >= self.infos.len() {
            self.infos
                .resize((number + 1).next_power_of_two(), RunInfo::default());
        }
        let first = self.steps.len() as u32;
        let length = blocks.len() as u8;
        let steps = blocks.map(|(id, taken)| (id.index() as u32, taken));
        self.steps.extend(steps);
        self.infos[number] = RunInfo {
            count: 0,
            function,
            first,
            length,
            state,
            tail,
        };
    }

    /// Passes on the counts by block, and forgets the runs.
    pub fn spread(&mut self, mut add: impl FnMut(usize, bool, u64)) {
        for info in self.infos.drain(..).filter(|info| info.count > 0) {
            let first = info.first as usize;
            for &(block, taken) in &self.steps[first..first + usize::from(info.length)] {
                add(block as usize, taken, info.count);
            }
        }
        self.steps.clear();
    }
}
