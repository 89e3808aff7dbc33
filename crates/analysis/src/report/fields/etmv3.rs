//! ETMv1 to ETMv3: ETMCR, ETMCCER, ETMIDR, ETMTRACEIDR (ARM IHI 0014Q).

use std::borrow::Cow;

use super::{Bits, Row, Words, common, etm, row, rule, switch, table};

/// The tables of the registers.
pub(super) const TABLES: etm::Tables = etm::Tables {
    control: CONTROL,
    configuration_extension: CONFIGURATION_EXTENSION,
    id: ID,
};

/// Main Control Register, ETMCR (IHI 0014Q 3.5.1, table 3.5).
const CONTROL: &[Row] = &[
    // Table 3.9.
    row(
        Bits((18, 18), Some((7, 7))),
        "suppress data with stall processor",
        Words::Forbidden(
            "PROHIBITED combination of bits 18 and 7: the ETM's behaviour is unpredictable",
        ),
    )
    .since(0x30),
    etm::VMID.since(0x35),
    etm::TIMESTAMP.since(0x35),
    etm::PROCESSOR.since(0x32),
    etm::INSTRUMENTATION_ACCESS.since(0x33),
    etm::SOFTWARE_WRITES.since(0x32),
    etm::DEBUGGER_WRITES.since(0x31),
    row(
        Bits((21, 21), Some((6, 4))),
        "port size",
        Words::Table(PORT_SIZE_4),
    )
    .since(0x30),
    table(6, 4, "port size", PORT_SIZE_3).until(0x2F),
    switch(20, "data-only mode", "off", "instructions are not traced").since(0x31),
    row(
        Bits((20, 18), Some((3, 1))),
        "data tracing",
        Words::Rule(data_tracing),
    )
    .since(0x33),
    switch(
        19,
        "filter CPRT",
        "off",
        "coprocessor transfers obey ViewData",
    )
    .since(0x30),
    switch(
        18,
        "suppress data",
        "off",
        "data are left out when the FIFO is nearly full",
    )
    .since(0x30),
    row(
        Bits((13, 13), Some((17, 16))),
        "port mode",
        Words::Table(PORT_MODE_V3),
    )
    .since(0x30),
    table(17, 16, "port mode", PORT_MODE_V1)
        .since(0x12)
        .until(0x2F),
    switch(
        13,
        "half-rate clocking",
        "off",
        "trace on both edges of TRACECLK",
    )
    .since(0x12)
    .until(0x2F),
    etm::CONTEXT_ID_SIZE.since(0x12),
    etm::CYCLE_ACCURATE,
    switch(11, "ETM port selection", "ETMEN is low", "ETMEN is high"),
    switch(
        10,
        "ETM programming",
        "off",
        "the ETM is being programmed, it traces nothing",
    ),
    etm::DEBUG_REQUEST,
    switch(
        8,
        "branch output",
        "off",
        "addresses of direct branches are traced too",
    ),
    switch(
        7,
        "stall processor",
        "off",
        "a full FIFO stalls the processor",
    ),
    table(3, 2, "data access", DATA_ACCESS),
    switch(
        1,
        "monitor CPRT",
        "off",
        "coprocessor register transfers are traced",
    ),
    switch(0, "ETM power down", "off", "the ETM is powered down"),
];

/// Bits `[21,6:4]` from ETMv3.0 (IHI 0014Q 3.5.1, table 3.6).
const PORT_SIZE_4: &[&str] = &[
    "4 bits",
    "8 bits",
    "16 bits",
    "24 bits",
    "32 bits",
    "48 bits",
    "64 bits",
    "",
    "1 bit",
    "2 bits",
    "",
    "",
    "",
    "",
    "user defined 1",
    "user defined 2",
];

/// Bits `[6:4]` before ETMv3.0 (IHI 0014Q 3.5.1, table 3.6).
const PORT_SIZE_3: &[&str] = &["4 bits", "8 bits", "16 bits"];

/// Trace port clock to ETM clock, from ETMv3.0 (IHI 0014Q 2.10.2, table 2.16).
const PORT_MODE_V3: &[&str] = &[
    "dynamic, for capture on-chip",
    "2:1",
    "",
    "implementation defined",
    "1:1",
    "1:2",
    "1:3",
    "1:4",
];

/// Before ETMv3.0 (IHI 0014Q 2.10.1, table 2.15).
const PORT_MODE_V1: &[&str] = &["normal", "multiplexed", "demultiplexed"];

/// Bits `[3:2]` (IHI 0014Q 3.5.1, table 3.5).
const DATA_ACCESS: &[&str] = &[
    "no data tracing",
    "data values are traced",
    "data addresses are traced",
    "data addresses and values are traced",
];

/// What the bits `[20:18,3:1]` enable, and which implementation reads back this value when ones
/// were written to test it (IHI 0014Q 3.5.1, table 3.11; from ETMv3.3).
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

/// Configuration Code Extension Register, ETMCCER (IHI 0014Q 3.5.41, table 3.52).
const CONFIGURATION_EXTENSION: &[Row] = &[
    etm::TIMESTAMP_SIZE.since(0x35),
    etm::TIMESTAMP_ENCODING.since(0x35),
    etm::REDUCED_COUNTER.since(0x35),
    etm::VIRTUALIZATION.since(0x35),
    etm::TIMESTAMPING.since(0x35),
    switch(21, "ETMEIBCR", "not implemented", "implemented").since(0x34),
    switch(
        20,
        "start/stop by EmbeddedICE inputs",
        "not possible",
        "possible",
    )
    .since(0x34),
    rule(19, 16, "EmbeddedICE watchpoint inputs", common::number).since(0x34),
    etm::INSTRUMENTATION.since(0x33),
    switch(12, "data address comparisons", "supported", "not supported").since(0x33),
    etm::READABLE,
    etm::EXTERNAL_INPUTS,
    etm::EXTERNAL_INPUT_SELECTORS,
];

/// ID Register, ETMIDR (IHI 0014Q 3.5.40).
const ID: &[Row] = &[
    etm::IMPLEMENTER,
    switch(20, "branch packet encoding", "original", "alternative"),
    etm::SECURITY,
    etm::THUMB,
    switch(
        16,
        "load PC first",
        "no",
        "a load multiple loads the PC first",
    ),
    rule(15, 12, "processor family", family),
    rule(11, 8, "major architecture version", |value| match value {
        0..=2 => format!("ETMv{}", value + 1).into(),
        3 => "PFTv1".into(),
        _ => "reserved encoding".into(),
    }),
    etm::MINOR_VERSION,
    etm::REVISION,
];

fn family(value: u64) -> Cow<'static, str> {
    match value {
        0 => "ARM7".into(),
        1 => "ARM9".into(),
        2 => "ARM10".into(),
        3 => "ARM11".into(),
        0xF => "defined elsewhere".into(),
        _ => "reserved encoding".into(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{field, set};
    use super::super::{Field, describe};
    use armsnap_snapshot::capture::TraceArchitecture;

    fn read(version: (u8, u8), name: &str, value: u64) -> Vec<Field> {
        let architecture = TraceArchitecture::Etm {
            major: version.0,
            minor: version.1,
        };
        describe(architecture, name, value).unwrap()
    }

    #[test]
    fn every_port_size_from_v3_0() {
        let sizes = [
            (0x0000_0000, "4 bits"),
            (0x0000_0010, "8 bits"),
            (0x0000_0020, "16 bits"),
            (0x0000_0030, "24 bits"),
            (0x0000_0040, "32 bits"),
            (0x0000_0050, "48 bits"),
            (0x0000_0060, "64 bits"),
            (0x0000_0070, "reserved encoding"),
            (0x0020_0000, "1 bit"),
            (0x0020_0010, "2 bits"),
            (0x0020_0020, "reserved encoding"),
            (0x0020_0030, "reserved encoding"),
            (0x0020_0040, "reserved encoding"),
            (0x0020_0050, "reserved encoding"),
            (0x0020_0060, "user defined 1"),
            (0x0020_0070, "user defined 2"),
        ];
        for version in [(3, 0), (3, 5)] {
            for (at, (value, size)) in (0..).zip(sizes) {
                let found = field(&read(version, "ETMCR", value), "port size");
                assert_eq!(found, (at, size.to_owned()), "{value:#x}");
            }
        }
    }

    #[test]
    fn every_port_size_before_v3_0() {
        let sizes = ["4 bits", "8 bits", "16 bits"];
        for at in 0..8u64 {
            let size = sizes.get(at as usize).unwrap_or(&"reserved encoding");
            let found = field(&read((2, 1), "ETMCR", at << 4), "port size");
            assert_eq!(found, (at, (*size).to_owned()));
        }
        // Bit 21 is not part of the size then.
        let fields = read((2, 1), "ETMCR", 0x0020_0010);
        assert_eq!(field(&fields, "port size"), (1, "8 bits".into()));
        assert_eq!(field(&fields, "reserved").0, 1);
    }

    #[test]
    fn every_port_mode() {
        let v3 = [
            (0x0000_0000, "dynamic, for capture on-chip"),
            (0x0001_0000, "2:1"),
            (0x0002_0000, "reserved encoding"),
            (0x0003_0000, "implementation defined"),
            (0x0000_2000, "1:1"),
            (0x0001_2000, "1:2"),
            (0x0002_2000, "1:3"),
            (0x0003_2000, "1:4"),
        ];
        for (value, mode) in v3 {
            assert_eq!(field(&read((3, 2), "ETMCR", value), "port mode").1, mode);
        }
        let fields = read((1, 2), "ETMCR", 0x0002_2000);
        assert_eq!(field(&fields, "port mode"), (2, "demultiplexed".into()));
        assert_eq!(field(&fields, "half-rate clocking").0, 1);
        assert_eq!(
            field(&read((1, 2), "ETMCR", 0x1_0000), "port mode").1,
            "multiplexed"
        );
        assert_eq!(
            field(&read((1, 2), "ETMCR", 0x3_0000), "port mode").1,
            "reserved encoding"
        );
    }

    // ETMCR of the Cortex-A7s in TC2: timestamps, cycle accurate, ETMEN, 64-bit port.
    #[test]
    fn etmcr_of_a_cycle_accurate_etm_v3_5() {
        let fields = read((3, 5), "ETMCR", 0x1000_1860);
        assert_eq!(
            set(&fields),
            [
                "timestamp",
                "port size",
                "cycle-accurate tracing",
                "ETM port selection"
            ]
        );
        assert_eq!(field(&fields, "port size"), (6, "64 bits".into()));
        assert_eq!(field(&fields, "context ID size"), (0, "not traced".into()));
        assert_eq!(field(&fields, "data access"), (0, "no data tracing".into()));
        assert!(fields.iter().all(|field| !field.alarm));
    }

    // 0x000E2C42 = bits 19 18 17 13 11 10 6 1.
    #[test]
    fn etmcr_of_an_etm_that_is_not_programmed() {
        let fields = read((3, 5), "ETMCR", 0x000E_2C42);
        assert_eq!(field(&fields, "port size"), (4, "32 bits".into()));
        assert_eq!(field(&fields, "port mode"), (6, "1:3".into()));
        assert_eq!(
            field(&fields, "data tracing"),
            (0b011_001, "coprocessor transfers".into())
        );
        assert_eq!(field(&fields, "ETM programming").0, 1);
        assert_eq!(field(&fields, "filter CPRT").0, 1);
        assert_eq!(field(&fields, "suppress data").0, 1);
    }

    #[test]
    fn data_tracing_options_of_table_3_11() {
        let text = |value| field(&read((3, 3), "ETMCR", value), "data tracing").1;
        assert!(text(0x001C_000E).contains("all data tracing"));
        assert!(text(0x0018_000E).contains("all data tracing"));
        assert!(text(0x0000_0008).contains("only data address tracing"));
        assert!(text(0x0004_0008).contains("only data address tracing"));
        assert!(text(0x0008_0006).contains("only data value and CPRT tracing"));
        assert!(text(0x000C_0006).contains("only data value and CPRT tracing"));
        assert!(text(0).contains("no data tracing is implemented"));
        assert_eq!(text(0x0000_000C), "data addresses, data values");
        let before = read((3, 2), "ETMCR", 0x001C_000E);
        assert!(before.iter().all(|field| field.name != "data tracing"));
    }

    #[test]
    fn bits_18_and_7_together_are_prohibited() {
        let fields = read((3, 5), "ETMCR", 0x0004_0080);
        let alarms: Vec<_> = fields.iter().filter(|field| field.alarm).collect();
        assert_eq!(alarms.len(), 1);
        assert_eq!(alarms[0].bits.to_string(), "[18,7]");
        assert!(alarms[0].meaning.starts_with("PROHIBITED"));
        for value in [0, 0x0004_0000, 0x80] {
            assert!(
                read((3, 5), "ETMCR", value)
                    .iter()
                    .all(|field| !field.alarm)
            );
        }
        // Before ETMv3.0 there is no bit 18.
        assert!(
            read((2, 1), "ETMCR", 0x0004_0080)
                .iter()
                .all(|field| !field.alarm)
        );
    }

    #[test]
    fn fields_come_with_their_versions() {
        for (bit, first, name) in [
            (30, (3, 5), "VMID trace"),
            (28, (3, 5), "timestamp"),
            (25, (3, 2), "processor select"),
            (24, (3, 3), "instrumentation resources access"),
            (23, (3, 2), "software writes disabled"),
            (22, (3, 1), "debugger writes disabled"),
            (20, (3, 1), "data-only mode"),
            (19, (3, 0), "filter CPRT"),
            (18, (3, 0), "suppress data"),
            (14, (1, 2), "context ID size"),
        ] {
            let at = read(first, "ETMCR", 1 << bit);
            assert_eq!(field(&at, name).0, 1, "{name}");
            let previous = if first.1 == 0 {
                (2, 1)
            } else {
                (first.0, first.1 - 1)
            };
            let before = read(previous, "ETMCR", 1 << bit);
            assert!(before.iter().all(|field| field.name != name), "{name}");
            assert_eq!(field(&before, "reserved").0, 1, "{name}");
        }
    }

    #[test]
    fn etmccer_of_an_etm_v3_5() {
        let fields = read((3, 5), "ETMCCER", 0x3440_08F2);
        assert_eq!(
            set(&fields),
            [
                "timestamp size",
                "timestamp encoding",
                "Virtualization Extensions",
                "timestamping",
                "registers readable",
                "extended external inputs",
                "extended external input selectors",
            ]
        );
        assert_eq!(field(&fields, "timestamp size").1, "64 bits");
        assert_eq!(field(&fields, "extended external inputs").0, 30);
        assert_eq!(field(&fields, "extended external input selectors").0, 2);
        assert_eq!(field(&fields, "data address comparisons").1, "supported");
    }

    #[test]
    fn etmidr_of_an_etm_v3_5() {
        let fields = read((3, 5), "ETMIDR", 0x410C_F250);
        assert_eq!(field(&fields, "implementer"), (0x41, "Arm".into()));
        assert_eq!(
            field(&fields, "major architecture version"),
            (2, "ETMv3".into())
        );
        assert_eq!(field(&fields, "minor architecture version").0, 5);
        assert_eq!(field(&fields, "branch packet encoding").1, "original");
        assert_eq!(field(&fields, "Security Extensions").1, "implemented");
        assert_eq!(field(&fields, "processor family").1, "defined elsewhere");
    }

    #[test]
    fn trace_ids() {
        let text = |value| field(&read((3, 5), "ETMTRACEIDR", value), "trace ID");
        assert_eq!(text(0x10), (0x10, "0x10".into()));
        assert!(text(0).1.contains("no trace ID"));
        assert!(text(0x70).1.contains("reserved"));
        assert_eq!(text(0x6F).1, "0x6f");
    }
}
