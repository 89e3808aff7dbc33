#![doc = include_str!("../README.md")]
//!
//! # Modules
//!
//! | module | what it is for |
//! | --- | --- |
//! | [`quantity`] | addresses, offsets, trace IDs, instruction sets |
//! | [`hash`] | maps and sets whose keys are numbers |
//! | [`xml`] | XML documents from untrusted sources, within limits |
//! | [`encoding`] | encodings of instructions: bit patterns with named fields |
//! | [`arch`] | architectures: register sets, target descriptions, branches |
//! | [`semantics`] | what instructions compute, as relations between values |
//! | [`translation`] | translation tables of cores: virtual → physical addresses |

// Tests share helpers, which are public.
#![cfg_attr(not(test), deny(unreachable_pub))]

pub mod arch;
pub mod encoding;
pub mod hash;
pub mod quantity;
pub mod semantics;
pub mod translation;
pub mod xml;
