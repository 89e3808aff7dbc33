//! Steps → nodes, relations and accesses, backward in time.
//!
//! The value of a location is a node from the instruction that wrote it to the next one that writes
//! it. Going backward, a node begins at its last reader. Flags, vectors and temporaries that are
//! never read have none. A value that a copy leaves in two locations is one node.

mod calls;
mod handlers;
mod signals;

use super::nodes::NONE;
use crate::recover::bits::{Bits, low};
use crate::recover::execution::steps::{Step, Steps, Taken};
use crate::recover::execution::template::{
    ARGUMENTS, CLEARS_BLOCK, Floats, Op, SAME_BY_CONVENTION, SYSTEM_CALL, Template, stack_pointer,
};
use crate::recover::execution::templates::Templates;
use armsnap_arch::quantity::Isa;
use armsnap_arch::semantics::{Control, Location, Operand, Operation};
use armsnap_snapshot::program::landing_pads::LandingPads;
use handlers::Interrupted;
use signals::{Signal, SignalReturn};
use std::cell::{Cell, OnceCell};
use std::ops::Range;

/// Locations, with the temporaries of an instruction.
const ALL: usize = 256;

/// General registers of AArch32: r0 to r14.
const GENERAL_NARROW: usize = 15;

/// Locations of the M profile that are 0 or 1.
const MODES: std::ops::RangeInclusive<usize> =
    Location::ON_PROCESS_STACK.index()..=Location::FLOATS_PENDING.index();

/// ETMv4's exception numbers of a reset, of the entry to debug state and of a call (IHI 0064H, 6.4.8).
const RESET: u16 = 0;
const DEBUG_HALT: u16 = 1;
const CALL: u16 = 2;

/// Receives what is built. The builder numbers nodes and accesses itself, so the numbers do not
/// depend on the sink.
pub(in crate::recover) trait Sink {
    /// A new node.
    fn node(&mut self, _node: u32) {}
    /// Bits of a node that are known from the trace or the code.
    fn fact(&mut self, _node: u32, _bits: Bits) {}
    /// Bits of a node that are inferred.
    fn inferred(&mut self, _node: u32, _bits: Bits) {}
    /// A relation.
    fn relation(&mut self, _op: u32, _nodes: [u32; 4]) {}
    /// A load or store, or a system call.
    fn access(&mut self, _op: u32, _nodes: [u32; 4], _step: u32, _access: u32) {}
    /// A signal, whose frame may be larger than modelled; also an access.
    fn signal(&mut self, _step: u32) {}
    /// A signal whose handler returned: the stack pointers with which it started and returned, and
    /// the accesses from its return back to the signal.
    fn handled(&mut self, _stack_pointers: [u32; 2], _accesses: Range<u32>) {}
    /// Something that may write any memory; also an access.
    fn barrier(&mut self, _step: u32, _hard: bool) {}
    /// The node that a location has before the current step was found.
    fn found(&mut self, _location: usize, _node: u32) {}
    /// The stack pointer changed: its node from here on, and the next access after the change.
    fn stack_pointer(&mut self, _node: u32, _access: u32) {}
    /// The stack pointer may be set to another stack.
    fn switches_stack(&mut self) {}
    /// A value of the stack pointer is not above another.
    fn below(&mut self, _node: u32, _bound: u32) {}
    /// An operation left a constant or an unknown value in a node.
    fn left(&mut self, _node: u32, _op: u32) {}
    /// An operation was left out because its result is never read.
    fn dead(&mut self, _location: usize, _op: u32) {}
    /// The contents of a location from here on are unrelated to those before: its node, if it has
    /// one, ends.
    fn lost(&mut self, _location: usize, _node: u32) {}
}

/// A return whose call is not found yet.
#[derive(Clone, Debug)]
struct PendingReturn {
    to: u64,
    /// The nodes of the locations that a function preserves, after the return.
    preserved: [u32; PRESERVED_MOST],
    /// Whether it goes to a landing pad; determined on demand.
    lands: OnceCell<bool>,
    /// Whether it left functions that did not return, by longjmp.
    long: bool,
}

const PRESERVED_MOST: usize = 20;

/// The locations that a function preserves (AAPCS64 6.1.1 and 6.1.2; AAPCS32 6.1.1 and 6.1.2).
fn preserved(isa: Isa) -> impl Iterator<Item = Location> {
    let (general, vectors) = match isa {
        Isa::A64 => (19..30, 8..16),
        _ => (4..12, 4..8),
    };
    let wide = isa != Isa::A64;
    let stack = if wide {
        Location::general(13)
    } else {
        Location::SP
    };
    let halves = move |number| {
        let high = wide.then(|| Location::vector(number, 1));
        std::iter::once(Location::vector(number, 0)).chain(high)
    };
    general
        .map(Location::general)
        .chain([stack])
        .chain(vectors.flat_map(halves))
}

/// How much was built.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::recover) struct Counts {
    pub nodes: u32,
    /// Relations, except those of the calling convention: only the first walk finds calls.
    pub relations: u32,
    /// Accesses; the first stands for the final contents of memory.
    pub accesses: u32,
    /// Exceptions that were passed.
    taken: usize,
    /// The latest step at which an address may mean other memory than at the end.
    pub other_space: Option<u32>,
}

/// The state of a walk backward.
#[derive(Clone, Debug)]
pub(in crate::recover) struct Builder {
    current: [u32; ALL],
    /// Whether registers have 32 bits.
    narrow: bool,
    /// Returns whose calls have not been reached yet.
    returns: Vec<PendingReturn>,
    /// Returns from handlers whose signals have not been reached yet.
    signals: Vec<SignalReturn>,
    /// Code that exceptions interrupted whose entry has not been reached yet (M profile).
    interrupted: Vec<Interrupted>,
    /// The nodes of the locations that a function preserves, before an instruction that a handler
    /// interrupted; until the return from the handler is built.
    began: Option<[u32; PRESERVED_MOST]>,
    /// Whether returns are followed.
    follows_returns: bool,
    pub counts: Counts,
    /// The kept locations reported to a sink since the last checkpoint, one bit each.
    settled: u128,
}

/// The state of the first walk before a step.
#[derive(Clone, Debug)]
pub(in crate::recover) struct Checkpoint {
    pub counts: Counts,
    /// Relations in the graph.
    pub relations: u32,
    current: Box<[u32]>,
    /// The kept locations that were found, dead or lost in the interval that starts here; all of
    /// them until its end is built.
    pub settled: u128,
    /// The step up to which a walk from here is known to give the same result.
    pub repeated_until: Cell<u32>,
}

/// What the walk goes through.
#[derive(Clone, Copy)]
pub(in crate::recover) struct Through<'a> {
    pub templates: &'a Templates,
    pub steps: &'a Steps,
    /// The pc of the halted state, if execution reached it.
    pub halted: Option<u64>,
    /// Whether a program was traced without its kernel.
    pub without_kernel: bool,
    /// Where exceptions of the programming language continue.
    pub landing_pads: &'a LandingPads,
}

impl Checkpoint {
    /// The nodes of the kept locations.
    pub fn current(&self) -> &[u32] {
        &self.current
    }
}

impl Builder {
    /// Starts at the end, where these values are known.
    pub fn new(values: &[Option<u64>; Location::KEPT], narrow: bool, sink: &mut impl Sink) -> Self {
        let mut builder = Self {
            current: [NONE; ALL],
            narrow,
            returns: Vec::new(),
            signals: Vec::new(),
            interrupted: Vec::new(),
            began: None,
            follows_returns: true,
            counts: Counts {
                nodes: 0,
                relations: 0,
                accesses: 1,
                taken: 0,
                other_space: None,
            },
            settled: 0,
        };
        for (location, value) in values.iter().enumerate() {
            if let Some(value) = value {
                let node = builder.new_node(location, sink);
                builder.current[location] = node;
                sink.fact(node, Bits::known(*value));
            }
        }
        builder
    }

    /// The state at the start of an interval, with the locations settled in the one before it.
    pub fn checkpoint(&mut self, relations: u32) -> (Checkpoint, u128) {
        let checkpoint = Checkpoint {
            counts: self.counts,
            relations,
            current: self.current().into(),
            settled: !0,
            repeated_until: Cell::new(0),
        };
        (checkpoint, std::mem::take(&mut self.settled))
    }

    /// Whether a walk reached the same state as the first one.
    pub fn agrees(&self, counts: Counts, current: &[u32]) -> bool {
        self.counts == counts && self.current() == current
    }

    /// A walk that builds the same again from a checkpoint on.
    pub fn again(checkpoint: &Checkpoint, narrow: bool) -> Self {
        let mut current = [NONE; ALL];
        current[..Location::KEPT].copy_from_slice(&checkpoint.current);
        Self {
            current,
            narrow,
            returns: Vec::new(),
            signals: Vec::new(),
            interrupted: Vec::new(),
            began: None,
            follows_returns: false,
            counts: checkpoint.counts,
            settled: 0,
        }
    }

    /// The nodes of the kept locations before the step built last.
    pub fn current(&self) -> &[u32] {
        &self.current[..Location::KEPT]
    }

    /// Builds the next step.
    pub fn step(&mut self, through: &Through<'_>, step: u32, sink: &mut impl Sink) {
        // Not built with the step after them: the explored steps may have ended there at that time.
        while let Some(taken) = through.steps.taken.get(self.counts.taken)
            && taken.step < step
        {
            self.counts.taken += 1;
            let halts = through.without_kernel || taken.number == DEBUG_HALT;
            if taken.step == 0 && through.halted.is_some() && halts {
                // The final state is the one in which the exception was taken.
                continue;
            }
            self.exception(through, *taken, sink);
        }
        if through.steps.other_space.is_some_and(|from| step >= from) {
            self.leave_space(step, sink);
        }
        match through.steps.step(step) {
            Step::Halted => {}
            Step::Gap => self.lose_everything(step, sink),
            Step::Instruction(number) => {
                let template = &through.templates.all[number as usize];
                self.instruction(through, template, step, sink);
                if step + 1 == through.steps.len() && through.steps.is_complete() {
                    self.begin(through, template, sink);
                }
            }
        }
    }

    /// From this step back, an address may mean other memory than at the end, so accesses are
    /// barriers.
    fn leave_space(&mut self, step: u32, sink: &mut impl Sink) {
        if self.counts.other_space.is_none() {
            self.counts.other_space = Some(step);
            self.barrier(step, true, sink);
        }
    }

    fn lose_everything(&mut self, step: u32, sink: &mut impl Sink) {
        for location in 0..Location::KEPT {
            self.lose(location, sink);
        }
        self.returns.clear();
        self.signals.clear();
        self.interrupted.clear();
        self.began = None;
        self.barrier(step, true, sink);
    }

    /// The contents of a location before here are unrelated to those after.
    fn lose(&mut self, location: usize, sink: &mut impl Sink) {
        self.changes(location, sink);
        let node = std::mem::replace(&mut self.current[location], NONE);
        self.lost(location, node, sink);
    }

    fn lost(&mut self, location: usize, node: u32, sink: &mut impl Sink) {
        self.settle(location);
        sink.lost(location, node);
    }

    fn settle(&mut self, location: usize) {
        if location < Location::KEPT {
            self.settled |= 1 << location;
        }
    }

    /// Reports that a location receives its value here.
    fn changes(&self, location: usize, sink: &mut impl Sink) {
        if location == stack_pointer(self.narrow).index() {
            sink.stack_pointer(self.current[location], self.counts.accesses - 1);
        }
    }

    fn new_node(&mut self, location: usize, sink: &mut impl Sink) -> u32 {
        let node = self.counts.nodes;
        self.counts.nodes += 1;
        sink.node(node);
        // Bits 63:32 of FPCR are RES0 (DDI 0487, C5.2, FPCR).
        if self.narrow && location < GENERAL_NARROW || location == Location::FPCR.index() {
            sink.fact(node, Bits::new(!low(32), 0));
        }
        if MODES.contains(&location) {
            sink.fact(node, Bits::new(!1, 0));
        }
        node
    }

    fn barrier(&mut self, step: u32, hard: bool, sink: &mut impl Sink) {
        self.counts.accesses += 1;
        sink.barrier(step, hard);
    }

    fn access(&mut self, op: u32, nodes: [u32; 4], step: u32, sink: &mut impl Sink) {
        if self.counts.other_space.is_some() {
            return self.barrier(step, true, sink);
        }
        let access = self.counts.accesses;
        self.counts.accesses += 1;
        self.counts.relations += 1;
        sink.access(op, nodes, step, access);
    }

    /// Builds an exception taken before a step.
    fn exception(&mut self, through: &Through<'_>, taken: Taken, sink: &mut impl Sink) {
        if through.templates.has_handlers() && !matches!(taken.number, RESET | DEBUG_HALT) {
            return self.handler(through, taken, sink);
        }
        let untraced = taken.step == 0 && through.halted.is_some();
        match self.signal(through, taken) {
            Some(Signal::Delivered(from)) => return self.deliver(through, taken, from, sink),
            Some(Signal::Returned) => return,
            None => {}
        }
        if through.without_kernel
            || through.templates.is_narrow()
            || taken.number == RESET
            || untraced
        {
            // In AArch32 it is a signal: the kernel wrote a frame and set up the registers of the
            // handler. Systems in AArch32 bank registers by mode. A handler after the end of the
            // trace is unknown.
            return self.lose_everything(taken.step, sink);
        }
        self.returns.clear();
        self.lose(Location::SP.index(), sink);
    }

    /// The nodes of the locations that a function preserves.
    fn preserved(&self, isa: Isa) -> [u32; PRESERVED_MOST] {
        let mut nodes = [NONE; PRESERVED_MOST];
        for (slot, location) in nodes.iter_mut().zip(preserved(isa)) {
            *slot = self.current[location.index()];
        }
        nodes
    }

    /// Relates the locations that a function preserves: by convention, they are unchanged.
    fn same(&self, after: &[u32; PRESERVED_MOST], isa: Isa, sink: &mut impl Sink) {
        for (&after, location) in after.iter().zip(preserved(isa)) {
            let before = self.current[location.index()];
            if after != before && after != NONE && before != NONE {
                sink.relation(SAME_BY_CONVENTION, [after, before, NONE, NONE]);
            }
        }
    }

    fn instruction(
        &mut self,
        through: &Through<'_>,
        template: &Template,
        step: u32,
        sink: &mut impl Sink,
    ) {
        let next = self.next(through, step);
        let taken = self.counts.taken.checked_sub(1);
        let taken = taken.map(|last| through.steps.taken[last]);
        if taken.is_some_and(|taken| taken.returns && taken.step + 1 == step) {
            self.handler_branch(template, sink);
        }
        if template.opaque {
            return self.lose_everything(step, sink);
        }
        if template.sigreturn && through.without_kernel {
            return self.handler_returns(through, next, step, sink);
        }
        self.control(through, template, next, step, sink);
        if template.changes_space {
            self.leave_space(step, sink);
        }
        if template.stores_anywhere {
            self.barrier(step, false, sink);
        }
        let ops = &through.templates.ops[template.first as usize..][..template.count.into()];
        if template.go && ops.iter().any(Op::switches_stack) {
            // Another thread may have run the goroutine meanwhile, or the runtime may have moved
            // its stack.
            self.barrier(step, true, sink);
        }
        if let Some(location) = template.clears_block {
            let base = self.node(location.index(), sink);
            self.access(CLEARS_BLOCK, [NONE, base, NONE, NONE], step, sink);
        }
        let mut result = NONE;
        if template.control == Control::SystemCall {
            // The kernel left its result.
            result = std::mem::replace(&mut self.current[0], NONE);
            if result == NONE {
                self.lost(0, result, sink);
            }
            if self.narrow {
                // It may have been set_tls.
                self.lose(Location::THREAD_POINTER.index(), sink);
            }
        }
        for index in (0..u32::from(template.count)).rev() {
            let number = template.first + index;
            let op = through.templates.op(number);
            let after = self.current[op.destination.index()];
            if template.resumed && op.access().is_some() && !op.direct {
                self.resumed_access(number, op, step, sink);
            } else {
                self.operation(number, op, step, sink);
            }
            let other_stack = template.go && op.switches_stack();
            if op.destination == Location::OTHER_STACK || op.switches_stack() {
                self.selects_stack();
            }
            if op.frees_stack() && !other_stack && after != NONE {
                let before = self.node(op.destination.index(), sink);
                sink.below(before, after);
            }
        }
        if matches!(template.floats, Floats::Uses | Floats::MayUse) {
            self.uses_floats();
            if template.is_first_float {
                let is_executed = template.floats == Floats::Uses;
                self.first_float(through, is_executed, step, sink);
            }
        }
        if template.control == Control::SystemCall && through.without_kernel {
            // Its number is in x8 (r7), its first four arguments in x0 to x3.
            let number = if template.isa == Isa::A64 { 8 } else { 7 };
            let [number, first, second, third, fourth] =
                [number, 0, 1, 2, 3].map(|register| self.node(register, sink));
            self.counts.relations += 1;
            sink.relation(ARGUMENTS, [NONE, first, third, fourth]);
            self.access(SYSTEM_CALL, [result, number, second, NONE], step, sink);
        }
        if template.calls {
            for location in preserved(template.isa).filter(|l| l.index() <= Location::SP.index()) {
                self.node(location.index(), sink);
            }
            if self.follows_returns {
                self.call(through, template, sink);
            }
        }
        if template.resumed {
            self.resume(through, template, sink);
        }
    }

    /// The address at which execution continued after a step, if nothing came between.
    fn next(&self, through: &Through<'_>, step: u32) -> Option<u64> {
        let after = step.checked_sub(1)?;
        let taken = &through.steps.taken;
        let passed = self.counts.taken.checked_sub(1);
        let passed = passed.map(|last| taken[last]);
        // The final state is the one in which the last one was taken.
        let ends = after == 0 && through.halted.is_some();
        if let Some(last) = passed.filter(|last| last.step == after && !ends) {
            match self.signal(through, last) {
                Some(Signal::Delivered(from)) => return Some(from),
                Some(Signal::Returned) => {}
                None => return None,
            }
        }
        self.address_at(through, after)
    }

    /// The address of the instruction at a step, with bit 0 set for T32.
    fn address_at(&self, through: &Through<'_>, step: u32) -> Option<u64> {
        match through.steps.step(step) {
            Step::Halted => through.halted,
            Step::Gap => None,
            Step::Instruction(number) => {
                let next = &through.templates.all[number as usize];
                let thumb = u64::from(next.isa == Isa::T32);
                Some(next.pc | thumb)
            }
        }
    }

    /// Adds the facts that follow from where execution continued after an instruction.
    fn control(
        &mut self,
        through: &Through<'_>,
        template: &Template,
        next: Option<u64>,
        step: u32,
        sink: &mut impl Sink,
    ) {
        match template.control {
            Control::Next | Control::Jump(_) => {}
            Control::Conditional { condition, target } => {
                if let Some(next) = next
                    && let Operand::Location(location) = condition
                    && target & !1 != template.end()
                {
                    let node = self.node(location.index(), sink);
                    let taken = next & !1 == target & !1;
                    sink.fact(node, Bits::known(taken.into()));
                }
            }
            Control::Indirect {
                target,
                condition,
                interworking,
            } => {
                let Some(next) = next else { return };
                if let Operand::Location(location) = condition {
                    let node = self.node(location.index(), sink);
                    if template.untaken {
                        sink.fact(node, Bits::known(0));
                        return;
                    }
                    // Continuing at the next instruction reveals nothing.
                    if next & !1 == template.end() {
                        return;
                    }
                    sink.fact(node, Bits::new(!1, 0));
                    sink.fact(node, Bits::known(1));
                }
                if let Operand::Location(location) = target {
                    let node = self.node(location.index(), sink);
                    sink.fact(node, target_bits(template.isa, next, interworking));
                }
                if !template.calls && !template.go && self.follows_returns {
                    self.follow_return(next & !1, template.isa);
                }
            }
            Control::SystemCall
                if !through.without_kernel
                    || !matches!(next, Some(next) if next & !1 == template.end()) =>
            {
                // A signal frame, another context, or a kernel that is not traced.
                self.lose_everything(step, sink);
            }
            Control::SystemCall => {}
            Control::ExceptionReturn if template.isa != Isa::A64 => {
                self.lose_everything(step, sink)
            }
            Control::ExceptionReturn => {
                self.returns.clear();
                let flags = [Location::N, Location::Z, Location::C, Location::V];
                for location in [Location::SP].into_iter().chain(flags) {
                    self.lose(location.index(), sink);
                }
            }
        }
    }

    /// The node of a location before what was built last.
    pub fn node(&mut self, location: usize, sink: &mut impl Sink) -> u32 {
        if self.current[location] == NONE {
            self.current[location] = self.new_node(location, sink);
            self.found(location, sink);
        }
        self.current[location]
    }

    fn found(&mut self, location: usize, sink: &mut impl Sink) {
        if location < Location::KEPT {
            self.settle(location);
            sink.found(location, self.current[location]);
        }
    }

    fn operand(&mut self, operand: Operand, sink: &mut impl Sink) -> u32 {
        match operand {
            Operand::Location(location) => self.node(location.index(), sink),
            Operand::Constant(_) => NONE,
        }
    }

    fn operation(&mut self, number: u32, op: &Op, step: u32, sink: &mut impl Sink) {
        if op.is_store() {
            let [a, b, c] = op.operands.map(|operand| self.operand(operand, sink));
            self.access(number, [NONE, a, b, c], step, sink);
            return;
        }
        let to = op.destination.index();
        if self.current[to] == NONE {
            // General registers are shown whether or not they are read.
            if to > Location::SP.index() {
                if to < Location::KEPT {
                    self.settle(to);
                    sink.dead(to, number);
                }
                return;
            }
            self.node(to, sink);
        }
        self.changes(to, sink);
        if op.switches_stack() {
            sink.switches_stack();
        }
        let result = std::mem::replace(&mut self.current[to], NONE);
        match (op.operation, op.operands[0]) {
            (Operation::Unknown, _) => sink.left(result, number),
            (Operation::Copy, Operand::Constant(value)) => {
                sink.fact(result, Bits::known(value));
                sink.left(result, number);
            }
            (Operation::Copy, Operand::Location(from)) if self.current[from.index()] == NONE => {
                self.current[from.index()] = result;
                self.found(from.index(), sink);
            }
            (operation, _) => {
                let [a, b, c] = op.operands.map(|operand| self.operand(operand, sink));
                if matches!(operation, Operation::Load { .. }) {
                    if self.counts.other_space.is_some() {
                        self.lost(to, result, sink);
                    }
                    self.access(number, [result, a, NONE, c], step, sink);
                } else {
                    self.counts.relations += 1;
                    sink.relation(number, [result, a, b, c]);
                }
            }
        }
    }

    /// Builds a list of operations that is not an instruction's.
    fn relations_of(
        &mut self,
        through: &Through<'_>,
        template: &Template,
        step: u32,
        sink: &mut impl Sink,
    ) {
        for index in (0..u32::from(template.count)).rev() {
            let number = template.first + index;
            self.operation(number, through.templates.op(number), step, sink);
        }
    }
}

/// What a branch reveals of the value that contained its target. A64 ignores a tag in bits 63:56 if
/// translation is configured to (DDI 0487, D8.8: AArch64.BranchAddr).
fn target_bits(isa: Isa, next: u64, interworking: bool) -> Bits {
    match (isa, interworking) {
        (Isa::A64, _) => Bits::new(low(56), next),
        (_, true) => Bits::known(next),
        (_, false) => Bits::new(!1, next),
    }
}
