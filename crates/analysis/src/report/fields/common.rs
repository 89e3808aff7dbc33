//! Field values in words, shared by several registers.

use std::borrow::Cow;

/// A CoreSight trace ID (ARM IHI 0029, ATB: `0x00` and `0x70` to `0x7F` are reserved).
pub(super) fn trace_id(value: u64) -> Cow<'static, str> {
    match value {
        0 => "0x00: no trace ID is set (reserved in a formatted buffer)".into(),
        0x70..=0x7F => format!("{value:#04x}: reserved, no source may have it").into(),
        _ => format!("{value:#04x}").into(),
    }
}

/// The implementer codes of MIDR and of the trace ID registers (ARM IHI 0014Q 3.5.40).
pub(super) fn implementer(value: u64) -> Cow<'static, str> {
    match value {
        0x41 => "Arm".into(),
        0x42 => "Broadcom".into(),
        0x43 => "Cavium".into(),
        0x44 => "Digital Equipment".into(),
        0x46 => "Fujitsu".into(),
        0x48 => "HiSilicon".into(),
        0x4D => "Motorola, Freescale".into(),
        0x4E => "NVIDIA".into(),
        0x50 => "Applied Micro".into(),
        0x51 => "Qualcomm".into(),
        0x53 => "Samsung".into(),
        0x54 => "Texas Instruments".into(),
        0x56 => "Marvell".into(),
        0x61 => "Apple".into(),
        0x69 => "Intel".into(),
        0xC0 => "Ampere".into(),
        _ => format!("implementer {value:#04x}").into(),
    }
}

/// A plain number.
pub(super) fn number(value: u64) -> Cow<'static, str> {
    value.to_string().into()
}

/// A count; the field holds one less.
pub(super) fn number_less_one(value: u64) -> Cow<'static, str> {
    value.saturating_add(1).to_string().into()
}

/// A size in bytes, shown in bits; 0 where the feature is missing.
pub(super) fn bytes(value: u64) -> Cow<'static, str> {
    match value {
        0 => "not implemented".into(),
        _ => format!("{} bits", value.saturating_mul(8)).into(),
    }
}

/// A revision number.
pub(super) fn revision(value: u64) -> Cow<'static, str> {
    format!("revision {value}").into()
}
