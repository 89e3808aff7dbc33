//! The configuration of an ITM, from the values of its registers.

use crate::protocol::Core;
use armsnap_arch::quantity::TraceId;

/// The values of the registers that the decoders need.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Registers {
    /// ITM_TCR, Trace Control Register (0xE80).
    pub tcr: u32,
}

/// The configuration of one ITM.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Config {
    trace_id: TraceId,
    /// Clock cycles per tick of local timestamps: 1, 4, 16 or 64.
    pub prescaler: u32,
}

impl Config {
    /// Interprets the registers of an ITM (ARM DDI 0403E, ITM_TCR). Nothing depends on the core: only
    /// M-profile cores have an ITM.
    pub const fn read(registers: &Registers, _core: Core) -> Self {
        let tcr = registers.tcr;
        Self {
            // TraceBusID, bits 22:16.
            trace_id: TraceId((tcr >> 16 & 0x7f) as u8),
            // TSPrescale, bits 9:8, if timestamps count the trace port's clock (SWOENA, bit 4).
            prescaler: match (tcr >> 4 & 1, tcr >> 8 & 3) {
                (0, _) | (_, 0) => 1,
                (_, 1) => 4,
                (_, 2) => 16,
                (_, _) => 64,
            },
        }
    }

    /// The CoreSight trace ID that marks its bytes.
    pub const fn trace_id(&self) -> TraceId {
        self.trace_id
    }
}
