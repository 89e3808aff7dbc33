#![doc = include_str!("../README.md")]
//!
//! # Modules
//!
//! | module | what it is for |
//! | --- | --- |
//! | [`decode`] | decodes a snapshot's trace through all stages |
//! | [`timeline`] | what each core executed: positions, steps and searches both ways |
//! | [`calls`] | calls: which one a return ends, and which are open at a position |
//! | [`recover`] | past registers and memory, from the final state and the executed instructions |

pub mod calls;
pub mod decode;
pub mod recover;
pub mod timeline;

#[cfg(test)]
#[path = "../../../tests/support/small_elf.rs"]
mod small_elf;
