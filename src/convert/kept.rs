//! Which visits are kept: from a place, to a place, no more than the last so many.

use super::executed::ExecutedInstruction;
use crate::quantity::{Address, BufferOffset};
use std::collections::{HashSet, VecDeque};

/// A place in the decoded trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bound {
    /// A visit of this address.
    Address(Address),
    /// An offset in the trace buffer.
    Offset(BufferOffset),
}

/// What is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Begin with the first visit here, or at this offset or behind.
    pub from: Option<Bound>,
    /// End with the first visit here from then on, or with the last one before this offset or
    /// at it.
    pub to: Option<Bound>,
    /// Of those, no more than the last so many.
    pub last: usize,
}

/// The visits that are kept.
#[derive(Clone, Debug)]
pub struct KeptInstructions {
    limits: Limits,
    instructions: VecDeque<ExecutedInstruction>,
    begun: bool,
    ended: bool,
    total: u64,
    latest_kept: bool,
}

impl KeptInstructions {
    /// An empty one.
    pub fn new(limits: Limits) -> Self {
        Self {
            limits,
            instructions: VecDeque::new(),
            begun: limits.from.is_none(),
            ended: false,
            total: 0,
            latest_kept: false,
        }
    }

    /// Takes the next visit.
    #[inline]
    pub fn push(&mut self, instruction: ExecutedInstruction) {
        self.total += 1;
        self.latest_kept = false;
        if self.ended || !self.begins(&instruction) {
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

    fn begins(&mut self, instruction: &ExecutedInstruction) -> bool {
        self.begun = self.begun
            || match self.limits.from {
                None => true,
                Some(Bound::Address(from)) => instruction.pc == from,
                Some(Bound::Offset(from)) => instruction.offset >= from,
            };
        self.begun
    }

    /// The visit that was taken last, if it was kept.
    pub fn latest(&mut self) -> Option<&mut ExecutedInstruction> {
        self.instructions.back_mut().filter(|_| self.latest_kept)
    }

    /// Those kept, oldest first.
    pub fn instructions(&self) -> &VecDeque<ExecutedInstruction> {
        &self.instructions
    }

    /// How many came.
    pub fn total(&self) -> u64 {
        self.total
    }

    /// The bound that was never met, if there is one.
    pub fn missed(&self) -> Option<Bound> {
        if !self.begun {
            return self.limits.from;
        }
        let to = |bound: &Bound| matches!(bound, Bound::Address(_)) && !self.ended;
        self.limits.to.filter(to)
    }

    /// Keeps the last visits, as many as lie at `addresses` distinct addresses.
    pub fn keep_addresses(&mut self, addresses: usize) {
        let mut seen = HashSet::new();
        let fits = |instruction: &&ExecutedInstruction| {
            seen.insert(instruction.pc);
            seen.len() <= addresses
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
    fn bounds_and_the_last_ones() {
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
    fn a_bound_that_is_never_met_is_told() {
        let at = |address| Some(Bound::Address(Address(address)));
        assert_eq!(kept(at(7), None, 9).missed(), at(7));
        assert_eq!(kept(at(2), at(8), 9).missed(), at(8));
        assert_eq!(kept(at(2), at(2), 9).missed(), None);
        let behind = Some(Bound::Offset(BufferOffset(100)));
        assert_eq!(kept(None, behind, 9).missed(), None);
        assert_eq!(kept(behind, None, 9).missed(), behind);
    }

    #[test]
    fn the_last_visits_of_so_many_addresses() {
        for (addresses, wanted) in [(1, &[9][..]), (3, &[2, 1, 9]), (4, &[1, 2, 3, 2, 1, 9])] {
            let mut kept = kept(None, None, 99);
            kept.keep_addresses(addresses);
            assert_eq!(places(&kept), wanted);
        }
    }
}
