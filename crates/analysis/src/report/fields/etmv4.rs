//! ETMv4 and ETE: TRCCONFIGR, TRCTRACEIDR, TRCAUTHSTATUS, TRCDEVARCH (ARM IHI 0064; for ETE
//! ARM DDI 0601). Versions `0x4n` are ETMv4.n, `0x5n` ETEv1.n.

use std::borrow::Cow;

use super::{Row, common, read_as_one, rule, switch, table};

/// The last version that is an ETMv4.
pub(super) const LAST_ETMV4: u8 = 0x4F;
/// The first version that is an ETE.
pub(super) const FIRST_ETE: u8 = 0x50;

/// The table of a register.
pub(super) fn rows(name: &str) -> Option<&'static [Row]> {
    Some(match name {
        "TRCCONFIGR" => CONFIGURATION,
        "TRCTRACEIDR" => TRACE_ID,
        "TRCAUTHSTATUS" => AUTHENTICATION,
        "TRCDEVARCH" => DEVICE_ARCHITECTURE,
        _ => return None,
    })
}

/// Trace Configuration Register (IHI 0064, DDI 0601: TRCCONFIGR). ETE traces no data, no
/// conditions, and no loads or stores as P0 elements.
const CONFIGURATION: &[Row] = &[
    switch(
        18,
        "ITO",
        "off",
        "instrumentation trace whatever the exception level",
    )
    .since(0x53),
    switch(17, "DV", "off", "data values are traced").until(LAST_ETMV4),
    switch(16, "DA", "off", "data addresses are traced").until(LAST_ETMV4),
    switch(
        15,
        "VMIDOPT",
        "the virtual context ID is VTTBR_EL2.VMID",
        "the virtual context ID is CONTEXTIDR_EL2",
    ),
    table(
        14,
        13,
        "QE",
        &[
            "no Q elements",
            "Q elements with instruction counts",
            "",
            "Q elements with and without instruction counts",
        ],
    ),
    switch(
        12,
        "RS",
        "off",
        "return stack: predicted returns are not traced",
    ),
    switch(11, "TS", "off", "timestamps are traced"),
    table(
        10,
        8,
        "COND",
        &[
            "conditional instructions are not traced",
            "conditional loads are traced",
            "conditional stores are traced",
            "conditional loads and stores are traced",
            "",
            "",
            "",
            "all conditional instructions are traced",
        ],
    )
    .until(LAST_ETMV4),
    switch(7, "VMID", "off", "virtual context IDs are traced"),
    switch(6, "CID", "off", "context IDs are traced"),
    switch(4, "CCI", "off", "cycle counts are traced"),
    switch(
        3,
        "BB",
        "off",
        "branch broadcast: addresses of direct branches are traced too",
    ),
    table(
        2,
        1,
        "INSTP0",
        &[
            "loads and stores are not P0 elements",
            "loads are P0 elements",
            "stores are P0 elements",
            "loads and stores are P0 elements",
        ],
    )
    .until(LAST_ETMV4),
    read_as_one(0, 0),
];

/// Trace ID Register (IHI 0064, DDI 0601: TRCTRACEIDR).
const TRACE_ID: &[Row] = &[rule(6, 0, "TRACEID", common::trace_id)];

/// Authentication Status Register (IHI 0064, DDI 0601: TRCAUTHSTATUS).
const AUTHENTICATION: &[Row] = &[
    table(27, 26, "RTNID", ENABLES).since(FIRST_ETE),
    table(25, 24, "RTID", ENABLES).since(FIRST_ETE),
    table(15, 14, "RLNID", ENABLES).since(FIRST_ETE),
    table(13, 12, "RLID", ENABLES).since(FIRST_ETE),
    table(11, 10, "HNID", ENABLES),
    table(9, 8, "HID", ENABLES),
    table(7, 6, "SNID", ENABLES),
    table(5, 4, "SID", ENABLES),
    table(3, 2, "NSNID", ENABLES),
    table(1, 0, "NSID", ENABLES),
];

/// A two-bit field of an authentication status register (ARM IHI 0029, AUTHSTATUS).
const ENABLES: &[&str] = &[
    "not implemented",
    "",
    "implemented, disabled",
    "implemented, enabled",
];

/// Device Architecture Register (DDI 0601: TRCDEVARCH).
const DEVICE_ARCHITECTURE: &[Row] = &[
    rule(31, 21, "ARCHITECT", architect),
    switch(
        20,
        "PRESENT",
        "the register says nothing",
        "the register is there",
    ),
    rule(19, 16, "REVISION", |value| {
        format!("minor version {value}").into()
    }),
    rule(15, 12, "ARCHVER", |value| match value {
        4 => "ETMv4".into(),
        5 => "ETEv1".into(),
        _ => "reserved encoding".into(),
    }),
    rule(11, 0, "ARCHPART", |value| match value {
        0xA13 => "PE trace architecture".into(),
        _ => format!("{value:#05x}, no PE trace").into(),
    }),
];

/// A JEP106 code: continuation in bits `[10:7]`, identity in `[6:0]`.
fn architect(value: u64) -> Cow<'static, str> {
    match value {
        0x23B => "Arm".into(),
        _ => format!("JEP106 {:#x}, {:#04x}", value >> 7, value & 0x7F).into(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{field, set};
    use super::super::{Field, describe};
    use armsnap_snapshot::capture::TraceArchitecture;

    fn etm(name: &str, value: u64) -> Vec<Field> {
        describe(TraceArchitecture::Etmv4 { minor: 0 }, name, value).unwrap()
    }

    fn ete(minor: u8, name: &str, value: u64) -> Vec<Field> {
        describe(TraceArchitecture::Ete { major: 1, minor }, name, value).unwrap()
    }

    #[test]
    fn trcconfigr_of_real_captures() {
        assert_eq!(set(&etm("TRCCONFIGR", 0xC1)), ["VMID", "CID"]);
        assert_eq!(set(&etm("TRCCONFIGR", 0x1)), [""; 0]);
        assert_eq!(set(&ete(3, "TRCCONFIGR", 0x8001)), ["VMIDOPT"]);
        assert_eq!(set(&ete(0, "TRCCONFIGR", 0x8019)), ["VMIDOPT", "CCI", "BB"]);
        assert_eq!(set(&ete(1, "TRCCONFIGR", 0x8801)), ["VMIDOPT", "TS"]);
        let fields = ete(0, "TRCCONFIGR", 0xA001);
        assert_eq!(
            field(&fields, "QE"),
            (1, "Q elements with instruction counts".into())
        );
    }

    #[test]
    fn trcconfigr_without_its_bit_0() {
        let fields = ete(0, "TRCCONFIGR", 0);
        assert_eq!(
            field(&fields, "reserved"),
            (0, "not all ones, though reserved as ones".into())
        );
    }

    #[test]
    fn trcconfigr_of_a_data_trace() {
        // DV, DA, COND=7, INSTP0=3.
        let fields = etm("TRCCONFIGR", 0x0003_0707);
        assert_eq!(set(&fields), ["DV", "DA", "COND", "INSTP0"]);
        assert_eq!(
            field(&fields, "INSTP0").1,
            "loads and stores are P0 elements"
        );
        // ETE has none of these.
        assert_eq!(set(&ete(0, "TRCCONFIGR", 0x0003_0707)), ["reserved"; 3]);
    }

    #[test]
    fn instrumentation_override_came_with_ete_1_3() {
        assert_eq!(set(&ete(3, "TRCCONFIGR", 0x4_0001)), ["ITO"]);
        assert_eq!(set(&ete(2, "TRCCONFIGR", 0x4_0001)), ["reserved"]);
    }

    #[test]
    fn trcauthstatus_of_real_captures() {
        let fields = etm("TRCAUTHSTATUS", 0xCC);
        assert_eq!(set(&fields), ["SNID", "NSNID"]);
        assert_eq!(field(&fields, "SNID"), (3, "implemented, enabled".into()));
        assert_eq!(field(&fields, "SID"), (0, "not implemented".into()));
    }

    #[test]
    fn trcdevarch_of_ete() {
        let fields = ete(3, "TRCDEVARCH", 0x4773_5A13);
        assert_eq!(field(&fields, "ARCHITECT"), (0x23B, "Arm".into()));
        assert_eq!(field(&fields, "REVISION"), (3, "minor version 3".into()));
        assert_eq!(field(&fields, "ARCHVER"), (5, "ETEv1".into()));
        assert_eq!(field(&fields, "ARCHPART").1, "PE trace architecture");
    }
}
