//! The configuration of an STM, from the values of its registers.

use crate::protocol::Core;
use armsnap_arch::quantity::TraceId;

/// The values of the registers that the decoders need.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Registers {
    /// STMTCSR, Trace Control and Status Register (0xE80).
    pub tcsr: u32,
}

/// The configuration of one STM. Its packets describe themselves: only the trace ID is needed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Config {
    trace_id: TraceId,
}

impl Config {
    /// Interprets the registers of an STM (ARM IHI 0054, STMTCSR). Nothing depends on the core: an STM
    /// does not trace one.
    pub const fn read(registers: &Registers, _core: Core) -> Self {
        Self {
            // TRACEID, bits 22:16.
            trace_id: TraceId((registers.tcsr >> 16 & 0x7f) as u8),
        }
    }

    /// The CoreSight trace ID that marks its bytes.
    pub const fn trace_id(&self) -> TraceId {
        self.trace_id
    }
}
