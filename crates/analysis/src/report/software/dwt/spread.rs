//! The least, the greatest and the sum of some numbers.

use serde::Serialize;

/// The least, the greatest and the sum of some numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Spread {
    /// How many there are.
    pub count: u64,
    /// Their sum.
    pub total: u64,
    /// The least one.
    pub min: Option<u64>,
    /// The greatest one.
    pub max: Option<u64>,
}

impl Spread {
    /// Adds a number.
    pub fn add(&mut self, number: u64) {
        self.count += 1;
        self.total = self.total.saturating_add(number);
        self.min = Some(self.min.map_or(number, |min| min.min(number)));
        self.max = Some(self.max.map_or(number, |max| max.max(number)));
    }

    /// Returns their mean.
    pub fn mean(&self) -> Option<u64> {
        self.total.checked_div(self.count)
    }
}
