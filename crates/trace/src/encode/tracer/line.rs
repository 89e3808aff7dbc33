//! Straight lines that are executed repeatedly: how each continues is determined once, by the same
//! rules as in `outcome.rs`, and its instructions are not examined again.

use super::{Pending, Tracer};
use crate::encode::{CodeAddress, Options, TraceUnit, Waypoint};
use crate::flow::CodeImage;
pub(super) use armsnap_arch::arch::branch::{Instruction, Kind};
use armsnap_arch::quantity::Isa;

/// How execution goes from the end of a straight line to the next instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Edge {
    /// The line does not end in a waypoint.
    Onward,
    /// The waypoint was not taken.
    NotTaken,
    /// The waypoint was taken.
    Taken,
    /// The waypoint was taken, and the trace contains its target.
    Traced,
}

/// A straight line without an IT instruction, in which at most the last instruction is a waypoint.
#[derive(Clone, Copy, Debug)]
pub struct Line {
    /// The first instruction.
    pub start: CodeAddress,
    /// The number of instructions that are not waypoints.
    others: u32,
    /// Whether the last one is a waypoint.
    waypoint: bool,
}

impl Line {
    /// Returns the line of these instructions, if they form one.
    pub fn new(options: &Options, start: CodeAddress, line: &[Instruction]) -> Option<Self> {
        let (last, before) = line.split_last()?;
        let is_other = |i: &Instruction| !options.waypoints.contain(i.kind) && i.it_block == 0;
        if !before.iter().all(is_other) || last.it_block != 0 {
            return None;
        }
        let waypoint = options.waypoints.contain(last.kind);
        Some(Self {
            start,
            others: line.len() as u32 - u32::from(waypoint),
            waypoint,
        })
    }

    /// Returns the number of instructions.
    pub fn count(&self) -> u32 {
        self.others + u32::from(self.waypoint)
    }
}

impl Edge {
    /// Returns the edge from the last instruction of a line to `next`; `after` is the address after
    /// the instruction. `None` if [`Tracer::follow`] cannot trace it: the return stack changes, an
    /// exception returns, or the two are not connected.
    pub fn of(
        options: &Options,
        last: &Instruction,
        after: CodeAddress,
        next: CodeAddress,
    ) -> Option<Self> {
        let falls = next == after;
        if !options.waypoints.contain(last.kind) {
            return falls.then_some(Self::Onward);
        }
        let stacked = options.return_stack > 0 && (last.link || last.kind == Kind::Indirect);
        if stacked || last.exception_return {
            return None;
        }
        match last.kind {
            Kind::Branch { target, isa } => {
                let leads = next.address == target && next.isa == isa;
                let conditional = last.conditional || after.isa == Isa::T32 && !leads;
                match (!conditional || leads && !falls, options.branch_broadcast) {
                    (true, false) => leads.then_some(Self::Taken),
                    (true, true) => leads.then_some(Self::Traced),
                    (false, _) => falls.then_some(Self::NotTaken),
                }
            }
            Kind::Indirect if falls && last.conditional => Some(Self::NotTaken),
            Kind::Indirect => Some(Self::Traced),
            _ => None,
        }
    }
}

impl<U: TraceUnit, C: CodeImage> Tracer<U, C> {
    /// Returns whether [`follow`](Self::follow) can trace what comes next: tracing has started, and
    /// nothing but the outcome of the last instruction is outstanding.
    pub fn is_steady(&self) -> bool {
        self.begun
            && self.here.is_some()
            && self.exception.is_none()
            && self.marks.is_empty()
            && self.next_context.is_none()
            && self.it_blocks.is_outside()
    }

    /// Traces a line that is reached through `edge`. Until [`stand_after`](Self::stand_after) is
    /// called, no other method may be called.
    #[inline]
    pub fn follow(&mut self, edge: Edge, line: &Line) {
        if edge != Edge::Onward {
            self.unit.waypoint(&Waypoint {
                taken: edge != Edge::NotTaken,
                target_traced: edge == Edge::Traced,
                exception_return: false,
                next: line.start,
            });
            self.synchronise(line.start);
        }
        match self.each {
            None => (0..line.others).for_each(|_| self.unit.instruction()),
            Some(cycles) => {
                for _ in 0..line.others {
                    self.unit.cycles(cycles);
                    self.unit.instruction();
                }
                if line.waypoint {
                    self.unit.cycles(cycles);
                }
            }
        }
    }

    /// Continues after the line that was followed last. `before` is the instruction before it, if
    /// that is not a waypoint.
    pub fn stand_after(
        &mut self,
        start: CodeAddress,
        line: &[Instruction],
        before: Option<CodeAddress>,
    ) {
        let (mut here, mut last) = (start, before);
        self.pending = None;
        for &instruction in line {
            let after = here.after(&instruction);
            if self.options.waypoints.contain(instruction.kind) {
                self.pending = Some(Pending {
                    instruction,
                    here,
                    after,
                    last: last.take(),
                });
            } else {
                last = Some(here);
            }
            here = after;
        }
        self.here = Some(here);
        self.last = last;
    }
}
