//! Arm architectures: detection, registers, target descriptions, and the branches of the
//! instruction sets.
//!
//! Independent of files, trace and the debugger's protocol.

pub mod a32;
pub mod a64;
pub mod aarch32;
pub mod aarch64;
pub mod architecture;
pub mod branch;
pub mod core_type;
pub mod description;
pub mod group;
pub mod names;
pub mod registers;
#[cfg(feature = "convert")]
pub mod safe_description;
pub mod saved;
pub mod space;
pub mod state;
pub mod t32;
#[cfg(feature = "convert")]
pub mod target;
pub mod views;

pub use architecture::{Architecture, Detected, Machine};
pub use core_type::CoreType;
pub use description::{Feature, RegisterDescription, TargetDescription};
pub use registers::{RegisterFile, RegisterView};
pub use saved::{SavedCore, SavedRegister};
pub use space::Space;
