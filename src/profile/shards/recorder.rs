//! Records pieces: the last stage of the decoders of a shard.

use super::super::clock::Moment;
use super::super::code::BlockCount;
use super::super::course::leaves;
use super::piece::{Advance, Line, Piece, Step, Straight, What};
use crate::decode::{Image, SourceSinks, Stage, StageStates, Unsaved};
use crate::element::{Context, Element, ElementSink, Exception, Mark};
use crate::flow::{BlockId, Blocks, FlowSink, Gap, QRange, Range};
use crate::program::symbols::Symbols;
use crate::quantity::BufferOffset;

/// What is known of a block.
#[derive(Clone, Copy, Debug)]
struct Known {
    /// Without counts.
    count: BlockCount,
    /// The start of the symbol's function around it; 0 without a symbol.
    function: u64,
    leaves: bool,
    /// The piece that it was last executed in, and its place there.
    piece: u64,
    place: u32,
}

/// Records what a source executes.
///
/// Which blocks become steps is decided without what was executed before. A course takes the longer way
/// for a block after a call, return, exception or gap, and for one of another function than that of
/// the innermost call, which is not known here. But it is known after a block that execution reaches
/// from the one before it: its own function. So a step is recorded for each block up to
/// such a one, and again from the next call, return, exception, gap or other function on. More steps than
/// a course needs change nothing.
pub(super) struct Recorder<'a> {
    image: Image<'a>,
    symbols: Option<&'a Symbols>,
    /// Whether straight lines are wanted.
    lines: bool,
    context: Option<Context>,
    piece: Piece,
    /// The number of the piece.
    number: u64,
    /// By block.
    known: Vec<Option<Known>>,
    /// So far in the piece.
    moment: Moment,
    /// Since the last step.
    since: Advance,
    /// The next block may be reached by something else than plain execution.
    armed: bool,
    /// The function of the innermost call; 0 if it is not known.
    function: u64,
}

impl<'a> Recorder<'a> {
    pub fn new(image: Image<'a>, symbols: Option<&'a Symbols>, lines: bool) -> Self {
        Self {
            image,
            symbols,
            lines,
            context: None,
            piece: Piece::default(),
            number: 1,
            known: Vec::new(),
            moment: Moment::default(),
            since: Advance::default(),
            armed: true,
            function: 0,
        }
    }

    /// Returns the piece so far, and starts the next one.
    pub fn take(&mut self, packets: u64) -> Piece {
        self.number += 1;
        self.armed = true;
        self.function = 0;
        let moment = std::mem::take(&mut self.moment);
        let piece = std::mem::take(&mut self.piece);
        Piece {
            after: std::mem::take(&mut self.since),
            last_at: moment.at,
            packets,
            ..piece
        }
    }

    fn step(&mut self, at: BufferOffset, what: What) {
        self.moment.at = at;
        let before = std::mem::take(&mut self.since);
        self.piece.steps.push(Step { at, before, what });
    }

    /// What was executed up to here decides how the next block is reached.
    fn arm(&mut self) {
        self.armed = true;
        self.function = 0;
    }

    fn straight(&mut self, at: BufferOffset, straight: Straight) {
        self.moment.at = at;
        self.piece.lines += 1;
        if self.lines {
            self.piece.straight.push(Line {
                moment: self.moment,
                straight,
                context: self.context,
            });
        }
    }

    #[cold]
    #[inline(never)]
    fn learn(&mut self, blocks: &Blocks, id: BlockId) -> Known {
        let range = blocks.range(id, true);
        let extent = self
            .symbols
            .and_then(|symbols| symbols.extent(range.start.0));
        Known {
            count: BlockCount::of(&self.image, blocks, id),
            function: extent.map_or(0, |extent| extent.start),
            leaves: leaves(&range),
            piece: 0,
            place: 0,
        }
    }

    /// Returns what is known of a block, and whether it is new in the piece.
    fn enter(&mut self, blocks: &Blocks, id: BlockId) -> (Known, bool) {
        let index = id.index();
        if let Some(Some(known)) = self.known.get(index)
            && known.piece == self.number
        {
            return (*known, false);
        }
        let mut known = match self.known.get(index) {
            Some(Some(known)) => *known,
            _ => self.learn(blocks, id),
        };
        known.piece = self.number;
        known.place = self.piece.blocks.len() as u32;
        self.piece.blocks.push(BlockCount {
            el: self.context.and_then(|context| context.el),
            ..known.count
        });
        if index >= self.known.len() {
            self.known.resize((index + 1).next_power_of_two(), None);
        }
        self.known[index] = Some(known);
        (known, true)
    }
}

/// Adds cycles to a count.
fn add(sum: &mut Option<u64>, cycles: Option<u32>) {
    if let Some(cycles) = cycles {
        *sum = Some(sum.unwrap_or(0).saturating_add(cycles.into()));
    }
}

impl FlowSink for Recorder<'_> {
    fn range(&mut self, at: BufferOffset, range: &Range, cycles: Option<u32>) {
        self.straight(at, Straight::Line(*range));
        let range = *range;
        self.step(at, What::Range { range, cycles });
        self.moment.instructions += u64::from(range.instructions);
        add(&mut self.moment.cycles, cycles);
        self.arm();
    }

    fn block(
        &mut self,
        at: BufferOffset,
        blocks: &Blocks,
        id: BlockId,
        taken: bool,
        cycles: Option<u32>,
    ) {
        let (known, new) = self.enter(blocks, id);
        self.straight(at, Straight::Line(blocks.range(id, taken)));
        let block = known.place;
        let count = &mut self.piece.blocks[block as usize];
        match taken {
            true => count.taken += 1,
            false => count.not_taken += 1,
        }
        let leaves = taken && known.leaves;
        let elsewhere = known.function != 0 && known.function != self.function;
        // The function of code without symbols is that which executes it first.
        let owned = new && known.function == 0;
        let instructions = u64::from(known.count.instructions);
        self.moment.instructions += instructions;
        add(&mut self.moment.cycles, cycles);
        if !(self.armed || leaves || elsewhere || owned) {
            self.since.instructions += instructions;
            add(&mut self.since.cycles, cycles);
            return;
        }
        self.step(
            at,
            What::Block {
                block,
                taken,
                cycles,
            },
        );
        if leaves {
            self.arm();
        } else if !std::mem::take(&mut self.armed) && known.function != 0 {
            self.function = known.function;
        }
    }

    fn q_range(&mut self, at: BufferOffset, range: &QRange) {
        let instructions = range.instructions.unwrap_or(0);
        self.straight(at, Straight::Unknown(instructions));
        self.step(at, What::UnknownPath(*range));
        self.moment.instructions += u64::from(instructions);
        self.arm();
    }

    fn exception(&mut self, at: BufferOffset, exception: &Exception) {
        self.step(at, What::Exception(*exception));
        self.arm();
    }

    fn gap(&mut self, at: BufferOffset, gap: Gap) {
        self.step(at, What::Gap(gap));
        self.arm();
    }

    fn mark(&mut self, at: BufferOffset, mark: &Mark) {
        match mark {
            Mark::Cycles(cycles) => {
                self.moment.at = at;
                self.piece.elements += 1;
                add(&mut self.moment.cycles, Some(*cycles));
                add(&mut self.since.cycles, Some(*cycles));
                return;
            }
            Mark::ExceptionReturn | Mark::Data { .. } | Mark::End => {
                self.moment.at = at;
                self.piece.elements += 1;
                return;
            }
            Mark::Timestamp(time) => self.moment.time = Some(*time),
            Mark::Context(context) => {
                self.context = Some(context.completed(self.context.as_ref()));
            }
            Mark::NoSync(_) | Mark::TraceOn(_) => self.arm(),
            _ => {}
        }
        self.step(at, What::Mark(*mark));
    }

    fn forget(&mut self, _: &Blocks) {
        self.known.clear();
    }
}

impl ElementSink for Recorder<'_> {
    fn element(&mut self, at: BufferOffset, element: Element) {
        match element {
            Element::Mark(mark) => FlowSink::mark(self, at, &mark),
            _ => self.piece.elements += 1,
        }
    }
}

impl<'a> SourceSinks<Self> for Recorder<'a> {
    fn end(&mut self, _: BufferOffset) {}

    fn output(&mut self) -> &mut Self {
        self
    }
}

impl Stage for Recorder<'_> {
    fn save(&self, to: &mut StageStates) -> Result<(), Unsaved> {
        to.save_sink(&self.context)
    }

    fn restore(&mut self, from: &StageStates) -> Result<(), Unsaved> {
        self.context = from.sink()?;
        Ok(())
    }
}
