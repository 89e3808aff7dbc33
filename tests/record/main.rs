//! Programs recorded in an emulator.

#[path = "../support/mod.rs"]
mod support;

mod changed_code;
mod checkpoints;
mod data_addresses;
mod diff;
mod ends;
mod exit;
mod exit_status;
mod expressions;
mod far_back;
mod faults;
mod libraries;
mod linux_programs;
mod matrix;
mod never_lost;
mod past_signals;
mod past_threads;
mod past_values;
mod past_values_m;
mod plugin_stream;
mod process_stack;
mod questions;
mod random_program;
mod replay;
mod replayed_threads;
mod saved_recordings;
mod systems;
mod tasks;
mod threads;
mod trace_files;
mod trustzone;
