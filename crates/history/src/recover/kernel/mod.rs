//! What a Linux kernel does to the registers and the memory of a program.

pub(super) mod outputs;
pub(super) mod signals;
pub(super) mod system_calls;
