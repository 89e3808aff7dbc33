//! The facts from which the past is computed.

mod address_map;
pub(super) mod constants;
pub(super) mod final_state;
pub(super) mod microcontroller;
pub(super) mod register_locations;
