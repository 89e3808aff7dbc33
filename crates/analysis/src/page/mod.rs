//! A report as one HTML page that needs no network.
//!
//! `parts/` holds the page: template, style, and script, which are embedded as they are. The
//! script reads the figures from the data in the page ([`data::PageData`]). What happens in time
//! goes to a [`TrackListener`] of each track, which reduces it to what a page has room for;
//! [`build`] adds functions, code and source, and [`write_page`] writes it all.

pub mod blocks;
mod build;
pub mod clock;
pub mod data;
mod functions;
mod listen;
mod listing;
pub mod marks;
mod pack;
pub mod slices;
mod sources;
mod summary;
mod write;

pub use build::{PageInput, build};
pub use listen::TrackListener;
pub use summary::write_summary;
pub use write::write_page;
