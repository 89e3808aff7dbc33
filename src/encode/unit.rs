//! What a trace unit is told: the other side of [`super::Tracer`].

use crate::element::{Context, Mark, TraceOnReason};
use crate::flow::Waypoints;
use crate::quantity::{Address, Isa};

/// Where an instruction is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct CodeAddress {
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
    pub next: CodeAddress,
}

/// An exception that was taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Taken {
    /// Its number in the protocol that is written.
    pub number: u16,
    /// Where execution would have gone on.
    pub return_to: CodeAddress,
    /// The last instruction executed, if any was since the last waypoint, target or exception.
    pub last: Option<CodeAddress>,
    /// It took the place of an exception return that had begun (M-profile tail-chaining):
    /// `return_to` is [`TAIL_CHAIN`].
    pub chained: bool,
    /// Where execution went on; `None`: tracing ends here.
    pub handler: Option<CodeAddress>,
}

/// What stands for the return address of an exception that was tail-chained (IHI 0064,
/// "Exceptions in M-profile").
pub const TAIL_CHAIN: CodeAddress = CodeAddress {
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
    fn context(&mut self, context: &Context, at: Option<CodeAddress>);

    /// Tracing begins at `place`.
    fn trace_on(&mut self, reason: TraceOnReason, place: CodeAddress);

    /// A decoder that has seen nothing before can begin here.
    fn synchronise(&mut self, place: CodeAddress);

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
