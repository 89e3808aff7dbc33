//! What instructions compute, held against the emulator.

#[path = "../support/mod.rs"]
mod support;

mod a64;
mod aarch32;
