//! The call tree, derived from the branches of a history.
//!
//! [`armsnap_history::calls`] decides which calls open and end; here each becomes a line.

use armsnap_arch::quantity::Address;
use armsnap_history::calls::{CallStack, Code, Decision, How, Transition};
use armsnap_history::timeline::{Event, Gap, Position};
use std::collections::VecDeque;

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
    /// A return to an address that no open call returns to: another context continues, whose open
    /// calls are not known.
    Elsewhere {
        /// The instruction.
        to: Address,
    },
    /// A return to a call of a context that was left before: its open calls continue.
    Context {
        /// The instruction after the call.
        to: Address,
    },
    /// A gap after which execution continued outside the open calls, or in a function around the
    /// innermost one.
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

/// The calls up to a position.
#[derive(Debug)]
pub struct Calls {
    lines: VecDeque<Line>,
    most: usize,
    left_out: u64,
    /// Each open call with its line. The function in which the tree starts has none.
    stack: CallStack<Option<Line>>,
    /// The depth of calls from the outermost known function.
    base: i64,
}

impl Calls {
    /// Keeps the last `most` lines.
    pub fn new(most: usize) -> Self {
        Self {
            lines: VecDeque::new(),
            most,
            left_out: 0,
            stack: CallStack::default(),
            base: 0,
        }
    }

    /// Processes the next event, in the order of history.
    pub fn event(&mut self, event: &Event, code: &impl Code) {
        let depth = self.depth();
        let Some((transition, decision)) = self.stack.event(event, code) else {
            return;
        };
        let Transition { position, to, how } = transition;
        let line = |depth, what| Line {
            position,
            depth,
            what,
        };
        match decision {
            Decision::Enter { .. } => self.enter(line(depth, What::Call { function: to })),
            Decision::Take((name, _)) | Decision::Signal((name, _)) => {
                let handler = to;
                self.enter(line(depth, What::Exception { name, handler }));
            }
            Decision::NextSignal((name, _)) => {
                let handler = to;
                self.enter(line(depth - 1, What::Exception { name, handler }));
            }
            Decision::Replace { begins: true } => {
                self.push(line(depth - 1, What::Jump { function: to }));
            }
            Decision::Discover => {
                self.base = self.base.saturating_sub(1);
                self.push(line(self.base, What::Return { to }));
            }
            Decision::Switch => {
                let what = match self.stack.has_resumed() {
                    true => What::Context { to },
                    false => What::Elsewhere { to },
                };
                self.push(line(self.depth(), what));
            }
            Decision::Forget => {
                if let How::Resumed { gap, .. } = how {
                    self.push(line(self.depth(), What::Gap { gap, to }));
                }
            }
            Decision::Unwind { unseen: true, .. } => {
                if let How::Resumed { gap, taken: None } = how {
                    self.push(line(self.depth(), What::Gap { gap, to }));
                }
            }
            Decision::Stay
            | Decision::SignalOver
            | Decision::Return(_)
            | Decision::Replace { begins: false }
            | Decision::Unwind { unseen: false, .. } => {}
        }
    }

    /// The depth of the next call.
    fn depth(&self) -> i64 {
        let innermost = self.stack.open().last().and_then(|call| call.value);
        innermost.map_or(self.base, |line| line.depth.saturating_add(1))
    }

    fn push(&mut self, line: Line) {
        if self.lines.len() >= self.most {
            self.lines.pop_front();
            self.left_out += 1;
        }
        self.lines.push_back(line);
    }

    /// Adds the line of the call that just began.
    fn enter(&mut self, line: Line) {
        self.push(line);
        if let Some(value) = self.stack.innermost_value() {
            *value = Some(line);
        }
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
        let lines = self
            .stack
            .open()
            .iter()
            .filter_map(|call| call.value.as_ref());
        lines.collect::<Vec<_>>().into_iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use armsnap_arch::quantity::{BufferOffset, ExceptionLevel, Isa};
    use armsnap_history::calls::MAX_OPEN;
    use armsnap_history::timeline::Entry;
    use armsnap_trace::element::{Context, Exception, Mark, TraceOnReason};
    use armsnap_trace::flow::{self, LastInstruction};
    use std::ops::Range;

    const CALL: LastInstruction = LastInstruction::CALL;
    const RETURN: LastInstruction = LastInstruction::RETURN;
    const JUMP: LastInstruction = LastInstruction::JUMP;

    fn run(start: u64, end: u64, last: LastInstruction) -> Entry {
        Entry::Run {
            range: flow::Range::a64(start, end, last),
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
    struct Pages;

    impl Code for Pages {
        fn symbol(&self, address: Address) -> Option<Range<u64>> {
            let start = address.0 & !0xfff;
            Some(start..start + 0x1000)
        }
    }

    fn calls(most: usize, entries: &[Entry]) -> Calls {
        let mut calls = Calls::new(most);
        for (index, entry) in entries.iter().enumerate() {
            let event = Event {
                position: format!("0+{index}").parse().unwrap(),
                offset: BufferOffset(0),
                entry: *entry,
            };
            calls.event(&event, &Pages);
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

    /// `longjmp` returns from no call: it continues in the middle of an open function.
    #[test]
    fn longjmp_ends_the_calls_within_its_function() {
        let to = |place, last| {
            [
                run(0x1000, 0x1008, CALL),
                run(0x2000, 0x2010, CALL),
                run(0x3000, 0x3010, CALL),
                run(0x4000, 0x4004, RETURN),
                run(place, place + 4, last),
            ]
        };
        let lines = [(0, call(0x2000)), (1, call(0x3000)), (2, call(0x4000))];
        check(&to(0x2040, JUMP), &lines, 1);
        // Into the function where the tree starts.
        check(&to(0x1040, JUMP), &lines, 0);
        let mut after = to(0x2040, CALL).to_vec();
        after.push(run(0x5000, 0x5004, RETURN));
        after.push(run(0x2044, 0x2048, RETURN));
        after.push(run(0x1008, 0x100c, JUMP));
        let lines = [&lines[..], &[(1, call(0x5000))]].concat();
        check(&after, &lines, 0);
    }

    /// A scheduler returns into another context, and later to the first one.
    #[test]
    fn a_context_continues_where_it_was_left() {
        let back = What::Context {
            to: Address(0x2010),
        };
        let entries = [
            run(0x1000, 0x1008, CALL),
            run(0x2000, 0x2010, CALL),
            run(0x3000, 0x3004, RETURN),
            run(0x5000, 0x5008, CALL),
            run(0x6000, 0x6004, RETURN),
            run(0x2010, 0x2014, RETURN),
            run(0x1008, 0x100c, JUMP),
        ];
        let elsewhere = What::Elsewhere {
            to: Address(0x5000),
        };
        let lines = [
            (0, call(0x2000)),
            (1, call(0x3000)),
            (0, elsewhere),
            (0, call(0x6000)),
            (1, back),
        ];
        check(&entries, &lines, 0);
    }

    #[test]
    fn a_context_continues_in_its_outermost_function() {
        let entries = [
            run(0x1000, 0x1008, CALL),
            run(0x3000, 0x3004, RETURN),
            run(0x5000, 0x5008, CALL),
            run(0x3000, 0x3004, RETURN),
            run(0x1008, 0x100c, JUMP),
        ];
        let elsewhere = What::Elsewhere {
            to: Address(0x5000),
        };
        let back = What::Context {
            to: Address(0x1008),
        };
        let lines = [
            (0, call(0x3000)),
            (0, elsewhere),
            (0, call(0x3000)),
            (0, back),
        ];
        check(&entries, &lines, 0);
    }

    #[test]
    fn too_many_open_calls_are_forgotten() {
        for (number, open) in [(MAX_OPEN - 1, MAX_OPEN - 1), (MAX_OPEN, 1)] {
            let mut entries = vec![run(0x1000, 0x1008, CALL)];
            entries.resize(number + 1, run(0x2000, 0x2010, CALL));
            assert_eq!(calls(1, &entries).open().len(), open);
        }
    }

    /// The handler of a fault skips the instruction; another one asks for a call of a function.
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
        let asked = What::Exception {
            name: "IRQ",
            handler: Address(0x7000),
        };
        let elsewhere = What::Gap {
            gap: Gap::TraceOff(TraceOnReason::BeginOrFilter),
            to: Address(0x7010),
        };
        for (resumes, open, more) in [
            (0x2008, 1, None),
            (0x7000, 2, Some((1, asked))),
            (0x7010, 0, Some((0, elsewhere))),
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
        for second in [0x8000, 0x7000] {
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
            let lines = [
                (0, call(0x2000)),
                (1, handles(0x8000)),
                (1, handles(second)),
            ];
            check(&entries, &lines, 1);
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
