//! The interface between [`super::Tracer`] and the trace units of the protocols.

use crate::element::{Context, Mark, TraceOnReason};
use crate::flow::Waypoints;
use armsnap_arch::arch::branch::Instruction;
use armsnap_arch::quantity::{Address, Isa};

/// The address of an instruction and its instruction set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct CodeAddress {
    /// The address.
    pub address: Address,
    /// The instruction set.
    pub isa: Isa,
}

impl CodeAddress {
    /// Returns the address after the instruction here.
    #[inline]
    pub(crate) fn after(self, instruction: &Instruction) -> Self {
        Self {
            address: self.address.after(instruction.bytes.into(), self.isa),
            isa: self.isa,
        }
    }
}

/// The settings of a trace unit that decide what is traced.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// The instructions with atoms, besides branches, ISB and TSTART.
    pub waypoints: Waypoints,
    /// Number of entries of the return stack; 0 for no return stack.
    pub return_stack: usize,
    /// Whether the target of every taken branch is traced.
    pub branch_broadcast: bool,
}

/// A waypoint instruction that was executed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Waypoint {
    /// Whether the branch was taken, or another instruction passed its condition.
    pub taken: bool,
    /// Whether the trace must contain `next`.
    pub target_traced: bool,
    /// Whether it returned from an exception.
    pub exception_return: bool,
    /// The next instruction executed.
    pub next: CodeAddress,
}

/// An exception that was taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TakenException {
    /// Its number in the traced protocol.
    pub number: u16,
    /// The preferred return address.
    pub return_to: CodeAddress,
    /// The last instruction executed since the last waypoint, target or exception, if any.
    pub last: Option<CodeAddress>,
    /// Whether it was tail-chained: taken in place of an exception return (M-profile). Then
    /// `return_to` is [`TAIL_CHAIN`].
    pub chained: bool,
    /// The first instruction of the handler; `None` if tracing ends here.
    pub handler: Option<CodeAddress>,
}

/// The value in place of the return address of a tail-chained exception (ARM IHI 0064H, "Exceptions
/// in M-profile").
pub const TAIL_CHAIN: CodeAddress = CodeAddress {
    address: Address(0xffff_fffe),
    isa: Isa::T32,
};

/// Writes the trace of one core in one protocol.
pub trait TraceUnit {
    /// Returns the settings.
    fn options(&self) -> Options;

    /// Returns the exception number for the entry to debug state, if it is traced as an exception.
    fn debug_halt(&self) -> Option<u16>;

    /// Sets the state of the core. It is written with the next address, or at once if execution
    /// continues in a straight line at `at`.
    fn context(&mut self, context: &Context, at: Option<CodeAddress>);

    /// Starts tracing at `place`.
    fn trace_on(&mut self, reason: TraceOnReason, place: CodeAddress);

    /// Writes a synchronisation point: a decoder can start here.
    fn synchronise(&mut self, place: CodeAddress);

    /// Traces an instruction that is not a waypoint.
    fn instruction(&mut self);

    /// Traces a waypoint.
    fn waypoint(&mut self, waypoint: &Waypoint);

    /// Traces an exception.
    fn exception(&mut self, taken: &TakenException);

    /// Counts cycles.
    fn cycles(&mut self, cycles: u32);

    /// Traces a timestamp, event or trigger; ignores other marks.
    fn mark(&mut self, mark: &Mark);

    /// Writes the packets held back.
    fn flush(&mut self);

    /// Returns the bytes written so far, for the caller to take.
    fn bytes(&mut self) -> &mut Vec<u8>;
}
