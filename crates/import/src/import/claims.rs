//! Claimed addresses: where mappings overlap, memory contains the newest one.

use armsnap_snapshot::snapshot::coverage::Coverage;
use std::ops::Range;

/// Ranges of addresses that have been claimed.
#[derive(Debug, Default)]
pub struct Claims(Coverage);

impl Claims {
    /// Claims the free parts of a range, and returns them in order.
    pub fn take(&mut self, range: Range<u64>) -> Vec<Range<u64>> {
        if range.is_empty() {
            return Vec::new();
        }
        let free = self.0.add(range.start, range.end - 1).into_iter();
        free.map(|(first, last)| first..last + 1).collect()
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
        assert_eq!(
            claims.take(u64::MAX - 1..u64::MAX),
            [u64::MAX - 1..u64::MAX]
        );
    }
}
