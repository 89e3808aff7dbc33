//! What the operations of the steps say of values: nodes and relations, built backward in time.

pub(super) mod build;
pub(super) mod nodes;
pub(super) mod walk;
