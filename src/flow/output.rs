//! What the flow gives out: blocks, held back as long as they may be cancelled; and gaps, with how
//! far execution was followed before them.

use super::blocks::{BlockId, Blocks, End, Unit};
use super::code::CodeImage;
use super::follow::Flow;
use super::sink::{FlowSink, Gap};
use super::walk::Stop;
use crate::element::Mark;
use crate::quantity::{Address, BufferOffset, Isa};

/// A block whose output is held back, for it may be cancelled (ETMv3).
#[derive(Clone, Copy, Debug)]
pub(super) struct Held {
    pub at: BufferOffset,
    pub block: u32,
    pub taken: bool,
    pub cycles: Option<u32>,
    /// The exception return that its instruction was.
    pub exception_return: Option<BufferOffset>,
}

impl Held {
    #[inline]
    fn give(&self, blocks: &Blocks, sink: &mut impl FlowSink) {
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

/// Where execution could not be followed any further.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stuck {
    pub address: Address,
    /// For the code there is missing.
    pub missing: bool,
}

impl Stuck {
    /// At code that the image does not hold.
    pub(super) const fn missing(address: Address) -> Self {
        Self {
            address,
            missing: true,
        }
    }
}

impl<C: CodeImage> Flow<C> {
    /// A block was executed.
    pub(super) fn executed(
        &mut self,
        at: BufferOffset,
        block: u32,
        taken: bool,
        cycles: Option<u32>,
        sink: &mut impl FlowSink,
    ) {
        if self.space.unit == Unit::Waypoint {
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

    /// Gives out what can no longer be cancelled.
    #[inline]
    pub(super) fn release(&mut self, sink: &mut impl FlowSink) {
        if let Some(held) = self.held.take() {
            held.give(&self.blocks, sink);
        }
    }

    /// A block without a waypoint at its end was executed.
    pub(super) fn part(&mut self, at: BufferOffset, block: u32, sink: &mut impl FlowSink) {
        self.release(sink);
        let range = self.blocks.range(BlockId(block), true);
        if range.instructions > 0 {
            sink.range(at, &range, None);
        }
    }

    /// A block ends where it cannot be followed.
    pub(super) fn stuck(&mut self, at: BufferOffset, block: u32, sink: &mut impl FlowSink) {
        self.part(at, block, sink);
        let cold = self.blocks.cold[block as usize];
        let stop = if cold.stop == End::NotFollowed {
            Stop::NotFollowed
        } else {
            Stop::Missing
        };
        self.stop(at, stop, cold.end, cold.isa, sink);
    }

    /// Execution cannot be followed to the next address.
    pub(super) fn gap(&mut self, at: BufferOffset, gap: Gap, sink: &mut impl FlowSink) {
        self.release(sink);
        sink.gap(at, gap);
    }

    /// Execution cannot be followed beyond `address`.
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
                self.stuck = Some(Stuck::missing(address));
                Gap::MemoryMissing(address)
            }
            Stop::NotFollowed => Gap::NotFollowed { address, isa },
        };
        self.gap(at, gap, sink);
    }
}
