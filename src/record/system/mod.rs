//! Bare-metal images on machines of `qemu-system`.

pub mod log;
