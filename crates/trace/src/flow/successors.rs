//! Finds the block after another one: by links, by the return stack, by an address.

use super::blocks::{
    AWAIT, AWAIT_AND_PUSH, AtomUnit, End, NOWHERE, PUSH, SLOW, Space, WATCHED, target_of,
};
use super::code::CodeImage;
use super::follow::{Arrival, Flow};
use super::output::LostAt;
use super::range::{InstructionKind, LastInstruction};
use super::sink::{FlowSink, Gap};
use armsnap_arch::quantity::{Address, BufferOffset, Isa};

impl<C: CodeImage> Flow<C> {
    /// Returns the block after `current`; `taken` is the atom of its last instruction.
    pub(super) fn leave(&mut self, current: u32, taken: bool) -> u32 {
        let index = current as usize;
        let cold = self.blocks.cold[index];
        let stacked = cold.last.link && self.config.return_stack;
        match cold.last.kind {
            InstructionKind::Branch if taken => {
                let next = self.find(cold.space, cold.target_isa, cold.target);
                let flags = if stacked { PUSH } else { 0 } | self.watched(current, true, next);
                self.blocks.hot[index].links[1] = next | flags;
                if stacked {
                    self.stack.push(current);
                }
                next
            }
            InstructionKind::Indirect if taken => {
                if stacked {
                    self.linking = Some(current);
                }
                if !self.is_marked(current) {
                    self.blocks.hot[index].links[1] = if stacked { AWAIT_AND_PUSH } else { AWAIT };
                }
                AWAIT
            }
            _ => {
                let next = self.fall_through(current);
                let flags = self.watched(current, taken, next);
                self.blocks.hot[index].links[usize::from(taken)] = next | flags;
                next
            }
        }
    }

    /// Returns the flag of a link, if its step is watched.
    fn watched(&self, block: u32, taken: bool, next: u32) -> u32 {
        let (from, to) = (
            &self.blocks.cold[block as usize],
            &self.blocks.cold[next as usize],
        );
        let last = LastInstruction { taken, ..from.last };
        let several = from.space.unit == AtomUnit::Waypoint;
        match C::WATCHES && several && self.code.watches(from.start, &last, to.start) {
            true => WATCHED,
            false => 0,
        }
    }

    /// Returns whether the block ends in an exception return that emits a mark.
    pub(super) fn is_marked(&self, block: u32) -> bool {
        self.config.exception_returns && self.blocks.cold[block as usize].exception_return
    }

    /// Returns the block at the end address of another one.
    pub(super) fn fall_through(&mut self, block: u32) -> u32 {
        let linked = self.blocks.link(block, false);
        if linked != SLOW {
            return target_of(linked);
        }
        let cold = self.blocks.cold[block as usize];
        let next = self.find(cold.space, cold.isa, cold.end);
        if cold.stop == End::Waypoint {
            self.blocks.hot[block as usize].links[0] = next | self.watched(block, false, next);
        }
        next
    }

    /// Fast path of [`Self::pop`], for a caller whose next block is linked; `None` if it does not
    /// apply.
    #[inline]
    pub(super) fn pop_linked(&mut self) -> Option<u32> {
        let links = self.linking.is_some();
        self.stack.pop_linked(&self.blocks.hot, self.space, links)
    }

    /// Returns the target of an indirect branch whose address is not traced.
    pub(super) fn pop(&mut self, at: BufferOffset, sink: &mut impl FlowSink) -> u32 {
        if !self.config.return_stack {
            self.linking = None;
            self.lost = self.after_branch();
            return NOWHERE;
        }
        let caller = self.stack.pop();
        if let Some(linking) = self.linking.take() {
            self.stack.push(linking);
        }
        let Some(caller) = caller else {
            self.gap(at, Gap::ReturnStackEmpty, sink);
            self.lost = self.after_branch();
            return NOWHERE;
        };
        let cold = self.blocks.cold[caller as usize];
        if cold.space == self.space {
            self.fall_through(caller)
        } else {
            self.find(self.space, cold.isa, cold.end)
        }
    }

    /// [`Self::pop`] for an atom. An atom after an indirect branch requires a known target; without
    /// one, emits a gap.
    pub(super) fn pop_for_atom(&mut self, at: BufferOffset, sink: &mut impl FlowSink) -> u32 {
        let next = self.pop(at, sink);
        if !self.config.return_stack
            && let Some(lost) = self.lost
        {
            let after = lost.address;
            self.gap(at, Gap::TargetNotTraced { after }, sink);
        }
        next
    }

    /// Returns the end of the last block executed: a branch with an unknown target.
    pub(super) fn after_branch(&self) -> Option<LostAt> {
        Some(LostAt {
            address: self.blocks.cold[self.left as usize].end,
            code_missing: false,
        })
    }

    /// Pops the return address if the last branch needs one.
    pub(super) fn settle(&mut self, at: BufferOffset, sink: &mut impl FlowSink) {
        if self.current == AWAIT {
            self.current = self.pop(at, sink);
        }
    }

    /// Returns the block at `start`.
    #[inline]
    pub(super) fn find(&mut self, space: Space, isa: Isa, start: Address) -> u32 {
        self.blocks
            .at(&self.code, self.config.waypoints, space, isa, start)
            .0
    }

    /// Continues at a traced address.
    #[inline(always)]
    pub(super) fn address(&mut self, address: Address, isa: Isa) {
        self.lost = None;
        if self.current == AWAIT
            && let Some(linking) = self.linking.take()
        {
            self.stack.push(linking);
        }
        let waypoints = self.config.waypoints;
        let (block, lacks_code) = self
            .blocks
            .at(&self.code, waypoints, self.space, isa, address);
        self.current = block;
        self.arrived = Arrival {
            block,
            address,
            lacks_code,
        };
    }

    /// Returns the start of a block. The last traced address needs no lookup.
    pub(super) fn start(&self, block: u32) -> Address {
        if block == self.arrived.block {
            self.arrived.address
        } else {
            self.blocks.cold[block as usize].start
        }
    }

    /// Changes the unit of atoms, from the current address on.
    pub(super) fn count_in(&mut self, unit: AtomUnit) {
        if self.space.unit != unit {
            self.space.unit = unit;
            self.relocate(None);
        }
    }

    /// Looks up the block of the current address again, after a change of the space.
    pub(super) fn relocate(&mut self, isa: Option<Isa>) {
        if self.current > AWAIT {
            let cold = self.blocks.cold[self.current as usize];
            self.current = self.find(self.space, isa.unwrap_or(cold.isa), cold.start);
        }
    }
}
