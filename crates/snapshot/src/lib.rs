#![doc = include_str!("../README.md")]
//!
//! # Modules
//!
//! | module | what it is for |
//! | --- | --- |
//! | [`text`] | text from outside, made harmless for terminals |
//! | [`budget`] | what may be used for an input, in proportion to its size |
//! | [`stop`] | cancelling work that nobody waits for any more |
//! | [`leftovers`] | temporary files: removed on interruption, or by the next run |
//! | [`cache`] | results that are kept for the next run, in a private directory |
//! | [`mapped`] | files mapped into memory, safe against being cut |
//! | [`program`] | ELF files, symbols, source lines, disassembly |
//! | [`linux`] | what a Linux kernel knows about itself: its log, types and tasks |
//! | [`snapshot`] | snapshot directories: files ⇄ model |
//! | [`capture`] | a snapshot's trace: buffers, and the sources in each with ID, protocol, core |
//! | [`check`] | what is wrong with a snapshot |

pub mod budget;
pub mod cache;
pub mod capture;
pub mod check;
pub mod leftovers;
pub mod linux;
pub mod mapped;
pub mod program;
pub mod snapshot;
pub mod stop;
pub mod text;
