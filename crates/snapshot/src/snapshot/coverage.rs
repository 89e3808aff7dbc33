//! The addresses of a space that are already covered.

use std::collections::BTreeMap;

/// Covered addresses as ranges (first address, last address) that neither overlap nor touch.
#[derive(Clone, Debug, Default)]
pub struct Coverage(BTreeMap<u64, u64>);

impl Coverage {
    /// Adds `first..=last`; returns the parts that were not covered before.
    pub fn add(&mut self, first: u64, last: u64) -> Vec<(u64, u64)> {
        // Ranges that overlap or touch the new one are merged with it.
        let mut union = (first, last);
        let reach = last.saturating_add(1);
        let before = self.0.range(..first).next_back();
        let before = before.filter(|(_, end)| end.saturating_add(1) >= first);
        let after = self.0.range(first..=reach);
        let met: Vec<(u64, u64)> = before
            .into_iter()
            .chain(after)
            .map(|(&a, &b)| (a, b))
            .collect();
        let mut free = Vec::new();
        let mut next = Some(first);
        for &(begin, end) in &met {
            self.0.remove(&begin);
            union = (union.0.min(begin), union.1.max(end));
            if let Some(at) = next
                && begin > at
                && at <= last
            {
                free.push((at, (begin - 1).min(last)));
            }
            next = next.and_then(|at| end.checked_add(1).map(|after| after.max(at)));
        }
        if let Some(at) = next
            && at <= last
        {
            free.push((at, last));
        }
        self.0.insert(union.0, union.1);
        free
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn free_parts_at_the_ends_of_the_address_space() {
        let mut covered = Coverage::default();
        assert_eq!(covered.add(u64::MAX, u64::MAX), [(u64::MAX, u64::MAX)]);
        assert_eq!(covered.add(0, 0), [(0, 0)]);
        assert_eq!(covered.add(0, u64::MAX), [(1, u64::MAX - 1)]);
        assert_eq!(covered.add(0, u64::MAX), []);
        assert_eq!(covered.0.len(), 1);
    }

    proptest! {
        /// Compares with a bitmap of a small address space.
        #[test]
        fn first_come_first_served(ranges in proptest::collection::vec((0u64..64, 0u64..24), 1..20)) {
            let mut covered = Coverage::default();
            let mut owner = vec![None; 100];
            for (index, &(first, length)) in ranges.iter().enumerate() {
                for (first, last) in covered.add(first, first + length) {
                    prop_assert!(first <= last);
                    for at in first..=last {
                        prop_assert_eq!(owner[at as usize].replace(index), None);
                    }
                }
                for at in first..=first + length {
                    prop_assert!(owner[at as usize].is_some());
                }
            }
        }
    }
}
