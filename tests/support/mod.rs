//! Helpers for several test binaries: GDB sessions, recorded programs, reference listings.
#![allow(dead_code, reason = "each binary uses a part of it")]

pub mod browser;
pub mod convert;
pub mod flow;
pub mod following;
pub mod gdb;
pub mod history;
pub mod kernel;
pub mod mutation;
pub mod packet_script;
pub mod program;
pub mod record;
pub mod repeated;
pub mod semantics;
pub mod skip;
pub mod stream;
pub mod timeline;
pub mod translation;
