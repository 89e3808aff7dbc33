//! Semantics shared by A32 and T32: their instructions differ more in their encodings than in what
//! they do.
//!
//! Registers hold 32 bits, zero-extended. An instruction that does not pass its condition leaves
//! its destinations unchanged, which is expressed as a select between the new and the old value;
//! its loads and stores are predicated.

pub(super) mod alu;
pub(super) mod bits;
pub(super) mod core;
pub(super) mod float;
pub(super) mod media;
pub(super) mod multiply;
pub(super) mod neon;
pub(super) mod shift;
pub(super) mod transfer;
