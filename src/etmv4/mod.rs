//! ETMv4 and ETE instruction trace: bytes → packets → elements; ETMv4 packets → bytes.
//!
//! One set of packets serves both protocols (ARM IHI 0064H; ARM DDI 0487, part D); where they
//! differ, [`Config`] decides. Independent of memory, files and the formatter.

mod address;
mod config;
mod decode;
mod describe;
mod elements;
mod encode;
pub(crate) mod exceptions;
mod packet;
mod payload;
mod speculation;
mod trace_unit;

pub use config::{Conditional, Config, Protocol, Registers, Version};
pub use decode::Decoder;
pub use elements::Elements;
pub use encode::{Encoder, pack_atoms};
pub use packet::{
    AddressBits, ConditionalInstruction, ConditionalResult, ContextInfo, ExceptionAddress,
    InstructionSet, KeyedResult, Packet, TraceInfo,
};
pub use trace_unit::{TraceUnit, TraceUnitOptions};
