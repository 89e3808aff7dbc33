//! Listings for people and exports for programs.

pub mod calls;
pub mod fields;
pub mod history;
pub mod info;
pub mod listing;
pub mod psr;
