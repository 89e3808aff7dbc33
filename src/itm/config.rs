//! What the registers of an ITM tell about its trace.

use crate::quantity::TraceId;

/// The configuration of an ITM.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Config {
    /// ITM_TCR, Trace Control Register (0xE80).
    pub tcr: u32,
}

impl Config {
    /// From the value of ITM_TCR.
    pub const fn new(tcr: u32) -> Self {
        Self { tcr }
    }

    /// ITM_TCR.TraceBusID, bits 22:16.
    pub const fn trace_id(self) -> TraceId {
        TraceId((self.tcr >> 16 & 0x7f) as u8)
    }

    /// Clock cycles per tick of local timestamps: ITM_TCR.TSPrescale, bits 9:8, where the
    /// clock is that of the trace port (SWOENA, bit 4).
    pub const fn prescaler(self) -> u32 {
        if self.tcr >> 4 & 1 == 0 {
            return 1;
        }
        match self.tcr >> 8 & 3 {
            0 => 1,
            1 => 4,
            2 => 16,
            _ => 64,
        }
    }
}
