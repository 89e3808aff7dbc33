//! The traced core, as far as it changes the meaning of its trace.

use crate::arch::Architecture;
use crate::snapshot::model::Device;
use crate::{etmv3, etmv4};

/// An architecture profile.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Profile {
    /// Application.
    #[default]
    A,
    /// Real-time.
    R,
    /// Microcontroller.
    M,
}

/// Profile and version of the architecture of a core.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Core {
    /// Its profile.
    pub profile: Profile,
    /// 7 for ARMv7 and before, 8 for ARMv8, 9 for ARMv9.
    pub version: u8,
}

impl Default for Core {
    fn default() -> Self {
        Self {
            profile: Profile::A,
            version: 8,
        }
    }
}

/// M-profile cores of ARMv8-M, by the number in `Cortex-M…`.
const ARMV8_M: [u32; 6] = [23, 33, 35, 52, 55, 85];

impl Core {
    /// From the type of a core device, or from its registers.
    pub fn of(device: &Device) -> Self {
        let kind = device.kind.to_ascii_lowercase();
        let number = |prefix: &str| -> Option<u32> {
            let rest = &kind[kind.find(prefix)? + prefix.len()..];
            let end = rest
                .find(|c: char| !c.is_ascii_digit())
                .unwrap_or(rest.len());
            rest[..end].parse().ok()
        };
        let written = number("armv").or_else(|| number("arm-v"));
        let architecture = Architecture::detect(device).architecture;
        let (profile, cortex) = match architecture {
            Architecture::MProfile => {
                let v8 = number("cortex-m").is_some_and(|n| ARMV8_M.contains(&n));
                (Profile::M, if v8 { 8 } else { 7 })
            }
            Architecture::AArch64 => (Profile::A, 8),
            Architecture::AArch32 => {
                let v8 = number("cortex-a") == Some(32) || number("cortex-r") == Some(52);
                (Profile::A, if v8 { 8 } else { 7 })
            }
        };
        let real_time = kind.contains("cortex-r") || kind.ends_with("-r");
        Self {
            profile: if real_time && profile == Profile::A {
                Profile::R
            } else {
                profile
            },
            version: written.map_or(cortex, |version| version.clamp(7, 9) as u8),
        }
    }
}

impl From<Core> for etmv4::Core {
    fn from(core: Core) -> Self {
        Self {
            profile: match core.profile {
                Profile::A => etmv4::Profile::A,
                Profile::R => etmv4::Profile::R,
                Profile::M => etmv4::Profile::M,
            },
            architecture: core.version,
        }
    }
}

impl From<Core> for etmv3::Profile {
    fn from(core: Core) -> Self {
        match core.profile {
            Profile::A | Profile::R => Self::ApplicationOrRealTime,
            Profile::M => Self::Microcontroller,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_tell_profile_and_version() {
        for (kind, profile, version) in [
            ("Cortex-A15", Profile::A, 7),
            ("Cortex-A57", Profile::A, 8),
            ("ARM-AA64", Profile::A, 8),
            ("ARMv9-A", Profile::A, 9),
            ("Cortex-R5", Profile::R, 7),
            ("Cortex-R52", Profile::R, 8),
            ("ARMv8-R", Profile::R, 8),
            ("Cortex-M4", Profile::M, 7),
            ("cortex-m33", Profile::M, 8),
            ("ARMv6-M", Profile::M, 7),
            ("ARMv8.1-M", Profile::M, 8),
        ] {
            let device = Device {
                kind: kind.to_owned(),
                ..Device::default()
            };
            assert_eq!(Core::of(&device), Core { profile, version }, "{kind}");
        }
    }
}
