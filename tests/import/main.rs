//! Inputs that are not snapshots: imported, and opened directly.

#[path = "../support/mod.rs"]
mod support;

mod archives;
mod by_time;
mod console;
mod converted;
mod core_files;
mod crash_catcher;
mod dwt;
mod kernel_log;
#[cfg(target_os = "linux")]
mod large;
mod m_profile;
mod minidump;
mod modules;
mod mtb;
#[cfg(target_os = "linux")]
mod mutated;
mod one_step_away;
mod panic;
mod perf_captures;
mod perf_generated;
mod perf_more;
mod perf_threads;
mod pointer_auth;
mod private;
mod raw;
mod register_lists;
mod signals;
mod strangers;
mod swo;
mod tarmac;
mod tombstone;
mod with_state;
mod written_by_others;
mod zephyr;
mod zephyr_threads;

use crate::support::inputs::perf_builder;
use crate::support::skip::capture;

/// It counts the memory in use.
#[cfg(target_os = "linux")]
#[global_allocator]
static MEMORY: peak_alloc::PeakAlloc = support::damaged::measured::ALLOCATOR;
