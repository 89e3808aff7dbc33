//! Open calls, and their listeners.

use super::clock::Moment;
use super::functions::{FunctionId, Functions};
use super::pieces::Piece;
use super::tree::NodeId;
use armsnap_arch::quantity::Address;
use armsnap_history::calls::{self, Signal};
use armsnap_history::timeline::Gap;
use armsnap_trace::element::{Context, Exception, Mark};
use armsnap_trace::flow::Range;

/// How a function was entered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallKind {
    /// By a branch with link.
    Call,
    /// By a branch from another function, whose call it ends (a tail call).
    Jump,
    /// By an exception. The call's function stands for the exception; the handler is a
    /// [`Self::Handler`] in it.
    Exception,
    /// The handler of an exception.
    Handler,
    /// The kernel, which is not traced, called a signal handler.
    Signal,
    /// Unseen: the trace starts, or continues after a gap, in it.
    Unseen,
    /// Unseen: a function whose call was not traced, discovered when it was returned to. It
    /// precedes everything since the last gap or the last other context.
    Caller,
    /// By a branch into its middle: a part of a function that lies elsewhere, or code that symbols
    /// do not describe. Not counted as a call.
    Middle,
    /// It was left for another context, and continues. Not counted as a call.
    Continued,
}

impl CallKind {
    /// Returns whether it counts as a call of the function.
    pub const fn is_counted(self) -> bool {
        matches!(
            self,
            Self::Call | Self::Jump | Self::Exception | Self::Handler | Self::Signal
        )
    }

    /// Its name in tables.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Call => "call",
            Self::Jump => "jump",
            Self::Exception => "exception",
            Self::Handler => "handler",
            Self::Signal => "signal",
            Self::Unseen => "unseen",
            Self::Caller => "caller",
            Self::Middle => "middle",
            Self::Continued => "continued",
        }
    }
}

/// How a call ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// It returned.
    Returned,
    /// It was left for another function, which returns to the same caller.
    Jumped,
    /// An enclosing function continued or returned: `longjmp`, a thrown exception.
    Unwound,
    /// The end was in a gap and not seen.
    Unseen,
    /// Execution continued in another context, such as another thread.
    Switched,
    /// The trace ends in it.
    Open,
}

impl Ended {
    /// Its name in tables.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Returned => "returned",
            Self::Jumped => "jumped",
            Self::Unwound => "unwound",
            Self::Unseen => "unseen",
            Self::Switched => "switched",
            Self::Open => "open",
        }
    }
}

/// A call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Call {
    /// The function.
    pub function: FunctionId,
    /// How it was entered.
    pub kind: CallKind,
    /// When it was entered. For [`CallKind::Caller`], which was entered earlier, the start of the
    /// trace since the last gap, or since another context was left.
    pub begin: Moment,
    /// The number of enclosing calls. Negative for [`CallKind::Caller`].
    pub depth: i64,
    /// Where it returns to; unknown for functions entered unseen and for some exceptions.
    pub returns_to: Option<Address>,
}

/// A gap, with what is known on both sides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GapSeen {
    /// The first reason given by the trace.
    pub gap: Gap,
    /// The last moment before it.
    pub from: Moment,
    /// The first moment after it; `None` if the trace ends in it.
    pub to: Option<Moment>,
    /// The address at which execution is known again.
    pub resumes_at: Option<Address>,
}

/// Receives what happens in one core's execution, in order.
pub trait Listener {
    /// Whether calls are wanted. Without them there are no callers, no latencies of exceptions, and
    /// code without symbols belongs to no function; counting takes a fraction of the time.
    const CALLS: bool = true;

    /// Whether only sums are wanted: the listener receives nothing, and calls are counted on
    /// several threads.
    const SUMS: bool = false;

    /// Whether [`Self::straight`] and [`Self::unknown_path`] are wanted.
    const STRAIGHT: bool = false;

    /// Whether [`Self::block`], [`Self::new_run`], [`Self::run`] and [`Self::forget_runs`] are
    /// wanted: what is executed, in order, but not ordered relative to calls. This takes much less
    /// time than [`Self::straight`].
    const RUNS: bool = false;

    /// Whether [`Tree::lines`](super::Tree::lines) is wanted: how often each block was executed by
    /// each chain of callers.
    const LINES: bool = false;

    /// A function was entered. [`CallKind::Caller`] is reported when the function is returned to.
    fn begin(&mut self, call: &Call, functions: &Functions) {
        let _ = (call, functions);
    }

    /// A call ended, after all calls in it.
    fn end(&mut self, call: &Call, end: &Moment, how: Ended, functions: &Functions) {
        let _ = (call, end, how, functions);
    }

    /// An exception was taken. Its call begins when the handler is executed, if that is traced.
    fn exception(&mut self, moment: &Moment, exception: &Exception) {
        let _ = (moment, exception);
    }

    /// Execution is unknown for a while.
    fn gap(&mut self, gap: &GapSeen) {
        let _ = gap;
    }

    /// An event, a trigger, a message of ITM, STM or ETE instrumentation, or a transaction.
    fn event(&mut self, moment: &Moment, mark: &Mark) {
        let _ = (moment, mark);
    }

    /// A timestamp was traced; `moment` already has it.
    fn time(&mut self, moment: &Moment) {
        let _ = moment;
    }

    /// The state of the core changed, or was traced again.
    fn context(&mut self, moment: &Moment, context: &Context) {
        let _ = (moment, context);
    }

    /// Instructions are executed in a straight line, after `moment`.
    fn straight(&mut self, moment: &Moment, line: &Range, context: Option<&Context>) {
        let _ = (moment, line, context);
    }

    /// A block, or part of one without `index`, is executed after a number of instructions.
    fn block(&mut self, instructions: u64, index: Option<usize>, line: impl FnOnce() -> Range) {
        let _ = (instructions, index, line);
    }

    /// From now on, a number stands for a run: consecutive blocks, which were just executed.
    fn new_run(&mut self, number: usize, blocks: impl Iterator<Item = usize>) {
        let _ = (number, blocks);
    }

    /// A run with a number of blocks is executed after a number of instructions.
    fn run(&mut self, instructions: u64, number: usize, blocks: usize) {
        let _ = (instructions, number, blocks);
    }

    /// The numbers of blocks and runs so far become invalid.
    fn forget_runs(&mut self) {}

    /// A number of instructions is executed on an unknown path, after `moment`.
    fn unknown_path(&mut self, moment: &Moment, instructions: u32, context: Option<&Context>) {
        let _ = (moment, instructions, context);
    }

    /// A piece that was decoded elsewhere follows at `begin`, even if it had to be decoded again.
    /// Its straight lines are not reported by [`Self::straight`].
    fn piece(&mut self, begin: &Moment, piece: &Piece) {
        let _ = (begin, piece);
    }
}

/// Listens to nothing.
#[derive(Clone, Copy, Debug, Default)]
pub struct Nothing;

impl Listener for Nothing {
    const SUMS: bool = true;
}

/// Listens to nothing, and wants no calls: executed code is only counted.
#[derive(Clone, Copy, Debug, Default)]
pub struct CodeOnly;

impl Listener for CodeOnly {
    const CALLS: bool = false;
    const SUMS: bool = true;
}

/// Listens to nothing, and wants the blocks that were executed by each chain of callers.
#[derive(Clone, Copy, Debug, Default)]
pub struct LinesOfCalls;

impl Listener for LinesOfCalls {
    const LINES: bool = true;
}

/// An open call.
#[derive(Clone, Copy, Debug)]
pub(super) struct Frame {
    pub call: Call,
    pub node: NodeId,
    /// It ends together with the enclosing call: a handler with its exception.
    pub joined: bool,
    /// For an exception: the context ID of the interrupted code.
    pub context_id: Option<u32>,
    /// For a signal handler, or a function that replaced it.
    pub signal: Option<Signal>,
}

impl calls::Frame for Frame {
    type Function = FunctionId;

    fn function(&self) -> FunctionId {
        self.call.function
    }

    fn returns_to(&self) -> Option<Address> {
        self.call.returns_to
    }

    fn is_exception(&self) -> bool {
        self.call.kind == CallKind::Exception
    }

    fn is_joined(&self) -> bool {
        self.joined
    }

    fn context_id(&self) -> Option<u32> {
        self.context_id
    }

    fn signal(&self) -> Option<Signal> {
        self.signal
    }
}
