//! ETMv3.0 to ETMv3.5 (ARM IHI 0014Q): bytes → packets → elements.
//!
//! Atoms count instructions. Knows no memory: which instructions they are is the flow's part.

pub mod registers;
pub(crate) mod sync;
pub mod timestamp;
