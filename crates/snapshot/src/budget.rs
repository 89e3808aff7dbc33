//! A budget for the processing of an input, in proportion to its size.
//!
//! A limit for each item does not limit their number: an input may have many items, each within its
//! limit. Instead, all readers of an input share one budget and take from it whatever an item
//! needs: bytes that are unpacked or kept, descriptions, steps of work.

use std::sync::atomic::{AtomicU64, Ordering};

/// An amount that can be used up.
#[derive(Debug, Default)]
pub struct Budget {
    left: AtomicU64,
}

impl Budget {
    /// Creates a budget of this amount.
    pub const fn new(amount: u64) -> Self {
        Self {
            left: AtomicU64::new(amount),
        }
    }

    /// Creates a budget of `times` the size of an input, plus `least`.
    pub const fn of(size: usize, times: u64, least: u64) -> Self {
        Self::new((size as u64).saturating_mul(times).saturating_add(least))
    }

    /// Takes an amount, or nothing if less than that is left.
    pub fn take(&self, amount: u64) -> bool {
        let rest = |left: u64| left.checked_sub(amount);
        self.left
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, rest)
            .is_ok()
    }

    /// Adds an amount, for example for another file of the input.
    pub fn grant(&self, amount: u64) {
        let sum = |left: u64| Some(left.saturating_add(amount));
        let _ = self
            .left
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, sum);
    }

    /// Returns the amount that is left.
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
