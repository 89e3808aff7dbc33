//! Programs: ELF files, their symbols and source lines, and the text of their instructions.
//!
//! Knows no snapshot: which program a snapshot ran is the question of [`crate::snapshot::program`].

#[cfg(feature = "report")]
pub mod disassembly;
pub mod elf;
pub mod names;
mod profile;
pub mod symbols;
