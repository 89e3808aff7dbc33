//! A sequence of numbers with a gap where the last one was inserted.
//!
//! Addresses become known one access after another, from an older one to newer ones or back, so the
//! next insertion is usually next to the last one, and moves few numbers, however many there are.

use std::ops::Index;

/// A number and its key, stored here so that a search reads nothing else.
#[derive(Clone, Copy, Debug)]
struct Entry {
    key: u32,
    number: u32,
}

/// Numbers in the order of their keys.
#[derive(Debug, Default)]
pub(in crate::recover) struct Order {
    /// The numbers before the gap.
    before: Vec<Entry>,
    /// The numbers after the gap, the last one first.
    after: Vec<Entry>,
}

impl Order {
    pub fn len(&self) -> usize {
        self.before.len() + self.after.len()
    }

    /// The numbers from an index on.
    pub fn from(&self, at: usize) -> impl Iterator<Item = u32> {
        let before = self.before.get(at..).unwrap_or(&[]);
        let passed = at.saturating_sub(self.before.len());
        let after = &self.after[..self.after.len().saturating_sub(passed)];
        before
            .iter()
            .chain(after.iter().rev())
            .map(|entry| entry.number)
    }

    /// The numbers before an index, the last one first.
    pub fn back_from(&self, at: usize) -> impl Iterator<Item = u32> {
        let before = &self.before[..at.min(self.before.len())];
        let passed = at.saturating_sub(self.before.len());
        let after = &self.after[self.after.len().saturating_sub(passed)..];
        after
            .iter()
            .chain(before.iter().rev())
            .map(|entry| entry.number)
    }

    pub fn get(&self, at: usize) -> Option<u32> {
        (at < self.len()).then(|| self[at])
    }

    /// The index of the first number whose key is not below this one.
    pub fn place(&self, key: u32) -> usize {
        match self.before.last() {
            // Usually, the number inserted last is searched for.
            Some(last) if last.key >= key => match self.before.iter().nth_back(1) {
                Some(second) if second.key < key => self.before.len() - 1,
                _ => self.before.partition_point(|entry| entry.key < key),
            },
            _ => match self.after.last() {
                Some(next) if next.key >= key => self.before.len(),
                _ => self.len() - self.after.partition_point(|entry| entry.key >= key),
            },
        }
    }

    /// Inserts a number at the index of its key.
    pub fn insert(&mut self, at: usize, key: u32, number: u32) {
        let entry = Entry { key, number };
        if let Some(more) = self.before.len().checked_sub(at) {
            let moved = self.before.drain(self.before.len() - more..);
            self.after.extend(moved.rev());
        } else {
            let keep = self.len() - at;
            self.before.extend(self.after.drain(keep..).rev());
        }
        self.before.push(entry);
    }

    pub fn retain(&mut self, mut is_kept: impl FnMut(u32) -> bool) {
        self.before.retain(|entry| is_kept(entry.number));
        self.after.retain(|entry| is_kept(entry.number));
    }
}

impl Index<usize> for Order {
    type Output = u32;

    fn index(&self, at: usize) -> &u32 {
        match self.before.get(at) {
            Some(entry) => &entry.number,
            None => &self.after[self.len() - 1 - at].number,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The same operations on a vector give the same sequence.
    #[test]
    fn it_is_a_vector() {
        let (mut order, mut wanted) = (Order::default(), Vec::<(u32, u32)>::new());
        let mut random = 1_u64;
        for step in 0..3000_u32 {
            random = random
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            let key = (random >> 33) as u32 % 10_000;
            let at = wanted.partition_point(|(other, _)| *other < key);
            assert_eq!(order.place(key), at, "{step}");
            if random >> 60 == 0 && step % 64 == 0 {
                order.retain(|number| number % 5 != 0);
                wanted.retain(|(_, number)| number % 5 != 0);
            } else if wanted.get(at).is_none_or(|(other, _)| *other != key) {
                order.insert(at, key, step);
                wanted.insert(at, (key, step));
                assert_eq!(order.place(key), at, "{step}");
                assert_eq!(order.place(key + 1), at + 1, "{step}");
            }
            assert_eq!(order.len(), wanted.len());
            let numbers: Vec<u32> = wanted.iter().map(|(_, number)| *number).collect();
            let at = at.min(numbers.len());
            let from: Vec<u32> = order.from(at).collect();
            assert_eq!(from, numbers[at..], "{step}");
            let back: Vec<u32> = order.back_from(at).collect();
            let mut reversed = numbers[..at].to_vec();
            reversed.reverse();
            assert_eq!(back, reversed, "{step}");
            assert_eq!(order.get(at), numbers.get(at).copied());
        }
    }
}
