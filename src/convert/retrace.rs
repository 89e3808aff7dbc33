//! The trace frames of a file → equivalent ETMv4 trace.
//!
//! Execution between two frames is traced if the file or the code determines it; otherwise the
//! trace has a gap.

use super::code_paths::{CodePaths, StraightLine, next};
use super::exceptions;
use super::frame_values::FrameValues;
use super::steps::CollectedFrame;
use armsnap_arch::arch::branch::{Instruction, Kind};
use armsnap_arch::quantity::{Address, Isa, Profile};
use armsnap_snapshot::capture::Protocol;
use armsnap_trace::element::{Context, Mark, TraceOnReason};
use armsnap_trace::encode::{CodeAddress, TAIL_CHAIN, Tracer};
use armsnap_trace::etmv4::{self, TraceUnitOptions};
use armsnap_trace::flow::{CodeImage, ContextKey, View};
use std::collections::HashSet;

/// Bytes of trace between synchronisations.
const SYNC_BYTES: usize = 4096;

/// The maximum length of a frame's straight line, in bytes.
const LONGEST_LINE: u64 = 1 << 20;

/// The maximum number of bytes of code that are traced in total: a few frames in cyclic code could
/// otherwise become gigabytes of trace.
const MOST: u64 = 1 << 28;
/// Additional bytes of code allowed for each frame.
const MOST_PER_FRAME: u64 = 256;

/// Options for encoding the trace.
pub struct RetraceOptions {
    /// The trace unit.
    pub unit: TraceUnitOptions,
    /// The protocol whose exception numbers the frames use.
    pub protocol: Option<Protocol>,
    /// The core's state, for frames that do not contain it.
    pub context: Context,
    /// Addresses whose execution always produces a frame.
    pub watched: HashSet<u64>,
    /// The number of frames.
    pub frames: u64,
}

/// The result of encoding the frames.
#[derive(Clone, Debug, Default)]
pub struct Retraced {
    /// The trace.
    pub trace: Vec<u8>,
    /// The number of frames whose instruction was traced.
    pub traced: u64,
    /// The number of frames without a program counter or code.
    pub lost: u64,
    /// The number of gaps between frames.
    pub gaps: u64,
    /// The traced straight lines of code, each once: view, start and end.
    pub lines: HashSet<(View, Address, Address)>,
    /// Whether the search for paths reached its limit.
    pub exhausted: bool,
}

/// The instruction executed last.
#[derive(Clone, Copy)]
struct PreviousInstruction {
    place: CodeAddress,
    instruction: Instruction,
    /// Whether the frame reports it as taken.
    taken: Option<bool>,
}

/// Encodes steps as trace.
pub struct Retracer<C> {
    tracer: Tracer<etmv4::TraceUnit, C>,
    paths: CodePaths<C>,
    code: C,
    options: RetraceOptions,
    context: Option<Context>,
    view: View,
    previous: Option<PreviousInstruction>,
    cycles: Option<u64>,
    timestamp: Option<u64>,
    left: u64,
    out: Retraced,
}

impl<C: CodeImage + Clone> Retracer<C> {
    /// Creates a retracer for the executed code.
    pub fn new(options: RetraceOptions, code: C) -> Self {
        let unit = etmv4::TraceUnit::new(options.unit);
        let left = MOST.saturating_add(MOST_PER_FRAME.saturating_mul(options.frames));
        Self {
            tracer: Tracer::new(unit, code.clone(), SYNC_BYTES),
            paths: CodePaths::new(code.clone(), options.watched.clone()),
            view: code.view(&ContextKey::default()),
            code,
            options,
            context: None,
            previous: None,
            cycles: None,
            timestamp: None,
            left,
            out: Retraced::default(),
        }
    }

    /// Encodes the next frame.
    pub fn step(&mut self, CollectedFrame { place, values }: &CollectedFrame) {
        let Some(place) = *place else {
            self.cut();
            self.out.lost += 1;
            return;
        };
        let mut connected = !values.gap && self.previous.is_some();
        if connected && values.line.is_some() && values.exception.is_some() {
            // The core's state changes after the exception.
            connected = self.exception(values);
        }
        self.state(values, place.isa);
        let Some(instruction) = self.paths.instruction(self.view, place) else {
            self.cut();
            self.out.lost += 1;
            return;
        };
        let here = PreviousInstruction {
            place,
            instruction,
            taken: values.taken,
        };
        if values.line.is_none() && values.exception.is_some() && self.is_only_return(values, place)
        {
            return;
        }
        match values
            .line
            .filter(|&line| self.is_line(line, place.address))
        {
            Some(line) => {
                if !connected {
                    self.cut();
                }
                let start = CodeAddress {
                    address: line,
                    isa: place.isa,
                };
                self.run(start, next(place, instruction.bytes).address);
            }
            None => {
                let last = self
                    .previous
                    .filter(|_| connected && values.exception.is_none());
                if !last.is_some_and(|last| self.follow(last, place)) {
                    self.cut();
                }
                self.run(place, next(place, instruction.bytes).address);
            }
        }
        self.previous = Some(here);
        self.out.traced += 1;
        if let Some(cycles) = values.cycles {
            let before = self.cycles.replace(cycles).unwrap_or(0);
            let passed = cycles.saturating_sub(before);
            self.tracer
                .cycles(u32::try_from(passed).unwrap_or(u32::MAX));
        }
        self.tracer.take(&mut self.out.trace);
    }

    /// Ends the trace, with the core halted at `halted`.
    pub fn finish(mut self, halted: Option<CodeAddress>) -> Retraced {
        match halted.filter(|&halted| self.leads_to(halted)) {
            Some(halted) => self.tracer.finish(Some(halted)),
            None => {
                self.cut();
                self.out.gaps = self.out.gaps.saturating_sub(1);
                self.tracer.finish(None);
            }
        }
        self.tracer.take(&mut self.out.trace);
        self.out.exhausted = self.paths.is_exhausted() || self.left == 0;
        self.out
    }

    /// Traces the core's state and the time if they changed.
    fn state(&mut self, values: &FrameValues, isa: Isa) {
        let context = Context {
            isa,
            el: values.state.el.or(self.options.context.el),
            security: values.state.security.or(self.options.context.security),
            is_64bit: Some(isa == Isa::A64),
            ..values.state
        };
        let known = |context: Context| Context {
            isa: Isa::default(),
            ..context
        };
        if self.context.map(known) != Some(known(context)) {
            self.context = Some(context);
            self.view = self.code.view(&ContextKey::from(&context));
            self.tracer.context(context);
        }
        if let Some(timestamp) = values
            .timestamp
            .filter(|_| values.timestamp != self.timestamp)
        {
            self.timestamp = values.timestamp;
            self.tracer.mark(Mark::Timestamp(timestamp));
        }
    }

    /// Whether a line can end with the instruction at `last`.
    fn is_line(&self, line: Address, last: Address) -> bool {
        let length = last.0.checked_sub(line.0);
        length.is_some_and(|length| length <= LONGEST_LINE)
    }

    /// Traces a line.
    fn run(&mut self, start: CodeAddress, end: Address) {
        let length = end.0.wrapping_sub(start.address.0);
        match self.left.checked_sub(length) {
            Some(left) => self.left = left,
            None => {
                self.left = 0;
                self.cut();
                return;
            }
        }
        self.tracer.run(start, end);
        self.out.lines.insert((self.view, start.address, end));
    }

    /// Ends the connected part of the trace.
    fn cut(&mut self) {
        if let Some(last) = self.previous.take() {
            self.out.gaps += 1;
            if let Some(taken) = last.taken {
                self.tracer.outcome(taken);
            }
        }
        self.tracer.gap(TraceOnReason::BeginOrFilter);
    }

    /// Traces `lines` without their first instruction, which was already traced.
    fn run_rest(&mut self, last: PreviousInstruction, lines: &[StraightLine]) {
        for (index, line) in lines.iter().enumerate() {
            let mut start = line.start;
            if index == 0 {
                start = next(last.place, last.instruction.bytes);
            }
            if start.address != line.end {
                self.run(start, line.end);
            }
        }
    }

    /// Traces the only path from one instruction to another, if there is one.
    fn follow(&mut self, last: PreviousInstruction, to: CodeAddress) -> bool {
        match self.paths.between(self.view, last.place, to) {
            Some(lines) => {
                self.run_rest(last, &lines);
                true
            }
            None => false,
        }
    }

    /// Whether the last instruction itself leads to an address.
    fn leads_to(&mut self, to: CodeAddress) -> bool {
        let Some(last) = self.previous else {
            return false;
        };
        let falls = next(last.place, last.instruction.bytes) == to;
        match last.instruction.kind {
            Kind::Branch { target, isa } => {
                let leads = CodeAddress {
                    address: target,
                    isa,
                } == to;
                leads || falls && last.instruction.conditional
            }
            Kind::Indirect => falls && last.instruction.conditional,
            _ => falls,
        }
    }

    /// Traces an exception. Returns `false` if the path to it is unknown.
    fn exception(&mut self, values: &FrameValues) -> bool {
        let (Some(number), Some(last)) = (self.number(values), self.previous) else {
            return false;
        };
        let indirect = last.instruction.kind == Kind::Indirect;
        // ETMv3 has no address in this case.
        let chained = |address| address == TAIL_CHAIN.address;
        if self.options.unit.core.profile == Profile::M
            && values.exception_return.is_none_or(chained)
        {
            if indirect {
                self.tracer.tail_chain(number);
            }
            return indirect;
        }
        let Some(address) = values.exception_return else {
            return false;
        };
        let isa = match last.instruction.kind {
            Kind::Branch { target, isa } if target == address => isa,
            _ => last.place.isa,
        };
        let to = CodeAddress { address, isa };
        if !indirect && !self.leads_to(to) {
            return false;
        }
        self.tracer.exception(number, to);
        true
    }

    /// The number of the step's exception in the ETMv4 trace.
    fn number(&self, values: &FrameValues) -> Option<u16> {
        let profile = self.options.unit.core.profile;
        exceptions::etmv4(self.options.protocol?, profile, values.exception?)
    }

    /// A frame at the return address of an exception means that the exception was taken there, not
    /// that the instruction was executed.
    fn is_only_return(&mut self, values: &FrameValues, place: CodeAddress) -> bool {
        if values.exception_return != Some(place.address) {
            return false;
        }
        self.cut();
        if let Some(number) = self.number(values) {
            self.tracer.run(place, place.address);
            self.tracer.exception(number, place);
            self.cut();
            self.out.traced += 1;
        }
        true
    }
}
