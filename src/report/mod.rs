//! Listings for people and exports for programs.

pub(crate) mod calls;
mod fields;
pub(crate) mod history;
pub mod info;
pub mod listing;
mod psr;
