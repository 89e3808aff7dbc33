//! The registers of trace components that decoding needs, by name and by ID (Debug and Trace
//! Snapshot File Format 0.2, sections 3.2.2 and 4.2).
//!
//! Knows where registers are, not what their bits mean.

use super::model::{Device, Register};
use super::topology::Protocol;

/// A register of a trace component.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Known {
    /// Its names, the specification's first.
    pub names: &'static [&'static str],
    /// Its ID: the offset from the component's base, in words of 4 bytes.
    pub id: u64,
    /// Decoding needs it.
    pub needed: bool,
}

const fn needed(names: &'static [&'static str], id: u64) -> Known {
    Known {
        names,
        id,
        needed: true,
    }
}

const fn further(names: &'static [&'static str], id: u64) -> Known {
    Known {
        names,
        id,
        needed: false,
    }
}

/// Sections 4.2.1 and 4.2.2.
const ETM3: &[Known] = &[
    needed(&["ETMCR"], 0x00),
    needed(&["ETMCCER"], 0x7A),
    needed(&["ETMIDR"], 0x79),
    needed(&["ETMTRACEIDR"], 0x80),
];
/// Section 4.2.3.
const ETM4: &[Known] = &[
    needed(&["TRCIDR0"], 0x78),
    needed(&["TRCIDR1"], 0x79),
    needed(&["TRCIDR2"], 0x7A),
    further(&["TRCIDR3"], 0x7B),
    further(&["TRCIDR4"], 0x7C),
    further(&["TRCIDR5"], 0x7D),
    further(&["TRCIDR6"], 0x7E),
    further(&["TRCIDR7"], 0x7F),
    needed(&["TRCIDR8"], 0x60),
    needed(&["TRCIDR9"], 0x61),
    needed(&["TRCIDR10"], 0x62),
    needed(&["TRCIDR11"], 0x63),
    needed(&["TRCIDR12"], 0x64),
    needed(&["TRCIDR13"], 0x65),
    needed(&["TRCTRACEIDR"], 0x10),
    needed(&["TRCCONFIGR"], 0x04),
    needed(&["TRCAUTHSTATUS"], 0x3EE),
    further(&["TRCDEVARCH"], 0x3EF),
];
/// The specification is older than ETE; these are what ETE's decoding depends on.
const ETE: &[Known] = &[
    needed(&["TRCIDR0"], 0x78),
    needed(&["TRCIDR1"], 0x79),
    needed(&["TRCIDR2"], 0x7A),
    further(&["TRCIDR3"], 0x7B),
    further(&["TRCIDR4"], 0x7C),
    further(&["TRCIDR5"], 0x7D),
    further(&["TRCIDR6"], 0x7E),
    further(&["TRCIDR7"], 0x7F),
    needed(&["TRCIDR8"], 0x60),
    further(&["TRCIDR9"], 0x61),
    further(&["TRCIDR10"], 0x62),
    further(&["TRCIDR11"], 0x63),
    further(&["TRCIDR12"], 0x64),
    further(&["TRCIDR13"], 0x65),
    needed(&["TRCTRACEIDR"], 0x10),
    needed(&["TRCCONFIGR"], 0x04),
    further(&["TRCAUTHSTATUS"], 0x3EE),
    needed(&["TRCDEVARCH"], 0x3EF),
];
/// Section 4.2.4.
const ITM: &[Known] = &[needed(
    &["CONTROL_REGISTER", "ITM_CTRL", "ITMTCR", "ITM_TCR"],
    0x3A0,
)];
/// Section 4.2.5.
const STM: &[Known] = &[needed(&["STMTCSR"], 0x3A0)];

/// The registers of a protocol's trace sources that are known here.
pub const fn registers(protocol: Protocol) -> &'static [Known] {
    match protocol {
        Protocol::Etmv3 | Protocol::Ptm => ETM3,
        Protocol::Etmv4 => ETM4,
        Protocol::Ete => ETE,
        Protocol::Itm => ITM,
        Protocol::Stm => STM,
        Protocol::Unknown => &[],
    }
}

/// The ID of a register that is known here, by its name.
pub fn id_of(name: &str) -> Option<u64> {
    let mut all = [ETM3, ETM4, ETE, ITM, STM].into_iter().flatten();
    let known = all.find(|known| known.names.iter().any(|n| n.eq_ignore_ascii_case(name)))?;
    Some(known.id)
}

impl Known {
    /// The register of a device: by its names, else by its ID.
    pub fn of<'d>(&self, device: &'d Device) -> Option<&'d Register> {
        device.component_register(self.names, self.id)
    }
}

/// The registers of a trace source that are known here, each with the specification's name for
/// it. Those that the file does not name so are there by their ID.
pub fn known_registers(device: &Device) -> impl Iterator<Item = (&'static str, &Register)> {
    let known = registers(Protocol::of(device)).iter();
    known.filter_map(|known| Some((known.names[0], known.of(device)?)))
}
