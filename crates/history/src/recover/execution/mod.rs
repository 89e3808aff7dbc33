//! What was executed, backward from the end: steps, and the operations of their instructions.

pub(super) mod address_space;
pub(super) mod blocks;
mod floats;
mod handlers;
pub(super) mod recorded;
pub(super) mod stack_walk;
pub(super) mod steps;
pub(super) mod template;
pub(super) mod templates;
