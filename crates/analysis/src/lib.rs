#![doc = include_str!("../README.md")]
//!
//! # Modules
//!
//! | module | what it is for |
//! | --- | --- |
//! | [`profile`] | how often code was executed, and the sequence of calls |
//! | [`export`] | coverage, profiles and timelines in the formats of other tools |
//! | [`report`] | listings, `info`, and calls |
//! | [`page`] | a report as one HTML page |
//! | [`questions`] | questions over all of time: calls, accesses, values, causes, two recordings |

pub mod export;
pub mod page;
pub mod profile;
pub mod questions;
pub mod report;
