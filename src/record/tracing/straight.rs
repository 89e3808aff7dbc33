//! Traces blocks one after another while each leads to the next as it did before, which is nearly
//! always the case: only their IDs are examined.

use super::cores::{CoreTrace, CoreTraces, STORE_SIZE};
use crate::record::blocks::{Block, BlockTable};
use crate::record::lines::{Lines, Transition};
use crate::record::protocol::Timestamps;
use crate::record::stream::Events;
use armsnap_trace::encode::{CodeAddress, Edge, TraceUnit};
use std::io;

impl<U: TraceUnit> CoreTraces<U> {
    /// Follows the blocks of a core as far as the steps between them are known. Returns the block
    /// that was entered last, which is not traced.
    pub(super) fn follow(
        &mut self,
        core: u32,
        mut course: Transition,
        events: &mut Events<'_>,
        blocks: &BlockTable,
        lines: &Lines,
    ) -> io::Result<u32> {
        let always = self.settings.trace.timestamps == Timestamps::Always;
        let timestamps = always && self.threads.is_none();
        let plain = !self.muted
            && self.undefined.is_empty()
            && self.addresses.is_none()
            && !self.versions.matter();
        let found = self.cores.get_mut(core as usize).and_then(Option::as_mut);
        let Some(trace) = found.filter(|trace| plain && trace.tracer.is_steady()) else {
            return Ok(course.here);
        };
        let mut last = None;
        while let Some((next, rest)) = events.entered() {
            let Some((line, edge)) = lines.step(course.here, next) else {
                break;
            };
            let count = u64::from(line.count());
            if timestamps {
                if trace.until_timestamp <= count {
                    break;
                }
                trace.until_timestamp -= count;
            }
            *events = rest;
            self.instructions += count;
            trace.executed += count;
            trace.tracer.follow(course.edge, line);
            if trace.tracer.pending_bytes() >= STORE_SIZE {
                self.taken.take(trace, STORE_SIZE, &mut self.store)?;
            }
            if let Some(witness) = &mut self.witness
                && let Some(block) = blocks.get(course.here)
            {
                witness.ran(core, block, block.instructions.len())?;
            }
            last = Some(course);
            course = Transition {
                before: course.here,
                edge,
                here: next,
            };
        }
        if let Some(last) = last {
            stand_after(trace, last, blocks);
        }
        Ok(course.here)
    }
}

/// Brings the tracer's state up to date after the last block that was traced.
fn stand_after<U: TraceUnit>(trace: &mut CoreTrace<U>, last: Transition, blocks: &BlockTable) {
    let before = blocks.get(last.before);
    let before = before.filter(|_| last.edge == Edge::Onward).map(last_of);
    if let Some(block) = blocks.get(last.here) {
        trace
            .tracer
            .stand_after(block.start, &block.instructions, before);
    }
}

/// Returns the address of a block's last instruction.
fn last_of(block: &Block) -> CodeAddress {
    CodeAddress {
        address: block.address(block.instructions.len().saturating_sub(1)),
        isa: block.start.isa,
    }
}
