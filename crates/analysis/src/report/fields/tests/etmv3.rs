use super::{field, set};
use crate::report::fields::{Field, describe};
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
