#![doc = include_str!("../README.md")]
//!
//! # Modules
//!
//! | module | what it is for |
//! | --- | --- |
//! | [`import`] | `perf.data` and others → snapshots |

pub mod import;

#[cfg(test)]
#[path = "../../../tests/support/small_elf.rs"]
mod small_elf;
