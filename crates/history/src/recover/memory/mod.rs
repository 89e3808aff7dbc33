//! Memory over time: which accesses reached a word, and which may have.

pub(super) mod access;
pub(super) mod barriers;
pub(super) mod cells;
pub(super) mod lifetimes;
pub(super) mod order;
pub(super) mod regions;
