//! What instructions compute, from the emulator.

pub mod instances;
pub mod shadow;
pub mod steps;
