//! Arm architectures: detection, registers, target descriptions, and the branches of the
//! instruction sets.
//!
//! Independent of files, trace and the debugger's protocol.

mod a32;
pub mod a64;
mod aarch32;
mod aarch64;
mod architecture;
pub mod branch;
mod core_type;
mod description;
mod group;
pub mod names;
mod note;
pub mod pointer_auth;
pub mod registers;
pub mod safe_description;
mod saved;
#[cfg(test)]
mod saved_device;
mod space;
pub mod state;
mod t32;
pub mod target;
pub mod views;

pub use architecture::{Architecture, Detected, Machine};
pub use core_type::{CoreType, Extensions};
pub use description::{Feature, RegisterDescription, TargetDescription};
pub use note::RegisterNote;
pub use registers::{RegisterFile, RegisterView};
pub use saved::{SavedCore, SavedRegister};
pub use space::Space;
pub use target::{DefaultRegisters, NamedArchitecture};
