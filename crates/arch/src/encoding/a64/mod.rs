//! A64 (C4.1 "A64 instruction set encoding").

mod branches;
mod immediate;
mod memory;
mod register;

pub use branches::Branch;
pub use immediate::Immediate;
pub use memory::Memory;
pub use register::Register;
