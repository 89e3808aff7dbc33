//! The decoding of a snapshot's trace: buffers → deformatter → packets → elements → flow.
//!
//! Joins the stages and owns the I/O between them. What comes out goes to sinks of the
//! caller's: this module knows no form of listing.

mod buffer;
mod image;
mod silence;
mod source;

pub use buffer::decode_buffer;
pub use image::Image;
pub use silence::{Totals, silence};
pub use source::{Decoding, ElementStage, Flowing, Source, SourceSinks};
