//! Follows atoms from block to block: the hot path, and one atom in any state.
//!
//! The hot path takes the link of a single atom, and recalls where the same sequence of atoms led
//! before ([`super::memo`]). A new sequence is followed as long as each link leads directly to the
//! next block; [`Flow::atom`] handles everything else. Instruction atoms are in
//! [`super::instructions`].

use super::blocks::{
    AWAIT, AWAIT_AND_PUSH, BlockId, End, NOWHERE, PUSH, SLOW, WATCHED, leads_on, target_of,
};
use super::code::CodeImage;
use super::follow::Flow;
use super::memo::{Draft, Entry, MAX_PUSHES};
use super::output::LostAt;
use super::sink::{FlowSink, Gap};
use crate::element::{AtomPacket, Atoms, Mark};
use armsnap_arch::quantity::BufferOffset;

/// The maximum number of blocks without a waypoint that one atom passes: 256 KiB of A64 code.
const LONGEST_RUN: u32 = 64;

impl<C: CodeImage> Flow<C> {
    /// Follows waypoint atoms. With these, no block is held back.
    #[inline(always)]
    pub(super) fn waypoints(&mut self, at: BufferOffset, atoms: Atoms, sink: &mut impl FlowSink) {
        self.current = self.after(self.current, || at, atoms, sink);
    }

    /// Follows packets of waypoint atoms at the start of `bytes`, one byte each; returns their
    /// number.
    #[inline(always)]
    pub(super) fn packets_of_atoms(
        &mut self,
        bytes: &[u8],
        atoms: impl Fn(u8) -> Option<AtomPacket>,
        mut locate: impl FnMut(usize) -> BufferOffset,
        sink: &mut impl FlowSink,
    ) -> usize {
        let waypoints = |byte| match atoms(byte) {
            Some(AtomPacket::Waypoints(atoms)) => Some(atoms),
            _ => None,
        };
        if self.drops_atoms() {
            return self.dropped_atoms(bytes, waypoints, locate, sink);
        }
        let mut done = 0;
        let mut current = self.current;
        for &byte in bytes {
            let Some(atoms) = waypoints(byte) else {
                break;
            };
            current = self.after(current, || locate(done), atoms, sink);
            done += 1;
        }
        self.current = current;
        done
    }

    /// Follows waypoint atoms from a block on; returns the block after them. `locate` returns their
    /// offset.
    #[inline(always)]
    fn after(
        &mut self,
        mut current: u32,
        mut locate: impl FnMut() -> BufferOffset,
        mut atoms: Atoms,
        sink: &mut impl FlowSink,
    ) -> u32 {
        loop {
            if current == AWAIT
                && let Some(next) = self.pop_linked()
            {
                current = next;
            }
            if atoms.count == 1 {
                let taken = atoms.bits & 1 == 1;
                let link = self.blocks.link(current, taken);
                if link != SLOW {
                    return self.pass(locate(), current, link, taken, sink);
                }
            } else if let Some(&entry) = self.memo.find(current, atoms) {
                current = self.recall(locate(), &entry, sink);
                if entry.count == atoms.count {
                    return current;
                }
                atoms = atoms.skip(entry.count);
                continue;
            }
            self.current = current;
            let at = locate();
            if !self.is_lost(at, current, sink) {
                self.follow(at, atoms, sink);
            }
            return self.current;
        }
    }

    /// Returns whether atoms are dropped up to the next address.
    #[inline(always)]
    pub(super) fn drops_atoms(&self) -> bool {
        self.current == NOWHERE || self.arrived.lacks_code && self.current == self.arrived.block
    }

    /// Drops packets of waypoint atoms; returns their number.
    #[inline(always)]
    pub(super) fn dropped_atoms(
        &mut self,
        bytes: &[u8],
        waypoints: impl Fn(u8) -> Option<Atoms>,
        mut locate: impl FnMut(usize) -> BufferOffset,
        sink: &mut impl FlowSink,
    ) -> usize {
        let of_atoms = |byte: &&u8| waypoints(**byte).is_some();
        let count = bytes.iter().take_while(of_atoms).count();
        if count > 0 {
            self.is_lost(locate(0), self.current, sink);
        }
        count
    }

    /// Follows a packet of waypoint atoms.
    #[inline(never)]
    pub(super) fn packet_of_atoms(
        &mut self,
        at: BufferOffset,
        atoms: Atoms,
        sink: &mut impl FlowSink,
    ) {
        self.current = self.after(self.current, || at, atoms, sink);
    }

    /// Returns whether the next atoms are dropped, because no address is known or the code is missing.
    #[inline(always)]
    fn is_lost(&mut self, at: BufferOffset, current: u32, sink: &mut impl FlowSink) -> bool {
        if self.blocks.hot[current as usize].is_missing() {
            let address = self.start(current);
            self.lost = Some(LostAt::missing_code(address));
            sink.gap(at, Gap::MemoryMissing(address));
            self.current = NOWHERE;
        }
        if self.current == NOWHERE {
            self.q = None;
        }
        self.current == NOWHERE
    }

    /// Executes a block and takes a resolved link; returns the next block.
    #[inline(always)]
    fn pass(
        &mut self,
        at: BufferOffset,
        block: u32,
        link: u32,
        taken: bool,
        sink: &mut impl FlowSink,
    ) -> u32 {
        sink.block(at, &self.blocks, BlockId(block), taken, None);
        self.stack_caller(block, link);
        self.left = block;
        target_of(link)
    }

    /// Pushes a block on the return stack, now or after the next pop, if its link says so.
    #[inline(always)]
    fn stack_caller(&mut self, block: u32, link: u32) {
        if link == AWAIT_AND_PUSH {
            self.linking = Some(block);
        } else if link & PUSH != 0 {
            self.stack.push(block);
        }
    }

    /// Executes the blocks of an entry of the memo; returns the next block.
    #[inline(always)]
    fn recall(&mut self, at: BufferOffset, entry: &Entry, sink: &mut impl FlowSink) -> u32 {
        sink.run(at, &self.blocks, self.memo.run(entry));
        for &caller in &entry.pushed[..usize::from(entry.pushes).min(MAX_PUSHES)] {
            self.stack.push(caller);
        }
        self.left = entry.left;
        target_of(entry.next)
    }

    /// Follows waypoint atoms through links that are not resolved yet, or along paths that the memo
    /// does not contain.
    #[inline(never)]
    fn follow(&mut self, at: BufferOffset, mut atoms: Atoms, sink: &mut impl FlowSink) {
        while atoms.count > 0 && self.current != NOWHERE {
            if self.current == AWAIT
                && let Some(next) = self.pop_linked()
            {
                self.current = next;
            }
            let consumed = if let Some(&entry) = self.memo.find(self.current, atoms) {
                self.current = self.recall(at, &entry, sink);
                entry.count
            } else if matches!(
                self.blocks.link(self.current, atoms.is_e(0)),
                SLOW | AWAIT_AND_PUSH
            ) {
                if !self.is_lost(at, self.current, sink) {
                    self.current = self.atom(at, self.current, atoms.is_e(0), None, sink);
                }
                1
            } else {
                self.learn(at, atoms, sink)
            };
            atoms = atoms.skip(consumed);
        }
        if self.current == NOWHERE {
            self.q = None;
        }
        self.bound(sink);
    }

    /// Makes room for a run in the memo.
    pub(super) fn make_room(&mut self, sink: &mut impl FlowSink) {
        if self.memo.is_full() {
            self.memo.clear();
            sink.forget_runs();
        }
    }

    /// Follows atoms from link to link up to a return, a watched step or a link that is not
    /// resolved. Remembers the path the second time the atoms occur. Returns the number of atoms
    /// consumed.
    fn learn(&mut self, at: BufferOffset, atoms: Atoms, sink: &mut impl FlowSink) -> u8 {
        self.make_room(sink);
        let mut draft = self.memo.begin(self.current, atoms);
        let mut done = 0;
        let mut watched = 0;
        while done < atoms.count && watched == 0 {
            let (block, taken) = (self.current, atoms.is_e(done));
            let link = self.blocks.link(block, taken);
            let is_full = link & PUSH != 0 && draft.as_ref().is_some_and(Draft::is_full);
            if matches!(link, SLOW | AWAIT_AND_PUSH) || is_full {
                break;
            }
            self.current = self.pass(at, block, link, taken, sink);
            if let Some(draft) = &mut draft {
                let instructions = self.blocks.instructions(BlockId(block));
                self.memo.step(draft, block, taken, instructions);
                if link & PUSH != 0 {
                    draft.push(block);
                }
            }
            watched = link & WATCHED;
            done += 1;
        }
        if let Some(draft) = draft {
            self.memo.finish(draft, self.current | watched);
        }
        done
    }

    /// Follows one waypoint atom with its cycles.
    #[inline]
    pub(super) fn timed_waypoint(
        &mut self,
        at: BufferOffset,
        taken: bool,
        cycles: u32,
        sink: &mut impl FlowSink,
    ) {
        let block = self.current;
        let link = self.blocks.link(block, taken);
        if leads_on(link) {
            sink.block(at, &self.blocks, BlockId(block), taken, Some(cycles));
            self.left = block;
            self.current = link;
        } else {
            self.q = None;
            self.current = self.atom(at, block, taken, Some(cycles), sink);
        }
    }

    /// Follows one atom in any state; returns the block after it.
    #[inline(never)]
    pub(super) fn atom(
        &mut self,
        at: BufferOffset,
        mut current: u32,
        taken: bool,
        cycles: Option<u32>,
        sink: &mut impl FlowSink,
    ) -> u32 {
        let mut run = 0;
        loop {
            match current {
                NOWHERE => {
                    self.q = None;
                    self.release(sink);
                    return NOWHERE;
                }
                AWAIT => {
                    current = self.pop_for_atom(at, sink);
                    continue;
                }
                _ => {}
            }
            let link = self.blocks.link(current, taken);
            if link != SLOW {
                self.left = current;
                self.executed(at, current, taken, cycles, sink);
                self.stack_caller(current, link);
                return target_of(link);
            }
            match self.blocks.cold[current as usize].stop {
                End::Waypoint => {
                    self.left = current;
                    self.executed(at, current, taken, cycles, sink);
                    if taken && self.is_marked(current) {
                        sink.mark(at, &Mark::ExceptionReturn);
                    }
                    return self.leave(current, taken);
                }
                End::Missing | End::NotFollowed => {
                    self.cannot_follow(at, current, sink);
                    return NOWHERE;
                }
                End::Long => {
                    self.part(at, current, sink);
                    run += 1;
                    if run == LONGEST_RUN {
                        let to = self.blocks.cold[current as usize].end;
                        let from = self.blocks.cold[current as usize].start;
                        self.gap(at, Gap::NotReached { from, to }, sink);
                        return NOWHERE;
                    }
                    current = self.fall_through(current);
                }
            }
        }
    }
}
