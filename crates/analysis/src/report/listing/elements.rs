//! Elements as lines: what was executed, and all other elements.

use super::rendered::Rendered;
use super::text_buffer::TextBuffer;
use super::{Counts, Lines, Listed, Unfollowed};
use armsnap_arch::quantity::BufferOffset;
use armsnap_history::decode::{SourceSinks, Stage};
use armsnap_trace::element::{AtomSink, Element, ElementSink, Exception, Mark};
use armsnap_trace::flow::{BlockId, Blocks, Executed, FlowSink, Gap, QRange, Range, Run};

/// Lists the elements of one source.
#[derive(Clone, Debug)]
pub struct ElementListing<L> {
    lines: L,
    rendered: Rendered,
    counts: Counts,
    unfollowed: Option<Unfollowed>,
}

impl<L: Lines> ElementListing<L> {
    /// Lists to `lines`.
    pub fn new(lines: L) -> Self {
        Self {
            lines,
            rendered: Rendered::default(),
            counts: Counts::default(),
            unfollowed: None,
        }
    }

    #[inline]
    fn block_line(
        &mut self,
        at: BufferOffset,
        blocks: &Blocks,
        id: BlockId,
        taken: bool,
        cycles: Option<u32>,
    ) {
        if L::SILENT {
            return;
        }
        let kept = cycles.is_none();
        if kept && self.rendered.write(at, id, taken, &mut self.lines) {
            return;
        }
        let start = self.lines.out().len();
        self.lines.range(at, &blocks.range(id, taken), cycles);
        if kept {
            self.rendered.keep(id, taken, &mut self.lines, start);
        }
    }
}

impl<L: Lines> FlowSink for ElementListing<L> {
    const COUNTS: bool = L::SILENT;

    #[inline]
    fn block(
        &mut self,
        at: BufferOffset,
        blocks: &Blocks,
        id: BlockId,
        taken: bool,
        cycles: Option<u32>,
    ) {
        self.counts.executed(blocks.instructions(id));
        self.block_line(at, blocks, id, taken, cycles);
    }

    #[inline]
    fn run(&mut self, at: BufferOffset, blocks: &Blocks, run: Run<'_>) {
        self.counts.executed_run(run);
        if !L::SILENT {
            for (id, taken) in run.blocks() {
                self.block_line(at, blocks, id, taken, None);
            }
        }
    }

    #[inline]
    fn executed(&mut self, executed: Executed) {
        self.counts.add(executed);
    }

    fn range(&mut self, at: BufferOffset, range: &Range, cycles: Option<u32>) {
        self.counts.executed(range.instructions);
        self.lines.range(at, range, cycles);
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
        if matches!(gap, Gap::TargetNotTraced { .. }) {
            return;
        }
        self.counts.elements += 1;
        self.lines.gap(at, gap);
    }

    fn mark(&mut self, at: BufferOffset, mark: &Mark) {
        self.counts.elements += 1;
        self.lines.mark(at, mark);
    }

    fn forget(&mut self, _: &Blocks) {
        self.rendered.forget();
    }
}

/// Sources that do not trace a core have only marks.
impl<L: Lines> ElementSink for ElementListing<L> {
    #[inline]
    fn element(&mut self, at: BufferOffset, element: Element) {
        if let Element::Mark(mark) = element {
            FlowSink::mark(self, at, &mark);
        }
    }
}

impl<L: Lines> AtomSink for ElementListing<L> {
    const LOCATES: bool = !L::SILENT;
}

impl<L: Lines> Listed for ElementListing<L> {
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

impl<L> Stage for ElementListing<L> {}

impl<'a, L: Lines + 'a> SourceSinks<dyn Listed + 'a> for ElementListing<L> {
    fn end(&mut self, _: BufferOffset) {}

    fn output(&mut self) -> &mut (dyn Listed + 'a) {
        self
    }
}
