//! Follows atoms from block to block: the hot path, and one atom in any state.
//!
//! The hot path recalls where the same atoms led before ([`super::memo`]). A new string of atoms is
//! followed as long as each link leads directly to the next block; [`Flow::atom`] handles
//! everything else.

use super::blocks::{AWAIT, BlockId, End, NOWHERE, PUSH, SLOW, leads_on};
use super::code::CodeImage;
use super::follow::Flow;
use super::memo::{Entry, MOST_PUSHES};
use super::output::{Held, LostAt};
use super::sink::{FlowSink, Gap};
use crate::element::{Atoms, Mark};
use crate::quantity::BufferOffset;

/// The maximum number of blocks without a waypoint that one atom passes: 256 KiB of A64 code.
const LONGEST_RUN: u32 = 64;

impl<C: CodeImage> Flow<C> {
    /// Follows waypoint atoms. Nothing is held back then.
    #[inline(always)]
    pub(super) fn waypoints(&mut self, at: BufferOffset, atoms: Atoms, sink: &mut impl FlowSink) {
        if let Some(entry) = self.memo.find(self.current, atoms)
            && entry.count == atoms.count
        {
            let entry = *entry;
            self.recall(at, &entry, sink);
        } else if self.current == NOWHERE {
            self.q = None;
        } else {
            self.follow(at, atoms, sink);
        }
    }

    /// Follows atoms, one packet a byte, as far as the memo knows where they lead; returns the number
    /// of bytes.
    #[inline(always)]
    pub(super) fn known_atoms(
        &mut self,
        bytes: &[u8],
        atoms: impl Fn(u8) -> Option<Atoms>,
        mut locate: impl FnMut(usize) -> BufferOffset,
        sink: &mut impl FlowSink,
    ) -> usize {
        // No entry starts where nothing is known, and in cycle-accurate or ETMv3 trace there is none.
        let mut done = 0;
        let mut current = self.current;
        let mut last = None;
        for &byte in bytes {
            let Some(atoms) = atoms(byte) else {
                break;
            };
            let Some(entry) = self.memo.find(current, atoms) else {
                break;
            };
            if entry.count != atoms.count {
                break;
            }
            sink.run(locate(done), &self.blocks, self.memo.run(entry));
            for &caller in &entry.pushed[..usize::from(entry.pushes).min(MOST_PUSHES)] {
                self.stack.push(caller);
            }
            last = Some(entry);
            current = entry.next;
            done += 1;
        }
        self.current = current;
        if let Some(entry) = last {
            self.left = self.memo.last(entry);
        }
        done
    }

    /// Executes the blocks of an entry of the memo.
    #[inline(always)]
    fn recall(&mut self, at: BufferOffset, entry: &Entry, sink: &mut impl FlowSink) {
        sink.run(at, &self.blocks, self.memo.run(entry));
        for &caller in &entry.pushed[..usize::from(entry.pushes).min(MOST_PUSHES)] {
            self.stack.push(caller);
        }
        self.left = self.memo.last(entry);
        self.current = entry.next;
    }

    /// Follows waypoint atoms: by the memo after each return, else from link to link.
    #[inline(never)]
    fn follow(&mut self, at: BufferOffset, mut atoms: Atoms, sink: &mut impl FlowSink) {
        while atoms.count > 0 && self.current != NOWHERE {
            if self.current == AWAIT
                && let Some(next) = self.pop_linked()
            {
                self.current = next;
            }
            let consumed = match self.memo.find(self.current, atoms) {
                Some(entry) => {
                    let entry = *entry;
                    self.recall(at, &entry, sink);
                    entry.count
                }
                None => self.learn(at, atoms, sink),
            };
            atoms = atoms.skip(consumed);
        }
        self.bound(sink);
    }

    /// Follows atoms from link to link up to a return, and remembers where they led. Follows an atom
    /// without a link by itself. Returns how many atoms were consumed.
    fn learn(&mut self, at: BufferOffset, atoms: Atoms, sink: &mut impl FlowSink) -> u8 {
        let from = self.current;
        let mut draft = self.memo.begin();
        let mut done = 0;
        while done < atoms.count {
            let current = self.current;
            let taken = atoms.is_e(done);
            let link = self.blocks.link(current, taken);
            if link == SLOW {
                break;
            }
            sink.block(at, &self.blocks, BlockId(current), taken, None);
            self.memo.step(
                &mut draft,
                current,
                taken,
                self.blocks.instructions(BlockId(current)),
            );
            if link & PUSH != 0 {
                self.stack.push(current);
                draft.push(current);
            }
            self.left = current;
            self.current = link & !PUSH;
            done += 1;
        }
        let certain = done == atoms.count || self.current == AWAIT;
        self.memo
            .finish(from, atoms, draft, certain.then_some(self.current));
        if done > 0 {
            return done;
        }
        let current = self.current;
        if self.blocks.hot[current as usize].is_missing() {
            let address = self.start(current);
            self.lost = Some(LostAt::missing_code(address));
            sink.gap(at, Gap::MemoryMissing(address));
            self.current = NOWHERE;
        } else {
            self.current = self.atom(at, current, atoms.is_e(0), None, sink);
        }
        1
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

    /// Fast path of instruction atoms: follows resolved links, and returns the number of atoms
    /// consumed.
    #[inline]
    pub(super) fn linked_instructions(
        &mut self,
        at: BufferOffset,
        atoms: Atoms,
        cycles: Option<[u8; 2]>,
        sink: &mut impl FlowSink,
    ) -> u8 {
        let passed = |index: u8| cycles.map(|cycles| cycles[usize::from(index > 0)].into());
        let mut bits = atoms.bits;
        let mut block = self.current;
        let mut next = self.blocks.link(block, bits & 1 == 1);
        if !leads_on(next) {
            return 0;
        }
        self.release(sink);
        self.q = None;
        let mut done = 1;
        while done < atoms.count {
            let after = self.blocks.link(next, bits >> 1 & 1 == 1);
            if !leads_on(after) {
                break;
            }
            let taken = bits & 1 == 1;
            sink.block(at, &self.blocks, BlockId(block), taken, passed(done - 1));
            (block, next) = (next, after);
            bits >>= 1;
            done += 1;
        }
        self.held = Some(Held {
            at,
            block,
            taken: bits & 1 == 1,
            cycles: passed(done - 1),
            exception_return: None,
        });
        self.left = block;
        self.current = next;
        done
    }

    /// Follows instruction atoms from index `begin` on.
    #[inline(never)]
    pub(super) fn instructions(
        &mut self,
        at: BufferOffset,
        atoms: Atoms,
        begin: u8,
        sink: &mut impl FlowSink,
    ) {
        self.q = None;
        for index in begin..atoms.count {
            self.current = self.atom(at, self.current, atoms.is_e(index), None, sink);
        }
    }

    /// Follows instruction atoms with cycles: `cycles[0]` of the first atom, `cycles[1]` of each
    /// other. Where they cannot be followed, emits the cycles alone.
    #[inline(never)]
    pub(super) fn timed_instructions(
        &mut self,
        at: BufferOffset,
        atoms: Atoms,
        begin: u8,
        cycles: [u8; 2],
        sink: &mut impl FlowSink,
    ) {
        let cycles = |index: u8| u32::from(cycles[usize::from(index > 0)]);
        self.q = None;
        for index in begin..atoms.count {
            if self.current == AWAIT {
                self.current = self.pop_for_atom(at, sink);
            }
            if self.current == NOWHERE {
                self.release(sink);
                let rest = (index..atoms.count).map(cycles).sum();
                return sink.mark(at, &Mark::Cycles(rest));
            }
            let passed = atoms.is_e(index);
            self.current = self.atom(at, self.current, passed, Some(cycles(index)), sink);
            if self.current == NOWHERE {
                sink.mark(at, &Mark::Cycles(cycles(index)));
            }
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
                if link & PUSH != 0 {
                    self.stack.push(current);
                }
                return link & !PUSH;
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
