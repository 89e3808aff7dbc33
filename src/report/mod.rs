//! What people and programs read: listings and exports.

pub mod calls;
pub mod fields;
pub mod history;
pub mod info;
pub mod listing;
pub mod psr;
