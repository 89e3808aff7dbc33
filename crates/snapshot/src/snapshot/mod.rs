//! Snapshot directories: files ⇄ model.
//!
//! Independent of trace protocols and debuggers.
//!
//! This example reads the instruction that a core is about to execute:
//!
//! ```
//! use armsnap_arch::arch::{Architecture, RegisterFile, state};
//! use armsnap_arch::quantity::Address;
//! use armsnap_snapshot::snapshot::OpenOptions;
//! use armsnap_snapshot::snapshot::memory::CoreMemory;
//! use armsnap_snapshot::snapshot::model::Snapshot;
//! use std::path::Path;
//!
//! let loaded = Snapshot::open(Path::new("../../testdata/virt-a57"), &OpenOptions::default())?;
//! let core = &loaded.snapshot.devices[1];
//! assert_eq!(core.name, "Cortex-A57_1");
//!
//! let registers = RegisterFile::read(core, Architecture::detect(core).architecture);
//! let pc = registers.pc().expect("this core has a PC");
//! let memory = CoreMemory::new(&loaded, core);
//! let mut instruction = [0; 4];
//! let known = memory.read(Address(pc), state::current_space(&registers).space, &mut instruction);
//! assert_eq!((pc, known), (0x4010_025c, 4));
//! assert_eq!(u32::from_le_bytes(instruction), 0xf940_07e0);
//! # Ok::<(), armsnap_snapshot::snapshot::Error>(())
//! ```

pub mod changed;
pub mod chosen;
pub mod core_files;
pub mod coverage;
mod dump_files;
mod elf_dump;
pub mod elf_files;
pub mod files;
pub mod further_files;
pub mod imported;
pub(crate) mod ini;
pub mod inputs;
pub mod libraries;
pub mod memory;
pub mod model;
mod note;
pub mod paths;
pub mod program;
pub mod read;
pub mod recorded;
pub mod recording;
pub mod registers;
pub mod replay;
mod shared;
pub mod signals;
pub mod straight;
pub mod topology;
pub mod write;

pub use note::{CodeNote, KeptCode, MemoryNote, ProgramNote};
pub use read::{Error, OpenOptions, OpenSnapshot};
