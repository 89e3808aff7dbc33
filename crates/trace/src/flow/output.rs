//! The output of the flow: blocks, held back while they may be cancelled, and gaps with the
//! address up to which execution was followed.

use super::blocks::{AtomUnit, BlockId, Blocks, End};
use super::code::CodeImage;
use super::follow::Flow;
use super::sink::{FlowSink, Gap};
use super::walk::Stop;
use crate::element::Mark;
use armsnap_arch::quantity::{Address, BufferOffset, Isa};

/// A block whose output is held back because it may be cancelled (ETMv3).
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub(super) struct Held {
    pub at: BufferOffset,
    pub block: u32,
    pub taken: bool,
    pub cycles: Option<u32>,
    /// The mark of the exception return, if its instruction is one.
    pub exception_return: Option<BufferOffset>,
}

impl Held {
    #[inline]
    pub(super) fn emit(&self, blocks: &Blocks, sink: &mut impl FlowSink) {
        sink.block(
            self.at,
            blocks,
            BlockId(self.block),
            self.taken,
            self.cycles,
        );
        if let Some(at) = self.exception_return {
            sink.mark(at, &Mark::ExceptionReturn);
        }
    }
}

/// The address up to which execution was followed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub(super) struct LostAt {
    pub address: Address,
    /// Whether following ended there because code is missing.
    pub code_missing: bool,
}

impl LostAt {
    /// At code that the image does not contain.
    pub(super) const fn missing_code(address: Address) -> Self {
        Self {
            address,
            code_missing: true,
        }
    }
}

impl<C: CodeImage> Flow<C> {
    /// Emits an executed block, or holds it back.
    pub(super) fn executed(
        &mut self,
        at: BufferOffset,
        block: u32,
        taken: bool,
        cycles: Option<u32>,
        sink: &mut impl FlowSink,
    ) {
        if self.space.unit == AtomUnit::Waypoint {
            sink.block(at, &self.blocks, BlockId(block), taken, cycles);
        } else {
            self.release(sink);
            self.held = Some(Held {
                at,
                block,
                taken,
                cycles,
                exception_return: None,
            });
        }
    }

    /// Emits the block held back: it can no longer be cancelled.
    #[inline]
    pub(super) fn release(&mut self, sink: &mut impl FlowSink) {
        if let Some(held) = self.held.take() {
            held.emit(&self.blocks, sink);
        }
    }

    /// Emits an executed block that does not end at a waypoint.
    pub(super) fn part(&mut self, at: BufferOffset, block: u32, sink: &mut impl FlowSink) {
        self.release(sink);
        let range = self.blocks.range(BlockId(block), true);
        if range.instructions > 0 {
            sink.range(at, &range, None);
        }
    }

    /// Emits an executed block and the gap at its end.
    pub(super) fn cannot_follow(&mut self, at: BufferOffset, block: u32, sink: &mut impl FlowSink) {
        self.part(at, block, sink);
        let cold = self.blocks.cold[block as usize];
        let stop = if cold.stop == End::NotFollowed {
            Stop::NotFollowed
        } else {
            Stop::Missing
        };
        self.stop(at, stop, cold.end, cold.isa, sink);
    }

    /// Emits a gap, after the block held back.
    pub(super) fn gap(&mut self, at: BufferOffset, gap: Gap, sink: &mut impl FlowSink) {
        self.release(sink);
        sink.gap(at, gap);
    }

    /// Emits the gap at `address`, beyond which execution cannot be followed.
    pub(super) fn stop(
        &mut self,
        at: BufferOffset,
        stop: Stop,
        address: Address,
        isa: Isa,
        sink: &mut impl FlowSink,
    ) {
        let gap = match stop {
            Stop::Missing => {
                self.lost = Some(LostAt::missing_code(address));
                Gap::MemoryMissing(address)
            }
            Stop::NotFollowed => Gap::NotFollowed { address, isa },
        };
        self.gap(at, gap, sink);
    }
}
