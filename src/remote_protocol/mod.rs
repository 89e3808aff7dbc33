//! GDB's remote serial protocol: how packets are framed, and how bytes are written in them.
//!
//! Knows no packet's meaning, and no connection.

pub mod framing;
pub mod hex;
