//! A listing that is only counted, not printed.

use super::branches::Line;
use super::instructions::Instruction;
use super::text_buffer::TextBuffer;
use super::{BranchLines, Lines, RunningCounts};
use armsnap_arch::quantity::BufferOffset;
use armsnap_trace::element::{Exception, Mark};
use armsnap_trace::flow::{Gap, QRange, Range};
use armsnap_trace::protocol::Describe;

/// Writes nothing.
#[derive(Clone, Debug, Default)]
pub struct NoLines(TextBuffer);

impl BranchLines for NoLines {
    const SILENT: bool = true;

    fn branch_line(&mut self, _: BufferOffset, _: &Line, _: Option<u64>) {}
    fn count_later(&mut self) {}

    fn take_counts(&mut self) -> RunningCounts {
        RunningCounts::default()
    }

    fn out(&mut self) -> &mut TextBuffer {
        &mut self.0
    }
}

impl Lines for NoLines {
    fn packet(&mut self, _: BufferOffset, _: &impl Describe, _: &[u8]) {}
    fn mark(&mut self, _: BufferOffset, _: &Mark) {}
    fn exception(&mut self, _: BufferOffset, _: &Exception) {}
    fn range(&mut self, _: BufferOffset, _: &Range, _: Option<u32>) {}
    fn instruction(&mut self, _: BufferOffset, _: &Instruction, _: Option<u32>) {}
    fn q_range(&mut self, _: BufferOffset, _: &QRange) {}
    fn gap(&mut self, _: BufferOffset, _: Gap) {}

    fn offset_column(&self, _: usize) -> usize {
        0
    }
}
