//! Which block comes after another one: by links, by the return stack, by an address.

use super::blocks::{AWAIT, End, NOWHERE, PUSH, SLOW, Space, Unit};
use super::code::CodeImage;
use super::follow::Flow;
use super::output::Stuck;
use super::sink::{FlowSink, Gap, LastKind};
use crate::quantity::{Address, BufferOffset, Isa};

impl<C: CodeImage> Flow<C> {
    /// The block after `current`, whose last instruction had an E or N atom.
    pub(super) fn leave(&mut self, current: u32, taken: bool) -> u32 {
        let index = current as usize;
        let cold = self.blocks.cold[index];
        let stacked = cold.last.link && self.config.return_stack;
        match cold.last.kind {
            LastKind::Branch if taken => {
                let next = self.find(cold.space, cold.target_isa, cold.target);
                self.blocks.hot[index].links[1] = next | if stacked { PUSH } else { 0 };
                if stacked {
                    self.stack.push(current);
                }
                next
            }
            LastKind::Indirect if taken => {
                if stacked {
                    self.linking = Some(current);
                } else if !self.is_marked(current) {
                    self.blocks.hot[index].links[1] = AWAIT;
                }
                AWAIT
            }
            _ => {
                let next = self.fall_through(current);
                self.blocks.hot[index].links[usize::from(taken)] = next;
                next
            }
        }
    }

    /// Whether the block ends in an exception return that has a mark.
    pub(super) fn is_marked(&self, block: u32) -> bool {
        self.config.exception_returns && self.blocks.cold[block as usize].exception_return
    }

    /// The block that begins where another one ends.
    pub(super) fn fall_through(&mut self, block: u32) -> u32 {
        let linked = self.blocks.link(block, false);
        if linked != SLOW {
            return linked;
        }
        let cold = self.blocks.cold[block as usize];
        let next = self.find(cold.space, cold.isa, cold.end);
        if cold.stop == End::Waypoint {
            self.blocks.hot[block as usize].links[0] = next;
        }
        next
    }

    /// [`Self::pop`] where nothing is out of the ordinary: a block follows its caller already.
    #[inline]
    pub(super) fn pop_linked(&mut self) -> Option<u32> {
        let caller = self.blocks.hot[self.stack.top()? as usize];
        let next = caller.links[0];
        if next == SLOW || self.linking.is_some() || !caller.lies_in(self.space) {
            return None;
        }
        self.stack.pop();
        Some(next)
    }

    /// The target of an indirect branch whose address the trace leaves out.
    pub(super) fn pop(&mut self, at: BufferOffset, sink: &mut impl FlowSink) -> u32 {
        if !self.config.return_stack {
            self.linking = None;
            self.stuck = self.after_branch();
            return NOWHERE;
        }
        let caller = self.stack.pop();
        if let Some(linking) = self.linking.take() {
            self.stack.push(linking);
        }
        let Some(caller) = caller else {
            self.gap(at, Gap::ReturnStackEmpty, sink);
            self.stuck = self.after_branch();
            return NOWHERE;
        };
        let cold = self.blocks.cold[caller as usize];
        if cold.space == self.space {
            self.fall_through(caller)
        } else {
            self.find(self.space, cold.isa, cold.end)
        }
    }

    /// [`Self::pop`] for an atom: one comes behind a branch only where the target is known.
    pub(super) fn pop_for_atom(&mut self, at: BufferOffset, sink: &mut impl FlowSink) -> u32 {
        let next = self.pop(at, sink);
        if !self.config.return_stack
            && let Some(stuck) = self.stuck
        {
            let behind = stuck.address;
            self.gap(at, Gap::TargetNotTraced { behind }, sink);
        }
        next
    }

    /// Execution was followed up to a branch whose target is not known.
    pub(super) fn after_branch(&self) -> Option<Stuck> {
        Some(Stuck {
            address: self.blocks.cold[self.left as usize].end,
            missing: false,
        })
    }

    /// Takes a return address if one is due.
    pub(super) fn settle(&mut self, at: BufferOffset, sink: &mut impl FlowSink) {
        if self.current == AWAIT {
            self.current = self.pop(at, sink);
        }
    }

    /// The block at `start`.
    #[inline]
    pub(super) fn find(&mut self, space: Space, isa: Isa, start: Address) -> u32 {
        self.blocks
            .at(&self.code, self.config.waypoints, space, isa, start)
    }

    /// Execution goes on where the trace says.
    #[inline]
    pub(super) fn address(&mut self, address: Address, isa: Isa) {
        self.stuck = None;
        if self.current == AWAIT
            && let Some(linking) = self.linking.take()
        {
            self.stack.push(linking);
        }
        self.current = self.find(self.space, isa, address);
        self.arrived = (self.current, address);
    }

    /// Where a block begins; that of the last address is at hand.
    pub(super) fn start(&self, block: u32) -> Address {
        let (arrived, address) = self.arrived;
        if block == arrived {
            address
        } else {
            self.blocks.cold[block as usize].start
        }
    }

    /// Counts atoms in this unit from now on.
    pub(super) fn count_in(&mut self, unit: Unit) {
        if self.space.unit != unit {
            self.space.unit = unit;
            self.relocate(None);
        }
    }

    /// The current address in the current space.
    pub(super) fn relocate(&mut self, isa: Option<Isa>) {
        if self.current > AWAIT {
            let cold = self.blocks.cold[self.current as usize];
            self.current = self.find(self.space, isa.unwrap_or(cold.isa), cold.start);
        }
    }
}
