//! Executed instructions, one line each, with the elements between them.

use super::rendered::Rendered;
use super::text_buffer::TextBuffer;
use super::{Counts, Lines, Listed, Unfollowed};
use armsnap_arch::quantity::{Address, BufferOffset, Isa};
use armsnap_history::decode::{SinkState, SourceSinks, Stage, StageStates, Unsaved};
use armsnap_snapshot::program::disassembly::Disassembler;
use armsnap_snapshot::program::symbols::{SourceLine, Symbols};
use armsnap_trace::element::{Exception, Mark};
use armsnap_trace::flow::{
    BlockId, Blocks, CodeImage, ContextKey, FlowSink, Gap, QRange, Range, View, instruction_bytes,
    next,
};
use std::collections::HashMap;

/// The maximum number of instructions cached with their text. The cache is cleared when full.
const REMEMBERED: usize = 1 << 18;

/// The contents of a line for an instruction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Instruction {
    /// Its address.
    pub address: Address,
    /// Its instruction set.
    pub isa: Isa,
    /// Its 2 or 4 bytes; fewer if memory is missing.
    pub bytes: Vec<u8>,
    /// Disassembly.
    pub text: String,
    /// The function that contains it, and the offset in it.
    pub function: Option<(String, u64)>,
    /// Its source line.
    pub line: Option<SourceLine>,
}

/// Lists the instructions of one source.
pub struct InstructionListing<'a, L, C> {
    lines: L,
    rendered: Rendered,
    counts: Counts,
    unfollowed: Option<Unfollowed>,
    code: C,
    view: View,
    symbols: Option<&'a Symbols>,
    disassembler: Disassembler,
    known: HashMap<(View, Isa, u64), Instruction>,
}

impl<'a, L: Lines, C: CodeImage> InstructionListing<'a, L, C> {
    /// Lists to `lines` the instructions in `code`.
    pub fn new(
        lines: L,
        code: C,
        symbols: Option<&'a Symbols>,
        disassembler: Disassembler,
    ) -> Self {
        let view = code.view(&ContextKey::default());
        Self {
            lines,
            rendered: Rendered::default(),
            counts: Counts::default(),
            unfollowed: None,
            code,
            view,
            symbols,
            disassembler,
            known: HashMap::new(),
        }
    }

    fn instruction(&self, address: Address, isa: Isa) -> Instruction {
        let (bytes, known) = instruction_bytes(&self.code, self.view, isa, address);
        let bytes = bytes[..known].to_vec();
        Instruction {
            address,
            isa,
            text: self.disassembler.text(isa, address.0, &bytes),
            function: self.symbols.and_then(|symbols| {
                let (name, offset) = symbols.function(address.0)?;
                Some((name.to_owned(), offset))
            }),
            line: self.symbols.and_then(|symbols| symbols.line(address.0)),
            bytes,
        }
    }
}

impl<L: Lines, C: CodeImage> FlowSink for InstructionListing<'_, L, C> {
    fn block(
        &mut self,
        at: BufferOffset,
        blocks: &Blocks,
        id: BlockId,
        taken: bool,
        cycles: Option<u32>,
    ) {
        let kept = !L::SILENT && cycles.is_none();
        if kept && self.rendered.write(at, id, taken, &mut self.lines) {
            self.counts.executed(blocks.instructions(id));
            return;
        }
        let start = self.lines.out().len();
        self.range(at, &blocks.range(id, taken), cycles);
        if kept {
            self.rendered.keep(id, taken, &mut self.lines, start);
        }
    }

    fn range(&mut self, at: BufferOffset, range: &Range, cycles: Option<u32>) {
        self.counts.executed(range.instructions);
        let mut address = range.start;
        for number in 1..=range.instructions {
            let key = (self.view, range.isa, address.0);
            if !self.known.contains_key(&key) {
                if self.known.len() >= REMEMBERED {
                    self.known.clear();
                }
                let instruction = self.instruction(address, range.isa);
                self.known.insert(key, instruction);
            }
            let instruction = &self.known[&key];
            let cycles = cycles.filter(|_| number == range.instructions);
            self.lines.instruction(at, instruction, cycles);
            // The bytes of an instruction may be missing.
            address = match instruction.bytes.len() {
                0 => next(&self.code, self.view, range.isa, address),
                size => address.after(size as u64, range.isa),
            };
        }
    }

    fn q_range(&mut self, at: BufferOffset, range: &QRange) {
        self.counts.executed(range.instructions.unwrap_or(0));
        self.lines.q_range(at, range);
    }

    fn exception(&mut self, at: BufferOffset, exception: &Exception) {
        self.counts.elements += 1;
        self.lines.exception(at, exception);
    }

    fn gap(&mut self, at: BufferOffset, gap: Gap) {
        Unfollowed::count(&mut self.unfollowed, at, gap);
        self.counts.elements += 1;
        self.lines.gap(at, gap);
    }

    fn mark(&mut self, at: BufferOffset, mark: &Mark) {
        self.counts.elements += 1;
        if let Mark::Context(context) = mark {
            self.view = self.code.view(&ContextKey::from(context));
        }
        self.lines.mark(at, mark);
    }

    fn forget(&mut self, _: &Blocks) {
        self.rendered.forget();
    }
}

impl<L: Lines, C> Listed for InstructionListing<'_, L, C> {
    fn text(&mut self) -> &mut TextBuffer {
        self.lines.out()
    }

    fn counts(&self) -> Counts {
        self.counts
    }

    fn unfollowed(&self) -> Option<Unfollowed> {
        self.unfollowed
    }

    fn reset(&mut self) {
        self.counts = Counts::default();
        self.unfollowed = None;
    }
}

impl<L, C> Stage for InstructionListing<'_, L, C> {
    fn save(&self, to: &mut StageStates) -> Result<(), Unsaved> {
        to.sink = SinkState::View(self.view);
        Ok(())
    }

    fn restore(&mut self, from: &StageStates) -> Result<(), Unsaved> {
        let SinkState::View(view) = from.sink else {
            return Err(Unsaved);
        };
        self.view = view;
        Ok(())
    }
}

impl<'a, 'b: 'a, L: Lines + 'a, C: 'a> SourceSinks<dyn Listed + 'a>
    for InstructionListing<'b, L, C>
{
    fn end(&mut self, _: BufferOffset) {}

    fn output(&mut self) -> &mut (dyn Listed + 'a) {
        self
    }
}
