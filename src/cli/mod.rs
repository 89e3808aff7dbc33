//! temporary
pub mod gdb;
pub mod quote;
pub mod serve;
