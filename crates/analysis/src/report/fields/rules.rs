//! Meanings that are computed, not listed in the table.

use std::borrow::Cow;

/// Puts a field's value in words.
pub(super) type Rule = fn(u64) -> Cow<'static, str>;

/// The rule that the table refers to by this name.
pub(super) fn named(name: &str) -> Option<Rule> {
    Some(match name {
        "data_tracing" => data_tracing,
        "architect" => architect,
        "exception_levels" => exception_levels,
        _ => return None,
    })
}

/// What the bits `[20:18,3:1]` of ETMCR enable, and which implementation reads back this value when
/// ones were written to test it (IHI 0014Q 3.5.1, table 3.11; from ETMv3.3).
fn data_tracing(value: u64) -> Cow<'static, str> {
    let on = [
        (0b000_100, "data addresses"),
        (0b000_010, "data values"),
        (0b000_001, "coprocessor transfers"),
        (0b100_000, "no instructions"),
    ];
    let on = on.iter().filter(|(bit, _)| value & bit != 0);
    let on: Vec<&str> = on.map(|(_, name)| *name).collect();
    let on = if on.is_empty() {
        "nothing".to_owned()
    } else {
        on.join(", ")
    };
    let implementation = match (value >> 3, value & 7) {
        (0b110 | 0b111, 0b111) => "all data tracing is implemented",
        (0b000 | 0b001, 0b100) => "only data address tracing is implemented",
        (0b010 | 0b011, 0b011) => "only data value and CPRT tracing are implemented",
        (0b000, 0b000) => "no data tracing is implemented",
        _ => return on.into(),
    };
    format!("{on} (if read back after writing ones: {implementation})").into()
}

/// A JEP106 code: continuation in bits `[10:7]`, identity in `[6:0]`.
fn architect(value: u64) -> Cow<'static, str> {
    match value {
        0x23B => "Arm".into(),
        _ => format!("JEP106 {:#x}, {:#04x}", value >> 7, value & 0x7F).into(),
    }
}

/// A bit for each of the exception levels 0 to 3.
fn exception_levels(value: u64) -> Cow<'static, str> {
    let levels: Vec<String> = (0..4)
        .filter(|level| value >> level & 1 != 0)
        .map(|level| format!("EL{level}"))
        .collect();
    if levels.is_empty() {
        "none".into()
    } else {
        levels.join(" ").into()
    }
}
