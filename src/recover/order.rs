//! A sequence of numbers with a gap where the last one was inserted.
//!
//! Addresses become known one access after the other, from an older one to newer ones or back, so the
//! next insertion is mostly beside the last one, and moves few numbers however many there are.

use std::ops::Index;

/// Numbers in an order that the user keeps.
#[derive(Debug, Default)]
pub(super) struct Order {
    /// The numbers before the gap.
    before: Vec<u32>,
    /// The numbers after the gap, the last one first.
    after: Vec<u32>,
}

impl Order {
    pub fn len(&self) -> usize {
        self.before.len() + self.after.len()
    }

    /// The numbers from a place on.
    pub fn from(&self, at: usize) -> impl Iterator<Item = u32> {
        let before = self.before.get(at..).unwrap_or(&[]);
        let passed = at.saturating_sub(self.before.len());
        let after = &self.after[..self.after.len().saturating_sub(passed)];
        before.iter().chain(after.iter().rev()).copied()
    }

    /// The numbers before a place, the last one first.
    pub fn back_from(&self, at: usize) -> impl Iterator<Item = u32> {
        let before = &self.before[..at.min(self.before.len())];
        let passed = at.saturating_sub(self.before.len());
        let after = &self.after[self.after.len().saturating_sub(passed)..];
        after.iter().chain(before.iter().rev()).copied()
    }

    pub fn get(&self, at: usize) -> Option<u32> {
        (at < self.len()).then(|| self[at])
    }

    /// The place of the first number for which `is_before` does not hold, if it holds for all before
    /// that one and for none after it.
    pub fn partition_point(&self, mut is_before: impl FnMut(u32) -> bool) -> usize {
        match self.before.last() {
            Some(&last) if !is_before(last) => self.before.partition_point(|&n| is_before(n)),
            _ => {
                let after = self.after.partition_point(|&number| !is_before(number));
                self.len() - after
            }
        }
    }

    pub fn insert(&mut self, at: usize, number: u32) {
        if let Some(more) = self.before.len().checked_sub(at) {
            let moved = self.before.drain(self.before.len() - more..);
            self.after.extend(moved.rev());
        } else {
            let keep = self.len() - at;
            self.before.extend(self.after.drain(keep..).rev());
        }
        self.before.push(number);
    }

    pub fn push(&mut self, number: u32) {
        self.insert(self.len(), number);
    }

    pub fn retain(&mut self, mut is_kept: impl FnMut(u32) -> bool) {
        self.before.retain(|&number| is_kept(number));
        self.after.retain(|&number| is_kept(number));
    }
}

impl Index<usize> for Order {
    type Output = u32;

    fn index(&self, at: usize) -> &u32 {
        match self.before.get(at) {
            Some(number) => number,
            None => &self.after[self.len() - 1 - at],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The same operations on a vector give the same sequence.
    #[test]
    fn it_is_a_vector() {
        let (mut order, mut wanted) = (Order::default(), Vec::new());
        let mut random = 1_u64;
        for step in 0..3000_u32 {
            random = random
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            let at = (random >> 33) as usize % (wanted.len() + 1);
            match random >> 60 {
                0 if step % 64 == 0 => {
                    order.retain(|number| number % 5 != 0);
                    wanted.retain(|number| number % 5 != 0);
                }
                1 => {
                    order.push(step);
                    wanted.push(step);
                }
                _ => {
                    order.insert(at, step);
                    wanted.insert(at, step);
                }
            }
            assert_eq!(order.len(), wanted.len());
            let from: Vec<u32> = order.from(at.min(wanted.len())).collect();
            assert_eq!(from, wanted[at.min(wanted.len())..], "{step}");
            let back: Vec<u32> = order.back_from(at.min(wanted.len())).collect();
            let mut reversed = wanted[..at.min(wanted.len())].to_vec();
            reversed.reverse();
            assert_eq!(back, reversed, "{step}");
            assert_eq!(order.get(at), wanted.get(at).copied());
        }
        let mut sorted = Order::default();
        for number in (0..1000_u32).rev() {
            sorted.insert(0, 2 * number);
            let end = sorted.len();
            assert_eq!(sorted.partition_point(|other| other < 2 * number), 0);
            assert_eq!(sorted.partition_point(|other| other < 2000), end);
            let middle = sorted.partition_point(|other| other <= 2 * number);
            assert_eq!(middle, 1);
        }
        assert_eq!(sorted.partition_point(|other| other < 501), 251);
    }
}
