//! Records pieces: the last stage of the decoders of a part.

mod sink;

use super::super::clock::Moment;
use super::super::code::{BlockCount, Edge, EdgeKind};
use super::super::functions::FunctionId;
use super::counts::Counts;
use super::facts::Facts;
use super::frames::{Clocks, Exit, Frames, Info};
use super::names::Names;
use super::piece::{Advance, Line, Piece, Step, Straight, What};
use armsnap_arch::quantity::{Address, BufferOffset};
use armsnap_history::decode::Image;
use armsnap_snapshot::program::symbols::Symbols;
use armsnap_trace::element::Context;
use armsnap_trace::flow::{BlockId, Blocks, InstructionKind, LastInstruction, Run};

/// What a course wants from its pieces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) struct Wanted {
    /// The straight lines.
    pub lines: bool,
    /// Calls. Without them, steps are recorded only after gaps and exceptions.
    pub calls: bool,
    /// Each call as separate steps, although sums are enough.
    pub each_call: bool,
}

/// A block with an E atom that may leave its function, and is not a step yet.
#[derive(Clone, Copy, Debug)]
struct Left {
    index: usize,
    at: BufferOffset,
    cycles: Option<u32>,
    before: Clocks,
}

/// Records what a source executes. With `SUMS`, calls that begin and return in a piece are only
/// counted.
///
/// Which blocks become steps is decided without knowledge of earlier execution. A course takes the
/// slow path for a block after a call, return, exception or gap, and for a block of another
/// function than that of the innermost call, which is not known here. It becomes known, however,
/// after a block that execution reaches from the block before it: it is that block's function. So a
/// step is recorded for each block up to such a block, and again from the next call, return,
/// exception, gap or other function on. More steps than a course needs do no harm.
pub(in super::super) struct Recorder<'a, const SUMS: bool> {
    image: Image<'a>,
    symbols: Option<&'a Symbols>,
    wanted: Wanted,
    context: Option<Context>,
    piece: Piece,
    /// The number of the piece.
    number: u32,
    names: Names,
    /// By block.
    infos: Vec<Info>,
    /// By block, without counts.
    rows: Vec<Option<BlockCount>>,
    counts: Counts,
    frames: Frames,
    /// The current moment in the piece.
    moment: Moment,
    /// The clocks reported by steps.
    told: Clocks,
    /// The next block may be reached other than by plain execution, and is a step.
    armed: bool,
    /// The block that set `armed`, if it was a block.
    armed_by: Option<usize>,
    /// Something other than a block set `armed` in the piece: where armed blocks after it lead is
    /// in doubt.
    rearmed: bool,
    left: Option<Left>,
    /// The course may still be in another function than that of the last step's block: the next
    /// block will show it.
    unsure: bool,
}

impl<'a, const SUMS: bool> Recorder<'a, SUMS> {
    pub fn new(image: Image<'a>, symbols: Option<&'a Symbols>, wanted: Wanted) -> Self {
        Self {
            image,
            symbols,
            wanted,
            context: None,
            piece: Piece::default(),
            number: 1,
            names: Names::default(),
            infos: Vec::new(),
            rows: Vec::new(),
            counts: Counts::default(),
            frames: Frames::default(),
            moment: Moment::default(),
            told: Clocks::default(),
            armed: true,
            armed_by: None,
            rearmed: false,
            left: None,
            unsure: false,
        }
    }

    /// Learns facts found about earlier pieces.
    pub fn learn_facts(&mut self, facts: &Facts) {
        self.frames.facts.learn(facts);
    }

    /// Whether calls that begin and return in the piece are only counted.
    #[inline]
    fn sums_calls(&self) -> bool {
        SUMS && self.wanted.calls && !self.wanted.each_call
    }

    /// Whether steps after branches are decided only when they are made.
    #[inline]
    fn waits(&self) -> bool {
        SUMS && !self.wanted.each_call
    }

    /// Returns the piece so far, and starts the next one.
    pub fn take(&mut self, packets: u64) -> Piece {
        self.settle();
        self.flush();
        let after = self.advance_to(self.clocks());
        let assumed = self.frames.end();
        self.number += 1;
        self.armed = true;
        self.armed_by = None;
        self.rearmed = false;
        self.unsure = false;
        self.told = Clocks::default();
        self.count();
        let moment = std::mem::take(&mut self.moment);
        let piece = std::mem::take(&mut self.piece);
        Piece {
            after,
            last_at: moment.at,
            packets,
            covered: self.sums_calls(),
            assumed,
            ..piece
        }
    }

    /// Passes on the counts.
    fn count(&mut self) {
        let Self {
            counts,
            infos,
            rows,
            piece,
            ..
        } = self;
        let Piece {
            blocks,
            edges,
            lines,
            ..
        } = piece;
        counts.settle(
            |block, [not_taken, taken]| {
                *lines += not_taken + taken;
                let row = &mut blocks[infos[block].place as usize];
                row.not_taken += not_taken;
                row.taken += taken;
            },
            |from, to, count| {
                if let Some(row) = &rows[from]
                    && let Some(kind) = EdgeKind::of(&row.last)
                {
                    edges.push(Edge {
                        from: row.last_at,
                        to: infos[to].start,
                        kind,
                        count,
                    });
                }
            },
        );
    }

    fn clocks(&self) -> Clocks {
        Clocks {
            instructions: self.moment.instructions,
            cycles: self.moment.cycles,
        }
    }

    /// Reports execution up to a moment.
    fn advance_to(&mut self, now: Clocks) -> Advance {
        let before = std::mem::replace(&mut self.told, now);
        advance(before, now)
    }

    /// Writes what the course does not know about the open calls.
    fn flush(&mut self) {
        if !self.sums_calls() || self.piece.is_full() {
            return;
        }
        self.frames.count(self.moment.instructions);
        let at = self.moment.at;
        let (piece, told) = (&mut self.piece, &mut self.told);
        self.frames.flush(&self.names, &mut |now, what| {
            write(piece, told, at, now, what);
        });
    }

    fn step(&mut self, at: BufferOffset, what: What) {
        self.settle();
        self.flush();
        self.moment.at = at;
        let before = self.advance_to(self.clocks());
        self.add(Step { at, before, what });
    }

    fn add(&mut self, step: Step) {
        self.piece.add(step, self.waits());
    }

    /// Makes a step of the block that leaves its function, if there is one.
    fn settle(&mut self) {
        let Some(left) = self.left.take() else {
            return;
        };
        let info = self.infos[left.index];
        let now = self.clocks();
        if self.sums_calls()
            && let Some(cycles) = left.cycles
        {
            self.frames.take_back_cycles(cycles.into());
        }
        self.moment.instructions = left.before.instructions;
        self.flush();
        let before = self.advance_to(left.before);
        self.add(Step {
            at: left.at,
            before,
            what: What::Block {
                block: info.place,
                taken: true,
                cycles: left.cycles,
            },
        });
        self.told.instructions += u64::from(info.instructions);
        add(&mut self.told.cycles, left.cycles);
        self.moment.instructions = now.instructions;
        self.frames.skip_to(now.instructions);
        self.armed = true;
        self.armed_by = Some(left.index);
        if info.exit == Exit::Call {
            self.frames.note_unknown(Some(info.end));
        }
    }

    /// Notes that the course counts what is executed up to here.
    fn told_here(&mut self) {
        self.told = self.clocks();
        self.frames.skip_to(self.told.instructions);
    }

    /// Notes that earlier execution decides how the next block is reached.
    fn arm(&mut self) {
        self.armed = true;
        self.rearmed = true;
        self.armed_by = None;
        self.frames.forget();
    }

    fn straight(&mut self, at: BufferOffset, straight: Straight) {
        self.moment.at = at;
        if self.wanted.lines {
            self.piece.straight.push(Line {
                moment: self.moment,
                straight,
                context: self.context,
            });
        }
    }

    #[cold]
    #[inline(never)]
    fn learn(&mut self, blocks: &Blocks, id: BlockId) {
        let index = id.index();
        if index >= self.infos.len() {
            let room = (index + 1).next_power_of_two();
            self.infos.resize(room, Info::default());
            self.rows.resize(room, None);
        }
        let range = blocks.range(id, true);
        let names = &mut self.names;
        let around = names.around(self.symbols, range.start);
        let named = |address: Address| {
            let symbols = self.symbols;
            symbols.is_some_and(|symbols| symbols.extent(address.0).is_some())
        };
        self.infos[index] = Info {
            start: range.start,
            end: range.end,
            instructions: range.instructions,
            function: around.map_or(FunctionId::UNKNOWN, |(function, _)| function),
            entered: match around {
                Some((function, _)) => function,
                None => names.starting(range.start),
            },
            begins: around.is_some_and(|(_, start)| start == range.start),
            ends_unnamed: !named(range.end),
            exit: exit(&range.last),
            indirect: range.last.kind == InstructionKind::Indirect,
            piece: 0,
            place: 0,
            assumed: 0,
        };
        self.rows[index] = Some(BlockCount::of(&self.image, blocks, id));
    }

    fn knows(&self, index: usize) -> bool {
        self.rows.get(index).is_some_and(Option::is_some)
    }

    /// Adds a block to the piece, unless it is in it already.
    #[inline]
    fn enter(&mut self, blocks: &Blocks, id: BlockId) {
        if self.is_new(id) {
            self.place(blocks, id);
        }
    }

    #[inline(never)]
    fn place(&mut self, blocks: &Blocks, id: BlockId) {
        let index = id.index();
        if !self.knows(index) {
            self.learn(blocks, id);
        }
        let Some(row) = self.rows[index] else {
            return;
        };
        let info = &mut self.infos[index];
        info.piece = self.number;
        info.place = self.piece.blocks.len() as u32;
        self.piece.blocks.push(BlockCount {
            el: self.context.and_then(|context| context.el),
            ..row
        });
    }

    /// Whether a block is executed for the first time in the piece.
    fn is_new(&self, id: BlockId) -> bool {
        let info = self.infos.get(id.index());
        info.is_none_or(|info| info.piece != self.number)
    }

    /// Like [`Self::enter`]; code without symbols belongs to the function that executes it first.
    fn enter_counted(&mut self, blocks: &Blocks, id: BlockId) {
        if !self.is_new(id) {
            return;
        }
        self.place(blocks, id);
        let info = &self.infos[id.index()];
        if self.sums_calls() && info.function == FunctionId::UNKNOWN {
            self.frames.owns(info.place);
        }
    }

    #[inline]
    fn count_block_of(&mut self, index: usize, taken: bool) {
        if !self.counts.block(index, taken) {
            self.counts.touch_block(index, taken);
        }
    }

    #[cold]
    #[inline(never)]
    fn touch_block(&mut self, blocks: &Blocks, id: BlockId, taken: bool) {
        self.enter_counted(blocks, id);
        self.counts.touch_block(id.index(), taken);
    }

    #[cold]
    #[inline(never)]
    fn touch_run(&mut self, blocks: &Blocks, run: Run<'_>) {
        for (id, _) in run.blocks() {
            self.enter_counted(blocks, id);
        }
        let lines = run.blocks().map(|(id, taken)| (id.index(), taken));
        self.counts.touch_run(run.number().0, lines);
    }

    /// Follows execution from a block with an E atom, or from one of another function, to another
    /// block. Returns false if the course has to decide what that means.
    #[inline]
    fn follow(&mut self, (from, taken): (usize, bool), to: usize) -> bool {
        let source = match taken {
            true => self.infos[from],
            // Like falling through.
            false => Info::default(),
        };
        if self.wanted.calls {
            let now = self.clocks();
            let at = self.moment.at;
            let (piece, told) = (&mut self.piece, &mut self.told);
            let write = |now, what| write(piece, told, at, now, what);
            let target = &mut self.infos[to];
            if !self.frames.follow(&source, target, now, write, &self.names) {
                return false;
            }
        }
        if source.indirect {
            self.counts.edge(from, to);
        }
        true
    }

    /// Whether a block with an atom may leave its function.
    #[inline]
    fn may_leave(&self, index: usize, taken: bool) -> bool {
        let info = &self.infos[index];
        taken && (info.indirect || self.wanted.calls && info.exit != Exit::Plain)
    }

    /// Notes that the block counted last is followed by a step whose meaning is not known yet.
    fn left_behind(&mut self, index: usize) {
        if self.may_leave(index, true) {
            let mut before = self.clocks();
            before.instructions -= u64::from(self.infos[index].instructions);
            self.left = Some(Left {
                index,
                at: self.moment.at,
                cycles: None,
                before,
            });
        }
    }

    /// Whether a block becomes a step.
    fn is_step(&mut self, index: usize, taken: bool, new: bool) -> bool {
        if !self.waits() {
            let info = &self.infos[index];
            let here = self.frames.here();
            let elsewhere = info.function != FunctionId::UNKNOWN && info.function != here;
            // Code without symbols belongs to the function that executes it first.
            let owned = new && info.function == FunctionId::UNKNOWN;
            let leaves = self.may_leave(index, taken);
            return self.armed || leaves || self.wanted.calls && (elsewhere || owned);
        }
        if let Some(left) = self.left.take()
            && !self.follow((left.index, true), index)
        {
            self.left = Some(left);
            self.settle();
        }
        if self.armed || !self.wanted.calls {
            return self.armed;
        }
        let info = self.infos[index];
        if info.function == FunctionId::UNKNOWN || info.function == self.frames.here() {
            return false;
        }
        // By falling through, or by a direct branch.
        let before = Info::default();
        let now = self.clocks();
        let target = &mut self.infos[index];
        let nothing = |_, _| {};
        !self
            .frames
            .follow(&before, target, now, nothing, &self.names)
    }

    /// Updates what is known about the open calls after a step for a block.
    fn after_step(&mut self, index: usize, leaves: bool) {
        let info = self.infos[index];
        let by = self.armed_by.take();
        let armed = std::mem::replace(&mut self.armed, leaves);
        self.unsure = false;
        if armed {
            let known = by.is_some_and(|by| {
                self.sums_calls() && self.frames.follow_course(&self.infos[by], &info)
            });
            if by.is_none() && self.rearmed {
                self.frames.doubt(info.start);
            }
            if !known {
                self.frames.forget();
                self.unsure = self.sums_calls() && info.function != FunctionId::UNKNOWN;
            }
        } else if info.function != FunctionId::UNKNOWN {
            self.frames.replace(info.function);
        }
        if leaves {
            self.armed_by = Some(index);
            match self.sums_calls() {
                true if info.exit == Exit::Call => self.frames.note_unknown(Some(info.end)),
                true => {}
                false => self.frames.forget(),
            }
        }
    }
}

fn advance(from: Clocks, to: Clocks) -> Advance {
    let cycles = (from.cycles != to.cycles).then(|| {
        let before = from.cycles.unwrap_or(0);
        to.cycles.unwrap_or(0).saturating_sub(before)
    });
    Advance {
        instructions: to.instructions.saturating_sub(from.instructions),
        cycles,
    }
}

/// Adds a step for calls.
fn write(piece: &mut Piece, told: &mut Clocks, at: BufferOffset, now: Clocks, what: What) {
    let before = match &what {
        // It takes no time.
        What::Calls(_) => Advance::default(),
        _ => advance(std::mem::replace(told, now), now),
    };
    piece.add(Step { at, before, what }, true);
}

/// How an E atom of a block's last instruction leads to the next block.
fn exit(last: &LastInstruction) -> Exit {
    let indirect = last.kind == InstructionKind::Indirect;
    match (indirect || last.kind == InstructionKind::Branch, last.link) {
        (true, true) => Exit::Call,
        (true, false) if last.returns => Exit::Return,
        (true, false) if indirect => Exit::Jump,
        _ => Exit::Plain,
    }
}

/// Adds cycles to a count.
fn add(sum: &mut Option<u64>, cycles: Option<u32>) {
    if let Some(cycles) = cycles {
        *sum = Some(sum.unwrap_or(0).saturating_add(cycles.into()));
    }
}
