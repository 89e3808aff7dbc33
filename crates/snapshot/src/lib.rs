#![doc = include_str!("../README.md")]
//!
//! # Modules
//!
//! | module | what it is for |
//! | --- | --- |
//! | [`text`] | untrusted text, made harmless for terminals |
//! | [`budget`] | a budget for the processing of an input, in proportion to its size |
//! | [`stop`] | cancelling work whose result is no longer wanted |
//! | [`leftovers`] | temporary files: removed on interruption, or by the next run |
//! | [`cache`] | results kept for the next run in a private directory |
//! | [`mapped`] | files mapped into memory, safe even if they are truncated |
//! | [`program`] | ELF files, symbols, source lines, disassembly |
//! | [`linux`] | what a Linux kernel knows about itself: its log, types and tasks |
//! | [`snapshot`] | snapshot directories: files ⇄ model |
//! | [`capture`] | a snapshot's trace: buffers, and the sources in each with ID, protocol, core |
//! | [`rtos`] | the tasks of a real-time operating system, and their registers |
//! | [`check`] | what is wrong with a snapshot |
//! | [`svd`] | registers of peripherals by name, from a CMSIS-SVD description |
//! | [`fault`] | why a core faulted, from its fault registers |

// Tests share helpers, which are public.
#![cfg_attr(not(test), deny(unreachable_pub))]

pub mod budget;
pub mod cache;
pub mod capture;
pub mod check;
pub mod fault;
pub mod leftovers;
pub mod linux;
pub mod mapped;
pub mod program;
pub mod rtos;
pub mod snapshot;
pub mod stop;
pub mod svd;
pub mod text;
