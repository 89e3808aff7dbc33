//! Decodes a snapshot's trace: buffers → deformatter → packets → elements → flow.
//!
//! Connects the stages and owns the I/O between them. Output goes to the caller's sinks.

mod buffer;
mod image;
mod note;
pub mod parts;
mod programs;
mod reading;
mod silence;
mod source;
mod state;

pub use buffer::{BufferDecoder, decode_buffer};
pub use image::Image;
pub use note::{BufferNote, NamedSource, Note};
pub use programs::{ProgramOptions, Programs};
pub use reading::{Reading, read};
pub use silence::{FIRST_BYTES, Totals, first_look, silence, silence_at_start};
pub use source::{Decoding, ElementStage, Source, SourceSinks};
pub(crate) use state::bounded_json;
pub use state::{Resumable, SinkState, Stage, StageStates, Unsaved};
