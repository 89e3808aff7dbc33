//! Interprets the `type` of a core device.
//!
//! The type is the core's product name or its architecture, in any case (Debug and Trace Snapshot
//! File Format 0.2, section 3.2.1). No other module interprets such names.

use super::{Architecture, SavedCore};
use crate::quantity::Profile;

/// The properties of a core that follow from its type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CoreType {
    /// The architecture; AArch64 if the core has [`both_states`](Self::both_states).
    pub architecture: Architecture,
    /// Whether the core has AArch64 and AArch32 state: the type does not determine the current one.
    pub both_states: bool,
    /// The profile of its architecture.
    pub profile: Profile,
    /// The version of its architecture: 7 for ARMv7 and earlier, 8 for ARMv8, 9 for ARMv9. 8 for
    /// product names of ARMv9 cores too.
    pub version: u8,
}

/// What an M-profile core may have, by its type.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Extensions {
    /// Floating point.
    pub floating_point: bool,
    /// The Security Extension, and the stack limits of ARMv8-M.
    pub security: bool,
}

/// M-profile cores of ARMv8-M, by the number in `Cortex-M…`.
const ARMV8_M: [u32; 6] = [23, 33, 35, 52, 55, 85];

impl CoreType {
    const fn new(architecture: Architecture, profile: Profile, version: u8) -> Self {
        Self {
            architecture,
            both_states: false,
            profile,
            version,
        }
    }

    const fn both(profile: Profile, version: u8) -> Self {
        Self {
            both_states: true,
            ..Self::new(Architecture::AArch64, profile, version)
        }
    }

    /// The extensions of an M-profile core that may have no others; `None` if the type names no such
    /// core. Cores with vectors (MVE) have others.
    #[must_use]
    pub fn extensions(kind: &str) -> Option<Extensions> {
        let name = normalised(kind);
        let (floating_point, security) = match name.strip_prefix("arm").unwrap_or(&name) {
            "cortexm0" | "cortexm0plus" | "cortexm1" | "cortexm3" | "sc000" | "sc300" => {
                (false, false)
            }
            "cortexm4" | "cortexm7" => (true, false),
            "cortexm23" => (false, true),
            "cortexm33" | "cortexm35p" | "starmc1" => (true, true),
            _ => return None,
        };
        Some(Extensions {
            floating_point,
            security,
        })
    }

    /// The core that a type names; `None` if the type is not known.
    pub fn parse(kind: &str) -> Option<Self> {
        use Architecture::{AArch32, AArch64, MProfile};
        let all = normalised(kind);
        let name = all.strip_prefix("arm").filter(|rest| {
            ["cortex", "neoverse", "aa64", "aa32", "v"]
                .iter()
                .any(|next| rest.starts_with(next))
        });
        let name = name.unwrap_or(&all);
        let number = |prefix: &str| number(name, prefix);
        if name.starts_with("cortexm") || ["sc000", "sc300", "starmc1"].contains(&name) {
            let v8 = name == "starmc1" || number("cortexm").is_some_and(|n| ARMV8_M.contains(&n));
            return Some(Self::new(MProfile, Profile::M, if v8 { 8 } else { 7 }));
        }
        if let Some(number) = number("cortexr") {
            return Some(match number {
                82 => Self::new(AArch64, Profile::R, 8),
                52 => Self::new(AArch32, Profile::R, 8),
                _ => Self::new(AArch32, Profile::R, 7),
            });
        }
        if let Some(number) = number("cortexa") {
            return Some(match number {
                5 | 7 | 8 | 9 | 12 | 15 | 17 => Self::new(AArch32, Profile::A, 7),
                32 => Self::new(AArch32, Profile::A, 8),
                34 | 65 => Self::new(AArch64, Profile::A, 8),
                _ => Self::both(Profile::A, 8),
            });
        }
        if ["cortexx", "neoverse", "foundationv8", "fvpbaseaemv8"]
            .iter()
            .any(|prefix| name.starts_with(prefix))
        {
            return Some(Self::both(Profile::A, 8));
        }
        let begins = |prefixes: &[&str]| prefixes.iter().any(|prefix| name.starts_with(prefix));
        if begins(&["aa64", "aarch64", "arm64"]) {
            return Some(Self::new(AArch64, Profile::A, 8));
        }
        if begins(&["aa32", "aarch32", "arm32"]) {
            return Some(Self::new(AArch32, Profile::A, 7));
        }
        if let Some(number) = number("v") {
            return Some(Self::of_architecture(name, number));
        }
        // The classic cores: ARM7TDMI, ARM926EJ-S, ARM1136JF-S, ARM1176JZF-S.
        let classic = matches!(number("arm"), Some(7..=1199))
            || ["scorpion", "krait", "xscale", "strongarm"].contains(&name);
        classic.then_some(Self::new(AArch32, Profile::A, 7))
    }

    /// The core of an architecture, from its name (`v8a`, `v81mmainline`, `v7r`) and the number in it.
    fn of_architecture(name: &str, number: u32) -> Self {
        let version = match number {
            8 | 80..=89 => 8,
            9 | 90..=99 => 9,
            _ => 7,
        };
        let profile = name
            .trim_start_matches(|c: char| c == 'v' || c == '_' || c.is_ascii_digit())
            .trim_end_matches(|c: char| c.is_ascii_digit());
        let profile = match profile {
            "m" | "em" | "sm" | "mbaseline" | "mmainline" | "mbase" | "mmain" => {
                return Self::new(Architecture::MProfile, Profile::M, version);
            }
            "r" => Profile::R,
            _ => Profile::A,
        };
        if version >= 8 {
            Self::both(profile, version)
        } else {
            Self::new(Architecture::AArch32, profile, version)
        }
    }

    /// The type of a core device. If its `type` is unknown, the architecture is detected from its
    /// registers, and profile and version are the most common ones of the architecture.
    pub fn of(device: &impl SavedCore) -> Self {
        Self::parse(device.core_type()).unwrap_or_else(|| {
            let architecture = Architecture::detect(device).architecture;
            let (profile, version) = match architecture {
                Architecture::AArch64 => (Profile::A, 8),
                Architecture::AArch32 => (Profile::A, 7),
                Architecture::MProfile => (Profile::M, 7),
            };
            Self::new(architecture, profile, version)
        })
    }
}

/// Returns the letters and digits of a type in lower case: `Cortex-A57` and `cortex_a57` are equal.
/// Numbers stay apart: `Cortex-A9_0` is `cortexa9_0`.
fn normalised(kind: &str) -> String {
    let mut out = String::with_capacity(kind.len());
    let parts = kind.split(|c: char| !c.is_ascii_alphanumeric());
    for part in parts.filter(|part| !part.is_empty()) {
        let digits = |c: char| c.is_ascii_digit();
        if out.ends_with(digits) && part.starts_with(digits) {
            out.push('_');
        }
        out.push_str(&part.to_ascii_lowercase());
    }
    out
}

/// The decimal number in `name` after `prefix`.
fn number(name: &str, prefix: &str) -> Option<u32> {
    let digits = name.strip_prefix(prefix)?;
    let end = digits
        .find(|c: char| !c.is_ascii_digit())
        .unwrap_or(digits.len());
    digits.get(..end)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arch::saved_device::{Device, Register};
    use Architecture::{AArch32, AArch64, MProfile};

    #[test]
    fn types_give_profile_and_version() {
        for (kind, profile, version) in [
            ("Cortex-A15", Profile::A, 7),
            ("Cortex-A57", Profile::A, 8),
            ("ARM-AA64", Profile::A, 8),
            ("ARMv9-A", Profile::A, 9),
            ("Cortex-R5", Profile::R, 7),
            ("Cortex-R52", Profile::R, 8),
            ("ARMv8-R", Profile::R, 8),
            ("ARMv7-R", Profile::R, 7),
            ("Cortex-M4", Profile::M, 7),
            ("cortex-m33", Profile::M, 8),
            ("STAR-MC1", Profile::M, 8),
            ("ARMv6-M", Profile::M, 7),
            ("ARMv6S-M", Profile::M, 7),
            ("Cortex-M33_0", Profile::M, 8),
            ("Cortex-R52.1", Profile::R, 8),
            ("ARMv8.2-A", Profile::A, 8),
            ("ARMv8.1-M", Profile::M, 8),
        ] {
            let found = CoreType::parse(kind).unwrap();
            assert_eq!((found.profile, found.version), (profile, version), "{kind}");
        }
    }

    #[test]
    fn types_give_extensions() {
        for (kind, extensions) in [
            ("Cortex-M3", Some((false, false))),
            ("ARM Cortex-M4", Some((true, false))),
            ("cortex-m7", Some((true, false))),
            ("Cortex-M23", Some((false, true))),
            ("Cortex-M33", Some((true, true))),
            ("Cortex-M55", None),
            ("ARMv8.1-M", None),
            ("Cortex-A7", None),
        ] {
            let found = CoreType::extensions(kind);
            let found = found.map(|e| (e.floating_point, e.security));
            assert_eq!(found, extensions, "{kind}");
        }
    }

    #[test]
    fn types_give_architecture_and_states() {
        for (kind, architecture, both_states) in [
            ("Cortex-A57", AArch64, true),
            ("cortex_a710", AArch64, true),
            ("Neoverse-N1", AArch64, true),
            ("ARMv8.2-A", AArch64, true),
            ("Cortex-R82", AArch64, false),
            ("Cortex-A65AE", AArch64, false),
            ("ARM-AA64", AArch64, false),
            ("ARM Cortex-A9", AArch32, false),
            ("Cortex-A9_0", AArch32, false),
            ("arm64v8", AArch64, false),
            ("arm32v7", AArch32, false),
            ("Cortex-A32", AArch32, false),
            ("ARM926EJ-S", AArch32, false),
            ("ARMv8.1-M", MProfile, false),
        ] {
            let found = CoreType::parse(kind).unwrap();
            let have = (found.architecture, found.both_states);
            assert_eq!(have, (architecture, both_states), "{kind}");
        }
        for kind in ["", "core", "Cortex", "x86", "ARM99999999999"] {
            assert_eq!(CoreType::parse(kind), None, "{kind}");
        }
    }

    #[test]
    fn registers_decide_for_an_unknown_type() {
        let of = |name: &str| {
            CoreType::of(&Device {
                kind: "core".to_owned(),
                registers: vec![Register {
                    name: name.to_owned(),
                    ..Default::default()
                }],
            })
        };
        assert_eq!(of("XPSR"), CoreType::new(MProfile, Profile::M, 7));
        assert_eq!(of("X0"), CoreType::new(AArch64, Profile::A, 8));
        assert_eq!(of("R0"), CoreType::new(AArch32, Profile::A, 7));
    }
}
