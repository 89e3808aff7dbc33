//! Counts runs of blocks at once, for a course that wants neither calls nor edges.
//!
//! A [`Recorder`] gets everything else; the counts go to its piece when that is taken.

use super::shards::{Piece, Recorder};
use crate::decode::{SourceSinks, Stage, StageStates, Unsaved};
use crate::element::{Element, ElementSink, Exception, Mark};
use crate::flow::{BlockId, Blocks, Executed, FlowSink, Gap, QRange, Range, Run};
use crate::quantity::BufferOffset;

/// A run that was executed in the piece.
#[derive(Clone, Copy, Debug)]
struct Touched {
    number: usize,
    /// Its first block in the table of steps, and the number of its blocks.
    first: usize,
    length: usize,
}

/// Counts what a source executes.
pub(super) struct Tally<'a> {
    recorder: Recorder<'a>,
    /// By the number of a run: how often it was executed in the piece.
    hits: Vec<u32>,
    /// The generation of these numbers.
    generation: u32,
    /// The runs that were executed.
    touched: Vec<Touched>,
    /// Places of their blocks in the piece, and the atom of the last instruction.
    steps: Vec<(u32, bool)>,
}

impl<'a> Tally<'a> {
    /// Counts for a recorder [of blocks](Recorder::of_blocks).
    pub fn new(recorder: Recorder<'a>) -> Self {
        Self {
            recorder,
            hits: Vec::new(),
            generation: 0,
            touched: Vec::new(),
            steps: Vec::new(),
        }
    }

    /// Returns the piece so far, and starts the next one.
    pub fn take(&mut self, packets: u64) -> Piece {
        self.settle();
        self.recorder.take(packets)
    }

    /// Passes on the counts of runs.
    fn settle(&mut self) {
        for run in self.touched.drain(..) {
            let count = std::mem::take(&mut self.hits[run.number]);
            for &(place, taken) in &self.steps[run.first..run.first + run.length] {
                self.recorder.count(place, taken, count.into());
            }
        }
        self.steps.clear();
    }

    /// A run is executed for the first time in the piece.
    #[cold]
    #[inline(never)]
    fn touch(&mut self, blocks: &Blocks, run: Run<'_>) {
        let (number, generation) = run.number();
        if generation != self.generation {
            self.settle();
            self.generation = generation;
        }
        if number >= self.hits.len() {
            self.hits.resize((number + 1).next_power_of_two(), 0);
        }
        let first = self.steps.len();
        for (id, taken) in run.blocks() {
            self.steps.push((self.recorder.place(blocks, id), taken));
        }
        self.hits[number] = 1;
        let length = run.len();
        self.touched.push(Touched {
            number,
            first,
            length,
        });
    }
}

impl FlowSink for Tally<'_> {
    const COUNTS: bool = true;
    const COUNTS_BLOCKS: bool = true;

    fn range(&mut self, at: BufferOffset, range: &Range, cycles: Option<u32>) {
        self.recorder.range(at, range, cycles);
    }

    fn block(
        &mut self,
        at: BufferOffset,
        blocks: &Blocks,
        id: BlockId,
        taken: bool,
        cycles: Option<u32>,
    ) {
        self.recorder.block(at, blocks, id, taken, cycles);
    }

    fn run(&mut self, at: BufferOffset, blocks: &Blocks, run: Run<'_>) {
        for (id, taken) in run.blocks() {
            self.recorder.block(at, blocks, id, taken, None);
        }
    }

    #[inline(always)]
    fn count_run(&mut self, blocks: &Blocks, run: Run<'_>) {
        let (number, generation) = run.number();
        match self.hits.get_mut(number) {
            Some(hits) if *hits > 0 && generation == self.generation => *hits += 1,
            _ => self.touch(blocks, run),
        }
    }

    #[inline(always)]
    fn count_block(&mut self, blocks: &Blocks, id: BlockId, taken: bool) {
        self.recorder.count_block(blocks, id, taken);
    }

    #[inline]
    fn executed(&mut self, executed: Executed) {
        self.recorder.pass(executed.instructions as u64);
    }

    #[inline]
    fn wants_next(&self) -> bool {
        self.recorder.is_armed()
    }

    fn q_range(&mut self, at: BufferOffset, range: &QRange) {
        self.recorder.q_range(at, range);
    }

    fn exception(&mut self, at: BufferOffset, exception: &Exception) {
        self.recorder.exception(at, exception);
    }

    fn gap(&mut self, at: BufferOffset, gap: Gap) {
        self.recorder.gap(at, gap);
    }

    fn mark(&mut self, at: BufferOffset, mark: &Mark) {
        FlowSink::mark(&mut self.recorder, at, mark);
    }

    fn forget(&mut self, blocks: &Blocks) {
        self.settle();
        self.recorder.forget(blocks);
    }
}

impl ElementSink for Tally<'_> {
    fn element(&mut self, at: BufferOffset, element: Element) {
        self.recorder.element(at, element);
    }
}

impl SourceSinks<Self> for Tally<'_> {
    fn end(&mut self, _: BufferOffset) {}

    fn output(&mut self) -> &mut Self {
        self
    }
}

impl Stage for Tally<'_> {
    fn save(&self, to: &mut StageStates) -> Result<(), Unsaved> {
        self.recorder.save(to)
    }

    fn restore(&mut self, from: &StageStates) -> Result<(), Unsaved> {
        self.recorder.restore(from)
    }
}
