//! Histories walked through the library.

#[path = "../support/mod.rs"]
mod support;

mod histories;
mod walk;
