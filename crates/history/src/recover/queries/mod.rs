//! Questions to a solved window.

pub(super) mod origin;
pub(super) mod values;
pub(super) mod writes;
