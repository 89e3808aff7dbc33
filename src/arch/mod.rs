//! Arm architectures: detection, registers, target descriptions, and the branches of the
//! instruction sets.
//!
//! Independent of files, trace and the debugger's protocol.

mod a32;
pub(crate) mod a64;
mod aarch32;
mod aarch64;
mod architecture;
pub(crate) mod branch;
mod core_type;
mod description;
mod group;
pub(crate) mod names;
mod note;
pub(crate) mod pointer_auth;
pub(crate) mod registers;
#[cfg(feature = "convert")]
pub(crate) mod safe_description;
mod saved;
mod space;
pub mod state;
mod t32;
#[cfg(feature = "convert")]
pub(crate) mod target;
pub(crate) mod views;

pub use architecture::{Architecture, Detected, Machine};
pub use core_type::CoreType;
pub use description::{Feature, RegisterDescription, TargetDescription};
pub use note::RegisterNote;
pub use registers::{RegisterFile, RegisterView};
pub use saved::{SavedCore, SavedRegister};
pub use space::Space;
#[cfg(feature = "convert")]
pub use target::{DefaultRegisters, NamedArchitecture};
