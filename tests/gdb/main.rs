//! Sessions of GDB and LLDB, and the clients of the server.

#[path = "../support/mod.rs"]
mod support;

mod clients;
mod code_pages;
mod conditions;
mod coroutines;
mod ending_signals;
mod endpoints;
mod finish;
mod frame_values;
mod history;
mod history_commands;
mod history_ends;
mod hostile_client;
mod hostile_names;
mod hostile_scripts;
mod hostile_terminal;
mod incomplete;
mod libraries;
mod lldb;
mod long_trace;
mod moves;
mod overwriting;
mod past_faults;
mod past_signals;
mod past_values;
mod peripherals;
mod printers;
mod quiet_start;
mod quiet_values;
mod readme;
mod recorded_history;
mod save;
mod save_and_find;
mod selected_frame;
mod served_trace_files;
mod session;
mod symbol_names;
mod trace_frames;
mod transcripts;
mod tsave;
mod unwound;
mod watched;
