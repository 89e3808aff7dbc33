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
//! The crates that it is built of, each usable by itself:
//!
//! | crate | modules |
//! | --- | --- |
//! | [`armsnap_arch`] | [`quantity`], [`xml`], [`arch`], [`semantics`], [`translation`] |
//! | [`armsnap_trace`] | [`element`], [`protocol`], [`formatter`], [`flow`], [`encode`], [`etm`], [`etmv3`], [`ptm`], [`etmv4`], [`itm`], [`stm`], [`data_addresses`] |
//! | [`armsnap_snapshot`] | [`text`], [`budget`], [`stop`], [`leftovers`], [`cache`], [`mapped`], [`program`], [`linux`], [`snapshot`], [`capture`], [`svd`], [`check`] |
//! | [`armsnap_history`] | [`decode`], [`timeline`], [`calls`], [`recover`] |
//! | [`armsnap_analysis`] | [`profile`], [`export`], [`report`], [`page`], [`questions`] |
//! | [`armsnap_import`] | [`import`] |
//! | this one | [`convert`], [`tfile`], [`remote_protocol`], [`server`], [`mcp`], `record` |
//!
//! Their modules are re-exported here. The feature `parquet` adds [`export::parquet`]; `cli` is the program.
//!
//! | module | what it is for |
//! | --- | --- |
//! | [`convert`] | snapshots ⇄ trace files |
//! | [`tfile`] | GDB trace files ⇄ trace frames |
//! | [`remote_protocol`] | GDB's remote protocol: framing and hex |
//! | [`server`] | snapshots served to GDB and LLDB |
//! | [`mcp`] | questions to snapshots for assistants: the Model Context Protocol |
//! | `record` | programs in an emulator → snapshots with trace; not on Windows |

// What `record` alone uses is not used on Windows.
#![cfg_attr(windows, allow(dead_code, unused_imports))]

// Unit tests share helpers with the tests of the library.
#[cfg(test)]
extern crate self as armsnap;

pub mod convert;
pub mod mcp;
#[cfg(unix)]
pub mod record;
pub mod remote_protocol;
pub mod server;
pub mod tfile;

pub use armsnap_analysis::{export, page, profile, questions, report};
pub use armsnap_arch::{arch, quantity, semantics, translation, xml};
pub use armsnap_history::{calls, decode, recover, timeline};
pub use armsnap_import::import;
pub use armsnap_snapshot::{
    budget, cache, capture, check, fault, leftovers, linux, mapped, program, snapshot, stop, svd,
    text,
};
pub use armsnap_trace::{
    data_addresses, element, encode, etm, etmv3, etmv4, flow, formatter, itm, protocol, ptm, stm,
};
