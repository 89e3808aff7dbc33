//! Views of registers under other names: `W0` of `X0`, `S1` of `D0`, `R13` of `SP`.
//!
//! Writers of snapshots use several names for the same register. This module maps each name to a
//! range of bits of a register of the target description (Arm ARM DDI 0487, B1.2.1, B1.2.2, E1.3;
//! DDI 0403, B1.4.1).

use super::Architecture;

/// A range of bits of a register of the core.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct View {
    /// The register's name in target descriptions: `x0`, `sp`, `v3`, `cpsr`.
    pub register: String,
    /// The lowest bit.
    pub offset: u32,
    /// The number of bits.
    pub bits: u32,
}

impl View {
    fn new(register: impl Into<String>, offset: u32, bits: u32) -> Option<Self> {
        Some(Self {
            register: register.into(),
            offset,
            bits,
        })
    }
}

/// Returns the size in bits of a register of the core's own set; `None` for any other name.
pub fn core_register_bits(architecture: Architecture, register: &str) -> Option<u32> {
    let indexed = |prefix: char, count: u32| {
        register
            .strip_prefix(prefix)
            .and_then(index)
            .is_some_and(|n| n < count)
    };
    match architecture {
        Architecture::AArch64 => match register {
            "sp" | "pc" => Some(64),
            "cpsr" | "fpsr" | "fpcr" => Some(32),
            _ if indexed('x', 31) => Some(64),
            _ if indexed('v', 32) => Some(128),
            _ => None,
        },
        Architecture::AArch32 => match register {
            "sp" | "lr" | "pc" | "cpsr" | "fpscr" => Some(32),
            _ if indexed('r', 13) => Some(32),
            _ if indexed('d', 32) => Some(64),
            _ => None,
        },
        Architecture::MProfile => match register {
            "sp" | "lr" | "pc" | "xpsr" | "fpscr" | "msp" | "psp" | "vpr" => Some(32),
            "msp_ns" | "msp_s" | "psp_ns" | "psp_s" => Some(32),
            _ if indexed('r', 13) => Some(32),
            _ if indexed('d', 16) => Some(64),
            _ => None,
        },
    }
}

/// Returns the bits that a register of a snapshot is a view of; `None` if it is not part of the
/// core's own set.
pub fn view_of(architecture: Architecture, name: &str) -> Option<View> {
    let name = name.to_ascii_lowercase();
    match architecture {
        Architecture::AArch64 => aarch64(&name),
        Architecture::AArch32 => aarch32(&name),
        Architecture::MProfile => m_profile(&name),
    }
}

fn index(digits: &str) -> Option<u32> {
    let plain = digits.bytes().all(|byte| byte.is_ascii_digit())
        && !(digits.len() > 1 && digits.starts_with('0'));
    if plain { digits.parse().ok() } else { None }
}

fn indexed(name: &str) -> Option<(char, u32)> {
    let first = name.chars().next()?;
    Some((first, index(name.get(first.len_utf8()..)?)?))
}

fn aarch64(name: &str) -> Option<View> {
    match name {
        "lr" => return View::new("x30", 0, 64),
        "fp" => return View::new("x29", 0, 64),
        "sp" => return View::new("sp", 0, 64),
        "wsp" => return View::new("sp", 0, 32),
        "pc" => return View::new("pc", 0, 64),
        "cpsr" | "pstate" => return View::new("cpsr", 0, 32),
        "fpsr" | "fpcr" => return View::new(name, 0, 32),
        _ => {}
    }
    match indexed(name)? {
        ('x', n) if n < 31 => View::new(name, 0, 64),
        ('w', n) if n < 31 => View::new(format!("x{n}"), 0, 32),
        ('v' | 'q', n) if n < 32 => View::new(format!("v{n}"), 0, 128),
        ('d', n) if n < 32 => View::new(format!("v{n}"), 0, 64),
        ('s', n) if n < 32 => View::new(format!("v{n}"), 0, 32),
        ('h', n) if n < 32 => View::new(format!("v{n}"), 0, 16),
        ('b', n) if n < 32 => View::new(format!("v{n}"), 0, 8),
        _ => None,
    }
}

/// Views that AArch32 and M-profile share: R0-R15 and the names of R13-R15.
fn general(name: &str) -> Option<View> {
    match name {
        "sp" | "r13" => View::new("sp", 0, 32),
        "lr" | "r14" => View::new("lr", 0, 32),
        "pc" | "r15" => View::new("pc", 0, 32),
        "fpscr" => View::new("fpscr", 0, 32),
        _ => match indexed(name)? {
            ('r', n) if n < 13 => View::new(name, 0, 32),
            _ => None,
        },
    }
}

/// D registers, and S registers as their halves. For Q registers, see [`halves_of_quad`].
fn floating_point(name: &str, count: u32) -> Option<View> {
    match indexed(name)? {
        ('d', n) if n < count => View::new(name, 0, 64),
        ('s', n) if n < 32 => View::new(format!("d{}", n / 2), 32 * (n % 2), 32),
        _ => None,
    }
}

/// Returns the two D registers of an AArch32 or M-profile Q register, low half first.
pub fn halves_of_quad(architecture: Architecture, name: &str) -> Option<[View; 2]> {
    let count = match architecture {
        Architecture::AArch64 => return None,
        Architecture::AArch32 => 16,
        Architecture::MProfile => 8,
    };
    let name = name.to_ascii_lowercase();
    match indexed(&name)? {
        ('q', n) if n < count => Some([
            View::new(format!("d{}", 2 * n), 0, 64)?,
            View::new(format!("d{}", 2 * n + 1), 0, 64)?,
        ]),
        _ => None,
    }
}

fn aarch32(name: &str) -> Option<View> {
    if name == "cpsr" {
        return View::new("cpsr", 0, 32);
    }
    general(name).or_else(|| floating_point(name, 32))
}

fn m_profile(name: &str) -> Option<View> {
    match name {
        "xpsr" | "cpsr" => View::new("xpsr", 0, 32),
        "msp" | "psp" | "msp_ns" | "msp_s" | "psp_ns" | "psp_s" | "vpr" => View::new(name, 0, 32),
        _ => general(name).or_else(|| floating_point(name, 16)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn views_by_architecture() {
        use Architecture::{AArch32, AArch64, MProfile};
        for (architecture, name, wanted) in [
            (AArch64, "W7", Some(("x7", 0, 32))),
            (AArch64, "LR", Some(("x30", 0, 64))),
            (AArch64, "Q31", Some(("v31", 0, 128))),
            (AArch64, "B3", Some(("v3", 0, 8))),
            (AArch64, "X31", None),
            (AArch64, "SP_EL2", None),
            (AArch64, "x01", None),
            (AArch32, "R15", Some(("pc", 0, 32))),
            (AArch32, "S3", Some(("d1", 32, 32))),
            (AArch32, "R13_USR", None),
            (AArch32, "D32", None),
            (MProfile, "xPSR", Some(("xpsr", 0, 32))),
            (MProfile, "D16", None),
        ] {
            let found = view_of(architecture, name);
            let found = found
                .as_ref()
                .map(|view| (view.register.as_str(), view.offset, view.bits));
            assert_eq!(found, wanted, "{name}");
        }
        assert_eq!(halves_of_quad(AArch32, "Q15").unwrap()[1].register, "d31");
        assert_eq!(halves_of_quad(MProfile, "Q8"), None);
    }

    #[test]
    fn every_view_is_within_its_register() {
        for architecture in [
            Architecture::AArch64,
            Architecture::AArch32,
            Architecture::MProfile,
        ] {
            for letter in "xwvqdshbr".chars() {
                for n in 0..40 {
                    if let Some(view) = view_of(architecture, &format!("{letter}{n}")) {
                        let bits = core_register_bits(architecture, &view.register);
                        assert!(bits.is_some_and(|bits| view.offset + view.bits <= bits));
                    }
                }
            }
        }
    }
}
