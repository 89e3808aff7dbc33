//! Execution that is traced without atoms: straight lines to exceptions, waypoint updates and source
//! addresses; and Q elements.

use super::blocks::{AWAIT, BlockId, End, NOWHERE};
use super::code::CodeImage;
use super::follow::Flow;
use super::range::{LastInstruction, Range};
use super::sink::{FlowSink, Gap, QRange};
use super::walk::{LONGEST, Walk, Waypoints};
use crate::element::Exception;
pub(super) use armsnap_arch::arch::branch::{Instruction, Kind};
use armsnap_arch::quantity::{Address, BufferOffset, Isa};

/// A Q element whose end is not known yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub(super) struct PendingQ {
    at: BufferOffset,
    /// The block where it starts, if known.
    pub(super) from: u32,
    /// The address up to which execution was followed before it.
    start: Option<Address>,
    instructions: Option<u32>,
}

/// How a straight line ends, and which instructions it may run over.
///
/// An instruction that the trace unit would trace with an atom was not executed if there is no
/// atom.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LineEnd {
    /// Before the instruction at the end, without crossing a waypoint (up to an exception).
    Before,
    /// With that instruction, as taken, without crossing a waypoint before it (PTM waypoint
    /// update).
    With,
    /// With that instruction, as taken; may cross conditional waypoints before it, because a source
    /// address implies that they were not taken (ETE).
    WithTaken,
}

impl LineEnd {
    /// Whether the line runs over this instruction before its end.
    fn passes(self, instruction: &Instruction, waypoints: Waypoints) -> bool {
        self == Self::WithTaken && instruction.conditional || !waypoints.contain(instruction.kind)
    }
}

/// Straight lines already walked to an address, so that each is walked once: a loop that waits for
/// interrupts is interrupted at the same few addresses.
#[derive(Debug)]
pub(super) struct KnownLines(Box<[KnownLine; KNOWN_LINES]>);

/// The number of lines kept: 14 KiB.
const KNOWN_LINES: usize = 1 << 8;

/// A line that reached its end.
#[derive(Clone, Copy, Debug)]
struct KnownLine {
    /// The block where it starts; [`NOWHERE`] if there is no line.
    from: u32,
    to: Address,
    line_end: LineEnd,
    range: Range,
}

impl Default for KnownLines {
    fn default() -> Self {
        let none = KnownLine {
            from: NOWHERE,
            to: Address(0),
            line_end: LineEnd::Before,
            range: Range {
                start: Address(0),
                end: Address(0),
                isa: Isa::A32,
                instructions: 0,
                last: LastInstruction::default(),
            },
        };
        Self(Box::new([none; KNOWN_LINES]))
    }
}

impl KnownLines {
    fn place(from: u32, to: Address) -> usize {
        // The lowest bits of addresses of A64 and A32 are zero.
        (from as usize ^ (to.0 >> 2) as usize) % KNOWN_LINES
    }

    fn find(&self, from: u32, to: Address, line_end: LineEnd) -> Option<Range> {
        let line = &self.0[Self::place(from, to)];
        let same = line.from == from && line.to == to && line.line_end == line_end;
        same.then_some(line.range)
    }

    fn keep(&mut self, from: u32, to: Address, line_end: LineEnd, range: Range) {
        self.0[Self::place(from, to)] = KnownLine {
            from,
            to,
            line_end,
            range,
        };
    }

    /// Forgets all lines, because the table of blocks is emptied.
    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }
}

impl<C: CodeImage> Flow<C> {
    /// Executes a straight line from the current address to `end`. Returns whether `end` was
    /// reached; if not, no address is known afterwards.
    pub(super) fn run_to(
        &mut self,
        at: BufferOffset,
        end: Address,
        line_end: LineEnd,
        sink: &mut impl FlowSink,
    ) -> bool {
        if self.current <= AWAIT {
            return false;
        }
        let from = std::mem::replace(&mut self.current, NOWHERE);
        let cold = self.blocks.cold[from as usize];
        let known = self.known_lines.find(from, end, line_end);
        let Some(range) = known.or_else(|| self.walk_to(at, from, end, line_end, sink)) else {
            return false;
        };
        if range.instructions > 0 {
            sink.range(at, &range, None);
        }
        let next = range.end;
        self.current = if line_end != LineEnd::Before {
            let last = self.find(cold.space, cold.isa, end);
            let block = self.blocks.cold[last as usize];
            if block.end == next && block.stop == End::Waypoint {
                self.left = last;
                self.leave(last, true)
            } else {
                self.find(cold.space, cold.isa, next)
            }
        } else {
            self.find(cold.space, cold.isa, next)
        };
        true
    }

    /// Walks a straight line from the block `from` to `end`. If that is not reached, emits the line up
    /// to missing code, and the gap.
    fn walk_to(
        &mut self,
        at: BufferOffset,
        from: u32,
        end: Address,
        line_end: LineEnd,
        sink: &mut impl FlowSink,
    ) -> Option<Range> {
        let cold = self.blocks.cold[from as usize];
        let mut walk = Walk::new(&self.code, cold.space.view, cold.isa, cold.start);
        let before = line_end == LineEnd::Before;
        let waypoints = self.config.waypoints;
        let stopped = loop {
            let here = walk.here();
            if here == end && before {
                break None;
            }
            if here <= end && walk.instructions() < LONGEST {
                match walk.step() {
                    Ok(_) if here == end => break None,
                    Ok(instruction) if line_end.passes(&instruction, waypoints) => {
                        // The exception interrupted this instruction (M-profile, LDM for example), and
                        // returns to its second half.
                        if before && cold.isa == Isa::T32 && walk.here() == end.after(2, cold.isa) {
                            let range = self.walk_to(at, from, here, line_end, sink)?;
                            self.known_lines.keep(from, end, line_end, range);
                            return Some(range);
                        }
                        continue;
                    }
                    Ok(_) => {}
                    Err(stop) => break Some(stop),
                }
            }
            let from = cold.start;
            self.gap(at, Gap::NotReached { from, to: end }, sink);
            return None;
        };
        let range = walk.range(waypoints, true);
        if let Some(stop) = stopped {
            if range.instructions > 0 {
                sink.range(at, &range, None);
            }
            self.stop(at, stop, range.end, cold.isa, sink);
            return None;
        }
        self.known_lines.keep(from, end, line_end, range);
        Some(range)
    }

    /// Executes a straight line up to a taken instruction, or only that instruction if no line leads
    /// there.
    pub(super) fn source(
        &mut self,
        at: BufferOffset,
        address: Address,
        isa: Isa,
        sink: &mut impl FlowSink,
    ) {
        self.settle(at, sink);
        let known = self.blocks.cold[self.current as usize];
        let ahead = self.current > AWAIT && known.start <= address;
        if ahead && self.run_to(at, address, LineEnd::WithTaken, sink) {
            return;
        }
        // After a gap on the line, missing code at the source address is not reported again.
        let block = self.find(self.space, isa, address);
        if !ahead || self.blocks.instructions(BlockId(block)) > 0 {
            self.lost = None;
            self.current = block;
            self.run_to(at, address, LineEnd::WithTaken, sink);
        }
    }

    pub(super) fn exception(
        &mut self,
        at: BufferOffset,
        mut exception: Exception,
        here: bool,
        sink: &mut impl FlowSink,
    ) {
        self.settle(at, sink);
        if self.current > AWAIT {
            let start = self.blocks.cold[self.current as usize].start;
            match exception.return_address {
                Some(end) if start < end => {
                    self.run_to(at, end, LineEnd::Before, sink);
                }
                None if here => exception.return_address = Some(start),
                _ => {}
            }
        } else if let (Some(lost), Some(end)) = (self.lost, exception.return_address)
            && lost.code_missing
            && lost.address < end
        {
            // The code between the two is missing as well.
            self.gap(at, Gap::MemoryMissing(lost.address), sink);
        }
        self.current = NOWHERE;
        sink.exception(at, &exception);
    }

    /// Starts a Q element at the current address.
    pub(super) fn begin_q(
        &mut self,
        at: BufferOffset,
        instructions: Option<u32>,
        sink: &mut impl FlowSink,
    ) {
        self.settle(at, sink);
        self.q = Some(PendingQ {
            at,
            from: self.current,
            start: match self.current {
                NOWHERE | AWAIT => self.lost.map(|lost| lost.address),
                current => Some(self.blocks.cold[current as usize].start),
            },
            instructions,
        });
        self.current = NOWHERE;
    }

    /// Emits a Q element that ended before `end`: as a range if its instructions are a straight
    /// line.
    pub(super) fn finish_q(
        &mut self,
        q: &PendingQ,
        end: Address,
        isa: Isa,
        sink: &mut impl FlowSink,
    ) {
        if let Some(line) = self.straight(q, end) {
            return sink.range(q.at, &line, None);
        }
        if let Some(start) = q.start {
            let range = QRange {
                start,
                end,
                isa,
                instructions: q.instructions,
            };
            sink.q_range(q.at, &range);
        }
    }

    /// Returns the instructions of `q` if they form a straight line to `end` or to a branch.
    fn straight(&self, q: &PendingQ, end: Address) -> Option<Range> {
        let count = q
            .instructions
            .filter(|count| (1..=LONGEST).contains(count))?;
        if q.from <= AWAIT {
            return None;
        }
        let cold = &self.blocks.cold[q.from as usize];
        let mut walk = Walk::new(&self.code, cold.space.view, cold.isa, cold.start);
        let mut branched = false;
        while !branched && walk.instructions() < count {
            let instruction = walk.step().ok()?;
            branched = matches!(instruction.kind, Kind::Branch { .. } | Kind::Indirect);
        }
        let leads_there = branched || walk.here() == end;
        (walk.instructions() == count && leads_there)
            .then(|| walk.range(self.config.waypoints, true))
    }
}
