//! The configuration of a PTM, from the values of its registers.

use crate::etm::Registers;
use crate::etm::config::TimestampEncoding;
use crate::protocol::Core;
use armsnap_arch::quantity::TraceId;

/// The configuration of one PTM.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Config {
    trace_id: TraceId,
    /// X of PFTv1.X.
    pub minor_version: u8,
    /// Bytes of a context ID: 0, 1, 2 or 4.
    pub context_id_bytes: u8,
    /// Each atom is a packet of its own with a cycle count.
    pub cycle_accurate: bool,
    /// How timestamps are encoded.
    pub timestamp: TimestampEncoding,
    /// An E atom on an indirect branch takes its target from the return stack.
    pub return_stack: bool,
    /// Taken direct branches have a branch address packet too.
    pub branch_broadcast: bool,
    /// DMB and DSB are waypoints.
    pub barriers_are_waypoints: bool,
}

impl Config {
    /// The value assumed if ETMIDR is missing: PFTv1.1.
    pub const DEFAULT_ETMIDR: u32 = 0x4100_f310;

    /// Interprets the registers of a trace unit (ARM IHI 0035B 3.16: ETMCR, ETMCCER,
    /// ETMIDR, ETMTRACEIDR). Nothing depends on the core: a PTM traces ARMv7-A and ARMv7-R.
    pub const fn read(registers: &Registers, _core: Core) -> Self {
        Self {
            trace_id: registers.trace_id(),
            minor_version: registers.minor_version(),
            context_id_bytes: registers.context_id_bytes(),
            cycle_accurate: registers.cycle_accurate(),
            timestamp: registers.timestamp_encoding(1),
            return_stack: registers.return_stack() && registers.extension(23),
            branch_broadcast: registers.branch_broadcast(),
            barriers_are_waypoints: registers.extension(24),
        }
    }

    /// The CoreSight trace ID that marks its bytes.
    pub const fn trace_id(&self) -> TraceId {
        self.trace_id
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cortex_a15_with_its_return_stack() {
        let registers = Registers {
            etmcr: 0x2000_0400,
            etmccer: 0x34c0_1ac2,
            etmidr: 0x411c_f312,
            etmtraceidr: 2,
        };
        let config = Config::read(&registers, Core::default());
        assert_eq!(config.trace_id(), TraceId(2));
        assert_eq!(config.minor_version, 1);
        assert!(config.return_stack && !config.cycle_accurate && !config.barriers_are_waypoints);
        assert_eq!(
            config.timestamp,
            TimestampEncoding {
                wide: true,
                gray: false
            }
        );
    }

    #[test]
    fn bits_reserved_in_1_0_are_ignored() {
        let mut registers = Registers {
            etmcr: 0x1000_f000,
            etmccer: 0x20c0_18ea,
            etmidr: 0x411c_f300,
            etmtraceidr: 0x90,
        };
        let config = Config::read(&registers, Core::default());
        assert_eq!(config.timestamp, TimestampEncoding::default());
        assert_eq!(config.context_id_bytes, 4);
        assert_eq!(config.trace_id(), TraceId(0x10));
        registers.etmidr = 0x411c_f310;
        assert_eq!(
            Config::read(&registers, Core::default()).timestamp,
            TimestampEncoding {
                wide: true,
                gray: true
            }
        );
    }
}
