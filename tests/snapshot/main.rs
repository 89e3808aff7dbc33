//! Snapshots: read, written, checked, described.

#[path = "../support/mod.rs"]
mod support;

mod check_command;
mod faults;
mod hostile_files;
mod info;
mod mutated_snapshots;
mod mutation;
mod outputs;
mod own_systems;
mod peripherals;
mod proportion;
mod read;
mod variants;
mod write;
