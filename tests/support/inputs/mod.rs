//! Inputs that are not snapshots.

pub mod core;
pub mod crash_catcher;
pub mod kdump;
pub mod kernel_log;
pub mod minidump;
pub mod module;
pub mod perf;
pub mod perf_builder;
pub mod tarmac;
pub mod tombstone;
pub mod vmcore;
pub mod zephyr;
