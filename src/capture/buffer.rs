//! A trace buffer: its files, its form, and the sources in it.

use super::{CaptureSource, LeftOut};
use crate::formatter::FrameKind;
use crate::mapped::Mapped;

/// One trace buffer and the sources in it.
#[derive(Clone, Debug)]
pub struct CaptureBuffer {
    /// Its index in [`crate::snapshot::model::Trace::buffers`].
    pub index: usize,
    /// Its name.
    pub name: String,
    /// Its files, in order.
    pub parts: Vec<Mapped>,
    /// How frames lie in it; `None` if it holds one source's bytes.
    pub frames: Option<FrameKind>,
    /// Its sources that can be decoded: one for each trace ID.
    pub sources: Vec<CaptureSource>,
    /// Its sources that cannot.
    pub left_out: Vec<LeftOut>,
}

impl CaptureBuffer {
    /// Bytes of the buffer.
    pub fn bytes(&self) -> u64 {
        self.parts.iter().map(|part| part.len() as u64).sum()
    }
}
