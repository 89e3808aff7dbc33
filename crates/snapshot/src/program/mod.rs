//! Programs: ELF files, their symbols and source lines, and the text of their instructions.
//!
//! Independent of snapshots: [`crate::snapshot::program`] finds the program of a snapshot.

mod build_attributes;
pub mod call_frames;
pub mod data_symbols;
pub mod disassembly;
pub mod elf;
pub(crate) mod frames;
pub mod go;
pub mod instruction_sets;
pub mod kallsyms;
pub mod kernel_symbols;
pub mod landing_pads;
pub mod module_file;
mod names;
pub(crate) mod symbol_file;
pub mod symbols;
pub mod variables;
