//! Tests that take minutes. `scripts/test --long` runs them optimised, in a separate stage.

#[path = "../support/mod.rs"]
mod support;

mod debian_programs;
mod go_programs;
mod histories;
mod kernels;
mod modules;
#[cfg(target_os = "linux")]
mod mutated;
mod past_programs;
mod recordings;
mod reports;
mod semantics;
#[cfg(unix)]
mod spark;
mod sve;
mod translation;

/// It counts the memory in use.
#[cfg(target_os = "linux")]
#[global_allocator]
static MEMORY: peak_alloc::PeakAlloc = support::damaged::measured::ALLOCATOR;
