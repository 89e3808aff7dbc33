//! Snapshot directories: files ⇄ model.
//!
//! Knows nothing of trace protocols or debuggers.

pub mod changed;
pub mod elf_dump;
pub mod files;
pub mod ini;
pub mod libraries;
pub mod memory;
pub mod model;
pub mod paths;
pub mod program;
pub mod read;
pub mod recording;
pub mod registers;
pub mod shared;
pub mod topology;
pub mod write;

pub use read::{Error, Loaded, OpenOptions};
