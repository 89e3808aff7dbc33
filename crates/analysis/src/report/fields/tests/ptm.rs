use super::{field, set};
use crate::report::fields::{Field, describe};
use armsnap_snapshot::capture::TraceArchitecture;

fn read(minor: u8, name: &str, value: u64) -> Vec<Field> {
    describe(TraceArchitecture::Pft { major: 1, minor }, name, value).unwrap()
}

// ETMCR of the Cortex-A15s in TC2, and of tc2-ptm-rstk-t32.
#[test]
fn etmcr_of_real_ptms() {
    let fields = read(1, "ETMCR", 0x1000_1000);
    assert_eq!(set(&fields), ["timestamp", "cycle-accurate tracing"]);
    let fields = read(1, "ETMCR", 0x2000_0400);
    assert_eq!(set(&fields), ["return stack", "PTM programming"]);
    assert_eq!(field(&fields, "context ID size").1, "not traced");
}

#[test]
fn etmcr_bit_by_bit() {
    for (bit, name) in [
        (0, "PTM power down"),
        (8, "branch broadcast"),
        (9, "debug request"),
        (10, "PTM programming"),
        (12, "cycle-accurate tracing"),
        (14, "context ID size"),
        (22, "debugger writes disabled"),
        (23, "software writes disabled"),
        (25, "processor select"),
        (28, "timestamp"),
        (29, "return stack"),
        (30, "VMID trace"),
        (4, "reserved"),
        (18, "reserved"),
    ] {
        assert_eq!(set(&read(1, "ETMCR", 1 << bit)), [name], "bit {bit}");
    }
    assert_eq!(set(&read(0, "ETMCR", 1 << 30)), ["reserved"]);
    assert_eq!(
        field(&read(1, "ETMCR", 0xC000), "context ID size").1,
        "32 bits are traced"
    );
}

#[test]
fn bits_29_and_8_together_are_prohibited() {
    let alarms = |value| {
        let fields = read(1, "ETMCR", value);
        fields.iter().filter(|field| field.alarm).count()
    };
    assert_eq!(alarms(0x2000_0100), 1);
    assert_eq!(alarms(0x2000_0000) + alarms(0x100) + alarms(0), 0);
}

#[test]
fn etmccer_of_a_cortex_a15() {
    let fields = read(1, "ETMCCER", 0x34C0_1AC2);
    assert_eq!(
        set(&fields),
        [
            "timestamp size",
            "timestamp encoding",
            "Virtualization Extensions",
            "return stack",
            "timestamping",
            "registers readable",
            "extended external inputs",
            "extended external input selectors",
        ]
    );
    assert_eq!(field(&fields, "extended external inputs").0, 88);
    assert_eq!(field(&fields, "DMB and DSB are waypoints").1, "no");
    // Bit 12 reads as one; it is shown if it does not.
    assert_eq!(field(&read(1, "ETMCCER", 0), "reserved").0, 0);
}

// PTM-A9 (ARM DDI 0401A 2.3.12): timestamps and return stack, 29 inputs, 2 selectors.
#[test]
fn etmccer_of_pft_1_0() {
    let fields = read(0, "ETMCCER", 0x00C0_18EA);
    assert_eq!(field(&fields, "extended external inputs").0, 29);
    assert_eq!(field(&fields, "extended external input selectors").0, 2);
    assert!(fields.iter().all(|field| field.name != "timestamp size"));
}

#[test]
fn etmidr_of_a_cortex_a15() {
    let fields = read(1, "ETMIDR", 0x411C_F312);
    assert_eq!(
        field(&fields, "major architecture version"),
        (3, "PFTv1".into())
    );
    assert_eq!(field(&fields, "minor architecture version").0, 1);
    assert_eq!(field(&fields, "implementation revision").1, "revision 2");
    assert!(fields.iter().all(|field| field.name != "reserved"));
}
