//! The AArch64 registers as GDB expects them: features `org.gnu.gdb.aarch64.core` and `.fpu`.

use std::fmt::Write as _;

use super::description::{Feature, RegisterDescription};

/// Lanes of a vector register: name, types of one lane (field name, type), count.
type Lanes = (&'static str, &'static [(&'static str, &'static str)], u32);

const LANES: [Lanes; 5] = [
    (
        "d",
        &[("f", "ieee_double"), ("u", "uint64"), ("s", "int64")],
        2,
    ),
    (
        "s",
        &[("f", "ieee_single"), ("u", "uint32"), ("s", "int32")],
        4,
    ),
    (
        "h",
        &[("f", "ieee_half"), ("u", "uint16"), ("s", "int16")],
        8,
    ),
    ("b", &[("u", "uint8"), ("s", "int8")], 16),
    ("q", &[("u", "uint128"), ("s", "int128")], 1),
];

/// The names of these features.
pub(super) const REQUIRED: [&str; 2] = ["org.gnu.gdb.aarch64.core", "org.gnu.gdb.aarch64.fpu"];

/// The features that every AArch64 core has.
pub(super) fn features() -> Vec<Feature> {
    let register = RegisterDescription::core;
    let mut core: Vec<_> = (0..31)
        .map(|n| register(n, &format!("x{n}"), 64, "int"))
        .collect();
    core.push(register(31, "sp", 64, "data_ptr"));
    core.push(register(32, "pc", 64, "code_ptr"));
    core.push(register(33, "cpsr", 32, "cpsr_flags"));
    let mut fpu: Vec<_> = (0..32)
        .map(|n| register(34 + n, &format!("v{n}"), 128, "aarch64v"))
        .collect();
    for (number, name) in [(66, "fpsr"), (67, "fpcr")] {
        let mut status = register(number, name, 32, "int");
        status.group = Some("float");
        fpu.push(status);
    }
    vec![
        Feature {
            name: REQUIRED[0].to_owned(),
            types: cpsr_type(),
            registers: core,
        },
        Feature {
            name: REQUIRED[1].to_owned(),
            types: vector_types(),
            registers: fpu,
        },
    ]
}

/// PSTATE as saved in an SPSR (Arm ARM DDI 0487, C5.2.19).
fn cpsr_type() -> String {
    let mut xml = String::from("<flags id=\"cpsr_flags\" size=\"4\">");
    for (name, low, high) in [
        ("SP", 0, 0),
        ("nRW", 4, 4),
        ("EL", 2, 3),
        ("F", 6, 6),
        ("I", 7, 7),
        ("A", 8, 8),
        ("D", 9, 9),
        ("BTYPE", 10, 11),
        ("SSBS", 12, 12),
        ("IL", 20, 20),
        ("SS", 21, 21),
        ("PAN", 22, 22),
        ("UAO", 23, 23),
        ("DIT", 24, 24),
        ("TCO", 25, 25),
        ("V", 28, 28),
        ("C", 29, 29),
        ("Z", 30, 30),
        ("N", 31, 31),
    ] {
        let _ = write!(
            xml,
            "<field name=\"{name}\" start=\"{low}\" end=\"{high}\"/>"
        );
    }
    xml.push_str("</flags>\n");
    xml
}

/// A vector register is a union of its lanes, so that `$v0.d.u[1]` works.
fn vector_types() -> String {
    let mut xml = String::new();
    let mut whole = String::from("<union id=\"aarch64v\">");
    for (lane, kinds, count) in LANES {
        let mut union = format!("<union id=\"vn{lane}\">");
        for (kind, type_name) in kinds {
            let _ = write!(
                xml,
                "<vector id=\"v{count}{kind}\" type=\"{type_name}\" count=\"{count}\"/>"
            );
            let _ = write!(union, "<field name=\"{kind}\" type=\"v{count}{kind}\"/>");
        }
        let _ = writeln!(xml, "{union}</union>");
        let _ = write!(whole, "<field name=\"{lane}\" type=\"vn{lane}\"/>");
    }
    let _ = writeln!(xml, "{whole}</union>");
    xml
}
