//! Snapshot directories: files ⇄ model.
//!
//! Knows nothing of trace protocols or debuggers.

pub mod model;
