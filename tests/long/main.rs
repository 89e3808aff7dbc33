//! Tests that take minutes. They run optimised, in a stage of their own of `scripts/test`.

#[path = "../support/mod.rs"]
mod support;

mod debian_programs;
mod histories;
mod recordings;
