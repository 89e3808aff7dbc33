//! Address translation: compared with QEMU, in GDB, and of core files of whole systems.

#[path = "../support/mod.rs"]
mod support;

mod compared;
mod in_gdb;
mod kdump;
mod vmcore;
mod vmcore_places;
