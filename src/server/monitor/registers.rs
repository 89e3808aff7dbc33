//! `monitor registers`: registers by name.

use std::fmt::Write as _;

use crate::arch::RegisterDescription;
use crate::arch::registers::Bytes;
use crate::server::cores::Core;
use crate::server::endpoint::Endpoint;

/// Lists the registers with matching names of a core at the halted state.
pub(super) fn list(endpoint: &Endpoint, core: &Core, pattern: &str) -> String {
    let mut text = String::new();
    for register in endpoint.description.registers() {
        if !matches(pattern, &register.name) {
            continue;
        }
        let bytes = core.registers.bytes(&register.view, register.bytes());
        let _ = writeln!(
            text,
            "{:<20} {:<36} {}",
            register.name,
            value(&bytes),
            register.group.unwrap_or(if register_is_wide(register) {
                "vector"
            } else {
                "general"
            })
        );
    }
    if text.is_empty() {
        text = format!("no register matches {pattern:?}\n");
    }
    text
}

fn register_is_wide(register: &RegisterDescription) -> bool {
    register.bits > 64 || register.kind == "ieee_double"
}

/// Formats a value in hexadecimal, with `..` for unknown bytes.
fn value(bytes: &Bytes) -> String {
    if bytes.iter().all(Option::is_none) {
        return "<unavailable>".to_owned();
    }
    let digits = bytes.iter().rev().map(|byte| match byte {
        Some(byte) => format!("{byte:02x}"),
        None => "..".to_owned(),
    });
    format!("0x{}", digits.collect::<String>())
}

/// Returns whether a name matches a pattern with `*` and `?`, or contains a pattern without them.
/// Ignores case.
fn matches(pattern: &str, name: &str) -> bool {
    let (pattern, name) = (pattern.to_ascii_lowercase(), name.to_ascii_lowercase());
    if !pattern.contains(['*', '?']) {
        return name.contains(&pattern);
    }
    let (pattern, name) = (pattern.as_bytes(), name.as_bytes());
    let (mut p, mut n) = (0, 0);
    // The index after the last `*`, and the end of what it matches.
    let mut star: Option<(usize, usize)> = None;
    while n < name.len() {
        match pattern.get(p) {
            Some(b'*') => {
                p += 1;
                star = Some((p, n));
            }
            Some(&c) if c == b'?' || c == name[n] => {
                p += 1;
                n += 1;
            }
            _ => match star {
                Some((behind, covered)) => {
                    p = behind;
                    n = covered + 1;
                    star = Some((behind, n));
                }
                None => return false,
            },
        }
    }
    pattern[p..].iter().all(|c| *c == b'*')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns() {
        for (pattern, name, wanted) in [
            ("", "x0", true),
            ("ttbr", "S_TTBR0", true),
            ("TTBR0*", "ttbr0_el1", true),
            ("ttbr0*", "S_TTBR0", false),
            ("*el?", "TTBR0_EL1", true),
            ("*el?", "TTBR0_EL12", false),
            ("*a*b*c", "xaybzc", true),
            ("*a*b*c", "xaybz", false),
            ("?", "", false),
            ("*", "", true),
        ] {
            assert_eq!(matches(pattern, name), wanted, "{pattern} {name}");
        }
    }

    #[test]
    fn values() {
        assert_eq!(value(&vec![Some(1), Some(0x20)]), "0x2001");
        assert_eq!(value(&vec![Some(1), None]), "0x..01");
        assert_eq!(value(&vec![None, None]), "<unavailable>");
    }
}
