//! Decoding: packets, elements, program flow, and comparison with the reference.

#[path = "../support/mod.rs"]
mod support;

mod branch_records;
mod by_hand;
mod capture;
mod corrupt_streams;
mod decode_command;
mod ds5_reports;
mod every_byte;
mod in_parts;
mod live;
mod packet_scripts;
mod parity;
mod parity_etmv4;
mod parity_ptm;
mod parity_stream;
mod program_flow;
mod programs;
#[allow(dead_code, reason = "unit tests use the rest")]
#[path = "../../crates/trace/src/encode/tests/programs.rs"]
mod random_programs;
mod reference_of_encoders;
mod silence;
mod stream_packets;
