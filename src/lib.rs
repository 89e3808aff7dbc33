//! Saved Arm systems in GDB: snapshots served, CoreSight trace decoded.
//!
//! ```text
//! snapshot ─→ capture ─→ formatter ─→ packets ─→ elements ─→ flow ┬→ timeline ─→ server (GDB, LLDB)
//!                                                                 ├→ convert ⇄ tfile
//!                                                                 └→ report
//! record: an emulated program ─→ encode ─→ trace units ─→ snapshot
//! ```
//!
//! `docs/architecture.md` follows a byte along this line; `tests/layers.rs` holds the imports to it.
//!
//! From a directory to what a core is about to execute:
//!
//! ```
//! use armsnap::arch::{Architecture, RegisterFile, state};
//! use armsnap::quantity::Address;
//! use armsnap::snapshot::OpenOptions;
//! use armsnap::snapshot::memory::CoreMemory;
//! use armsnap::snapshot::model::Snapshot;
//! use std::path::Path;
//!
//! let loaded = Snapshot::open(Path::new("testdata/virt-a57"), &OpenOptions::default())?;
//! let core = &loaded.snapshot.devices[1];
//! assert_eq!(core.name, "Cortex-A57_1");
//!
//! let registers = RegisterFile::read(core, Architecture::detect(core).architecture);
//! let pc = registers.pc().expect("this core has a PC");
//! let memory = CoreMemory::new(&loaded, core);
//! let mut instruction = [0; 4];
//! let known = memory.read(Address(pc), state::current_space(&registers).space, &mut instruction);
//! assert_eq!((pc, known), (0x4010_025c, 4));
//! assert_eq!(u32::from_le_bytes(instruction), 0xf940_07e0);
//! # Ok::<(), armsnap::snapshot::Error>(())
//! ```
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
//! | [`element`] | what packets mean: the elements that all protocols share |
//! | [`encode`] | program flow → trace: what a trace unit decides to trace |
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
//! | [`server`] | snapshots served to GDB and LLDB |
//! | [`report`] | listings and exports |
//! | [`convert`] | snapshots ⇄ trace files |
//! | [`record`] | programs in an emulator → snapshots with trace |
//! | [`tfile`] | GDB trace files ⇄ trace frames |
//! | [`leftovers`] | temporary files: removed on interruption, or by the next run |
//! | [`stop`] | cancelling work that nobody waits for any more |
//! | [`xml`] | XML documents from outside, within bounds |

pub mod arch;
pub mod capture;
pub mod check;
pub mod convert;
pub mod decode;
pub mod element;
pub mod encode;
pub mod etm;
pub mod etmv3;
pub mod etmv4;
pub mod flow;
pub mod formatter;
pub mod itm;
pub mod leftovers;
pub mod mapped;
pub mod program;
pub mod protocol;
pub mod ptm;
pub mod quantity;
pub mod record;
pub mod remote_protocol;
pub mod report;
pub mod server;
pub mod snapshot;
pub mod stm;
pub mod stop;
pub mod text;
pub mod tfile;
pub mod timeline;
pub mod xml;
