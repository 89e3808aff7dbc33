//! Follows instruction atoms (ETMv3): each block is one instruction, held back until the next
//! element other than an exception return, because it may still be cancelled.

use super::blocks::{AWAIT, BlockId, NOWHERE, PUSH, leads_on};
use super::code::CodeImage;
use super::follow::Flow;
use super::instruction_run::{InstructionRun, Step};
use super::output::Held;
use super::sink::FlowSink;
use crate::element::{AtomPacket, Atoms, Mark};
use armsnap_arch::quantity::BufferOffset;
use std::hint::select_unpredictable as select;

/// The maximum number of atoms in a packet.
const MAX_ATOMS: usize = 16;
/// The maximum number of packets followed at once: their indexes fit in 32 bits.
pub(super) const MAX_PACKETS: usize = 1 << 20;

/// Buffer for the steps of several packets, which are collected before they are passed on.
#[derive(Debug)]
pub(super) struct Steps([Step; 256]);

impl Default for Steps {
    fn default() -> Self {
        Self([Step::default(); 256])
    }
}

/// What was collected in [`Steps`].
#[derive(Clone, Copy)]
struct Collected {
    steps: usize,
    /// The number of instructions among them.
    executed: usize,
    is_timed: bool,
}

impl<C: CodeImage> Flow<C> {
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

    /// Follows instruction atoms with cycles: `cycles[0]` for the first atom, `cycles[1]` for each
    /// later one. Where they cannot be followed, emits the cycles alone.
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

    /// Returns whether several packets of instruction atoms can be followed at once.
    #[inline]
    pub(super) fn takes_several(&self) -> bool {
        let is_rare = |held: &Held| held.exception_return.is_some() || self.current == NOWHERE;
        self.q.is_none() && !self.held.as_ref().is_some_and(is_rare)
    }

    /// Follows packets of instruction atoms and of cycles at the start of `bytes`, one byte each;
    /// returns their number.
    ///
    /// The loop has few branches, because atoms and cycles alternate without a pattern.
    #[inline(always)]
    pub(super) fn packets_of_instructions(
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
        let mut done = 0;
        loop {
            let (mut current, mut left) = (self.current, self.left);
            let hot = self.blocks.hot.as_slice();
            let link = |block: u32, atom: u32| hot[(block & !PUSH) as usize].links[atom as usize];
            let steps = &mut self.steps.0;
            let (mut count, mut executed) = (0, 0);
            let (mut slow, mut is_full, mut is_timed) = (None, true, false);
            while let Some(places) = steps.get_mut(count..count + MAX_ATOMS) {
                let next = bytes.get(done).and_then(|&byte| atoms(byte));
                let Some(AtomPacket::Instructions(atoms, cycles)) = next else {
                    is_full = false;
                    break;
                };
                is_timed = cycles.is_some();
                let [first, each] = cycles.unwrap_or_default();
                let (first, each) = (u32::from(first), u32::from(each));
                let passed = |index: u8| atoms.bits >> index & 1;
                let step = |block: u32, index: u8| Step {
                    packet: done as u32,
                    block: block << 1 | passed(index),
                    cycles: if index == 0 { first } else { each },
                };
                if current == NOWHERE {
                    // Only the cycles are known.
                    let others = u32::from(atoms.count.saturating_sub(1));
                    places[0] = Step {
                        cycles: first + each * others,
                        ..step(NOWHERE, 0)
                    };
                    count += usize::from(is_timed);
                    done += 1;
                    continue;
                }
                if atoms.count <= 1 {
                    // Packets of one atom and of none alternate without a pattern, so both cases
                    // are computed.
                    let next = select(atoms.count == 1, link(current, passed(0)), current);
                    if leads_on(next) {
                        places[0] = step(select(atoms.count == 1, current, NOWHERE), 0);
                        left = select(atoms.count == 1, current, left);
                        current = next;
                        count += 1;
                        executed += usize::from(atoms.count);
                        done += 1;
                        continue;
                    }
                }
                let mut index = 0;
                for place in &mut places[..usize::from(atoms.count).min(MAX_ATOMS)] {
                    let next = link(current, passed(index));
                    if !leads_on(next) {
                        break;
                    }
                    *place = step(current, index);
                    (left, current) = (current, next);
                    index += 1;
                }
                count += usize::from(index);
                executed += usize::from(index);
                if index < atoms.count {
                    slow = Some((atoms, cycles, index));
                    break;
                }
                done += 1;
            }
            (self.current, self.left) = (current, left);
            let collected = Collected {
                steps: count,
                executed,
                is_timed,
            };
            self.pass_on(collected, &mut locate, sink);
            if let Some((atoms, cycles, index)) = slow {
                let at = locate(done);
                match cycles {
                    None => self.instructions(at, atoms, index, sink),
                    Some(cycles) => self.timed_instructions(at, atoms, index, cycles, sink),
                }
                done += 1;
            } else if !is_full {
                return done;
            }
        }
    }

    /// Emits the steps collected, but holds back the last one if it is an instruction.
    #[inline(always)]
    fn pass_on(
        &mut self,
        collected: Collected,
        locate: &mut impl FnMut(usize) -> BufferOffset,
        sink: &mut impl FlowSink,
    ) {
        let steps = &self.steps.0[..collected.steps];
        let Some((last, before)) = steps.split_last() else {
            return;
        };
        if let Some(held) = self.held.take() {
            held.emit(&self.blocks, sink);
        }
        let holds = last.block >> 1 != NOWHERE;
        let run = InstructionRun {
            steps: if holds { before } else { steps },
            executed: collected.executed - usize::from(holds),
            is_timed: collected.is_timed,
        };
        sink.instructions(&self.blocks, &run, &mut *locate);
        if holds {
            self.held = Some(Held {
                at: locate(last.packet as usize),
                block: last.block >> 1,
                taken: last.block & 1 == 1,
                cycles: collected.is_timed.then_some(last.cycles),
                exception_return: None,
            });
        }
    }
}
