//! Listings for people and exports for programs.

pub mod calls;
mod fields;
pub mod history;
pub mod info;
pub mod listing;
mod psr;
