//! Executed instructions → waypoints, exceptions and gaps, each passed to the trace unit once its
//! outcome is known.

mod it_blocks;
mod line;
mod outcome;

use super::{CodeAddress, Options, TAIL_CHAIN, TraceUnit, Waypoint};
use crate::element::{Context, Mark, TraceOnReason};
use crate::flow::{CodeImage, ContextKey, View, instruction};
pub(super) use armsnap_arch::arch::branch::{Instruction, Kind};
use armsnap_arch::quantity::Address;
use it_blocks::ItBlocks;
pub use line::{Edge, Line};

/// A waypoint whose outcome is not known yet.
#[derive(Clone, Copy, Debug)]
struct Pending {
    instruction: Instruction,
    here: CodeAddress,
    after: CodeAddress,
    /// The instruction before it, if executed since the last waypoint, target or exception.
    last: Option<CodeAddress>,
}

impl Pending {
    /// Returns whether it is a branch that may or may not be taken.
    fn is_open(&self) -> bool {
        let branches = matches!(self.instruction.kind, Kind::Branch { .. } | Kind::Indirect);
        branches && self.instruction.conditional
    }
}

/// An exception whose handler is not known yet.
#[derive(Clone, Copy, Debug)]
struct Exception {
    number: u16,
    return_to: CodeAddress,
    chained: bool,
}

/// Turns the program flow of one core into trace.
///
/// Its methods are called in the order of execution.
#[derive(Debug)]
pub struct Tracer<U, C> {
    unit: U,
    code: C,
    options: Options,
    sync_bytes: usize,
    next_context: Option<Context>,
    view: View,
    /// The current address; `None` after a gap.
    here: Option<CodeAddress>,
    /// The reason for the next trace-on.
    reason: TraceOnReason,
    it_blocks: ItBlocks,
    last: Option<CodeAddress>,
    pending: Option<Pending>,
    exception: Option<Exception>,
    /// Marks after a pending waypoint, or before the start of tracing.
    marks: Vec<Mark>,
    stack: Vec<CodeAddress>,
    /// Whether tracing has started.
    begun: bool,
    /// The number of bytes taken so far.
    taken: usize,
    /// The number of bytes written up to the last synchronisation point.
    synchronised: usize,
    /// The positions where a decoder can start, in bytes written. Cleared by [`Self::take`].
    start_points: Vec<usize>,
    /// Where a synchronisation point was asked for, and its position once it is written.
    asked: Option<(CodeAddress, Option<usize>)>,
    /// Cycles of each instruction, if all take the same number.
    each: Option<u32>,
    gaps: u64,
}

impl<U: TraceUnit, C: CodeImage> Tracer<U, C> {
    /// Creates a tracer that writes a synchronisation point at the start and after every
    /// `sync_bytes` bytes; with 0, only at the start.
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
            start_points: Vec::new(),
            asked: None,
            each: None,
            gaps: 0,
        }
    }

    /// Returns the number of unreported gaps: instructions from which execution cannot reach the
    /// next one, or missing code.
    pub fn gaps(&self) -> u64 {
        self.gaps
    }

    /// Appends the trace written since the last call to `out`.
    pub fn take(&mut self, out: &mut Vec<u8>) {
        self.take_with(out, |_| ());
    }

    /// Same as [`take`](Self::take); calls `start_point` with each index in `out` at which a decoder
    /// can start.
    pub fn take_with(&mut self, out: &mut Vec<u8>, mut start_point: impl FnMut(usize)) {
        for place in self.start_points.drain(..) {
            start_point(out.len() + place.wrapping_sub(self.taken));
        }
        let bytes = self.unit.bytes();
        self.taken = self.taken.wrapping_add(bytes.len());
        out.append(bytes);
    }

    /// Asks for a synchronisation point at the next instruction, which is at `place` and follows a waypoint;
    /// see [`synchronised`](Self::synchronised). Returns whether one will be written.
    pub fn synchronise_at(&mut self, place: CodeAddress) -> bool {
        let usable = self.sync_bytes > 0
            && self.begun
            && self.pending.is_some()
            && self.exception.is_none()
            && self.next_context.is_none();
        self.asked = usable.then_some((place, None));
        if usable {
            self.synchronised = self.written().wrapping_sub(self.sync_bytes);
        }
        usable
    }

    /// Returns the index of the synchronisation point that was asked for last in what the next
    /// [`take`](Self::take) returns, once; `None` if it is not in there.
    pub fn synchronised(&mut self) -> Option<usize> {
        let (_, at) = self.asked.take_if(|(_, at)| at.is_some())?;
        Some(at?.wrapping_sub(self.taken))
    }

    /// Returns the number of bytes of trace written since the last [`take`](Self::take).
    #[inline]
    pub fn pending_bytes(&mut self) -> usize {
        self.unit.bytes().len()
    }

    /// Sets the number of cycles that each instruction takes from here on, in addition to
    /// [`cycles`](Self::cycles).
    pub fn cycles_each(&mut self, cycles: Option<u32>) {
        self.each = cycles;
    }

    /// Sets the state of the core from the next run on.
    pub fn context(&mut self, context: Context) {
        self.next_context = Some(context);
    }

    /// Traces a straight line: the instructions from `start` up to `end`, which was not executed.
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

    /// Same as [`run`](Self::run) for instructions that are already decoded.
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

    /// Traces an instruction; returns the address after it.
    fn step(&mut self, here: CodeAddress, instruction: Instruction) -> CodeAddress {
        let after = here.after(&instruction);
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

    /// Traces an exception with its number in the traced protocol and its preferred return address.
    pub fn exception(&mut self, number: u16, return_to: CodeAddress) {
        if self.here.is_none() && self.exception.is_none() {
            // After a gap: the next run starts with its own address.
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

    /// Marks the last instruction as an exception return that its encoding does not show: in
    /// M-profile, a branch to a magic address (Armv8-M ARM DDI 0553, B3.22 "Exception return").
    pub fn exception_return(&mut self) {
        if let Some(pending) = &mut self.pending {
            pending.instruction.exception_return = true;
            pending.instruction.conditional = false;
        }
    }

    /// Sets whether the last instruction, a branch before a gap, was taken.
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

    /// Traces an exception taken in place of the exception return that the last instruction started
    /// (M-profile tail-chaining).
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

    /// Traces a gap: the next run is not connected to the last one. If instructions ran since the
    /// last waypoint, an entry to debug state is traced, so that the trace contains them; report an
    /// [`exception`](Self::exception) before the gap to trace that instead. A conditional branch with
    /// an unknown outcome is omitted.
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

    /// Counts cycles since the last count, or since the start.
    pub fn cycles(&mut self, cycles: u32) {
        self.unit.cycles(cycles);
    }

    /// Traces a timestamp, event or trigger.
    pub fn mark(&mut self, mark: Mark) {
        if !self.begun || self.pending.is_some() || self.exception.is_some() {
            self.marks.push(mark);
        } else {
            self.unit.mark(&mark);
        }
    }

    /// Ends the trace. If the next instruction is known, an entry to debug state is traced, so that
    /// the trace contains all instructions before it.
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
