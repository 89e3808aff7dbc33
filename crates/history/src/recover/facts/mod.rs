//! The facts from which the past is computed.

pub(super) mod constants;
pub(super) mod final_state;
pub(super) mod register_locations;
