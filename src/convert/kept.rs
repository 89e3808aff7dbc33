//! The executed instructions to keep: a window between two bounds, with a limited length.

use super::executed::ExecutedInstruction;
use armsnap_arch::quantity::{Address, BufferOffset};
use std::collections::{HashSet, VecDeque};

/// A position in the decoded trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bound {
    /// The execution of the instruction at this address.
    Address(Address),
    /// An offset in the trace buffer.
    Offset(BufferOffset),
}

/// The limits of the window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Start at the first execution of this address, or at or after this offset.
    pub from: Option<Bound>,
    /// End with the next execution of this address, or with the last instruction at or before this
    /// offset.
    pub to: Option<Bound>,
    /// The maximum number of instructions, counted from the end.
    pub last: usize,
}

/// The kept instructions.
#[derive(Clone, Debug)]
pub struct KeptInstructions {
    limits: Limits,
    instructions: VecDeque<ExecutedInstruction>,
    /// Whether the window's start was reached.
    begun: bool,
    /// Whether the window's end was reached.
    ended: bool,
    /// The number of added instructions, kept or not.
    total: u64,
    /// The number of executed instructions, added or not.
    executed: u64,
    latest_kept: bool,
}

impl KeptInstructions {
    /// An empty window.
    pub fn new(limits: Limits) -> Self {
        Self {
            limits,
            instructions: VecDeque::new(),
            begun: limits.from.is_none(),
            ended: false,
            total: 0,
            executed: 0,
            latest_kept: false,
        }
    }

    /// Adds the next instruction.
    #[inline]
    pub fn push(&mut self, instruction: ExecutedInstruction) {
        self.total += 1;
        self.latest_kept = false;
        if self.ended || !self.has_begun(&instruction) {
            return;
        }
        match self.limits.to {
            Some(Bound::Offset(to)) if instruction.offset > to => {
                self.ended = true;
                return;
            }
            Some(Bound::Address(to)) => self.ended = instruction.pc == to,
            _ => {}
        }
        if self.instructions.len() >= self.limits.last {
            self.instructions.pop_front();
        }
        if self.limits.last > 0 {
            self.instructions.push_back(instruction);
            self.latest_kept = true;
        }
    }

    /// Counts executed instructions, kept or not.
    #[inline]
    pub fn count(&mut self, instructions: u32) {
        self.executed += u64::from(instructions);
    }

    /// The number of executed instructions so far.
    #[inline]
    pub fn executed(&self) -> u64 {
        self.executed
    }

    fn has_begun(&mut self, instruction: &ExecutedInstruction) -> bool {
        self.begun = self.begun
            || match self.limits.from {
                None => true,
                Some(Bound::Address(from)) => instruction.pc == from,
                Some(Bound::Offset(from)) => instruction.offset >= from,
            };
        self.begun
    }

    /// The last added instruction, if it was kept.
    pub fn latest(&mut self) -> Option<&mut ExecutedInstruction> {
        self.instructions.back_mut().filter(|_| self.latest_kept)
    }

    /// The kept instructions, oldest first.
    pub fn instructions(&self) -> &VecDeque<ExecutedInstruction> {
        &self.instructions
    }

    /// The number of added instructions.
    pub fn total(&self) -> u64 {
        self.total
    }

    /// The bound that was never reached, if any.
    pub fn missed(&self) -> Option<Bound> {
        if !self.begun {
            return self.limits.from;
        }
        let to = |bound: &Bound| matches!(bound, Bound::Address(_)) && !self.ended;
        self.limits.to.filter(to)
    }

    /// Keeps as many of the last instructions as possible with at most `places` distinct places;
    /// `place` tells that of an address, if it has one.
    pub fn keep_places(&mut self, places: usize, place: impl Fn(Address) -> Option<Address>) {
        let mut seen = HashSet::new();
        let fits = |instruction: &&ExecutedInstruction| {
            seen.extend(place(instruction.pc));
            seen.len() <= places
        };
        let kept = self.instructions.iter().rev().take_while(fits).count();
        self.instructions.drain(..self.instructions.len() - kept);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kept(from: Option<Bound>, to: Option<Bound>, last: usize) -> KeptInstructions {
        let mut kept = KeptInstructions::new(Limits { from, to, last });
        for (offset, pc) in [8, 1, 2, 3, 2, 1, 9].into_iter().enumerate() {
            kept.push(ExecutedInstruction {
                pc: Address(pc),
                offset: BufferOffset(offset as u64 / 2),
                ..ExecutedInstruction::default()
            });
        }
        kept
    }

    fn places(kept: &KeptInstructions) -> Vec<u64> {
        kept.instructions()
            .iter()
            .map(|instruction| instruction.pc.0)
            .collect()
    }

    #[test]
    fn bounds_and_the_maximum_number_limit_the_window() {
        let at = |address| Some(Bound::Address(Address(address)));
        let offset = |offset| Some(Bound::Offset(BufferOffset(offset)));
        for (from, to, last, wanted) in [
            (None, None, 99, &[8, 1, 2, 3, 2, 1, 9][..]),
            (None, None, 2, &[1, 9]),
            (at(2), None, 99, &[2, 3, 2, 1, 9]),
            (at(2), at(1), 99, &[2, 3, 2, 1]),
            (at(3), at(3), 99, &[3]),
            (None, at(2), 2, &[1, 2]),
            (offset(1), offset(2), 99, &[2, 3, 2, 1]),
            (offset(7), None, 99, &[]),
            (None, None, 0, &[]),
        ] {
            let kept = kept(from, to, last);
            assert_eq!(places(&kept), wanted, "{from:?} {to:?} {last}");
            assert_eq!(kept.total(), 7);
        }
    }

    #[test]
    fn a_bound_that_is_never_reached_is_reported() {
        let at = |address| Some(Bound::Address(Address(address)));
        assert_eq!(kept(at(7), None, 9).missed(), at(7));
        assert_eq!(kept(at(2), at(8), 9).missed(), at(8));
        assert_eq!(kept(at(2), at(2), 9).missed(), None);
        let after = Some(Bound::Offset(BufferOffset(100)));
        assert_eq!(kept(None, after, 9).missed(), None);
        assert_eq!(kept(after, None, 9).missed(), after);
    }

    #[test]
    fn the_window_is_limited_to_a_number_of_addresses() {
        for (addresses, wanted) in [(1, &[9][..]), (3, &[2, 1, 9]), (4, &[1, 2, 3, 2, 1, 9])] {
            let mut kept = kept(None, None, 99);
            kept.keep_places(addresses, Some);
            assert_eq!(places(&kept), wanted);
        }
    }
}
