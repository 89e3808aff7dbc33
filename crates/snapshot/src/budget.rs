//! What may be used for an input, in proportion to its size.
//!
//! A limit for each item does not hold for their number: an input may have many items, each within its
//! limit. Readers share one budget for each input instead, and take from it what an item needs: bytes
//! that are unpacked or kept, descriptions, steps of work.

use std::sync::atomic::{AtomicU64, Ordering};

/// An amount that is used up.
#[derive(Debug, Default)]
pub struct Budget {
    left: AtomicU64,
}

impl Budget {
    /// A budget of this amount.
    pub const fn new(amount: u64) -> Self {
        Self {
            left: AtomicU64::new(amount),
        }
    }

    /// A budget of `times` the size of an input, and of `least` for any input.
    pub const fn of(size: usize, times: u64, least: u64) -> Self {
        Self::new((size as u64).saturating_mul(times).saturating_add(least))
    }

    /// Takes an amount, or nothing if that much is not left.
    pub fn take(&self, amount: u64) -> bool {
        let rest = |left: u64| left.checked_sub(amount);
        self.left
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, rest)
            .is_ok()
    }

    /// Adds an amount, as for another file of the input.
    pub fn grant(&self, amount: u64) {
        let sum = |left: u64| Some(left.saturating_add(amount));
        let _ = self
            .left
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, sum);
    }

    /// What is left.
    pub fn left(&self) -> u64 {
        self.left.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_amount_is_taken_once() {
        let budget = Budget::of(10, 3, 5);
        assert!(budget.take(30) && !budget.take(6) && budget.take(5) && !budget.take(1));
        budget.grant(7);
        assert!(budget.take(7) && budget.take(0));
        budget.grant(u64::MAX);
        budget.grant(1);
        assert_eq!(budget.left(), u64::MAX);
    }
}
