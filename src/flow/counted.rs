//! Follows instruction atoms (ETMv3) for sinks that only count what is executed: the atoms of several
//! packets are followed at once, along links or as remembered ([`super::memo`]).
//!
//! Waypoint atoms are not joined in this way: paths that differ behind the first packet would be
//! remembered apart.

use super::blocks::{NOWHERE, leads_on};
use super::code::CodeImage;
use super::follow::Flow;
use super::instruction_run::InstructionRun;
use super::instructions::MAX_PACKETS;
use super::memo::MAX_ATOMS;
use super::output::Held;
use super::sink::FlowSink;
use crate::element::{AtomPacket, Atoms};
use crate::quantity::BufferOffset;

/// The atoms of a packet, and the cycles of the first one and of each other.
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
    /// Joins the atoms of packets from index `first` on, as many as the memo takes. `atoms` returns those
    /// of a packet.
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

    /// Returns the path up to the packet with the atom after the first `consumed` ones, and the number of
    /// atoms consumed in that packet.
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

/// What was followed and is not passed on yet.
#[derive(Clone, Copy, Default)]
struct Followed {
    /// The number of instructions.
    executed: usize,
    /// The number of cycle counts without an instruction.
    cycle_counts: usize,
}

impl<C: CodeImage> Flow<C> {
    /// Same as [`packets_of_instructions`](Self::packets_of_instructions), but passes on no steps.
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
        let mut followed = Followed::default();
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
            followed.executed += usize::from(consumed);
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
                None if followed.executed == 0 => None,
                None => content(done - 1).and_then(|content| {
                    let atom = content.0.count.checked_sub(1)?;
                    Some(self.held_back(content, atom, locate(done - 1)))
                }),
            };
            self.pass_counts_on(std::mem::take(&mut followed), held, sink, &mut locate);
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

    /// Follows atoms as far as links lead; returns their number.
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

    /// Follows atoms from link to link, and remembers the path if they come the second time. Returns the
    /// number of atoms consumed.
    #[inline(never)]
    fn learn_links(&mut self, path: Atoms) -> u8 {
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

    /// Returns the last instruction, of atom `atom` of a packet at `at`, to hold back.
    fn held_back(&self, (atoms, cycles): Content, atom: u8, at: BufferOffset) -> Held {
        Held {
            at,
            block: self.left,
            taken: atoms.is_e(atom),
            cycles: cycles.map(|cycles| cycles[usize::from(atom > 0)].into()),
            exception_return: None,
        }
    }

    /// Emits what was followed, but for the instruction that is held back.
    fn pass_counts_on(
        &mut self,
        followed: Followed,
        held: Option<Held>,
        sink: &mut impl FlowSink,
        locate: &mut impl FnMut(usize) -> BufferOffset,
    ) {
        if followed.executed + followed.cycle_counts == 0 {
            return;
        }
        self.release(sink);
        let run = InstructionRun {
            steps: &[],
            executed: followed.executed - usize::from(held.is_some()),
            cycle_counts: followed.cycle_counts,
            is_timed: false,
        };
        sink.instructions(&self.blocks, &run, locate);
        self.held = held;
    }
}
