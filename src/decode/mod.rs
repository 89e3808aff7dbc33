//! The decoding of a snapshot's trace: buffers → deformatter → packets → elements → flow.
//!
//! Joins the stages and owns the I/O between them; knows no protocol beyond its traits, and no
//! output format: what comes out goes to a sink of the caller's.

pub mod pipeline;
