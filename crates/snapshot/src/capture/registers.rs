//! The registers of trace components that decoding needs, by name and by ID (Debug and Trace
//! Snapshot File Format 0.2, sections 3.2.2 and 4.2).
//!
//! Contains names and offsets of registers, but not the meaning of their bits.

use super::Protocol;
use crate::snapshot::model::{Device, Register};
use armsnap_arch::quantity::TraceId;

/// A register of a trace component.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KnownRegister {
    /// Its names; the specification's is the first.
    pub names: &'static [&'static str],
    /// Its ID: the offset from the component's base, in 4-byte words.
    pub id: u64,
    /// The protocols for which the specification requires it.
    needed: &'static [Protocol],
    /// Whether decoding depends on its value only if elements have keys.
    with_keys: bool,
    /// Whether decoding is independent of its value.
    unread: bool,
}

const fn known(
    names: &'static [&'static str],
    id: u64,
    needed: &'static [Protocol],
) -> KnownRegister {
    KnownRegister {
        names,
        id,
        needed,
        with_keys: false,
        unread: false,
    }
}

/// An ETMv4 register that holds a number of keys.
const fn keys(names: &'static [&'static str], id: u64) -> KnownRegister {
    KnownRegister {
        with_keys: true,
        ..known(names, id, ETMV4)
    }
}

const MACROCELL: &[Protocol] = &[Protocol::Etmv3, Protocol::Ptm];
/// Sections 4.2.1 and 4.2.2.
const ETM3: &[KnownRegister] = &[
    known(&["ETMCR"], 0x00, MACROCELL),
    known(&["ETMCCER"], 0x7A, MACROCELL),
    known(&["ETMIDR"], 0x79, MACROCELL),
    known(&["ETMTRACEIDR"], 0x80, MACROCELL),
];

const ETMV4: &[Protocol] = &[Protocol::Etmv4];
const BOTH: &[Protocol] = &[Protocol::Etmv4, Protocol::Ete];
/// Section 4.2.3. The specification is older than ETE; the registers required for ETE are those
/// that decoding depends on.
const ETM4: &[KnownRegister] = &[
    known(&["TRCIDR0"], 0x78, BOTH),
    known(&["TRCIDR1"], 0x79, BOTH),
    known(&["TRCIDR2"], 0x7A, BOTH),
    known(&["TRCIDR3"], 0x7B, &[]),
    known(&["TRCIDR4"], 0x7C, &[]),
    known(&["TRCIDR5"], 0x7D, &[]),
    known(&["TRCIDR6"], 0x7E, &[]),
    known(&["TRCIDR7"], 0x7F, &[]),
    known(&["TRCIDR8"], 0x60, BOTH),
    keys(&["TRCIDR9"], 0x61),
    keys(&["TRCIDR10"], 0x62),
    keys(&["TRCIDR11"], 0x63),
    keys(&["TRCIDR12"], 0x64),
    keys(&["TRCIDR13"], 0x65),
    known(&["TRCTRACEIDR"], 0x10, BOTH),
    known(&["TRCCONFIGR"], 0x04, BOTH),
    KnownRegister {
        unread: true,
        ..known(&["TRCAUTHSTATUS"], 0x3EE, ETMV4)
    },
    known(&["TRCDEVARCH"], 0x3EF, &[Protocol::Ete]),
];
/// Section 4.2.4.
const ITM: &[KnownRegister] = &[known(
    &["CONTROL_REGISTER", "ITM_CTRL", "ITMTCR", "ITM_TCR"],
    0x3A0,
    &[Protocol::Itm],
)];
/// Section 4.2.5.
const STM: &[KnownRegister] = &[known(&["STMTCSR"], 0x3A0, &[Protocol::Stm])];

/// Returns the known registers of a protocol's trace sources.
pub const fn registers(protocol: Protocol) -> &'static [KnownRegister] {
    match protocol {
        Protocol::Etmv3 | Protocol::Ptm => ETM3,
        Protocol::Etmv4 | Protocol::Ete => ETM4,
        Protocol::Itm => ITM,
        Protocol::Stm => STM,
    }
}

/// Returns the ID of a known register by its name.
pub fn id_of(name: &str) -> Option<u64> {
    let mut all = [ETM3, ETM4, ITM, STM].into_iter().flatten();
    let known = all.find(|known| known.names.iter().any(|n| n.eq_ignore_ascii_case(name)))?;
    Some(known.id)
}

impl KnownRegister {
    /// Returns whether the specification requires it for decoding a protocol.
    pub fn is_needed(&self, protocol: Protocol) -> bool {
        self.needed.contains(&protocol)
    }

    /// Returns whether decoding a device's trace depends on its value.
    pub fn matters(&self, device: &Device) -> bool {
        !self.unread && (!self.with_keys || has_keys(device))
    }

    /// Looks it up in a device by its names, or else by its ID.
    pub fn of<'d>(&self, device: &'d Device) -> Option<&'d Register> {
        device.component_register(self.names, self.id)
    }
}

/// Returns whether elements of an ETMv4 may have keys: conditional tracing (TRCCONFIGR.COND, bits
/// 10:8), Q elements (QE, 14:13) or data trace (DA and DV, 17:16) is on (ARM IHI 0064H, TRCCONFIGR).
fn has_keys(device: &Device) -> bool {
    let register = device.component_register(&["TRCCONFIGR"], 0x04);
    let value = register.and_then(|register| register.value.as_u64());
    value.is_some_and(|value| value & 0x3_6700 != 0)
}

/// Returns the known registers of a trace source, each with its name in the specification.
/// Registers with other names in the file are found by their ID.
pub fn known_registers(device: &Device) -> impl Iterator<Item = (&'static str, &Register)> {
    let known = Protocol::of(device).map_or(&[][..], registers).iter();
    known.filter_map(|known| Some((known.names[0], known.of(device)?)))
}

/// Returns the trace ID in a source's registers; `None` if the register is missing.
pub fn trace_id(device: &Device) -> Option<TraceId> {
    known_registers(device).find_map(|(name, register)| {
        let value = register.value.as_u64()?;
        match name {
            "ETMTRACEIDR" | "TRCTRACEIDR" => Some(TraceId((value & 0x7F) as u8)),
            "CONTROL_REGISTER" | "STMTCSR" => Some(TraceId((value >> 16 & 0x7F) as u8)),
            _ => None,
        }
    })
}
