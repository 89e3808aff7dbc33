//! GDB's remote serial protocol: packet framing and data encoding.
//!
//! Independent of the meaning of packets, and of connections.

pub mod framing;
pub mod hex;
