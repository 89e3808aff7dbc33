//! Listings of trace, `info`, calls, histories, consoles: as text for people, as JSON for programs.

pub mod calls;
mod fields;
pub mod history;
pub mod info;
pub mod listing;
mod psr;
pub mod software;
