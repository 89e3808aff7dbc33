//! Address translation: compared with QEMU, and in GDB.

#[path = "../support/mod.rs"]
mod support;

mod compared;
mod in_gdb;
