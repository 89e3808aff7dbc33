//! A report as one HTML page that needs no network.
//!
//! `parts/` holds the page: template, style, and script, which are embedded unchanged. The script
//! reads the figures from the data in the page ([`data::PageData`]). What happens over time goes to
//! a [`TrackListener`] for each track, which reduces it to what fits on a page; [`build`] adds
//! functions, code and source, and [`write_page`] writes it all.

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
