//! The instructions that ran → waypoints, exceptions and gaps, each told once its outcome is
//! known.

use crate::arch::branch::{self, Instruction, Kind};
use crate::element::{Context, Mark, TraceOnReason};
use crate::flow::{CodeImage, ContextKey, View, Waypoints, fetch};
use crate::quantity::{Address, Isa};

/// Where an instruction is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Place {
    /// Its address.
    pub address: Address,
    /// Its instruction set.
    pub isa: Isa,
}

/// What a trace unit traces, as it is set up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// Which instructions have atoms, beyond branches and ISB.
    pub waypoints: Waypoints,
    /// Entries of the return stack; 0: none.
    pub return_stack: usize,
    /// The target of every branch that is taken is traced.
    pub branch_broadcast: bool,
}

/// A waypoint instruction that was executed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Waypoint {
    /// It had its effect.
    pub taken: bool,
    /// The trace must tell where execution went on.
    pub target_traced: bool,
    /// It returned from an exception.
    pub exception_return: bool,
    /// Where execution went on.
    pub next: Place,
}

/// An exception that was taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Taken {
    /// Its number in the protocol that is written.
    pub number: u16,
    /// Where execution would have gone on.
    pub return_to: Place,
    /// The last instruction executed, if any was since the last waypoint, target or exception.
    pub last: Option<Place>,
    /// It took the place of an exception return that had begun (M-profile tail-chaining):
    /// `return_to` is [`TAIL_CHAIN`].
    pub chained: bool,
    /// Where execution went on; `None`: tracing ends here.
    pub handler: Option<Place>,
}

/// What stands for the return address of an exception that was tail-chained (IHI 0064,
/// "Exceptions in M-profile").
pub const TAIL_CHAIN: Place = Place {
    address: Address(0xffff_fffe),
    isa: Isa::T32,
};

/// Writes the trace of one core in one protocol.
pub trait TraceUnit {
    /// What is traced.
    fn options(&self) -> Options;

    /// The exception number of the entry to debug state, if it is traced as one.
    fn debug_halt(&self) -> Option<u16>;

    /// Takes the core's state from here on. It is written with the next address; at once where
    /// execution goes on in a straight line `at` some place.
    fn context(&mut self, context: &Context, at: Option<Place>);

    /// Tracing begins at `place`.
    fn trace_on(&mut self, reason: TraceOnReason, place: Place);

    /// A decoder that has seen nothing before can begin here.
    fn synchronise(&mut self, place: Place);

    /// An instruction that is no waypoint.
    fn instruction(&mut self);

    /// A waypoint.
    fn waypoint(&mut self, waypoint: &Waypoint);

    /// An exception.
    fn exception(&mut self, taken: &Taken);

    /// So many cycles passed.
    fn cycles(&mut self, cycles: u32);

    /// A timestamp, event or trigger; others are not traced.
    fn mark(&mut self, mark: &Mark);

    /// Writes what is held back.
    fn flush(&mut self);

    /// The bytes written so far.
    fn bytes(&mut self) -> &mut Vec<u8>;
}

/// A waypoint whose outcome is not known yet.
#[derive(Clone, Copy, Debug)]
struct Pending {
    instruction: Instruction,
    here: Place,
    after: Place,
    /// The instruction before, if it is one since the last waypoint, target or exception.
    last: Option<Place>,
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
    return_to: Place,
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
    here: Option<Place>,
    /// Why tracing will begin again.
    reason: TraceOnReason,
    /// Instructions of the current T32 IT block to come.
    it_block: u8,
    /// T32 code that exceptions interrupted, the last first: where it goes on, and the
    /// instructions of its IT block to come.
    interrupted: Vec<(Place, u8)>,
    last: Option<Place>,
    pending: Option<Pending>,
    exception: Option<Exception>,
    /// Marks behind a waypoint that is pending, or before the begin.
    marks: Vec<Mark>,
    stack: Vec<Place>,
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
            it_block: 0,
            interrupted: Vec::new(),
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
    pub fn run(&mut self, start: Place, end: Address) {
        self.arrive(start);
        let mut here = start;
        while here.address < end {
            let Some(instruction) = self.decode(here) else {
                self.lose();
                return;
            };
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
    pub fn run_decoded(&mut self, start: Place, instructions: &[Instruction]) {
        let mut here = start;
        for (index, instruction) in instructions.iter().enumerate() {
            if index == 0 || self.pending.is_some() {
                self.arrive(here);
            }
            let mut instruction = *instruction;
            self.in_it_block(&mut instruction);
            here = self.step(here, instruction);
        }
    }

    /// An instruction was executed; the place behind it.
    fn step(&mut self, here: Place, instruction: Instruction) -> Place {
        let address = here.address.0.wrapping_add(instruction.bytes.into());
        let after = Place {
            address: Address(if here.isa == Isa::A64 {
                address
            } else {
                address & 0xffff_ffff
            }),
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
    pub fn exception(&mut self, number: u16, return_to: Place) {
        if self.here.is_none() && self.exception.is_none() {
            // Nothing is traced: what follows begins with its own address.
            return;
        }
        self.arrive(return_to);
        if return_to.isa == Isa::T32 {
            const MOST: usize = 64;
            self.interrupted.truncate(MOST);
            self.interrupted.insert(0, (return_to, self.it_block));
        }
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
        self.interrupted.clear();
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
    pub fn finish(&mut self, next: Option<Place>) {
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

    /// Tells the waypoint and the exception that nothing will follow. A branch that may have led
    /// elsewhere is left out.
    fn settle(&mut self) {
        if let Some(pending) = self.pending.take() {
            let certain = match pending.instruction.kind {
                Kind::Branch { target, isa } if !pending.instruction.conditional => Some(Place {
                    address: target,
                    isa,
                }),
                // It led to somewhere that is not traced.
                Kind::Indirect if !pending.instruction.conditional => {
                    self.unit.waypoint(&Waypoint {
                        taken: true,
                        target_traced: false,
                        exception_return: pending.instruction.exception_return,
                        next: pending.after,
                    });
                    None
                }
                Kind::Branch { .. } | Kind::Indirect => None,
                _ => Some(pending.after),
            };
            if let Some(next) = certain {
                self.resolve(pending, next, false);
            }
        }
        self.except(None);
        self.marks();
    }

    fn marks(&mut self) {
        if !self.begun {
            return;
        }
        for mark in self.marks.drain(..) {
            self.unit.mark(&mark);
        }
    }

    fn decode(&mut self, here: Place) -> Option<Instruction> {
        let (word, count) = fetch(&self.code, self.view, here.address);
        let mut instruction = branch::decode(here.isa, here.address, u32::from_le_bytes(word))?;
        if count < usize::from(instruction.bytes) {
            return None;
        }
        self.in_it_block(&mut instruction);
        Some(instruction)
    }

    /// Makes the instruction conditional where an IT before it says so.
    fn in_it_block(&mut self, instruction: &mut Instruction) {
        if self.it_block > 0 {
            self.it_block -= 1;
            instruction.conditional = true;
        } else {
            self.it_block = instruction.it_block;
        }
    }

    /// Code is missing or its instruction set is not followed.
    fn lose(&mut self) {
        self.gaps += 1;
        self.gap(TraceOnReason::BeginOrFilter);
    }

    /// Execution is at `place`.
    fn arrive(&mut self, place: Place) {
        let new_context = self.next_context(place);
        if self.here != Some(place) {
            self.it_block = self.resumed(place);
        }
        if let Some(pending) = self.pending.take() {
            self.resolve(pending, place, new_context);
        } else if self.exception.is_some() {
            self.except(Some(place));
        } else if self.here.is_some() && self.here != Some(place) {
            self.gaps += 1;
            self.gap(TraceOnReason::BeginOrFilter);
        }
        if self.here.is_none() {
            if !self.begun {
                let written = self.written();
                self.beginnings.push(written);
            }
            self.unit.trace_on(self.reason, place);
            self.reason = TraceOnReason::BeginOrFilter;
            self.stack.clear();
            self.last = None;
            if !std::mem::replace(&mut self.begun, true) {
                self.synchronised = self.written();
                self.marks();
            }
        } else if self.last.is_none() {
            self.synchronise(place);
        }
        self.here = Some(place);
    }

    /// What is left of an IT block, where an exception return leads into the middle of it.
    fn resumed(&mut self, place: Place) -> u8 {
        let returns = self.pending.is_some_and(|p| p.instruction.exception_return);
        let mut interrupted = self.interrupted.iter();
        let found = interrupted.position(|(at, _)| returns && *at == place);
        found.map_or(0, |index| self.interrupted.remove(index).1)
    }

    /// Tells the unit of a new context at `place`, if there is one.
    fn next_context(&mut self, place: Place) -> bool {
        let Some(context) = self.next_context.take() else {
            return false;
        };
        self.view = self.code.view(&ContextKey::from(&context));
        let goes_on = self.pending.is_none() && self.exception.is_none();
        let at = (goes_on && self.here == Some(place)).then_some(place);
        self.unit.context(&context, at);
        true
    }

    fn written(&mut self) -> usize {
        self.taken.wrapping_add(self.unit.bytes().len())
    }

    fn synchronise(&mut self, place: Place) {
        let every = self.sync_bytes;
        let written = self.written();
        if every > 0 && written.wrapping_sub(self.synchronised) >= every {
            self.unit.flush();
            let beginning = self.written();
            self.beginnings.push(beginning);
            self.unit.synchronise(place);
            self.stack.clear();
            self.synchronised = written;
        }
    }

    /// The exception led to `handler`.
    fn except(&mut self, handler: Option<Place>) {
        if let Some(exception) = self.exception.take() {
            let last = self.last.take();
            self.unit.exception(&Taken {
                number: exception.number,
                return_to: exception.return_to,
                last,
                chained: exception.chained,
                handler,
            });
            if let Some(handler) = handler {
                self.here = Some(handler);
            }
            self.marks();
        }
    }

    /// A waypoint led to `next`, where the core's state may be another one.
    fn resolve(&mut self, waypoint: Pending, next: Place, new_context: bool) {
        let Pending {
            instruction, after, ..
        } = waypoint;
        let falls = next == after;
        let (taken, connected) = match instruction.kind {
            Kind::Branch { target, isa } => {
                let leads = next
                    == Place {
                        address: target,
                        isa,
                    };
                // An exception may have returned into an IT block: then what looks
                // unconditional may fall through.
                let conditional = instruction.conditional || after.isa == Isa::T32 && !leads;
                let taken = !conditional || leads && !falls;
                (taken, if taken { leads } else { falls })
            }
            Kind::Indirect => (!falls || !instruction.conditional, true),
            _ => (true, falls),
        };
        let direct = matches!(instruction.kind, Kind::Branch { .. });
        let indirect = instruction.kind == Kind::Indirect;
        let broadcast = self.options.branch_broadcast;
        let mut target_traced = taken && (indirect || direct && broadcast);
        if taken
            && indirect
            && !broadcast
            && !instruction.link
            && !instruction.exception_return
            && !new_context
            && self.stack.last() == Some(&next)
        {
            self.stack.pop();
            target_traced = false;
        }
        if taken && instruction.link && self.options.return_stack > 0 {
            if self.stack.len() >= self.options.return_stack {
                self.stack.remove(0);
            }
            self.stack.push(after);
        }
        self.unit.waypoint(&Waypoint {
            taken,
            target_traced: target_traced && connected,
            exception_return: taken && instruction.exception_return,
            next,
        });
        self.marks();
        self.here = Some(next);
        if !connected {
            self.gaps += 1;
            self.here = None;
        }
    }
}
