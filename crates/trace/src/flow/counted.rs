//! Follows atoms for sinks that only count what is executed: they receive sums, not single blocks.
//!
//! Instruction atoms (ETMv3) of several packets are looked up in the memo together. Waypoint atoms
//! are not: paths that differ only after the first packet would need separate entries.

use super::blocks::{
    AWAIT, AWAIT_AND_PUSH, BlockId, NOWHERE, PUSH, SLOW, WATCHED, leads_on, target_of,
};
use super::code::CodeImage;
use super::follow::Flow;
use super::instructions::MAX_PACKETS;
use super::memo::{MAX_ATOMS, MAX_PUSHES};
use super::output::Held;
use super::sink::{Executed, FlowSink};
use crate::element::{AtomPacket, Atoms};
use armsnap_arch::quantity::BufferOffset;

/// The atoms of a packet, and the cycles of the first one and of each later one.
type Content = (Atoms, Option<[u8; 2]>);

/// The atoms of several packets.
struct Path {
    atoms: Atoms,
    /// The index of the packet after them.
    end: usize,
    /// The number of packets without atoms.
    empty: usize,
}

impl Path {
    /// Joins the atoms of packets from index `first` on, as many as a memo entry can hold. `atoms`
    /// returns the atoms of a packet.
    #[inline(always)]
    fn new(first: usize, atoms: impl Fn(usize) -> Option<Atoms>) -> Self {
        let mut path = Self {
            atoms: Atoms { bits: 0, count: 0 },
            end: first,
            empty: 0,
        };
        while let Some(atoms) = atoms(path.end)
            && path.atoms.count + atoms.count <= MAX_ATOMS
        {
            path.atoms.bits |= atoms.bits << path.atoms.count;
            path.atoms.count += atoms.count;
            path.empty += usize::from(atoms.count == 0);
            path.end += 1;
        }
        path
    }

    /// Returns the path before the packet that contains the first atom not consumed, and the number
    /// of atoms consumed in that packet.
    #[inline(never)]
    fn up_to(first: usize, consumed: u8, atoms: impl Fn(usize) -> Option<Atoms>) -> (Self, u8) {
        let mut path = Self::new(first, |_| None);
        let mut left = consumed;
        while let Some(atoms) = atoms(path.end)
            && atoms.count <= left
        {
            left -= atoms.count;
            path.empty += usize::from(atoms.count == 0);
            path.end += 1;
        }
        (path, left)
    }
}

impl<C: CodeImage> Flow<C> {
    /// Same as [`packets_of_atoms`](Self::packets_of_atoms), but passes on only numbers of blocks.
    #[inline(always)]
    pub(super) fn counted_atoms(
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
        let content = |index: usize| waypoints(*bytes.get(index)?);
        let mut done = 0;
        while let Some(atoms) = content(done) {
            let next = (self.current != AWAIT).then_some(BlockId(self.current));
            let stuck = match atoms.count > 0 && sink.only_counts(&self.blocks, next) {
                true => self.follow_known(&mut done, content, sink),
                false => Some(atoms),
            };
            if let Some(atoms) = stuck {
                self.packet_of_atoms(locate(done), atoms, sink);
                done += 1;
            }
        }
        done
    }

    /// Follows packets of waypoint atoms from index `done` on, along links and remembered paths.
    /// Returns the rest of the first packet for which these do not suffice, or from which a path is
    /// to be remembered.
    #[inline(always)]
    fn follow_known<S: FlowSink>(
        &mut self,
        done: &mut usize,
        content: impl Fn(usize) -> Option<Atoms>,
        sink: &mut S,
    ) -> Option<Atoms> {
        let hot = self.blocks.hot.as_slice();
        let (mut current, mut left) = (self.current, self.left);
        let mut executed = Executed::default();
        let mut stuck = None;
        // Set if the sink must be told of the step to the current block: the atom of that step.
        let mut arrives = None;
        let mut awaited_before = current == AWAIT;
        'packets: while let Some(packet) = content(*done) {
            let mut atoms = packet;
            // The number of atoms to follow one by one, because they occur for the first time.
            let mut alone = 0;
            while atoms.count > 0 {
                if current == AWAIT
                    && let Some(next) =
                        self.stack
                            .pop_linked(hot, self.space, self.linking.is_some())
                {
                    current = next;
                    awaited_before = false;
                    arrives = Some(true);
                }
                if S::COUNTS_BLOCKS
                    && let Some(taken) = arrives.take()
                {
                    let since = std::mem::take(&mut executed);
                    let from = (BlockId(left), taken);
                    if !sink.arrives(&self.blocks, from, BlockId(current), since) {
                        stuck = Some(atoms);
                        break 'packets;
                    }
                }
                if atoms.count == 1 || alone > 0 {
                    let block = &hot[current as usize];
                    let link = block.links[(atoms.bits & 1) as usize];
                    if link == SLOW {
                        stuck = Some(atoms);
                        break 'packets;
                    }
                    executed.blocks += 1;
                    executed.instructions += block.instructions as usize;
                    if S::COUNTS_BLOCKS {
                        let taken = atoms.is_e(0);
                        sink.count_block(&self.blocks, BlockId(current), taken);
                        if C::WATCHES && link & WATCHED != 0 {
                            arrives = Some(taken);
                        }
                    }
                    if link == AWAIT_AND_PUSH {
                        self.linking = Some(current);
                    } else if link & PUSH != 0 {
                        self.stack.push(current);
                    }
                    (left, current) = (current, target_of(link));
                    if atoms.count == 1 {
                        break;
                    }
                    alone = if leads_on(link) { alone - 1 } else { 0 };
                    atoms = atoms.skip(1);
                    continue;
                }
                let Some(entry) = self.memo.find(current, atoms) else {
                    if self.memo.came(current, atoms) {
                        stuck = Some(atoms);
                        break 'packets;
                    }
                    alone = atoms.count;
                    continue;
                };
                executed.blocks += usize::from(entry.count);
                executed.instructions += usize::from(entry.instructions);
                let mut next = entry.next;
                if S::COUNTS_BLOCKS {
                    let run = || self.memo.run(entry);
                    sink.count_run(&self.blocks, entry.number(), run);
                    if C::WATCHES && next & WATCHED != 0 {
                        arrives = Some(atoms.is_e(entry.count - 1));
                        next = target_of(next);
                    }
                }
                for &caller in &entry.pushed[..usize::from(entry.pushes).min(MAX_PUSHES)] {
                    self.stack.push(caller);
                }
                (left, current) = (entry.left, next);
                atoms = atoms.skip(entry.count);
            }
            *done += 1;
        }
        (self.current, self.left) = (current, left);
        sink.executed(executed);
        if S::COUNTS_BLOCKS && (arrives == Some(true) || current == AWAIT && !awaited_before) {
            sink.leaves(BlockId(left));
        }
        stuck
    }

    /// Same as [`packets_of_instructions`](Self::packets_of_instructions), but passes on only
    /// numbers.
    #[inline(always)]
    pub(super) fn counted_instructions(
        &mut self,
        bytes: &[u8],
        atoms: impl Fn(u8) -> Option<AtomPacket>,
        mut locate: impl FnMut(usize) -> BufferOffset,
        sink: &mut impl FlowSink,
    ) -> usize {
        if !self.takes_several() {
            return 0;
        }
        let bytes = &bytes[..bytes.len().min(MAX_PACKETS)];
        let content = |index: usize| -> Option<Content> {
            match atoms(*bytes.get(index)?) {
                Some(AtomPacket::Instructions(atoms, cycles)) => Some((atoms, cycles)),
                _ => None,
            }
        };
        let only_atoms = |index| content(index).map(|(atoms, _)| atoms);
        let mut followed = Executed::default();
        let mut done = 0;
        loop {
            while self.current == NOWHERE
                && let Some((_, cycles)) = content(done)
            {
                // Only the cycles are known.
                followed.cycle_counts += usize::from(cycles.is_some());
                done += 1;
            }
            let path = Path::new(done, only_atoms);
            let consumed = self.follow_links(path.atoms);
            followed.blocks += usize::from(consumed);
            if consumed == path.atoms.count && path.end > done {
                followed.cycle_counts += path.empty;
                done = path.end;
                continue;
            }
            // The first packet that was not followed to its end.
            let (before, begun) = Path::up_to(done, consumed, only_atoms);
            followed.cycle_counts += before.empty;
            done = before.end;
            let rest = content(done);
            let held = match begun.checked_sub(1) {
                Some(atom) => rest.map(|content| self.held_back(content, atom, locate(done))),
                None if followed.blocks == 0 => None,
                None => content(done - 1).and_then(|content| {
                    let atom = content.0.count.checked_sub(1)?;
                    Some(self.held_back(content, atom, locate(done - 1)))
                }),
            };
            self.pass_on_counted(std::mem::take(&mut followed), held, sink);
            let Some((atoms, cycles)) = rest else {
                return done;
            };
            let at = locate(done);
            match cycles {
                None => self.instructions(at, atoms, begun, sink),
                Some(cycles) => self.timed_instructions(at, atoms, begun, cycles, sink),
            }
            done += 1;
        }
    }

    /// Follows atoms as long as each link leads directly to a block; returns the number followed.
    #[inline]
    fn follow_links(&mut self, path: Atoms) -> u8 {
        let mut done = 0;
        while done < path.count {
            let rest = path.skip(done);
            let consumed = match self.memo.find(self.current, rest) {
                Some(entry) => {
                    (self.left, self.current) = (entry.left, entry.next);
                    entry.count
                }
                None => self.learn_links(rest),
            };
            if consumed == 0 {
                break;
            }
            done += consumed;
        }
        done
    }

    /// Follows atoms from link to link, and remembers the path the second time the atoms occur.
    /// Returns the number of atoms consumed.
    #[inline(never)]
    fn learn_links(&mut self, path: Atoms) -> u8 {
        // These runs are not passed to any sink, so there is none to notify.
        if self.memo.is_full() {
            self.memo.clear();
        }
        let mut draft = self.memo.begin(self.current, path);
        let mut done = 0;
        while done < path.count {
            let taken = path.is_e(done);
            let next = self.blocks.link(self.current, taken);
            if !leads_on(next) {
                break;
            }
            if let Some(draft) = &mut draft {
                self.memo.step(draft, self.current, taken, 1);
            }
            (self.left, self.current) = (self.current, next);
            done += 1;
        }
        if let Some(draft) = draft.filter(|_| done > 0) {
            self.memo.finish(draft, self.current);
        }
        done
    }

    /// Returns the last instruction, that of atom `atom` in the packet at `at`, to be held back.
    fn held_back(&self, (atoms, cycles): Content, atom: u8, at: BufferOffset) -> Held {
        Held {
            at,
            block: self.left,
            taken: atoms.is_e(atom),
            cycles: cycles.map(|cycles| cycles[usize::from(atom > 0)].into()),
            exception_return: None,
        }
    }

    /// Emits the instructions followed, except the one held back.
    fn pass_on_counted(
        &mut self,
        followed: Executed,
        held: Option<Held>,
        sink: &mut impl FlowSink,
    ) {
        if followed == Executed::default() {
            return;
        }
        self.release(sink);
        let blocks = followed.blocks - usize::from(held.is_some());
        sink.executed(Executed {
            blocks,
            instructions: blocks,
            ..followed
        });
        self.held = held;
    }
}
