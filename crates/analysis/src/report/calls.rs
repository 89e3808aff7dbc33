//! The call tree, derived from the branches of a history.
//!
//! A branch with link calls; a branch to the return address of an open call ends that call and the
//! calls within it. Exceptions nest like calls. Functions are identified by the user of this
//! module; it uses no symbols.

use armsnap_arch::quantity::Address;
use armsnap_history::calls::{How, Resumption, SignalReturns, Taken, Transition, Transitions};
use armsnap_history::timeline::{Event, Gap, Position};
use std::collections::VecDeque;

/// The number of open calls searched for the one that returns to an address.
const SEARCHED: usize = 1024;

/// What happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    /// A function was called.
    Call {
        /// Its first instruction.
        function: Address,
    },
    /// A function was left for another one, which returns to the caller.
    Jump {
        /// Its first instruction.
        function: Address,
    },
    /// An exception was taken.
    Exception {
        /// Its name.
        name: &'static str,
        /// The first instruction of its handler.
        handler: Address,
    },
    /// A return to a caller whose call was not traced.
    Return {
        /// The instruction after the call.
        to: Address,
    },
    /// A return to an address that no open call returns to: the open calls are no longer known.
    Elsewhere {
        /// The instruction.
        to: Address,
    },
    /// A gap after which execution continued outside the open calls.
    Gap {
        /// Why.
        gap: Gap,
        /// The instruction.
        to: Address,
    },
}

/// A line of the call tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Line {
    /// The first instruction after it.
    pub position: Position,
    /// The nesting depth; negative for callers of the function where the tree starts.
    pub depth: i64,
    /// What happened.
    pub what: What,
}

#[derive(Clone, Copy, Debug)]
struct Frame {
    line: Line,
    /// The return address; unknown for some exceptions.
    returns_to: Option<Address>,
    /// A signal handler: it returns to code that asks the kernel to resume the interrupted code.
    signal: bool,
}

/// The calls up to a position.
#[derive(Debug)]
pub struct Calls {
    lines: VecDeque<Line>,
    most: usize,
    left_out: u64,
    open: Vec<Frame>,
    base: i64,
    transitions: Transitions,
    /// The handlers of signals.
    signals: SignalReturns,
    /// Whether the innermost call is the handler of a signal, and has returned to the code that asks
    /// the kernel to resume the program.
    signal_over: bool,
}

impl Calls {
    /// Keeps the last `most` lines.
    pub fn new(most: usize) -> Self {
        Self {
            lines: VecDeque::new(),
            most,
            left_out: 0,
            open: Vec::new(),
            base: 0,
            transitions: Transitions::default(),
            signals: SignalReturns::default(),
            signal_over: false,
        }
    }

    /// Processes the next event, in the order of history. `function` returns the start of the
    /// function that contains an address.
    pub fn event(&mut self, event: &Event, function: impl Fn(Address) -> Option<Address>) {
        let Some(Transition { position, to, how }) = self.transitions.event(event) else {
            return;
        };
        if how.stays_at(to) {
            return;
        }
        let signal_over = std::mem::take(&mut self.signal_over);
        match how {
            How::Resumed { gap, taken } => {
                if !self.return_to(to) {
                    self.resume(position, to, gap, taken, signal_over);
                }
            }
            How::Took(taken) => self.take(position, to, taken, false),
            // The usual way to read the pc in position-independent code.
            How::Called { returns_to } if returns_to == to => {}
            How::Called { returns_to } => {
                self.enter(
                    position,
                    What::Call { function: to },
                    Some(returns_to),
                    false,
                );
            }
            How::Returned => self.returned(position, to),
            How::Jumped { from, indirect } => {
                if !(indirect && self.return_to(to)) {
                    self.signal_over = signal_over;
                    let begins = function(to) == Some(to);
                    if begins && function(from) != Some(to) {
                        let what = What::Jump { function: to };
                        self.push(position, self.depth() - 1, what);
                    }
                }
            }
        }
    }

    /// Continues after a gap at an address that no open call returns to. `is_over`: the innermost call is the
    /// handler of a signal, and has asked the kernel to resume the program.
    fn resume(
        &mut self,
        position: Position,
        to: Address,
        gap: Gap,
        taken: Option<Taken>,
        is_over: bool,
    ) {
        let Some((name, returns_to)) = taken else {
            return self.forget(position, What::Gap { gap, to });
        };
        if !is_over && !self.signals.asked(returns_to) {
            self.signals.entered(to);
            return self.take(position, to, (name, returns_to), true);
        }
        let handler = if is_over { self.open.pop() } else { None };
        let interrupted = handler.and_then(|handler| handler.returns_to);
        match self.signals.resumption(interrupted, to) {
            Resumption::SameCall => {}
            Resumption::NextHandler if handler.is_some() => {
                self.take(position, to, (name, interrupted), true);
            }
            Resumption::NextHandler | Resumption::Elsewhere => {
                self.forget(position, What::Elsewhere { to });
            }
        }
    }

    fn take(
        &mut self,
        position: Position,
        handler: Address,
        (name, returns_to): Taken,
        signal: bool,
    ) {
        let what = What::Exception { name, handler };
        self.enter(position, what, returns_to, signal);
    }

    fn depth(&self) -> i64 {
        self.base.saturating_add(self.open.len() as i64)
    }

    fn push(&mut self, position: Position, depth: i64, what: What) -> Line {
        let line = Line {
            position,
            depth,
            what,
        };
        if self.lines.len() >= self.most {
            self.lines.pop_front();
            self.left_out += 1;
        }
        self.lines.push_back(line);
        line
    }

    fn enter(&mut self, position: Position, what: What, returns_to: Option<Address>, signal: bool) {
        let line = self.push(position, self.depth(), what);
        self.open.push(Frame {
            line,
            returns_to,
            signal,
        });
    }

    /// Returns the depth of the innermost open call that `wanted` accepts.
    fn innermost(&self, wanted: impl FnMut(&Frame) -> bool) -> Option<usize> {
        let first = self.open.len().saturating_sub(SEARCHED);
        let found = self.open[first..].iter().rposition(wanted);
        found.map(|found| first + found)
    }

    /// Ends the innermost call that returns to an address, and those within it.
    fn return_to(&mut self, to: Address) -> bool {
        let found = self.innermost(|frame| frame.returns_to == Some(to));
        if let Some(found) = found {
            self.open.truncate(found);
        }
        found.is_some()
    }

    fn returned(&mut self, position: Position, to: Address) {
        if self.return_to(to) {
            return;
        }
        // An exception without a known return address.
        if let Some(found) = self.innermost(|frame| frame.returns_to.is_none()) {
            self.open.truncate(found);
        } else if self.open.last().is_some_and(|frame| frame.signal) {
            self.signals.returned(to);
            self.signal_over = true;
        } else if self.open.is_empty() {
            self.base = self.base.saturating_sub(1);
            self.push(position, self.base, What::Return { to });
        } else {
            self.forget(position, What::Elsewhere { to });
        }
    }

    /// Forgets the open calls, which are no longer known.
    fn forget(&mut self, position: Position, what: What) {
        self.open.clear();
        self.push(position, self.base, what);
    }

    /// The last lines, oldest first.
    pub fn lines(&self) -> impl Iterator<Item = &Line> {
        self.lines.iter()
    }

    /// The number of earlier lines.
    pub fn left_out(&self) -> u64 {
        self.left_out
    }

    /// The calls that have not returned, outermost first.
    pub fn open(&self) -> impl ExactSizeIterator<Item = &Line> {
        self.open.iter().map(|frame| &frame.line)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use armsnap_arch::quantity::{BufferOffset, ExceptionLevel, Isa};
    use armsnap_history::timeline::Entry;
    use armsnap_trace::element::{Context, Exception, Mark, TraceOnReason};
    use armsnap_trace::flow::{self, LastInstruction, Range};

    const CALL: LastInstruction = LastInstruction::CALL;
    const RETURN: LastInstruction = LastInstruction::RETURN;
    const JUMP: LastInstruction = LastInstruction::JUMP;

    fn run(start: u64, end: u64, last: LastInstruction) -> Entry {
        Entry::Run {
            range: Range::a64(start, end, last),
            cycles: None,
        }
    }

    fn irq(returns_to: u64) -> Entry {
        Entry::Exception(Exception {
            number: 1,
            name: "IRQ",
            return_address: Some(Address(returns_to)),
        })
    }

    /// Functions start at multiples of 0x1000.
    fn calls(most: usize, entries: &[Entry]) -> Calls {
        let mut calls = Calls::new(most);
        for (index, entry) in entries.iter().enumerate() {
            let event = Event {
                position: format!("0+{index}").parse().unwrap(),
                offset: BufferOffset(0),
                entry: *entry,
            };
            calls.event(&event, |address| Some(Address(address.0 & !0xfff)));
        }
        calls
    }

    fn shown(calls: &Calls) -> Vec<(i64, What)> {
        calls.lines().map(|line| (line.depth, line.what)).collect()
    }

    /// The lines and the number of open calls.
    #[track_caller]
    fn check(entries: &[Entry], lines: &[(i64, What)], open: usize) {
        let all = calls(100, entries);
        assert_eq!(shown(&all), lines);
        assert_eq!(all.open().len(), open);
    }

    fn call(function: u64) -> What {
        What::Call {
            function: Address(function),
        }
    }

    #[test]
    fn recursion_nests_and_returns_level_by_level() {
        let mut entries = vec![run(0x1000, 0x1008, CALL)];
        for _ in 0..3 {
            entries.push(run(0x2000, 0x2010, CALL));
        }
        entries.push(run(0x2000, 0x2004, RETURN));
        entries.push(run(0x2010, 0x2014, RETURN));
        entries.push(run(0x2010, 0x2014, JUMP));
        let all = calls(100, &entries);
        let wanted: Vec<_> = (0..4).map(|depth| (depth, call(0x2000))).collect();
        assert_eq!(shown(&all), wanted);
        // The third and fourth have returned; the second is about to be left.
        assert_eq!(all.open().len(), 2);
        let all = calls(2, &entries);
        assert_eq!(shown(&all), wanted[2..]);
        assert_eq!(all.left_out(), 2);
        assert_eq!(all.open().len(), 2);
    }

    /// Code reads its own address: no call.
    #[test]
    fn a_branch_with_link_to_the_next_instruction_is_no_call() {
        let entries = [
            run(0x1000, 0x1008, CALL),
            run(0x2000, 0x2010, CALL),
            run(0x2010, 0x2014, RETURN),
            run(0x1008, 0x100c, JUMP),
        ];
        check(&entries, &[(0, call(0x2000))], 0);
    }

    /// A direct branch within a function to the return address of a call in it.
    #[test]
    fn a_direct_branch_returns_from_nothing() {
        let entries = [
            run(0x1000, 0x1008, CALL),
            run(0x2000, 0x2010, CALL),
            run(0x2000, 0x2008, JUMP),
            run(0x2010, 0x2014, JUMP),
            run(0x2018, 0x201c, JUMP),
        ];
        check(&entries, &[(0, call(0x2000)), (1, call(0x2000))], 2);
    }

    #[test]
    fn jumps_are_calls_that_return_to_the_caller() {
        let jump = What::Jump {
            function: Address(0x3000),
        };
        let entries = [
            run(0x1000, 0x1008, CALL),
            run(0x2000, 0x2004, JUMP),
            run(0x3000, 0x3004, JUMP),
            run(0x3004, 0x3008, RETURN),
            run(0x1008, 0x100c, CALL),
            run(0x4000, 0x4004, CALL),
        ];
        check(
            &entries,
            &[(0, call(0x2000)), (0, jump), (0, call(0x4000))],
            1,
        );
    }

    #[test]
    fn exceptions_nest_and_end_where_they_were_taken() {
        let taken = What::Exception {
            name: "IRQ",
            handler: Address(0x8000),
        };
        let wanted = [
            (0, call(0x2000)),
            (1, taken),
            (2, call(0x9000)),
            (
                -1,
                What::Return {
                    to: Address(0x7000),
                },
            ),
        ];
        let entries = [
            run(0x1000, 0x1008, CALL),
            // Taken before the first instruction of the function.
            irq(0x2000),
            run(0x8000, 0x8008, CALL),
            run(0x9000, 0x9004, RETURN),
            run(0x8008, 0x800c, RETURN),
            run(0x2000, 0x2004, RETURN),
            run(0x1008, 0x100c, RETURN),
            run(0x7000, 0x7004, RETURN),
        ];
        check(&entries, &wanted, 0);
    }

    #[test]
    fn unknown_callers_are_reported() {
        let gap = Gap::Buffer;
        let wanted = [
            (0, call(0x9000)),
            (0, call(0x2000)),
            (1, call(0x3000)),
            (
                0,
                What::Elsewhere {
                    to: Address(0x5000),
                },
            ),
            (0, call(0x6000)),
            (
                0,
                What::Gap {
                    gap,
                    to: Address(0x7000),
                },
            ),
        ];
        let entries = [
            run(0x1000, 0x1008, CALL),
            // The function is not in the image.
            Entry::Gap(Gap::Flow(flow::Gap::MemoryMissing(Address(0x9000)))),
            // Back in the caller: the call is over.
            run(0x1008, 0x100c, CALL),
            run(0x2000, 0x2004, CALL),
            run(0x3000, 0x3004, RETURN),
            run(0x5000, 0x5004, CALL),
            run(0x6000, 0x6004, JUMP),
            Entry::Gap(gap),
            run(0x7000, 0x7004, JUMP),
        ];
        check(&entries, &wanted, 0);
    }

    /// A function that calls itself is interrupted where such a call returns to.
    #[test]
    fn an_untraced_exception_at_a_return_address_ends_no_call() {
        let program = Context {
            isa: Isa::A64,
            el: Some(ExceptionLevel(0)),
            ..Context::default()
        };
        let entries = [
            Entry::Mark(Mark::Context(program)),
            run(0x1000, 0x1008, CALL),
            run(0x2000, 0x2010, CALL),
            run(0x2000, 0x2010, JUMP),
            irq(0x2010),
            Entry::Gap(Gap::TraceOff(TraceOnReason::BeginOrFilter)),
            run(0x2010, 0x2014, JUMP),
        ];
        check(&entries, &[(0, call(0x2000)), (1, call(0x2000))], 2);
    }

    /// The handler of a fault skips the instruction; another one continues in another function.
    #[test]
    fn a_signal_ends_where_its_handler_resumes_the_program() {
        let off = || Entry::Gap(Gap::TraceOff(TraceOnReason::BeginOrFilter));
        let program = Context {
            isa: Isa::A64,
            el: Some(ExceptionLevel(0)),
            ..Context::default()
        };
        let taken = What::Exception {
            name: "IRQ",
            handler: Address(0x8000),
        };
        let to = Address(0x7000);
        for (resumes, open, more) in [
            (0x2008, 1, None),
            (0x7000, 0, Some((0, What::Elsewhere { to }))),
        ] {
            let entries = [
                Entry::Mark(Mark::Context(program)),
                run(0x1000, 0x1008, CALL),
                run(0x2000, 0x2004, JUMP),
                irq(0x2004),
                off(),
                run(0x8000, 0x8004, RETURN),
                run(0xa000, 0xa004, JUMP),
                irq(0xa004),
                off(),
                run(resumes, resumes + 4, JUMP),
            ];
            let lines = [(0, call(0x2000)), (1, taken)].into_iter().chain(more);
            check(&entries, &lines.collect::<Vec<_>>(), open);
        }
    }

    /// The kernel delivers a pending signal where a handler asks to resume the program.
    #[test]
    fn signals_one_after_another_leave_no_handler_open() {
        let off = || Entry::Gap(Gap::TraceOff(TraceOnReason::BeginOrFilter));
        let program = Context {
            isa: Isa::A64,
            el: Some(ExceptionLevel(0)),
            ..Context::default()
        };
        let handles = |handler| What::Exception {
            name: "IRQ",
            handler: Address(handler),
        };
        let to = Address(0x7000);
        let again = [(1, handles(0x8000))];
        let other = [(0, What::Elsewhere { to })];
        for (second, open, more) in [(0x8000, 1, &again), (0x7000, 0, &other)] {
            let entries = [
                Entry::Mark(Mark::Context(program)),
                run(0x1000, 0x1008, CALL),
                run(0x2000, 0x2004, JUMP),
                irq(0x2004),
                off(),
                run(0x8000, 0x8004, RETURN),
                run(0xa000, 0xa004, JUMP),
                irq(0xa004),
                off(),
                run(second, second + 4, RETURN),
                run(0xa000, 0xa004, JUMP),
                irq(0xa004),
                off(),
                run(0x2004, 0x2008, JUMP),
            ];
            let mut lines = vec![(0, call(0x2000)), (1, handles(0x8000))];
            lines.extend(more);
            if open == 0 {
                lines.push((
                    -1,
                    What::Return {
                        to: Address(0xa000),
                    },
                ));
                lines.push((
                    -1,
                    What::Elsewhere {
                        to: Address(0x2004),
                    },
                ));
            }
            check(&entries, &lines, open);
        }
    }

    /// Linux with only the program traced: a system call, then a signal and its return.
    #[test]
    fn open_calls_survive_untraced_kernel_execution() {
        let off = || Entry::Gap(Gap::TraceOff(TraceOnReason::BeginOrFilter));
        let program = Context {
            isa: Isa::A64,
            el: Some(ExceptionLevel(0)),
            security: None,
            is_64bit: None,
            vmid: None,
            context_id: None,
        };
        let entries = [
            Entry::Mark(Mark::Context(program)),
            run(0x1000, 0x1008, CALL),
            run(0x2000, 0x2004, JUMP),
            irq(0x2004),
            off(),
            run(0x2004, 0x2008, JUMP),
            irq(0x2008),
            off(),
            run(0x8000, 0x8008, CALL),
            run(0x9000, 0x9004, RETURN),
            run(0x8008, 0x800c, RETURN),
            // The code that asks the kernel to resume.
            run(0xa000, 0xa004, JUMP),
            irq(0xa004),
            off(),
            run(0x2008, 0x200c, JUMP),
        ];
        let taken = What::Exception {
            name: "IRQ",
            handler: Address(0x8000),
        };
        check(
            &entries,
            &[(0, call(0x2000)), (1, taken), (2, call(0x9000))],
            1,
        );
    }
}
