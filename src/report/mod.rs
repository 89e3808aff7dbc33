//! What people and programs read: listings and exports.

pub mod listing;
