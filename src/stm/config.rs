//! What the registers of an STM tell about its trace.

use crate::quantity::TraceId;

/// The configuration of an STM (Arm CoreSight STM-500 TRM, "Programmers model").
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Config {
    /// STMTCSR, Trace Control and Status Register (0xE80).
    pub tcsr: u32,
}

impl Config {
    /// From the value of STMTCSR.
    pub const fn new(tcsr: u32) -> Self {
        Self { tcsr }
    }

    /// STMTCSR.TRACEID, bits 22:16.
    pub const fn trace_id(self) -> TraceId {
        TraceId((self.tcsr >> 16 & 0x7f) as u8)
    }
}
