//! Conversion between snapshots and trace files.

#[path = "../support/mod.rs"]
mod support;

mod any_snapshot;
mod convert_command;
mod foreign;
mod frames;
mod in_gdb;
mod snapshots;
mod trace;
mod tracepoints;
mod undescribed;
mod written_back;
