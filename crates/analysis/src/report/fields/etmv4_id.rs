//! ETMv4 and ETE: the ID registers TRCIDR0 to TRCIDR13 (ARM IHI 0064; for ETE ARM DDI 0601).

use std::borrow::Cow;

use super::etmv4::{FIRST_ETE, LAST_ETMV4};
use super::{Bits, Row, Words, common, read_as_one, row, rule, switch, table};

/// The table of a register.
pub(super) fn rows(name: &str) -> Option<&'static [Row]> {
    Some(match name {
        "TRCIDR0" => CAPABILITIES,
        "TRCIDR1" => VERSION,
        "TRCIDR2" => SIZES,
        "TRCIDR3" => FEATURES,
        "TRCIDR4" => COMPARATORS,
        "TRCIDR5" => RESOURCES,
        "TRCIDR6" => REALM,
        "TRCIDR7" => &[],
        "TRCIDR8" => SPECULATION,
        "TRCIDR9" => P0_KEYS,
        "TRCIDR10" => P1_KEYS,
        "TRCIDR11" => P1_SPECIAL,
        "TRCIDR12" => CONDITIONAL_KEYS,
        "TRCIDR13" => CONDITIONAL_SPECIAL,
        _ => return None,
    })
}

const NOT: &str = "not implemented";
const YES: &str = "implemented";

/// TRCIDR0: what can be traced.
const CAPABILITIES: &[Row] = &[
    switch(
        30,
        "COMMTRANS",
        "transaction starts are P0 elements",
        "transaction starts are not P0 elements",
    )
    .since(FIRST_ETE),
    table(29, 29, "COMMOPT", &["commit mode 0", "commit mode 1"]),
    rule(28, 24, "TSSIZE", |value| match value {
        0 => "no timestamps".into(),
        0b00110 => "48 bits".into(),
        0b01000 => "64 bits".into(),
        _ => "reserved encoding".into(),
    }),
    switch(23, "TSMARK", NOT, "timestamp markers").since(0x51),
    switch(22, "ITE", NOT, "instrumentation trace").since(0x53),
    switch(17, "TRCEXDATA", NOT, "data of exceptions and their returns").until(LAST_ETMV4),
    table(
        16,
        15,
        "QSUPP",
        &[
            "no Q elements",
            "Q elements with instruction counts",
            "Q elements with and without instruction counts",
            "Q elements, those without instruction counts by choice",
        ],
    ),
    switch(14, "QFILT", NOT, "Q elements can be filtered by address"),
    table(
        13,
        12,
        "CONDTYPE",
        &[
            "conditions traced as pass or fail",
            "conditions traced as APSR flags",
        ],
    )
    .until(LAST_ETMV4),
    rule(11, 10, "NUMEVENT", |value| {
        format!("{} events", value + 1).into()
    }),
    switch(9, "RETSTACK", NOT, "return stack"),
    switch(7, "TRCCCI", NOT, "cycle counts"),
    switch(6, "TRCCOND", NOT, "conditional instructions").until(LAST_ETMV4),
    switch(5, "TRCBB", NOT, "branch broadcast"),
    table(4, 3, "TRCDATA", &[NOT, "", "", "data addresses and values"]).until(LAST_ETMV4),
    table(
        2,
        1,
        "INSTP0",
        &[NOT, "", "", "loads and stores as P0 elements"],
    )
    .until(LAST_ETMV4),
    read_as_one(0, 0),
];

/// TRCIDR1: implementer and architecture version.
const VERSION: &[Row] = &[
    rule(31, 24, "DESIGNER", common::implementer),
    read_as_one(15, 12),
    rule(11, 8, "TRCARCHMAJ", |value| match value {
        4 => "ETMv4".into(),
        0xF => "see TRCDEVARCH".into(),
        _ => "reserved encoding".into(),
    }),
    rule(7, 4, "TRCARCHMIN", |value| match value {
        0xF => "see TRCDEVARCH".into(),
        _ => format!("minor version {value}").into(),
    }),
    rule(3, 0, "REVISION", common::revision),
];

/// TRCIDR2: sizes. ETE has no data trace.
const SIZES: &[Row] = &[
    switch(
        31,
        "WFXMODE",
        "WFI and WFE are not P0 elements",
        "WFI and WFE are P0 elements",
    ),
    table(
        30,
        29,
        "VMIDOPT",
        &[
            "TRCCONFIGR.VMIDOPT is 0",
            "TRCCONFIGR.VMIDOPT can be chosen",
            "TRCCONFIGR.VMIDOPT is 1",
        ],
    ),
    rule(28, 25, "CCSIZE", |value| match value {
        0..=8 => format!("cycle counter of {} bits", 12 + value).into(),
        _ => "reserved encoding".into(),
    }),
    rule(24, 20, "DVSIZE", common::bytes).until(LAST_ETMV4),
    rule(19, 15, "DASIZE", common::bytes).until(LAST_ETMV4),
    rule(14, 10, "VMIDSIZE", common::bytes),
    rule(9, 5, "CIDSIZE", common::bytes),
    rule(4, 0, "IASIZE", common::bytes),
];

/// TRCIDR3: exception levels, stalling, thresholds.
const FEATURES: &[Row] = &[
    switch(31, "NOOVERFLOW", NOT, "overflow prevention"),
    row(
        Bits((13, 12), Some((30, 28))),
        "NUMPROC",
        Words::Rule(processors),
    ),
    switch(
        27,
        "SYSSTALL",
        "the system cannot stall the core",
        "the system can stall the core",
    ),
    switch(26, "STALLCTL", NOT, "stalling the core"),
    switch(
        25,
        "SYNCPR",
        "the synchronisation period can be set",
        "the synchronisation period is fixed",
    ),
    switch(24, "TRCERR", NOT, "system errors can always be traced"),
    rule(23, 20, "EXLEVEL_NS", exception_levels),
    rule(19, 16, "EXLEVEL_S", exception_levels),
    rule(11, 0, "CCITMIN", |value| {
        format!("least cycle threshold {value}").into()
    }),
];

fn processors(value: u64) -> Cow<'static, str> {
    match value {
        0 => "traces 1 core".into(),
        _ => format!("traces one of {} cores", value + 1).into(),
    }
}

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

/// TRCIDR4: comparators.
const COMPARATORS: &[Row] = &[
    rule(31, 28, "NUMVMIDC", common::number),
    rule(27, 24, "NUMCIDC", common::number),
    rule(23, 20, "NUMSSCC", common::number),
    rule(19, 16, "NUMRSPAIR", common::number_less_one),
    rule(15, 12, "NUMPC", common::number),
    switch(8, "SUPPDAC", NOT, "data address comparisons").until(LAST_ETMV4),
    rule(7, 4, "NUMDVC", common::number).until(LAST_ETMV4),
    rule(3, 0, "NUMACPAIRS", common::number),
];

/// TRCIDR5: resources.
const RESOURCES: &[Row] = &[
    switch(
        31,
        "REDFUNCNTR",
        "counter 0 is whole",
        "counter 0 is reduced",
    ),
    rule(30, 28, "NUMCNTR", common::number),
    rule(27, 25, "NUMSEQSTATE", common::number),
    switch(23, "LPOVERRIDE", NOT, "low power override"),
    switch(22, "ATBTRIG", NOT, "triggers on the trace bus"),
    rule(21, 16, "TRACEIDSIZE", |value| match value {
        0 => "no trace ID".into(),
        _ => format!("{value} bits").into(),
    }),
    rule(11, 9, "NUMEXTINSEL", common::number),
    rule(8, 0, "NUMEXTIN", |value| match value {
        0x1FF => "as many as event numbers".into(),
        _ => common::number(value),
    }),
];

/// TRCIDR6: exception levels of Realm state (ETE).
const REALM: &[Row] = &[
    switch(2, "EXLEVEL_RL_EL2", NOT, YES).since(FIRST_ETE),
    switch(1, "EXLEVEL_RL_EL1", NOT, YES).since(FIRST_ETE),
    switch(0, "EXLEVEL_RL_EL0", NOT, YES).since(FIRST_ETE),
];

/// TRCIDR8: the maximum number of speculative P0 elements.
const SPECULATION: &[Row] = &[rule(31, 0, "MAXSPEC", |value| match value {
    0 => "no speculation is traced".into(),
    _ => format!("up to {value} speculative P0 elements").into(),
})];

/// TRCIDR9.
const P0_KEYS: &[Row] = &[rule(31, 0, "NUMP0KEY", common::number).until(LAST_ETMV4)];
/// TRCIDR10.
const P1_KEYS: &[Row] = &[rule(31, 0, "NUMP1KEY", common::number).until(LAST_ETMV4)];
/// TRCIDR11.
const P1_SPECIAL: &[Row] = &[rule(31, 0, "NUMP1SPC", common::number).until(LAST_ETMV4)];
/// TRCIDR12.
const CONDITIONAL_KEYS: &[Row] = &[rule(31, 0, "NUMCONDKEY", common::number).until(LAST_ETMV4)];
/// TRCIDR13.
const CONDITIONAL_SPECIAL: &[Row] = &[rule(31, 0, "NUMCONDSPC", common::number).until(LAST_ETMV4)];

#[cfg(test)]
mod tests {
    use super::super::tests::{field, set};
    use super::super::{Field, describe};
    use armsnap_snapshot::capture::TraceArchitecture;

    fn etm(name: &str, value: u64) -> Vec<Field> {
        describe(TraceArchitecture::Etmv4 { minor: 2 }, name, value).unwrap()
    }

    fn ete(minor: u8, name: &str, value: u64) -> Vec<Field> {
        describe(TraceArchitecture::Ete { major: 1, minor }, name, value).unwrap()
    }

    #[test]
    fn trcidr0_of_a_cortex_a53() {
        let fields = etm("TRCIDR0", 0x2800_0EA1);
        assert_eq!(
            set(&fields),
            [
                "COMMOPT", "TSSIZE", "NUMEVENT", "RETSTACK", "TRCCCI", "TRCBB"
            ]
        );
        assert_eq!(field(&fields, "TSSIZE").1, "64 bits");
        assert_eq!(field(&fields, "NUMEVENT"), (3, "4 events".into()));
        assert_eq!(field(&fields, "COMMOPT").1, "commit mode 1");
    }

    #[test]
    fn trcidr0_of_ete() {
        // TSMARK, ITE, QSUPP=3, QFILT.
        let fields = ete(3, "TRCIDR0", 0x28C1_CEA1);
        assert_eq!(
            set(&fields),
            [
                "COMMOPT", "TSSIZE", "TSMARK", "ITE", "QSUPP", "QFILT", "NUMEVENT", "RETSTACK",
                "TRCCCI", "TRCBB"
            ]
        );
        assert_eq!(field(&fields, "QSUPP").0, 3);
        assert!(set(&ete(0, "TRCIDR0", 0x28C1_CEA1)).contains(&"reserved"));
    }

    #[test]
    fn trcidr1() {
        let fields = etm("TRCIDR1", 0x4100_F403);
        assert_eq!(field(&fields, "DESIGNER").1, "Arm");
        assert_eq!(field(&fields, "TRCARCHMAJ"), (4, "ETMv4".into()));
        assert_eq!(field(&fields, "TRCARCHMIN"), (0, "minor version 0".into()));
        assert_eq!(field(&fields, "REVISION").1, "revision 3");
        assert_eq!(
            field(&ete(0, "TRCIDR1", 0x4100_FFF0), "TRCARCHMAJ").1,
            "see TRCDEVARCH"
        );
    }

    #[test]
    fn trcidr2() {
        let fields = etm("TRCIDR2", 0x488);
        assert_eq!(field(&fields, "IASIZE"), (8, "64 bits".into()));
        assert_eq!(field(&fields, "CIDSIZE"), (4, "32 bits".into()));
        assert_eq!(field(&fields, "VMIDSIZE"), (1, "8 bits".into()));
        assert_eq!(field(&fields, "DASIZE"), (0, "not implemented".into()));
        assert_eq!(field(&fields, "CCSIZE").1, "cycle counter of 12 bits");
        let fields = ete(0, "TRCIDR2", 0xD000_1088);
        assert_eq!(field(&fields, "WFXMODE").0, 1);
        assert_eq!(field(&fields, "VMIDOPT").0, 2);
        assert_eq!(field(&fields, "CCSIZE").1, "cycle counter of 20 bits");
        assert_eq!(field(&fields, "VMIDSIZE").1, "32 bits");
    }

    #[test]
    fn trcidr3_to_5_of_a_cortex_a57() {
        let fields = etm("TRCIDR3", 0x007B_0004);
        assert_eq!(field(&fields, "EXLEVEL_NS"), (7, "EL0 EL1 EL2".into()));
        assert_eq!(field(&fields, "EXLEVEL_S"), (0xB, "EL0 EL1 EL3".into()));
        assert_eq!(field(&fields, "CCITMIN").0, 4);
        assert_eq!(field(&fields, "NUMPROC").1, "traces 1 core");
        // [13:12] = 1, [30:28] = 2: 10 and one more.
        assert_eq!(
            field(&etm("TRCIDR3", 0x2000_1000), "NUMPROC").1,
            "traces one of 11 cores"
        );

        let fields = etm("TRCIDR4", 0x1117_0004);
        assert_eq!(field(&fields, "NUMACPAIRS").1, "4");
        assert_eq!(field(&fields, "NUMRSPAIR").1, "8");
        assert_eq!(field(&fields, "NUMSSCC").1, "1");

        let fields = etm("TRCIDR5", 0x2807_0804);
        assert_eq!(field(&fields, "NUMCNTR").1, "2");
        assert_eq!(field(&fields, "NUMSEQSTATE").1, "4");
        assert_eq!(field(&fields, "TRACEIDSIZE").1, "7 bits");
        assert_eq!(field(&fields, "NUMEXTINSEL").1, "4");
        assert_eq!(field(&fields, "NUMEXTIN").1, "4");
    }

    #[test]
    fn speculation_depth() {
        assert_eq!(field(&ete(0, "TRCIDR8", 0xFF), "MAXSPEC").0, 255);
        assert_eq!(
            field(&etm("TRCIDR8", 0), "MAXSPEC").1,
            "no speculation is traced"
        );
    }

    #[test]
    fn keys_are_etmv4_only() {
        assert_eq!(set(&etm("TRCIDR9", 5)), ["NUMP0KEY"]);
        assert_eq!(set(&ete(0, "TRCIDR9", 5)), ["reserved"; 2]);
    }
}
