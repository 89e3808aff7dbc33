//! What instructions compute, compared with the emulator.

#[path = "../support/mod.rs"]
mod support;

mod a64;
mod aarch32;
