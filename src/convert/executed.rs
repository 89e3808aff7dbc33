//! The decoded trace of a core as individual executed instructions, each with the values that the
//! trace reports.
//!
//! Takes the output of the flow; independent of debuggers and files.

use super::frame_values::FrameValues;
use super::kept::KeptInstructions;
use armsnap_arch::quantity::{Address, BufferOffset, Isa};
use armsnap_history::decode::SourceSinks;
use armsnap_snapshot::program::symbols::Symbols;
use armsnap_trace::element::{Context, Exception, Mark};
use armsnap_trace::flow::{
    BlockId, Blocks, CodeImage, ContextKey, FlowSink, Gap, InstructionKind, QRange, Range, View,
    instruction_bytes, next,
};

/// Selects the executed instructions to collect.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FrameSelection {
    /// The last instruction of each straight line: waypoints (branches, taken or not, and other
    /// instructions with atoms), and instructions where an exception, a gap or a change of the
    /// core's state cut a line short.
    #[default]
    Waypoints,
    /// The first instruction of a function: the target of a call, or the start of a symbol.
    Functions,
    /// All instructions.
    Instructions,
    /// Where exceptions were taken: the preferred return address or, if the trace does not contain
    /// it, the first instruction executed afterwards.
    Exceptions,
}

/// An executed instruction, or the instruction to which an exception returns. A value is `None` if
/// it has not been reported yet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ExecutedInstruction {
    /// The instruction.
    pub pc: Address,
    /// Its instruction set.
    pub isa: Isa,
    /// Its code, least significant byte first.
    pub code: [u8; 4],
    /// The number of known bytes of `code`: 4 or 2, fewer if memory is missing.
    pub code_bytes: u8,
    /// The offset of the packet that reported it.
    pub offset: BufferOffset,
    /// The number of instructions that the trace reports before it; `None` if it was not executed
    /// itself.
    pub number: Option<u64>,
    /// Other values reported by the trace.
    pub values: FrameValues,
}

impl ExecutedInstruction {
    /// The known bytes of its code.
    pub fn code(&self) -> &[u8] {
        &self.code[..usize::from(self.code_bytes).min(self.code.len())]
    }
}

/// The last instruction of a range.
#[derive(Clone, Copy)]
struct LastInstruction {
    address: Address,
    /// Whether a straight line ends with it.
    ends_line: bool,
}

/// Collects the executed instructions of one trace source.
pub struct InstructionCollector<'a, C> {
    kind: FrameSelection,
    code: C,
    view: View,
    symbols: Option<&'a Symbols>,
    /// The instruction set of the last instruction.
    isa: Isa,
    /// The initial values of the next instruction.
    values: FrameValues,
    /// Whether the previous range ended with a call.
    called: bool,
    /// A function that was called but interrupted by an exception before its first instruction.
    interrupted: Option<Address>,
    /// Whether the last collected instruction is the last waypoint: the next cycle count belongs to
    /// it.
    at_waypoint: bool,
    /// By block: the address of its last instruction, once computed.
    last: Vec<Option<Address>>,
    /// The start of the current line.
    line: Option<Address>,
    /// The last instruction of that line so far: the offset of its packet, and its address.
    reached: (BufferOffset, Address),
    /// Whether the last instruction, a waypoint, was taken.
    taken: Option<bool>,
    out: KeptInstructions,
}

impl<'a, C: CodeImage> InstructionCollector<'a, C> {
    /// Collects into `out`; `code` supplies the instructions.
    pub fn new(
        kind: FrameSelection,
        code: C,
        symbols: Option<&'a Symbols>,
        out: KeptInstructions,
    ) -> Self {
        let view = code.view(&ContextKey::default());
        Self {
            kind,
            code,
            view,
            symbols,
            isa: Isa::default(),
            values: FrameValues {
                gap: true,
                ..FrameValues::default()
            },
            called: false,
            interrupted: None,
            at_waypoint: false,
            last: Vec::new(),
            line: None,
            reached: (BufferOffset(0), Address(0)),
            taken: None,
            out,
        }
    }

    fn take(
        &mut self,
        at: BufferOffset,
        pc: Address,
        isa: Isa,
        line: Option<Address>,
        number: Option<u64>,
    ) {
        let (code, known) = instruction_bytes(&self.code, self.view, isa, pc);
        let instruction = ExecutedInstruction {
            pc,
            isa,
            code,
            code_bytes: known as u8,
            offset: at,
            number,
            values: FrameValues {
                line,
                ..self.values
            },
        };
        self.values.exception = None;
        self.values.exception_return = None;
        self.values.gap = false;
        self.out.push(instruction);
    }

    /// Whether a function starts at the first instruction of a range.
    fn enters(&mut self, start: Address) -> bool {
        let back = self.interrupted == Some(start);
        if back {
            self.interrupted = None;
        }
        let begins = || {
            let symbols = self.symbols?;
            Some(symbols.start(start.0)? == start.0)
        };
        self.called || back || begins() == Some(true)
    }

    fn count(&mut self, cycles: Option<u32>) {
        if let Some(cycles) = cycles {
            let before = self.values.cycles.unwrap_or(0);
            self.values.cycles = Some(before.saturating_add(u64::from(cycles)));
        }
    }

    /// The address of the last instruction of a range.
    fn last_of(&self, range: &Range) -> Address {
        let back = |bytes| Address(range.end.0.wrapping_sub(bytes));
        if range.isa != Isa::T32 {
            return back(4);
        }
        let mut here = range.start;
        for _ in 1..range.instructions {
            here = next(&self.code, self.view, range.isa, here);
        }
        here
    }

    fn line(
        &mut self,
        at: BufferOffset,
        range: &Range,
        last: LastInstruction,
        cycles: Option<u32>,
    ) {
        if range.instructions == 0 {
            return;
        }
        let first = self.out.executed();
        match self.kind {
            FrameSelection::Waypoints => {
                self.line.get_or_insert(range.start);
            }
            FrameSelection::Instructions => {
                let mut here = range.start;
                for number in (first..).take(range.instructions as usize - 1) {
                    self.take(at, here, range.isa, Some(here), Some(number));
                    here = next(&self.code, self.view, range.isa, here);
                }
                self.line = Some(last.address);
            }
            FrameSelection::Functions => {
                if self.enters(range.start) {
                    self.take(at, range.start, range.isa, None, Some(first));
                }
            }
            FrameSelection::Exceptions => {
                if self.values.exception.is_some() {
                    self.take(at, range.start, range.isa, None, Some(first));
                }
            }
        }
        self.out.count(range.instructions);
        self.count(cycles);
        let end = range.last;
        self.isa = range.isa;
        self.at_waypoint = match self.kind {
            FrameSelection::Waypoints => last.ends_line,
            FrameSelection::Instructions => true,
            FrameSelection::Functions | FrameSelection::Exceptions => false,
        };
        self.reached = (at, last.address);
        if self.at_waypoint {
            self.end_line();
        }
        self.called = end.link && end.taken;
        self.taken = (end.kind != InstructionKind::Other).then_some(end.taken);
    }

    /// Ends the current line. If atoms are single instructions (ETMv3), no atom marks the end of a
    /// line before an exception, a gap, or a change of the core's state.
    fn end_line(&mut self) {
        if let Some(line) = self.line.take() {
            let (at, last) = self.reached;
            let number = self.out.executed().checked_sub(1);
            self.take(at, last, self.isa, Some(line), number);
        }
    }

    /// Separates the following instructions from the preceding ones.
    fn cut(&mut self) {
        self.end_line();
        if let Some(instruction) = self.out.latest().filter(|_| self.at_waypoint) {
            instruction.values.taken = self.taken;
        }
        self.called = false;
        self.interrupted = None;
        self.at_waypoint = false;
        self.values.exception = None;
        self.values.exception_return = None;
        self.values.gap = true;
    }
}

impl<C: CodeImage> FlowSink for InstructionCollector<'_, C> {
    fn block(
        &mut self,
        at: BufferOffset,
        blocks: &Blocks,
        id: BlockId,
        taken: bool,
        cycles: Option<u32>,
    ) {
        let range = blocks.range(id, taken);
        let known = self.last.get(id.index()).copied().flatten();
        let last = known.unwrap_or_else(|| {
            let last = self.last_of(&range);
            if self.last.len() <= id.index() {
                self.last.resize(blocks.len().max(id.index() + 1), None);
            }
            self.last[id.index()] = Some(last);
            last
        });
        let last = LastInstruction {
            address: last,
            // If atoms are single instructions (ETMv3), most of them do not end a line.
            ends_line: range.last.kind != InstructionKind::Other,
        };
        self.line(at, &range, last, cycles);
    }

    fn range(&mut self, at: BufferOffset, range: &Range, cycles: Option<u32>) {
        let last = LastInstruction {
            address: self.last_of(range),
            ends_line: true,
        };
        self.line(at, range, last, cycles);
    }

    fn q_range(&mut self, at: BufferOffset, range: &QRange) {
        // Only the first instruction of an unknown path is known.
        let first = match self.kind {
            FrameSelection::Waypoints => false,
            FrameSelection::Instructions => range.instructions != Some(0),
            FrameSelection::Functions => self.enters(range.start),
            FrameSelection::Exceptions => self.values.exception.is_some(),
        };
        if first {
            let line = (self.kind == FrameSelection::Instructions).then_some(range.start);
            self.take(at, range.start, range.isa, line, None);
        }
        self.cut();
    }

    fn exception(&mut self, at: BufferOffset, exception: &Exception) {
        self.end_line();
        if self.called {
            self.interrupted = exception.return_address;
        }
        self.called = false;
        self.at_waypoint = false;
        self.values.exception = Some(exception.number);
        self.values.exception_return = exception.return_address;
        if let Some(pc) = exception
            .return_address
            .filter(|_| self.kind == FrameSelection::Exceptions)
        {
            self.take(at, pc, self.isa, None, None);
        }
    }

    fn gap(&mut self, _: BufferOffset, _: Gap) {
        self.cut();
    }

    fn mark(&mut self, _: BufferOffset, mark: &Mark) {
        match mark {
            Mark::Cycles(cycles) => {
                self.count(Some(*cycles));
                // The count follows the waypoint that it belongs to (ETMv4, IHI 0064, "Cycle
                // count packets").
                if let Some(instruction) = self.out.latest().filter(|_| self.at_waypoint) {
                    instruction.values.cycles = self.values.cycles;
                }
            }
            Mark::Timestamp(timestamp) => self.values.timestamp = Some(*timestamp),
            Mark::Context(context) => self.context(context),
            Mark::NoSync(_) | Mark::TraceOn(_) => self.cut(),
            Mark::ExceptionReturn
            | Mark::Event(_)
            | Mark::Trigger
            | Mark::Marker(_)
            | Mark::Transaction(_)
            | Mark::Instrumentation { .. }
            | Mark::Data { .. }
            | Mark::Stm(_)
            | Mark::Itm(_)
            | Mark::End => {}
        }
    }

    fn forget(&mut self, _: &Blocks) {
        self.last.clear();
    }
}

impl<C: CodeImage> InstructionCollector<'_, C> {
    fn context(&mut self, context: &Context) {
        let mut changed = self.values;
        if changed.set_state(context) {
            self.end_line();
            self.values.state = changed.state;
        }
        self.view = self.code.view(&ContextKey::from(context));
    }
}

impl<C: CodeImage> SourceSinks<KeptInstructions> for InstructionCollector<'_, C> {
    fn end(&mut self, _: BufferOffset) {
        self.cut();
    }

    fn output(&mut self) -> &mut KeptInstructions {
        &mut self.out
    }
}

#[cfg(test)]
mod tests {
    use super::super::kept::Limits;
    use super::*;
    use armsnap_arch::quantity::ExceptionLevel;
    use armsnap_trace::element::{Atoms, Element, ElementSink, TraceOnReason};
    use armsnap_trace::flow::{Flow, FlowConfig, FlowDriver, Pieces};

    const NOP: u32 = 0xd503_201f;
    const RET: u32 = 0xd65f_03c0;
    /// `bl 0x1010` at 0x1004.
    const BL: u32 = 0x9400_0003;

    /// 0x1000: nop, bl 0x1010, nop, ret; 0x1010: nop, ret; 0x2000: nop, ret.
    fn code() -> Pieces {
        let words = |words: &[u32]| words.iter().flat_map(|w| w.to_le_bytes()).collect();
        let mut code = Pieces::default();
        code.add(Address(0x1000), words(&[NOP, BL, NOP, RET, NOP, RET]));
        code.add(Address(0x2000), words(&[NOP, RET]));
        code
    }

    fn executed(kind: FrameSelection, elements: &[Element]) -> Vec<ExecutedInstruction> {
        let code = code();
        let limits = Limits {
            from: None,
            to: None,
            last: 99,
        };
        let mut driver = FlowDriver {
            flow: Flow::new(FlowConfig::default(), &code),
            sink: InstructionCollector::new(kind, &code, None, KeptInstructions::new(limits)),
        };
        for (at, element) in elements.iter().enumerate() {
            driver.element(BufferOffset(at as u64), *element);
        }
        let end = BufferOffset(elements.len() as u64);
        driver.element(end, Element::Mark(Mark::End));
        driver.sink.end(end);
        driver.sink.out.instructions().iter().copied().collect()
    }

    fn places(kind: FrameSelection, elements: &[Element]) -> Vec<(u64, Option<u16>)> {
        let instructions = executed(kind, elements);
        let places = instructions
            .iter()
            .map(|instruction| (instruction.pc.0, instruction.values.exception));
        places.collect()
    }

    fn at(address: u64) -> Element {
        Element::Address {
            address: Address(address),
            isa: Isa::A64,
        }
    }

    const TAKEN: Element = Element::WaypointAtoms(Atoms { bits: 1, count: 1 });

    fn exception(return_address: Option<u64>) -> Element {
        Element::Exception(Exception {
            number: 7,
            name: "IRQ",
            return_address: return_address.map(Address),
        })
    }

    #[test]
    fn places_by_kind() {
        // main calls a function; an interrupt is taken before its first instruction.
        let story = [
            at(0x1000),
            TAKEN,
            exception(Some(0x1010)),
            at(0x2000),
            TAKEN,
            at(0x1010),
            TAKEN,
            at(0x1008),
            exception(Some(0x100c)),
        ];
        for (kind, wanted) in [
            (
                FrameSelection::Instructions,
                &[
                    (0x1000, None),
                    (0x1004, None),
                    (0x2000, Some(7)),
                    (0x2004, None),
                    (0x1010, None),
                    (0x1014, None),
                    (0x1008, None),
                ][..],
            ),
            (
                FrameSelection::Waypoints,
                &[
                    (0x1004, None),
                    (0x2004, Some(7)),
                    (0x1014, None),
                    // Cut short by the exception.
                    (0x1008, None),
                ],
            ),
            (FrameSelection::Functions, &[(0x1010, Some(7))]),
            (
                FrameSelection::Exceptions,
                &[(0x1010, Some(7)), (0x100c, Some(7))],
            ),
        ] {
            assert_eq!(places(kind, &story), wanted, "{kind:?}");
        }
    }

    #[test]
    fn an_exception_without_return_address_is_placed_where_execution_continues() {
        let story = [at(0x1000), TAKEN, exception(None), at(0x2000), TAKEN];
        assert_eq!(
            places(FrameSelection::Exceptions, &story),
            [(0x2000, Some(7))]
        );
        let on = Element::Mark(Mark::TraceOn(TraceOnReason::BeginOrFilter));
        let cut = [at(0x1000), TAKEN, exception(None), on, at(0x2000), TAKEN];
        assert_eq!(places(FrameSelection::Exceptions, &cut), []);
        assert_eq!(places(FrameSelection::Waypoints, &cut)[1], (0x2004, None));
    }

    #[test]
    fn single_instructions_end_a_line_where_it_is_cut_short() {
        let atoms = |count| {
            Element::InstructionAtoms(Atoms {
                bits: (1_u32 << count) - 1,
                count,
            })
        };
        let context = |el| {
            Element::Mark(Mark::Context(Context {
                el: Some(ExceptionLevel(el)),
                ..Context::default()
            }))
        };
        let story = [
            context(0),
            at(0x1000),
            atoms(2),
            at(0x1010),
            atoms(1),
            // The handler's state is reported before the exception.
            context(1),
            exception(None),
            at(0x2000),
            atoms(1),
            // Repeated, as at each synchronisation.
            context(1),
            atoms(1),
            at(0x1014),
            atoms(1),
            at(0x1008),
            atoms(1),
        ];
        let instructions = executed(FrameSelection::Waypoints, &story);
        let values: Vec<_> = instructions
            .iter()
            .map(|instruction| {
                let (line, el) = (
                    instruction.values.line.unwrap(),
                    instruction.values.state.el.unwrap(),
                );
                (line.0, instruction.pc.0, el.0)
            })
            .collect();
        assert_eq!(
            values,
            [
                (0x1000, 0x1004, 0),
                (0x1010, 0x1010, 0),
                (0x2000, 0x2004, 1),
                (0x1014, 0x1014, 1),
                (0x1008, 0x1008, 1),
            ]
        );
    }

    #[test]
    fn a_call_is_not_bridged_over_a_gap() {
        let on = Element::Mark(Mark::TraceOn(TraceOnReason::BeginOrFilter));
        let story = [at(0x1000), TAKEN, on, at(0x2000), TAKEN];
        assert_eq!(places(FrameSelection::Functions, &story), []);
        let missing = [at(0x1000), TAKEN, at(0x9000), TAKEN, at(0x1010), TAKEN];
        assert_eq!(places(FrameSelection::Functions, &missing), []);
        let straight = [at(0x1000), TAKEN, TAKEN];
        assert_eq!(
            places(FrameSelection::Functions, &straight),
            [(0x1010, None)]
        );
    }

    #[test]
    fn cycles_belong_to_the_waypoint_before_them() {
        let cycles = |count| Element::Mark(Mark::Cycles(count));
        let timed = Element::TimedAtom {
            taken: true,
            cycles: 3,
        };
        let story = [
            at(0x1000),
            TAKEN,
            cycles(5),
            timed,
            at(0x1008),
            exception(Some(0x100c)),
            cycles(2),
            at(0x2000),
            TAKEN,
        ];
        let counts = |kind| -> Vec<(u64, Option<u64>)> {
            let instructions = executed(kind, &story);
            instructions
                .iter()
                .map(|i| (i.pc.0, i.values.cycles))
                .collect()
        };
        assert_eq!(
            counts(FrameSelection::Instructions),
            [
                (0x1000, None),
                (0x1004, Some(5)),
                (0x1010, Some(5)),
                (0x1014, Some(8)),
                (0x1008, Some(8)),
                (0x2000, Some(10)),
                (0x2004, Some(10)),
            ]
        );
    }

    #[test]
    fn an_executed_instruction_includes_its_code() {
        let instructions = executed(FrameSelection::Waypoints, &[at(0x1000), TAKEN]);
        assert_eq!(instructions[0].code_bytes, 4);
        assert_eq!(instructions[0].code, BL.to_le_bytes());
    }
}
