//! The configuration of an ETMv4 or ETE, from the values of its registers.
//!
//! ARM IHI 0064H, chapter 7, and ARM DDI 0487, chapter D19, describe the registers. The caller looks
//! them up by name.

use crate::protocol::{Core, Profile};
use armsnap_arch::quantity::TraceId;

/// The two protocols that share these packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
pub enum Protocol {
    /// Embedded Trace Macrocell, version 4.
    Etmv4,
    /// Embedded Trace Extension.
    Ete,
}

/// A version of the trace unit architecture; ETE 1.0 is version 5.0 of this numbering.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize,
)]
pub struct Version {
    /// TRCIDR1.TRCARCHMAJ, or TRCDEVARCH.ARCHVER for ETE.
    pub major: u8,
    /// TRCIDR1.TRCARCHMIN, or TRCDEVARCH.REVISION for ETE.
    pub minor: u8,
}

impl Version {
    /// `major.minor`.
    pub const fn new(major: u8, minor: u8) -> Self {
        Self { major, minor }
    }
}

/// Which conditional non-branch instructions are traced (TRCCONFIGR.COND).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
pub enum Conditional {
    /// Loads.
    Loads,
    /// Stores.
    Stores,
    /// Loads and stores.
    LoadsAndStores,
    /// All.
    All,
}

/// The registers that are read, each with the value assumed if it is missing: that of the trace
/// unit of a Cortex-A57.
const REGISTERS: [(&str, u32); 12] = [
    ("TRCCONFIGR", 0x0000_00c1),
    ("TRCTRACEIDR", 0),
    ("TRCIDR0", 0x2800_0ea1),
    ("TRCIDR1", 0x4100_f403),
    ("TRCIDR2", 0x0000_0488),
    ("TRCIDR8", 0),
    ("TRCIDR9", 0),
    ("TRCIDR10", 0),
    ("TRCIDR11", 0),
    ("TRCIDR12", 0),
    ("TRCIDR13", 0),
    ("TRCDEVARCH", 0x4770_5a13),
];

/// Registers that decoding depends on: without them, the configuration is partly assumed.
const NEEDED: [&str; 5] = ["TRCCONFIGR", "TRCTRACEIDR", "TRCIDR0", "TRCIDR1", "TRCIDR2"];

/// The values of the registers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Registers {
    protocol: Protocol,
    values: [u32; REGISTERS.len()],
    given: u16,
}

impl Registers {
    /// Looks up the registers of a trace unit of `protocol` by name. A missing register takes
    /// the value that it has in a Cortex-A57; see [`assumed`](Self::assumed).
    pub fn read(protocol: Protocol, mut find: impl FnMut(&str) -> Option<u64>) -> Self {
        let mut values = [0; REGISTERS.len()];
        let mut given = 0;
        for (index, &(name, assumed)) in REGISTERS.iter().enumerate() {
            // Trace unit registers have 32 bits; higher bits of the value are ignored.
            values[index] = match find(name) {
                Some(value) => {
                    given |= 1 << index;
                    value as u32
                }
                None => assumed,
            };
        }
        Self {
            protocol,
            values,
            given,
        }
    }

    /// Sets the version in the register that contains it (TRCIDR1; in an ETE, TRCDEVARCH), if that
    /// register is missing.
    #[must_use]
    pub fn or_version(mut self, version: Version) -> Self {
        let (major, minor) = (
            u32::from(version.major & 0xf),
            u32::from(version.minor & 0xf),
        );
        let (name, mask, fields) = match self.protocol {
            Protocol::Etmv4 => ("TRCIDR1", 0xff0, major << 8 | minor << 4),
            Protocol::Ete => ("TRCDEVARCH", 0xf_f000, minor << 16 | major << 12),
        };
        for (index, (register, _)) in REGISTERS.iter().enumerate() {
            if *register == name && self.given & (1 << index) == 0 {
                self.values[index] = self.values[index] & !mask | fields;
            }
        }
        self
    }

    /// The names and assumed values of registers that decoding depends on and that are missing.
    pub fn assumed(&self) -> impl Iterator<Item = (&'static str, u32)> {
        let (protocol, given, values) = (self.protocol, self.given, self.values);
        let names = REGISTERS.iter().map(|(name, _)| *name);
        names
            .enumerate()
            .filter(move |(index, name)| {
                let needed = NEEDED.contains(name)
                    && (protocol, *name) != (Protocol::Ete, "TRCIDR1")
                    || (protocol, *name) == (Protocol::Ete, "TRCDEVARCH");
                needed && given & (1 << index) == 0
            })
            .map(move |(index, name)| (name, values[index]))
    }

    fn get(&self, name: &str) -> u32 {
        REGISTERS
            .iter()
            .position(|(n, _)| *n == name)
            .map_or(0, |index| self.values[index])
    }
}

/// The configuration of one ETMv4 or ETE trace unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Config {
    /// Its protocol.
    pub protocol: Protocol,
    /// The version of the protocol.
    pub version: Version,
    /// The traced core.
    pub core: Core,
    trace_id: TraceId,
    /// Instruction addresses have 64 bits (TRCIDR2.IASIZE).
    pub addresses_64bit: bool,
    /// Size of a VMID in bytes: 0, 1, 2, 4 (TRCIDR2.VMIDSIZE).
    pub vmid_bytes: u8,
    /// Size of a context ID in bytes: 0 or 4 (TRCIDR2.CIDSIZE).
    pub context_id_bytes: u8,
    /// Size of the cycle counter in bits (TRCIDR2.CCSIZE).
    pub cycle_bits: u8,
    /// Cycle counts are traced (TRCCONFIGR.CCI).
    pub cycle_counting: bool,
    /// Cycle count packets do not commit (TRCIDR0.COMMOPT).
    pub separate_commits: bool,
    /// The maximum number of speculative P0 elements (TRCIDR8.MAXSPEC).
    pub max_speculation: u32,
    /// The return stack is used (TRCCONFIGR.RS).
    pub return_stack: bool,
    /// Branch broadcasting (TRCCONFIGR.BB).
    pub branch_broadcast: bool,
    /// Q elements are supported (TRCIDR0.QSUPP).
    pub q_elements: bool,
    /// WFI and WFE are waypoints (TRCIDR2.WFXMODE, from ETMv4.3).
    pub wfx_waypoints: bool,
    /// Conditional instructions that are traced.
    pub conditional: Option<Conditional>,
    /// Loads or stores are P0 elements (TRCCONFIGR.INSTP0, if TRCIDR0.INSTP0 says that it exists).
    pub accesses_are_p0: bool,
    /// Data addresses or values are traced, in a separate stream (TRCCONFIGR.DA, DV).
    pub data_trace: bool,
    /// The transaction start element is a P0 element (TRCIDR0.COMMTRANS is 0). The TSTART
    /// instruction before it always has an atom.
    pub transactions_are_p0: bool,
    /// Timestamps are valid after the first timestamp marker (TRCIDR0.TSMARK, from ETE 1.1).
    pub timestamp_markers: bool,
}

/// The `width` bits of `value` from bit `low`.
const fn bits(value: u32, low: u32, width: u32) -> u32 {
    value >> low & ((1 << width) - 1)
}

impl Config {
    /// Interprets the registers of a trace unit of `core`.
    pub fn read(registers: &Registers, core: Core) -> Self {
        let protocol = registers.protocol;
        let configr = registers.get("TRCCONFIGR");
        let idr0 = registers.get("TRCIDR0");
        let idr2 = registers.get("TRCIDR2");
        let version = match protocol {
            Protocol::Etmv4 => {
                let idr1 = registers.get("TRCIDR1");
                Version::new(bits(idr1, 8, 4) as u8, bits(idr1, 4, 4) as u8)
            }
            Protocol::Ete => {
                let devarch = registers.get("TRCDEVARCH");
                Version::new(bits(devarch, 12, 4) as u8, bits(devarch, 16, 4) as u8)
            }
        };
        let vmid_bytes = match bits(idr2, 10, 5) {
            1 => 1,
            2 if version > Version::new(4, 0) => 2,
            4 if version > Version::new(4, 0) => 4,
            _ => 0,
        };
        let conditional = match bits(configr, 8, 3) {
            _ if bits(idr0, 6, 1) == 0 => None,
            1 => Some(Conditional::Loads),
            2 => Some(Conditional::Stores),
            3 => Some(Conditional::LoadsAndStores),
            7 => Some(Conditional::All),
            _ => None,
        };
        let p0 = bits(configr, 1, 2);
        let has_cycle_counts = bits(idr0, 7, 1) == 1;
        Self {
            protocol,
            version,
            core,
            trace_id: TraceId(bits(registers.get("TRCTRACEIDR"), 0, 7) as u8),
            addresses_64bit: bits(idr2, 0, 5) == 8,
            vmid_bytes,
            context_id_bytes: if bits(idr2, 5, 5) == 4 { 4 } else { 0 },
            cycle_bits: bits(idr2, 25, 4) as u8 + 12,
            cycle_counting: bits(configr, 4, 1) == 1,
            separate_commits: bits(idr0, 29, 1) == 1 && has_cycle_counts,
            max_speculation: registers.get("TRCIDR8"),
            return_stack: bits(configr, 12, 1) == 1,
            branch_broadcast: bits(configr, 3, 1) == 1,
            q_elements: bits(idr0, 15, 2) != 0,
            wfx_waypoints: bits(idr2, 31, 1) == 1 && version >= Version::new(4, 3),
            conditional,
            accesses_are_p0: p0 != 0 && bits(idr0, 1, 2) == 3,
            data_trace: bits(idr0, 3, 2) == 3 && p0 != 0 && bits(configr, 16, 2) != 0,
            transactions_are_p0: bits(idr0, 30, 1) == 0,
            timestamp_markers: bits(idr0, 23, 1) == 1 && version >= Version::new(5, 1),
        }
    }

    /// The CoreSight trace ID that marks its bytes (TRCTRACEIDR.TRACEID).
    pub const fn trace_id(&self) -> TraceId {
        self.trace_id
    }

    /// Whether the protocol is ETE.
    pub fn is_ete(&self) -> bool {
        self.version.major >= 5
    }

    /// Whether exception returns are P0 elements: in M-profile, whatever the version (IHI 0064,
    /// "Exception Return element").
    pub fn exception_returns_are_p0(&self) -> bool {
        self.core.is_microcontroller()
    }

    /// Whether function return packets exist (Armv8-M).
    pub fn function_returns(&self) -> bool {
        self.core.profile == Profile::M
            && self.core.version >= 8
            && self.version >= Version::new(4, 2)
    }
}
