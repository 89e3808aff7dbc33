//! Exceptions of M-profile cores: their handlers are in the trace, and what the core stores and
//! loads is known (`armsnap_arch::semantics::m_profile`).

use super::{Builder, PRESERVED_MOST, PendingReturn, Sink, Through};
use crate::recover::bits::Bits;
use crate::recover::execution::steps::Taken;
use crate::recover::execution::template::{Floats, Op, SAME_BY_CONVENTION, Template};
use crate::recover::graph::nodes::NONE;
use armsnap_arch::quantity::Isa;
use armsnap_arch::semantics::m_profile::{
    EXCEPTION_RETURN, EXCEPTION_RETURN_BITS, FRAME_ADDRESS, NOTES_FLOATS, RETURN_ADDRESS,
    saved_floats,
};
use armsnap_arch::semantics::{Control, Location, Operand};

/// Registers that a frame with floating-point registers contains.
const FLOATS: usize = 10;

/// Code that was interrupted by an exception whose entry is not reached yet.
#[derive(Clone, Debug)]
pub(super) struct Interrupted {
    /// Where the exception returned to.
    to: Option<u64>,
    /// The nodes of the locations that a function preserves, after the return.
    preserved: [u32; PRESERVED_MOST],
    /// The returns that were open there.
    returns: Vec<PendingReturn>,
    /// Whether an instruction since may have selected another stack.
    switched: bool,
    /// Whether `preserved` are from before an instruction of which a part was executed before the
    /// exception.
    resumes: bool,
    /// The nodes of the registers in a frame with floating-point registers, after the return, and
    /// whether code since may have written them.
    floats: [u32; FLOATS],
    writes_floats: bool,
    /// The node that says whether floating point is in use, after the return.
    uses_floats: u32,
}

impl Builder {
    /// Whether an exception and the return from another one are at the same place: the core went from
    /// one handler to the next without the interrupted code's frame.
    fn is_chained(through: &Through<'_>, taken: Taken, other: Option<usize>) -> bool {
        let other = other.and_then(|other| through.steps.taken.get(other));
        other.is_some_and(|other| other.step == taken.step && other.returns != taken.returns)
    }

    /// Builds an exception, or the return from one, before a step. `passed` counts the exceptions
    /// up to it.
    pub(super) fn handler(&mut self, through: &Through<'_>, taken: Taken, sink: &mut impl Sink) {
        let passed = self.counts.taken;
        if taken.returns {
            if !Self::is_chained(through, taken, passed.checked_sub(2)) {
                self.return_from_handler(through, taken, sink);
            }
        } else if Self::is_chained(through, taken, Some(passed)) {
            self.chain(through, taken, sink);
        } else {
            self.enter_handler(through, taken, sink);
        }
    }

    fn enter_handler(&mut self, through: &Through<'_>, taken: Taken, sink: &mut impl Sink) {
        self.align_frame(through, true, sink);
        self.relations_of(through, &through.templates.entry, taken.step + 1, sink);
        let to = taken.return_to.or_else(|| after(through, taken.step + 1));
        if let Some(to) = to {
            self.input(RETURN_ADDRESS, Bits::new(!1, to), sink);
        }
        self.input(EXCEPTION_RETURN, link(through, taken), sink);
        self.forget_inputs();
        self.infer_program(through, sink);
        let Some(interrupted) = taken.interrupted else {
            // It may be any instruction.
            return self.lose_everything(taken.step, sink);
        };
        let interrupted = &through.templates.all[interrupted as usize];
        if interrupted.opaque {
            return self.lose_everything(taken.step, sink);
        }
        let in_part = through.templates.is_interruptible(interrupted);
        if in_part {
            self.abandon(through, interrupted, taken.step + 1, sink);
        }
        if interrupted.floats == Floats::Uses {
            // It may have begun.
            self.first_float(through, false, taken.step + 1, sink);
        }
        if !self.follows_returns {
            return;
        }
        self.returns.clear();
        let open = self.interrupted.pop();
        if let Some(open) = open.filter(|open| !open.switched) {
            let same = to.is_some_and(|to| open.to.map(|at| at & !1) == Some(to & !1));
            if same && in_part == open.resumes {
                self.same(&open.preserved, Isa::T32, sink);
                if through.templates.microcontroller.extensions.floating_point {
                    self.same_floats(through, &open, taken, sink);
                }
                self.returns = open.returns;
            }
        } else {
            self.interrupted.clear();
        }
    }

    fn return_from_handler(&mut self, through: &Through<'_>, taken: Taken, sink: &mut impl Sink) {
        let to = self.address_at(through, taken.step);
        let began = self.began.take();
        let preserved = began.unwrap_or_else(|| self.preserved(Isa::T32));
        let mut floats = [NONE; FLOATS];
        for (slot, location) in floats.iter_mut().zip(saved_floats()) {
            *slot = self.current[location.index()];
        }
        self.infer_program(through, sink);
        let uses_floats = self.current[Location::FLOATS.index()];
        let node = self.node(RETURN_ADDRESS.index(), sink);
        if let Some(to) = to {
            sink.fact(node, Bits::new(!1, to));
        }
        // Software may have made the frame of a task.
        let made_by_core = through.templates.microcontroller.main_stack_only;
        self.align_frame(through, made_by_core, sink);
        self.relations_of(through, &through.templates.exit, taken.step + 1, sink);
        self.input(EXCEPTION_RETURN, link(through, taken), sink);
        if self.follows_returns {
            self.interrupted.push(Interrupted {
                to,
                preserved,
                returns: std::mem::take(&mut self.returns),
                switched: false,
                resumes: began.is_some(),
                floats,
                writes_floats: false,
                uses_floats,
            });
        }
    }

    /// After an instruction was built of which a part was executed before an exception: until the
    /// handler returned, it is unknown what it had written.
    pub(super) fn resume(
        &mut self,
        through: &Through<'_>,
        template: &Template,
        sink: &mut impl Sink,
    ) {
        self.began = Some(self.preserved(Isa::T32));
        for op in through.templates.ops_of(template) {
            if op.destination.is_kept() {
                self.lose(op.destination.index(), sink);
            }
        }
    }

    /// Builds a load or store of such an instruction: if it was executed before the exception, the
    /// handler may have written the same memory since. It does not write the slots of a frame.
    pub(super) fn resumed_access(&mut self, number: u32, op: &Op, step: u32, sink: &mut impl Sink) {
        if op.is_store() {
            return self.uncertain_store(number, op, step, sink);
        }
        let to = op.destination.index();
        let result = std::mem::replace(&mut self.current[to], NONE);
        self.lost(to, result, sink);
    }

    /// Builds what an instruction that an exception interrupted may have done before: it may have
    /// written each of its registers, and stored each of its words.
    fn abandon(
        &mut self,
        through: &Through<'_>,
        template: &Template,
        step: u32,
        sink: &mut impl Sink,
    ) {
        let ops = through.templates.ops_of(template);
        let written = ops.iter().map(|op| op.destination);
        for location in written.filter(|location| location.is_kept()) {
            self.lose(location.index(), sink);
            self.node(location.index(), sink);
        }
        for index in (0..u32::from(template.count)).rev() {
            let number = template.first + index;
            let op = through.templates.op(number);
            if op.is_store() {
                self.uncertain_store(number, op, step, sink);
            } else if !op.destination.is_kept() && op.access().is_none() {
                self.operation(number, op, step, sink);
            }
        }
    }

    /// Builds a store of which it is unknown whether it happened.
    fn uncertain_store(&mut self, number: u32, op: &Op, step: u32, sink: &mut impl Sink) {
        let base = self.operand(op.operands[0], sink);
        let predicate = self.operand(op.operands[2], sink);
        let data = self.new_node(Location::NOWHERE.index(), sink);
        self.access(number, [NONE, base, data, predicate], step, sink);
    }

    /// Infers that the core aligns frames to 8 bytes (CCR.STKALIGN).
    fn align_frame(&mut self, through: &Through<'_>, made_by_core: bool, sink: &mut impl Sink) {
        let node = self.node(FRAME_ADDRESS.index(), sink);
        if made_by_core && through.templates.microcontroller.aligns_frames {
            sink.inferred(node, Bits::new(7, 0));
        }
    }

    /// At the beginning of history: infers the state after a reset, if the first instruction is the one
    /// where the core starts.
    pub(super) fn begin(&mut self, through: &Through<'_>, first: &Template, sink: &mut impl Sink) {
        let microcontroller = through.templates.microcontroller;
        let Some(stack_pointer) = microcontroller.stack_pointer_at_reset(first.pc) else {
            return;
        };
        for (location, value) in [
            (Location::general(13), stack_pointer),
            (Location::ON_PROCESS_STACK, 0),
            (Location::HANDLER_MODE, 0),
            (Location::FLOATS, 0),
            (Location::FLOATS_PENDING, 0),
        ] {
            let node = self.node(location.index(), sink);
            sink.inferred(node, Bits::known(value));
        }
    }

    /// Infers that a program without code that selects the process stack does not use it, and that
    /// one without floating-point instructions does not use floating point.
    fn infer_program(&mut self, through: &Through<'_>, sink: &mut impl Sink) {
        let node = self.node(Location::ON_PROCESS_STACK.index(), sink);
        let microcontroller = through.templates.microcontroller;
        if microcontroller.main_stack_only {
            sink.inferred(node, Bits::known(0));
        }
        if microcontroller.extensions.floating_point {
            let node = self.node(Location::FLOATS.index(), sink);
            if microcontroller.without_floats {
                sink.inferred(node, Bits::known(0));
            }
        }
    }

    /// Infers that interrupted code has the same floating-point registers after the return: they are in
    /// its frame, or no handler used floating point.
    fn same_floats(
        &mut self,
        through: &Through<'_>,
        open: &Interrupted,
        taken: Taken,
        sink: &mut impl Sink,
    ) {
        let use_of_floats = self.current[Location::FLOATS.index()];
        if open.uses_floats != use_of_floats && open.uses_floats != NONE {
            let nodes = [open.uses_floats, use_of_floats, NONE, NONE];
            sink.relation(SAME_BY_CONVENTION, nodes);
        }
        let saves = taken.floats && through.templates.microcontroller.notes_floats;
        if open.writes_floats && !saves {
            return;
        }
        for (&after, location) in open.floats.iter().zip(saved_floats()) {
            let before = self.current[location.index()];
            if after != before && after != NONE && before != NONE {
                sink.relation(SAME_BY_CONVENTION, [after, before, NONE, NONE]);
            }
        }
    }

    /// Builds what the core does before an instruction that may be the first with floating point;
    /// `is_executed`: it is executed.
    pub(super) fn first_float(
        &mut self,
        through: &Through<'_>,
        is_executed: bool,
        step: u32,
        sink: &mut impl Sink,
    ) {
        self.relations_of(through, &through.templates.first_float, step, sink);
        let input = NOTES_FLOATS.index();
        let notes = std::mem::replace(&mut self.current[input], NONE);
        if notes != NONE {
            sink.fact(notes, Bits::new(!1, 0));
            if is_executed && through.templates.microcontroller.notes_floats {
                sink.inferred(notes, Bits::known(1));
            }
        }
    }

    /// Notes an instruction with floating point.
    pub(super) fn uses_floats(&mut self) {
        for open in &mut self.interrupted {
            open.writes_floats = true;
        }
    }

    /// Builds the transition from a handler to the next one.
    fn chain(&mut self, through: &Through<'_>, taken: Taken, sink: &mut impl Sink) {
        let link = self.node(Location::general(14).index(), sink);
        // The frame is that of code which the first of the handlers interrupted, in either security state.
        let is_secure = None;
        sink.fact(link, self::link(through, Taken { is_secure, ..taken }));
        self.current[Location::general(14).index()] = NONE;
        self.current[EXCEPTION_RETURN.index()] = link;
        let flags = [Location::N, Location::Z, Location::C, Location::V];
        let general = [0, 1, 2, 3, 12].map(Location::general);
        let rest = [Location::Q, Location::GE, Location::FLOATS];
        let floats = self.current[Location::FLOATS.index()];
        if floats != NONE {
            sink.fact(floats, Bits::known(0));
        }
        for location in general.into_iter().chain(flags).chain(rest) {
            self.lose(location.index(), sink);
        }
        self.returns.clear();
    }

    /// Builds the branch that returned from a handler: it went to EXC_RETURN.
    pub(super) fn handler_branch(&mut self, template: &Template, sink: &mut impl Sink) {
        let link = self.current[EXCEPTION_RETURN.index()];
        self.forget_inputs();
        let Control::Indirect {
            target, condition, ..
        } = template.control
        else {
            return;
        };
        if let Operand::Location(condition) = condition {
            let node = self.node(condition.index(), sink);
            sink.fact(node, Bits::known(1));
        }
        if let (Operand::Location(target), true) = (target, link != NONE) {
            let other = self.current[target.index()];
            if other == NONE {
                self.current[target.index()] = link;
                self.found(target.index(), sink);
            } else if self.follows_returns {
                sink.relation(SAME_BY_CONVENTION, [link, other, NONE, NONE]);
            }
        }
    }

    /// Notes that an instruction may have selected another stack.
    pub(super) fn selects_stack(&mut self) {
        for open in &mut self.interrupted {
            open.switched = true;
        }
    }

    /// What is known of an input of the relations built last.
    fn input(&mut self, location: Location, bits: Bits, sink: &mut impl Sink) {
        let node = self.node(location.index(), sink);
        sink.fact(node, bits);
    }

    fn forget_inputs(&mut self) {
        for input in [RETURN_ADDRESS, EXCEPTION_RETURN] {
            self.current[input.index()] = NONE;
        }
    }
}

/// The bits of EXC_RETURN that are known without values: all but those of the interrupted code, and of
/// its security state if that is not known.
fn link(through: &Through<'_>, taken: Taken) -> Bits {
    /// Bits ES, FType, DCRS and S (DDI 0553, D1.2.95). Before Armv8-M, the others are 1.
    const SECURE_HANDLER: u64 = 1;
    const WITHOUT_FLOATS: u64 = 1 << 4;
    const USUAL_FRAME: u64 = 1 << 5;
    const SECURE_STACK: u64 = 1 << 6;
    let extensions = through.templates.microcontroller.extensions;
    let security = SECURE_HANDLER | SECURE_STACK;
    let (known, set) = match (extensions.security, taken.is_secure) {
        (false, _) => (!0, SECURE_HANDLER | USUAL_FRAME | SECURE_STACK),
        (true, Some(true)) => (!0, security | USUAL_FRAME),
        (true, Some(false)) => (!0, USUAL_FRAME),
        (true, None) => (!(security | USUAL_FRAME), 0),
    };
    let floats = if extensions.floating_point {
        WITHOUT_FLOATS
    } else {
        0
    };
    Bits::new(
        known & !(0xc | floats),
        EXCEPTION_RETURN_BITS | WITHOUT_FLOATS | set,
    )
}

/// Where execution continues after the instruction at a step, if that does not depend on values.
fn after(through: &Through<'_>, step: u32) -> Option<u64> {
    if step >= through.steps.len() {
        return None;
    }
    let template = through.steps.template(through.templates, step)?;
    match template.control {
        Control::Next if !template.opaque => Some(template.end()),
        Control::Jump(to) => Some(to),
        _ => None,
    }
}
