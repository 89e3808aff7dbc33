//! The intervals during which a word of the stack belonged to a frame.
//!
//! While it does, and is reached only by the stack and frame pointers plus a constant, it is a slot
//! that no other store writes. When the stack pointer was above it, its frame had been left: at
//! another time it may be part of an array, whose accesses need not be known.

use super::barriers::Barriers;
use super::cells::Cells;
use crate::recover::graph::nodes::Graph;
use std::collections::BTreeSet;
use std::ops::Range;

/// Accesses by computed addresses: granule, and number.
pub(in crate::recover) type Reached = BTreeSet<(u64, u32)>;

/// The values of the stack pointer, backward in time; 0 where unknown.
#[derive(Debug, Default)]
pub(in crate::recover) struct Lifetimes {
    /// By value: the earliest access executed while the stack pointer had it.
    accesses: Vec<u32>,
    values: Tree,
    /// An access by a computed address in each lifetime that has one.
    pub reached: Reached,
}

impl Lifetimes {
    /// Takes what is known of the stack pointer now, from its nodes, each with the next access
    /// after it.
    pub fn find(graph: &Graph, nodes: &[(u32, u32)]) -> Self {
        let value = |node| graph.bits(node).whole().unwrap_or(0);
        Self {
            accesses: nodes.iter().map(|&(_, access)| access).collect(),
            values: Tree::new(nodes.iter().map(|&(node, _)| value(node))),
            reached: Reached::default(),
        }
    }

    /// Notes for which values there are barriers. Must be called again when barriers are added.
    pub fn find_barred(&mut self, barriers: &mut Barriers) {
        let mut from = 0;
        let mut next = barriers.first(from).unwrap_or(u32::MAX);
        let accesses = self.accesses.iter();
        self.values.mark(accesses.map(|&last| {
            if next < from {
                next = barriers.first(from).unwrap_or(u32::MAX);
            }
            from = last + 1;
            next <= last
        }));
    }

    /// Takes the computed addresses known now.
    pub fn find_reached(
        &mut self,
        cells: &Cells,
        is_stack: impl Fn(u64) -> bool,
        is_direct: impl Fn(u32) -> bool,
    ) {
        for cell in cells.all.iter().filter(|cell| is_stack(cell.granule)) {
            let mut seen = 0..0;
            for event in cell.events.from(0) {
                let access = cells.events[event as usize].access;
                if access != 0
                    && !seen.contains(&access)
                    && !is_direct(access)
                    && let Some(lifetime) = self.reach(cell.granule, access)
                {
                    seen = lifetime;
                }
            }
        }
    }

    /// Notes an access by a computed address. Returns the accesses of its lifetime if it is the
    /// first such access there.
    pub fn reach(&mut self, granule: u64, access: u32) -> Option<Range<u32>> {
        let lifetime = self.of(granule, access);
        if self.is_reached(granule, &lifetime) {
            return None;
        }
        self.reached.insert((granule, access));
        Some(lifetime)
    }

    /// Whether a computed address is known to reach a granule in a lifetime.
    pub fn is_reached(&self, granule: u64, lifetime: &Range<u32>) -> bool {
        let range = (granule, lifetime.start)..(granule, lifetime.end);
        self.reached.range(range).next().is_some()
    }

    /// The interval of accesses around one during which the stack pointer was never above a
    /// granule. It includes the interval before, with the stack pointer above: the stores of a push
    /// are in there.
    pub fn of(&self, granule: u64, access: u32) -> Range<u32> {
        let bound = granule << 3;
        let here = self.accesses.partition_point(|&other| other < access);
        let newer = self.values.last_above(bound, here);
        let older = self.values.first_above(bound, here);
        let start = newer.map_or(0, |at| self.accesses[at] + 1);
        start..older.map_or(u32::MAX, |at| self.accesses[at] + 1)
    }

    /// If a granule is known not to have been part of the stack at a barrier: the next access,
    /// towards the past, from which on it may have been part of it at a barrier.
    pub fn outside(&self, granule: u64, barrier: u32) -> Option<u32> {
        // A part of the granule may have been: in AArch32 the stack is aligned to four bytes.
        let bound = (granule << 3) + 7;
        let here = self.accesses.partition_point(|&other| other < barrier);
        let next = self.values.first_marked_up_to(bound, here)?;
        (next > here).then(|| self.accesses[next - 1] + 1)
    }

    pub fn bytes(&self) -> usize {
        self.accesses.capacity() * size_of::<u32>()
            + self.values.bytes()
            + self.reached.len() * 2 * size_of::<(u64, u32)>()
    }
}

/// A binary tree over values: the children of `n` are `2n` and `2n + 1`, and the last level has the values.
#[derive(Debug, Default)]
struct Tree {
    highest: Vec<u64>,
    /// Only of marked values.
    lowest: Vec<u64>,
}

impl Tree {
    fn new(values: impl ExactSizeIterator<Item = u64>) -> Self {
        // One leaf is left over, so that one follows all values.
        let leaves = (values.len() + 1).next_power_of_two();
        let mut highest = vec![0; leaves];
        highest.extend(values);
        highest.resize(2 * leaves, 0);
        for at in (1..leaves).rev() {
            highest[at] = highest[2 * at].max(highest[2 * at + 1]);
        }
        let lowest = Vec::new();
        Self { highest, lowest }
    }

    /// Marks some values, and all leaves after the last one.
    fn mark(&mut self, marks: impl Iterator<Item = bool>) {
        let leaves = self.leaves();
        self.lowest = vec![0; 2 * leaves];
        let values = self.lowest[leaves..]
            .iter_mut()
            .zip(&self.highest[leaves..]);
        for ((lowest, value), marked) in values.zip(marks) {
            *lowest = if marked { *value } else { u64::MAX };
        }
        for at in (1..leaves).rev() {
            self.lowest[at] = self.lowest[2 * at].min(self.lowest[2 * at + 1]);
        }
    }

    fn leaves(&self) -> usize {
        self.highest.len() / 2
    }

    /// The first value above a bound, at or after an index.
    fn first_above(&self, bound: u64, from: usize) -> Option<usize> {
        self.first(from, |at| self.highest[at] > bound)
    }

    /// The first marked value not above a bound, at or after an index; the leaf after all values
    /// is 0.
    fn first_marked_up_to(&self, bound: u64, from: usize) -> Option<usize> {
        self.first(from, |at| self.lowest[at] <= bound)
    }

    /// The first value, at or after an index, that satisfies a condition, which holds for a subtree
    /// if it holds for one of its values.
    fn first(&self, from: usize, holds: impl Fn(usize) -> bool) -> Option<usize> {
        let mut at = self.leaves() + from;
        while at != 0 {
            if holds(at) {
                while at < self.leaves() {
                    at *= 2;
                    at += usize::from(!holds(at));
                }
                return Some(at - self.leaves());
            }
            // The next subtree to the right.
            at >>= at.trailing_ones();
            at += usize::from(at != 0);
        }
        None
    }

    /// The last value above a bound, before an index.
    fn last_above(&self, bound: u64, end: usize) -> Option<usize> {
        let mut at = self.leaves() + end;
        loop {
            // The next subtree to the left.
            at >>= at.trailing_zeros();
            if at <= 1 {
                return None;
            }
            at -= 1;
            if self.highest[at] > bound {
                while at < self.leaves() {
                    at = 2 * at + 1;
                    at -= usize::from(self.highest[at] <= bound);
                }
                return Some(at - self.leaves());
            }
        }
    }

    fn bytes(&self) -> usize {
        2 * self.highest.capacity() * size_of::<u64>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn trees_find_what_a_walk_finds(
            values in prop::collection::vec(0..12_u64, 0..40),
            marks in any::<[bool; 32]>(),
            bound in 0..12_u64,
            at in 0..40_usize,
        ) {
            let mut tree = Tree::new(values.iter().copied());
            let is_marked = |index: usize| marks[index % 32];
            tree.mark((0..values.len()).map(is_marked));
            let at = at.min(values.len());
            let first = |holds: &dyn Fn(usize) -> bool| (at..values.len()).find(|&index| holds(index));
            prop_assert_eq!(tree.first_above(bound, at), first(&|index| values[index] > bound));
            let last = (0..at).rev().find(|&index| values[index] > bound);
            prop_assert_eq!(tree.last_above(bound, at), last);
            let up_to = first(&|index| values[index] <= bound && is_marked(index));
            let up_to = up_to.unwrap_or(values.len());
            prop_assert_eq!(tree.first_marked_up_to(bound, at), Some(up_to));
        }
    }
}
