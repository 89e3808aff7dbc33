//! Detects the trace architecture of a source from its device type and its ID registers.

use super::{Protocol, registers};
use crate::snapshot::model::Device;
use serde::{Serialize, Serializer};
use std::fmt;

/// A trace architecture with its version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TraceArchitecture {
    /// ETMv1 to ETMv3 (ARM IHI 0014Q).
    Etm {
        /// 1 to 3.
        major: u8,
        /// The minor version.
        minor: u8,
    },
    /// Program Flow Trace, traced by a PTM (ARM IHI 0035B).
    Pft {
        /// 1.
        major: u8,
        /// The minor version.
        minor: u8,
    },
    /// ETMv4 (ARM IHI 0064H).
    Etmv4 {
        /// The minor version.
        minor: u8,
    },
    /// Embedded Trace Extension (ARM DDI 0487, chapter D4; registers in ARM DDI 0601).
    Ete {
        /// 1.
        major: u8,
        /// The minor version.
        minor: u8,
    },
    /// System Trace Macrocell (ARM IHI 0054).
    Stm,
    /// Instrumentation Trace Macrocell (ARM DDI 0403, appendix D4).
    Itm,
    /// Anything else.
    Unknown,
}

impl TraceArchitecture {
    /// Parses a device's `type` (`ETM3.5`, `PFT1.1`, `PTM1.0`, `ETM4`, `ETE`, any case). Without a
    /// version it is PFTv1.0, ETMv4.0 or ETEv1.0; `ETM` alone is unknown.
    pub fn from_type(kind: &str) -> Self {
        let kind = kind.trim().to_ascii_uppercase();
        let digits = kind.find(|c: char| c.is_ascii_digit());
        let (family, version) = kind.split_at(digits.unwrap_or(kind.len()));
        let family = family.trim_end_matches([' ', '-', '_', 'V']);
        let (major, minor) = version.split_once('.').unwrap_or((version, ""));
        let major: Option<u8> = major.parse().ok();
        let minor: u8 = minor.parse().unwrap_or(0).min(0xF);
        match (family, major) {
            ("ETM", Some(4)) => Self::Etmv4 { minor },
            ("ETM", Some(major @ 1..=3)) => Self::Etm { major, minor },
            ("PFT" | "PTM", None | Some(1)) => Self::Pft { major: 1, minor },
            ("ETE", None | Some(1)) => Self::Ete { major: 1, minor },
            ("STM", _) => Self::Stm,
            ("ITM", _) => Self::Itm,
            _ => Self::Unknown,
        }
    }

    /// Decodes ETMIDR bits `[11:8]` and `[7:4]` (ARM IHI 0014Q 3.5.40, ARM IHI 0035B 3.16.28):
    /// major 0 to 2 are ETMv1 to ETMv3, 3 is PFTv1. A value of 0 means that there is no ID.
    pub fn from_etmidr(etmidr: u64) -> Self {
        let minor = (etmidr >> 4 & 0xF) as u8;
        match (etmidr >> 8 & 0xF) as u8 {
            _ if etmidr == 0 => Self::Unknown,
            3 => Self::Pft { major: 1, minor },
            major @ 0..=2 => Self::Etm {
                major: major + 1,
                minor,
            },
            _ => Self::Unknown,
        }
    }

    /// Decodes TRCIDR1 bits `[11:8]` and `[7:4]` (ARM IHI 0064H, TRCIDR1): major 4 is ETMv4.
    /// `Unknown` if they refer to TRCDEVARCH.
    pub fn from_trcidr1(trcidr1: u64) -> Self {
        match trcidr1 >> 8 & 0xF {
            4 => Self::Etmv4 {
                minor: (trcidr1 >> 4 & 0xF) as u8,
            },
            _ => Self::Unknown,
        }
    }

    /// Decodes TRCDEVARCH (ARM DDI 0601, TRCDEVARCH): ARCHPART `0xA13` is the PE trace architecture;
    /// ARCHVER 4 is ETMv4, 5 is ETEv1; REVISION is the minor version.
    pub fn from_trcdevarch(trcdevarch: u64) -> Self {
        let minor = (trcdevarch >> 16 & 0xF) as u8;
        match trcdevarch & 0xFFFF {
            0x4A13 => Self::Etmv4 { minor },
            0x5A13 => Self::Ete { major: 1, minor },
            _ => Self::Unknown,
        }
    }

    /// Returns the architecture of a trace source, determined by its ID registers, or by the
    /// device's type if they are missing or inconclusive.
    pub fn of(device: &Device) -> Self {
        Self::of_values(&device.kind, |name| {
            let id = registers::id_of(name)?;
            device.component_register(&[name], id)?.value.as_u64()
        })
    }

    /// Returns the protocol of a trace source of this architecture.
    pub const fn protocol(self) -> Option<Protocol> {
        match self {
            Self::Etm { major: 3, .. } => Some(Protocol::Etmv3),
            // The traces of ETMv1 and ETMv2 consist of pipeline status and TRACEPKT, not packets
            // (ARM IHI 0014Q, 5 and 6).
            Self::Etm { .. } => None,
            Self::Pft { .. } => Some(Protocol::Ptm),
            Self::Etmv4 { .. } => Some(Protocol::Etmv4),
            Self::Ete { .. } => Some(Protocol::Ete),
            Self::Stm => Some(Protocol::Stm),
            Self::Itm => Some(Protocol::Itm),
            Self::Unknown => None,
        }
    }

    fn of_values(kind: &str, register: impl Fn(&str) -> Option<u64>) -> Self {
        let by_type = Self::from_type(kind);
        let trcdevarch = || register("TRCDEVARCH").map(Self::from_trcdevarch);
        let trcidr1 = || register("TRCIDR1").map(Self::from_trcidr1);
        let etmidr = || register("ETMIDR").map(Self::from_etmidr);
        let is_known = |found: &Self| *found != Self::Unknown;
        let by_register = match by_type {
            Self::Stm | Self::Itm => None,
            Self::Ete { .. } => trcdevarch().filter(is_known),
            Self::Etmv4 { .. } => trcdevarch()
                .filter(is_known)
                .or_else(trcidr1)
                .filter(is_known),
            Self::Etm { .. } | Self::Pft { .. } => etmidr().filter(is_known),
            Self::Unknown => trcdevarch()
                .filter(is_known)
                .or_else(trcidr1)
                .filter(is_known)
                .or_else(etmidr)
                .filter(is_known)
                // A trace unit of unknown version, of which only the settings were saved. ETMSR has
                // the same ID as TRCCONFIGR; no ETMv4 register has the ID of ETMCR.
                .or_else(|| register("ETMCR").map(|_| Self::Etm { major: 3, minor: 0 }))
                .or_else(|| register("TRCCONFIGR").map(|_| Self::Etmv4 { minor: 0 })),
        };
        by_register.unwrap_or(by_type)
    }

    /// Returns the key into the tables of fields: `major << 4 | minor`. For ETE, which comes after
    /// ETMv4, it is `5 << 4 | minor` (TRCDEVARCH.ARCHVER is 5 for ETEv1).
    pub fn version(self) -> u8 {
        match self {
            Self::Etm { major, minor } | Self::Pft { major, minor } => major << 4 | minor,
            Self::Etmv4 { minor } => 0x40 | minor,
            Self::Ete { minor, .. } => 0x50 | minor,
            Self::Stm | Self::Itm | Self::Unknown => 0,
        }
    }
}

impl fmt::Display for TraceArchitecture {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Etm { major, minor } => write!(f, "ETMv{major}.{minor}"),
            Self::Pft { major, minor } => write!(f, "PFTv{major}.{minor}"),
            Self::Etmv4 { minor } => write!(f, "ETMv4.{minor}"),
            Self::Ete { major, minor } => write!(f, "ETEv{major}.{minor}"),
            Self::Stm => f.write_str("STM"),
            Self::Itm => f.write_str("ITM"),
            Self::Unknown => f.write_str("unknown"),
        }
    }
}

impl Serialize for TraceArchitecture {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::snapshot::model::Register;

    #[test]
    fn the_type_names_the_architecture() {
        for (kind, name) in [
            ("ETM3.5", "ETMv3.5"),
            ("etm3.3", "ETMv3.3"),
            ("PFT1.1", "PFTv1.1"),
            ("PTM1.0", "PFTv1.0"),
            ("PTM", "PFTv1.0"),
            ("ETM4", "ETMv4.0"),
            ("ETMv4.2", "ETMv4.2"),
            ("ETE", "ETEv1.0"),
            ("STM", "STM"),
            ("stm2", "STM"),
            ("ITM", "ITM"),
            ("ETM9.9", "unknown"),
            ("ETM", "unknown"),
            ("ETM3.999999", "ETMv3.0"),
            ("", "unknown"),
            ("Cortex-A9", "unknown"),
        ] {
            assert_eq!(
                TraceArchitecture::from_type(kind).to_string(),
                name,
                "{kind}"
            );
        }
    }

    #[test]
    fn only_etmv3_of_the_early_versions_is_decoded() {
        let protocol = |kind| TraceArchitecture::from_type(kind).protocol();
        assert_eq!(protocol("ETM3.0"), Some(Protocol::Etmv3));
        assert_eq!(protocol("ETM1.3"), None);
        assert_eq!(protocol("ETM2.0"), None);
    }

    #[test]
    fn the_id_registers_decide() {
        let of = |kind, name, value| {
            TraceArchitecture::of_values(kind, |wanted| (wanted == name).then_some(value))
                .to_string()
        };
        assert_eq!(of("ETM3.0", "ETMIDR", 0x410C_F250), "ETMv3.5");
        assert_eq!(of("ETM3.5", "ETMIDR", 0x4100_1220), "ETMv3.2");
        assert_eq!(of("PTM", "ETMIDR", 0x411C_F312), "PFTv1.1");
        assert_eq!(of("ETM3.5", "ETMIDR", 0x411C_F301), "PFTv1.0");
        assert_eq!(of("ETM3.5", "ETMIDR", 0xF00), "ETMv3.5");
        assert_eq!(of("PTM", "ETMIDR", 0), "PFTv1.0");
        assert_eq!(of("ETM", "ETMIDR", 0x411C_F312), "PFTv1.1");
        assert_eq!(of("ETM", "ETMCR", 0), "ETMv3.0");
        let settings = [("ETMCR", 0), ("ETMSR", 4)].map(|(name, id)| Register {
            name: name.to_owned(),
            id: Some(id),
            ..Register::default()
        });
        let device = Device {
            kind: "ETM".to_owned(),
            registers: settings.into(),
            ..Device::default()
        };
        assert_eq!(TraceArchitecture::of(&device).to_string(), "ETMv3.0");
        assert_eq!(of("etm", "TRCCONFIGR", 0), "ETMv4.0");
        assert_eq!(of("ETM4", "TRCDEVARCH", 0x4771_5A13), "ETEv1.1");
        assert_eq!(of("ETM4", "TRCIDR1", 0x4200_F440), "ETMv4.4");
        assert_eq!(of("ETE", "TRCDEVARCH", 0x4773_5A13), "ETEv1.3");
        assert_eq!(of("ETE", "TRCIDR1", 0x4100_FFF0), "ETEv1.0");
        assert_eq!(of("whatever", "TRCDEVARCH", 0x4771_5A13), "ETEv1.1");
        assert_eq!(of("whatever", "PC", 0), "unknown");
    }
}
