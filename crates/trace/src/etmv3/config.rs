//! The configuration of an ETMv3, from the values of its registers.

use crate::etm::Registers;
use crate::etm::config::{AddressEncoding, TimestampEncoding};
use crate::protocol::Core;
use armsnap_arch::quantity::TraceId;

/// The configuration of one ETMv3.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Config {
    trace_id: TraceId,
    /// X of ETMv3.X.
    pub minor_version: u8,
    /// The traced core; its profile decides what exception numbers mean.
    pub core: Core,
    /// Instructions are traced; `false` in data-only mode.
    pub instructions: bool,
    /// Data values are traced.
    pub data_values: bool,
    /// Data addresses are traced.
    pub data_addresses: bool,
    /// Coprocessor register transfers are traced.
    pub coprocessor_transfers: bool,
    /// Bytes of a context ID: 0, 1, 2 or 4.
    pub context_id_bytes: u8,
    /// Atoms carry cycles.
    pub cycle_accurate: bool,
    /// The alternative encoding of branch addresses.
    pub alternative_branches: bool,
    /// Taken direct branches have a branch packet too.
    pub branch_output: bool,
    /// How timestamps are encoded.
    pub timestamp: TimestampEncoding,
    /// Whether the core has the Virtualization Extensions: then Hyp mode is traced.
    pub virtualization: bool,
}

impl Config {
    /// The value assumed if ETMIDR is missing: ETMv3.4 with the original encoding of branches; for
    /// an M-profile core, that of Cortex-M3 and Cortex-M4: ETMv3.5 with the alternative encoding.
    pub const fn default_etmidr(core: Core) -> u32 {
        if core.is_microcontroller() {
            0x4114_f250
        } else {
            0x4100_f240
        }
    }

    /// Interprets the registers of a trace unit of `core` (ARM IHI 0014Q 3.5: ETMCR,
    /// ETMCCER, ETMIDR, ETMTRACEIDR).
    pub const fn read(registers: &Registers, core: Core) -> Self {
        let minor_version = registers.minor_version();
        Self {
            trace_id: registers.trace_id(),
            minor_version,
            core,
            instructions: !registers.data_only(),
            data_values: registers.data_values(),
            data_addresses: registers.data_addresses(),
            coprocessor_transfers: registers.coprocessor_transfers(),
            context_id_bytes: registers.context_id_bytes(),
            cycle_accurate: registers.cycle_accurate(),
            alternative_branches: minor_version >= 4 && registers.alternative_branches(),
            branch_output: registers.branch_broadcast(),
            timestamp: registers.timestamp_encoding(5),
            // Reserved before ETMv3.5.
            virtualization: minor_version >= 5 && registers.extension(26),
        }
    }

    /// The CoreSight trace ID that marks its bytes.
    pub const fn trace_id(&self) -> TraceId {
        self.trace_id
    }

    /// How the address bytes of branches end.
    pub const fn address_encoding(&self) -> AddressEncoding {
        if self.alternative_branches {
            AddressEncoding::Alternative
        } else {
            AddressEncoding::Original
        }
    }

    /// Returns whether packets of the data trace can occur.
    pub const fn data(&self) -> bool {
        self.data_values || self.data_addresses || self.coprocessor_transfers
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cortex_a7() {
        let registers = Registers {
            etmcr: 0x1000_1860,
            etmccer: 0x3440_08f2,
            etmidr: 0x410c_f250,
            etmtraceidr: 0x10,
        };
        let config = Config::read(&registers, Core::default());
        assert_eq!(config.trace_id(), TraceId(0x10));
        assert_eq!(config.minor_version, 5);
        assert!(config.cycle_accurate && config.instructions && config.virtualization);
        assert!(!config.alternative_branches && !config.data());
        assert_eq!(
            config.timestamp,
            TimestampEncoding {
                wide: true,
                gray: false
            }
        );
    }

    #[test]
    fn the_alternative_encoding_came_with_3_4() {
        let mut registers = Registers {
            etmcr: 0x0010_000c,
            etmccer: 0x3040_0000,
            etmidr: 0x4110_f230,
            etmtraceidr: 1,
        };
        let config = Config::read(&registers, Core::microcontroller(7));
        assert!(!config.alternative_branches && !config.instructions && !config.timestamp.wide);
        assert!(config.data_values && config.data_addresses);
        registers.etmidr = 0x4110_f240;
        assert!(Config::read(&registers, Core::microcontroller(7)).alternative_branches);
    }
}
