#![doc = include_str!("../README.md")]
//!
//! # Modules
//!
//! | module | what it is for |
//! | --- | --- |
//! | [`element`] | the meaning of packets: the elements that all protocols share |
//! | [`protocol`] | the interface of every trace protocol |
//! | [`formatter`] | CoreSight formatter frames ⇄ bytes per trace ID |
//! | [`flow`] | elements and code → blocks: return stack, cache of blocks |
//! | [`encode`] | program flow → trace: what a trace unit decides to trace |
//! | [`etm`] | shared by ETMv3 and PTM: registers, addresses, timestamps, synchronisation |
//! | [`ptm`], [`etmv3`] | PTM and ETMv3: packets and their meaning |
//! | [`etmv4`] | ETMv4 and ETE: configuration, packets, elements |
//! | [`itm`] | ITM and DWT of M-profile cores |
//! | [`stm`] | STM: MIPI STPv2 |
//! | [`data_addresses`] | the format of data addresses that a recording stores beside its trace |

// Tests share helpers, which are public.
#![cfg_attr(not(test), deny(unreachable_pub))]

// Unit tests share helpers with the tests of the library.
#[cfg(test)]
extern crate self as armsnap_trace;

pub use armsnap_arch::{arch, quantity};

pub mod data_addresses;
pub mod element;
pub mod encode;
pub mod etm;
pub mod etmv3;
pub mod etmv4;
pub mod flow;
pub mod formatter;
pub mod itm;
pub mod protocol;
pub mod ptm;
pub mod stm;

/// Compiles and runs the code of the guide.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/decoding-as-a-library.md")]
mod guide {}
