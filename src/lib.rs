//! Saved Arm systems in GDB: snapshots served, CoreSight trace decoded.
//!
//! ```text
//! snapshot ─→ capture ─→ formatter ─→ packets ─→ elements ─→ flow ┬→ timeline ─→ server (GDB, LLDB)
//!                                                                 ├→ convert ⇄ tfile
//!                                                                 └→ report
//! record: an emulated program ─→ encode ─→ trace units ─→ snapshot
//! ```
//!
//! `docs/architecture.md` follows a byte along this line; `tests/layers/` holds the imports to it.
//!
//! The decoders need no feature: from the bytes of a trace source to the blocks that its core
//! executed. `docs/decoding-as-a-library.md` is a guide to them. What else there is depends on
//! features; `default` is all of them, and the program:
//!
//! | feature | modules |
//! | --- | --- |
//! | (none) | [`quantity`], [`arch`], [`formatter`], [`protocol`] and the protocols, [`element`], [`flow`], [`encode`], [`semantics`] |
//! | `snapshot` | [`snapshot`], [`translation`], [`capture`], [`check`], [`decode`], [`program`] and their helpers |
//! | `history` | [`timeline`], [`recover`], [`cache`] |
//! | `profile` | [`profile`] |
//! | `export` | [`export`] |
//! | `parquet` | [`export::parquet`] |
//! | `report` | [`report`], [`program::disassembly`] |
//! | `page` | [`page`] |
//! | `convert` | [`convert`], [`tfile`], [`remote_protocol`], [`xml`] |
//! | `import` | [`import`] |
//! | `server` | [`server`] |
//! | `record` | `record` |
//! | `cli` | the program `armsnap` |
//!
//! | module | what it is for |
//! | --- | --- |
//! | [`quantity`] | addresses, offsets, trace IDs, instruction sets |
//! | [`text`] | text from outside, made harmless for terminals |
//! | [`remote_protocol`] | GDB's remote protocol: framing and hex |
//! | [`mapped`] | files mapped into memory, safe against being cut |
//! | [`program`] | ELF files, symbols, source lines, disassembly |
//! | [`snapshot`] | snapshot directories: files ⇄ model |
//! | [`arch`] | architectures: register sets, target descriptions, branches |
//! | [`translation`] | translation tables of cores: virtual → physical addresses |
//! | `linux` | what a Linux kernel knows about itself: its log, types and tasks |
//! | [`element`] | what packets mean: the elements that all protocols share |
//! | [`encode`] | program flow → trace: what a trace unit decides to trace |
//! | [`semantics`] | what instructions compute, as relations between values |
//! | [`flow`] | elements and code → blocks: return stack, cache of blocks |
//! | [`formatter`] | CoreSight formatter frames ⇄ bytes per trace ID |
//! | [`protocol`] | what every trace protocol offers |
//! | [`ptm`], [`etmv3`] | PTM and ETMv3: packets, and what they mean |
//! | [`etm`] | what ETMv3 and PTM share: registers, addresses, timestamps, synchronisation |
//! | [`stm`] | STM: MIPI STPv2 |
//! | [`itm`] | ITM and DWT of M-profile cores |
//! | [`etmv4`] | ETMv4 and ETE: configuration, packets, elements |
//! | [`capture`] | a snapshot's trace: buffers, and the sources in each with ID, protocol, core |
//! | [`check`] | what is wrong with a snapshot |
//! | [`decode`] | the joins: a snapshot's trace through all stages |
//! | [`timeline`] | what each core executed: positions, steps and searches both ways |
//! | [`recover`] | past registers and memory, from the final state and the course of execution |
//! | [`profile`] | how often code was executed, and the course of calls |
//! | [`export`] | coverage, profiles and time lines in the formats of other tools |
//! | [`page`] | a report as one HTML page |
//! | [`server`] | snapshots served to GDB and LLDB |
//! | [`report`] | listings and exports |
//! | [`convert`] | snapshots ⇄ trace files |
//! | [`import`] | `perf.data` and others → snapshots |
//! | `record` | programs in an emulator → snapshots with trace; not on Windows |
//! | [`tfile`] | GDB trace files ⇄ trace frames |
//! | [`budget`] | what may be used for an input, in proportion to its size |
//! | [`cache`] | results that are kept for the next run, in a private directory |
//! | [`leftovers`] | temporary files: removed on interruption, or by the next run |
//! | [`stop`] | cancelling work that nobody waits for any more |
//! | [`xml`] | XML documents from outside, within bounds |

// Layers that a feature leaves out, and `record` on Windows, use what then looks unused.
#![cfg_attr(any(not(feature = "cli"), windows), allow(dead_code, unused_imports))]

// Unit tests share helpers with the tests of the library.
#[cfg(test)]
extern crate self as armsnap;

pub mod arch;
#[cfg(feature = "snapshot")]
pub mod budget;
#[cfg(feature = "history")]
pub mod cache;
#[cfg(feature = "snapshot")]
pub mod capture;
#[cfg(feature = "snapshot")]
pub mod check;
#[cfg(feature = "convert")]
pub mod convert;
#[cfg(feature = "snapshot")]
pub mod data_addresses;
#[cfg(feature = "snapshot")]
pub mod decode;
pub mod element;
pub mod encode;
pub mod etm;
pub mod etmv3;
pub mod etmv4;
#[cfg(feature = "export")]
pub mod export;
pub mod flow;
pub mod formatter;
#[cfg(feature = "import")]
pub mod import;
pub mod itm;
#[cfg(feature = "snapshot")]
pub mod leftovers;
#[cfg(feature = "snapshot")]
pub(crate) mod linux;
#[cfg(feature = "snapshot")]
pub mod mapped;
#[cfg(feature = "page")]
pub mod page;
#[cfg(feature = "profile")]
pub mod profile;
#[cfg(feature = "snapshot")]
pub mod program;
pub mod protocol;
pub mod ptm;
pub mod quantity;
#[cfg(all(feature = "record", unix))]
pub mod record;
#[cfg(feature = "history")]
pub mod recover;
#[cfg(feature = "convert")]
pub mod remote_protocol;
#[cfg(feature = "report")]
pub mod report;
pub mod semantics;
#[cfg(feature = "server")]
pub mod server;
#[cfg(feature = "snapshot")]
pub mod snapshot;
pub mod stm;
#[cfg(feature = "snapshot")]
pub mod stop;
#[cfg(feature = "snapshot")]
pub mod text;
#[cfg(feature = "convert")]
pub mod tfile;
#[cfg(feature = "history")]
pub mod timeline;
#[cfg(feature = "snapshot")]
pub mod translation;
#[cfg(feature = "convert")]
pub mod xml;

/// Compiles and runs the code of the guide.
#[cfg(doctest)]
#[doc = include_str!("../docs/decoding-as-a-library.md")]
mod guide {}
