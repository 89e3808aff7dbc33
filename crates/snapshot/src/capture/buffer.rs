//! A trace buffer: its files, its format, and its sources.

use super::{CaptureSource, LeftOut};
use crate::mapped::Mapped;
use armsnap_trace::formatter::FrameKind;

/// One trace buffer and the sources in it.
#[derive(Clone, Debug)]
pub struct CaptureBuffer {
    /// Its index in [`crate::snapshot::model::Trace::buffers`].
    pub index: usize,
    /// Its name.
    pub name: String,
    /// Its files, in order.
    pub parts: Vec<Mapped>,
    /// The layout of its frames; `None` if it is unformatted and contains the bytes of a single
    /// source.
    pub frames: Option<FrameKind>,
    /// The sources to decode: one for each trace ID.
    pub sources: Vec<CaptureSource>,
    /// The sources that are not decoded.
    pub left_out: Vec<LeftOut>,
}

impl CaptureBuffer {
    /// Returns the size in bytes.
    pub fn bytes(&self) -> u64 {
        self.parts.iter().map(|part| part.len() as u64).sum()
    }
}
