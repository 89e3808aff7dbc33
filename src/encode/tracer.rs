//! The instructions that ran → waypoints, exceptions and gaps, each told once its outcome is
//! known.

mod it_blocks;
mod outcome;

use super::{CodeAddress, Options, TAIL_CHAIN, TraceUnit, Waypoint};
use crate::arch::branch::{Instruction, Kind};
use crate::element::{Context, Mark, TraceOnReason};
use crate::flow::{CodeImage, ContextKey, View, instruction};
use crate::quantity::Address;
use it_blocks::ItBlocks;

/// A waypoint whose outcome is not known yet.
#[derive(Clone, Copy, Debug)]
struct Pending {
    instruction: Instruction,
    here: CodeAddress,
    after: CodeAddress,
    /// The instruction before, if it is one since the last waypoint, target or exception.
    last: Option<CodeAddress>,
}

impl Pending {
    /// It may have been taken or not.
    fn is_open(&self) -> bool {
        let branches = matches!(self.instruction.kind, Kind::Branch { .. } | Kind::Indirect);
        branches && self.instruction.conditional
    }
}

/// An exception of which the handler is not known yet.
#[derive(Clone, Copy, Debug)]
struct Exception {
    number: u16,
    return_to: CodeAddress,
    chained: bool,
}

/// Turns the flow of one core into trace.
///
/// Give the runs of instructions in the order in which they were executed.
#[derive(Debug)]
pub struct Tracer<U, C> {
    unit: U,
    code: C,
    options: Options,
    sync_bytes: usize,
    next_context: Option<Context>,
    view: View,
    /// Where execution has come to; none if what follows is not connected.
    here: Option<CodeAddress>,
    /// Why tracing will begin again.
    reason: TraceOnReason,
    it_blocks: ItBlocks,
    last: Option<CodeAddress>,
    pending: Option<Pending>,
    exception: Option<Exception>,
    /// Marks behind a waypoint that is pending, or before the begin.
    marks: Vec<Mark>,
    stack: Vec<CodeAddress>,
    /// Tracing has begun.
    begun: bool,
    /// Bytes that were taken, and bytes written at the last synchronisation.
    taken: usize,
    synchronised: usize,
    /// Where a decoder can begin, in bytes written; since the last take.
    beginnings: Vec<usize>,
    /// Cycles of each instruction, if they are not told from outside.
    each: Option<u32>,
    gaps: u64,
}

impl<U: TraceUnit, C: CodeImage> Tracer<U, C> {
    /// At the begin of a trace that is synchronised after every `sync_bytes` bytes; with 0, at
    /// its begin only.
    pub fn new(unit: U, code: C, sync_bytes: usize) -> Self {
        let view = code.view(&ContextKey::default());
        Self {
            options: unit.options(),
            sync_bytes,
            unit,
            code,
            next_context: None,
            view,
            here: None,
            reason: TraceOnReason::BeginOrFilter,
            it_blocks: ItBlocks::default(),
            last: None,
            pending: None,
            exception: None,
            marks: Vec::new(),
            stack: Vec::new(),
            begun: false,
            taken: 0,
            synchronised: 0,
            beginnings: Vec::new(),
            each: None,
            gaps: 0,
        }
    }

    /// How often the flow was not connected although nothing had said so: instructions that do
    /// not lead to where it went on, or code that is missing.
    pub fn gaps(&self) -> u64 {
        self.gaps
    }

    /// Appends the trace made since the last call.
    pub fn take(&mut self, out: &mut Vec<u8>) {
        self.take_with(out, |_| ());
    }

    /// The same; `beginning` is told the places in `out` at which a decoder that has seen
    /// nothing before can begin.
    pub fn take_with(&mut self, out: &mut Vec<u8>, mut beginning: impl FnMut(usize)) {
        for place in self.beginnings.drain(..) {
            beginning(out.len() + place.wrapping_sub(self.taken));
        }
        let bytes = self.unit.bytes();
        self.taken = self.taken.wrapping_add(bytes.len());
        out.append(bytes);
    }

    /// Bytes of trace that were made since the last [`take`](Self::take).
    pub fn made(&mut self) -> usize {
        self.unit.bytes().len()
    }

    /// From here on each instruction takes so many cycles, besides those of
    /// [`cycles`](Self::cycles).
    pub fn cycles_each(&mut self, cycles: Option<u32>) {
        self.each = cycles;
    }

    /// The state of the core from the next run on.
    pub fn context(&mut self, context: Context) {
        self.next_context = Some(context);
    }

    /// The instructions from `start` up to `end` (the first address not executed) ran in a
    /// straight line.
    pub fn run(&mut self, start: CodeAddress, end: Address) {
        self.arrive(start);
        let mut here = start;
        while here.address < end {
            let known = instruction(&self.code, self.view, here.isa, here.address);
            let Some(mut instruction) = known else {
                self.lose();
                return;
            };
            self.it_blocks.step(&mut instruction);
            let after = self.step(here, instruction);
            if after.address <= here.address {
                return;
            }
            if self.pending.is_some() && after.address < end {
                self.arrive(after);
            }
            here = after;
        }
    }

    /// As [`run`](Self::run) for code that was decoded before: these instructions ran in a
    /// straight line.
    pub fn run_decoded(&mut self, start: CodeAddress, instructions: &[Instruction]) {
        let mut here = start;
        for (index, instruction) in instructions.iter().enumerate() {
            if index == 0 || self.pending.is_some() {
                self.arrive(here);
            }
            let mut instruction = *instruction;
            self.it_blocks.step(&mut instruction);
            here = self.step(here, instruction);
        }
    }

    /// An instruction was executed; the place behind it.
    fn step(&mut self, here: CodeAddress, instruction: Instruction) -> CodeAddress {
        let after = CodeAddress {
            address: here.address.after(instruction.bytes.into(), here.isa),
            isa: here.isa,
        };
        self.here = Some(after);
        if let Some(cycles) = self.each {
            self.unit.cycles(cycles);
        }
        if self.options.waypoints.contain(instruction.kind) {
            self.pending = Some(Pending {
                instruction,
                here,
                after,
                last: self.last.take(),
            });
        } else {
            self.last = Some(here);
            self.unit.instruction();
        }
        after
    }

    /// An exception was taken; execution would have gone on at `return_to`. The number is of the
    /// protocol that is written.
    pub fn exception(&mut self, number: u16, return_to: CodeAddress) {
        if self.here.is_none() && self.exception.is_none() {
            // Nothing is traced: what follows begins with its own address.
            return;
        }
        self.arrive(return_to);
        self.it_blocks.interrupt(return_to);
        self.exception = Some(Exception {
            number,
            return_to,
            chained: false,
        });
    }

    /// The last instruction returned from an exception, although its encoding does not say so:
    /// in M-profile a branch to a magic address does (Armv8-M ARM DDI 0553, B3.22 "Exception
    /// return").
    pub fn exception_return(&mut self) {
        if let Some(pending) = &mut self.pending {
            pending.instruction.exception_return = true;
            pending.instruction.conditional = false;
        }
    }

    /// The last instruction, a branch, was taken or not: for one behind which a gap follows.
    pub fn outcome(&mut self, taken: bool) {
        match self.pending.take() {
            Some(mut pending) if taken => {
                pending.instruction.conditional = false;
                self.pending = Some(pending);
            }
            Some(pending) => self.resolve(pending, pending.after, false),
            None => {}
        }
    }

    /// The last instruction began to return from an exception, and another one was taken
    /// instead (M-profile).
    pub fn tail_chain(&mut self, number: u16) {
        let Some(pending) = self.pending.take() else {
            return;
        };
        self.next_context(TAIL_CHAIN);
        let taken = Waypoint {
            taken: true,
            target_traced: false,
            exception_return: false,
            next: TAIL_CHAIN,
        };
        debug_assert_eq!(pending.instruction.kind, Kind::Indirect);
        self.unit.waypoint(&taken);
        self.marks();
        self.here = Some(TAIL_CHAIN);
        self.exception = Some(Exception {
            number,
            return_to: TAIL_CHAIN,
            chained: true,
        });
    }

    /// What follows is not connected with what lies before. Where instructions ran since the last
    /// waypoint, the core halts in debug state, so that the trace tells how far it came; give an
    /// [`exception`](Self::exception) before to say what really happened. A branch of which it is
    /// not known whether it was taken is left out.
    pub fn gap(&mut self, reason: TraceOnReason) {
        if let Some(pending) = self.pending.take_if(|pending| pending.is_open()) {
            self.here = Some(pending.here);
            self.last = pending.last;
            self.marks();
        }
        self.settle();
        if self.last.is_some()
            && let (Some(return_to), Some(number)) = (self.here, self.unit.debug_halt())
        {
            self.exception = Some(Exception {
                number,
                return_to,
                chained: false,
            });
            self.except(None);
        }
        self.it_blocks = ItBlocks::default();
        self.here = None;
        self.reason = reason;
    }

    /// Cycles since the last count, or since the begin.
    pub fn cycles(&mut self, cycles: u32) {
        self.unit.cycles(cycles);
    }

    /// A timestamp, event or trigger here.
    pub fn mark(&mut self, mark: Mark) {
        if !self.begun || self.pending.is_some() || self.exception.is_some() {
            self.marks.push(mark);
        } else {
            self.unit.mark(&mark);
        }
    }

    /// The trace ends. With the next instruction, if it is known, the core halts in debug state,
    /// and the trace tells how far it came.
    pub fn finish(&mut self, next: Option<CodeAddress>) {
        if let Some(next) = next.filter(|_| self.here.is_some()) {
            match self.unit.debug_halt() {
                Some(number) => self.exception(number, next),
                None => self.arrive(next),
            }
        }
        self.settle();
        self.here = None;
        self.unit.flush();
    }
}
