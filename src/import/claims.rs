//! Addresses that are taken: of overlapping mappings the one that came last is in memory.

use std::collections::BTreeMap;
use std::ops::Range;

/// Ranges of addresses, none of which overlap.
#[derive(Debug, Default)]
pub struct Claims(BTreeMap<u64, u64>);

impl Claims {
    /// Takes what is free of a range, and returns it in order.
    pub fn take(&mut self, range: Range<u64>) -> Vec<Range<u64>> {
        let mut free = Vec::new();
        let mut at = range.start;
        let before = self.0.range(..at).next_back().map(|(_, &end)| end);
        at = before.map_or(at, |end| end.max(at));
        for (&start, &end) in self.0.range(range.start..range.end) {
            if start > at {
                free.push(at..start);
            }
            at = at.max(end);
        }
        if at < range.end {
            free.push(at..range.end);
        }
        for range in &free {
            self.0.insert(range.start, range.end);
        }
        free
    }
}

#[cfg(test)]
#[allow(clippy::single_range_in_vec_init, reason = "lists of ranges")]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_free_is_taken() {
        let mut claims = Claims::default();
        assert_eq!(claims.take(10..20), [10..20]);
        assert_eq!(claims.take(30..40), [30..40]);
        assert_eq!(claims.take(0..50), [0..10, 20..30, 40..50]);
        assert_eq!(claims.take(5..45), []);
        assert_eq!(claims.take(45..60), [50..60]);
        assert_eq!(claims.take(7..7), []);
    }
}
