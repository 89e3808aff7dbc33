//! Addresses that are taken: where mappings overlap, the newest one is what memory holds.

use std::collections::BTreeMap;
use std::ops::Range;

/// Ranges of addresses that neither overlap nor touch: by start, their ends.
#[derive(Debug, Default)]
pub struct Claims(BTreeMap<u64, u64>);

impl Claims {
    /// Takes the free parts of a range, and returns them in order. What a range covers becomes one
    /// range, so that taking it again is cheap.
    pub fn take(&mut self, range: Range<u64>) -> Vec<Range<u64>> {
        if range.is_empty() {
            return Vec::new();
        }
        let (mut taken, mut whole) = (Vec::new(), range.clone());
        while let Some((&start, &end)) = self.0.range(..=range.end).next_back() {
            if end < range.start {
                break;
            }
            self.0.remove(&start);
            whole = whole.start.min(start)..whole.end.max(end);
            taken.push((start, end));
        }
        let (mut free, mut at) = (Vec::new(), range.start);
        for (start, end) in taken.into_iter().rev() {
            if start > at {
                free.push(at..start);
            }
            at = at.max(end);
        }
        if at < range.end {
            free.push(at..range.end);
        }
        self.0.insert(whole.start, whole.end);
        free
    }
}

#[cfg(test)]
#[allow(
    clippy::single_range_in_vec_init,
    clippy::reversed_empty_ranges,
    reason = "lists of ranges"
)]
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
        assert_eq!(claims.take(70..70), []);
        assert_eq!(claims.take(9..5), []);
        assert_eq!(claims.0, BTreeMap::from([(0, 60)]), "ranges are joined");
    }
}
