//! Program Flow Trace (PTM): ETMCR, ETMCCER, ETMIDR, ETMTRACEIDR (ARM IHI 0035B). The names
//! are those of ETMv3, the fields are not.

use super::{Bits, Row, Words, common, etmv3, read_as_one, row, rule, switch, table};

/// The table of a register.
pub(super) fn rows(name: &str) -> Option<&'static [Row]> {
    Some(match name {
        "ETMCR" => CONTROL,
        "ETMCCER" => CONFIGURATION_EXTENSION,
        "ETMIDR" => ID,
        "ETMTRACEIDR" => etmv3::TRACE_ID,
        _ => return None,
    })
}

/// Main Control Register, ETMCR (IHI 0035B 3.16.1, table 3.17).
const CONTROL: &[Row] = &[
    row(
        Bits((29, 29), Some((8, 8))),
        "return stack with branch broadcast",
        Words::Forbidden(
            "PROHIBITED combination of bits 29 and 8: the PTM's behaviour is unpredictable",
        ),
    ),
    switch(30, "VMID trace", "off", "VMIDs are traced").since(0x11),
    switch(
        29,
        "return stack",
        "off",
        "predicted returns are not traced",
    ),
    switch(28, "timestamp", "off", "timestamps are traced"),
    rule(27, 25, "processor select", etmv3::processor),
    switch(
        24,
        "instrumentation resources access",
        "privileged and user mode",
        "privileged modes only",
    ),
    switch(
        23,
        "software writes disabled",
        "off",
        "software cannot write",
    ),
    switch(
        22,
        "debugger writes disabled",
        "off",
        "a debugger cannot write",
    ),
    table(15, 14, "context ID size", etmv3::CONTEXT_ID_SIZE),
    switch(
        12,
        "cycle-accurate tracing",
        "off",
        "cycle counts are traced",
    ),
    switch(
        10,
        "PTM programming",
        "off",
        "the PTM is being programmed, it traces nothing",
    ),
    switch(
        9,
        "debug request",
        "off",
        "the trigger event halts the processor",
    ),
    switch(
        8,
        "branch broadcast",
        "off",
        "addresses of direct branches are traced too",
    ),
    switch(0, "PTM power down", "off", "the PTM is powered down"),
];

/// Configuration Code Extension Register, ETMCCER (IHI 0035B 3.16.29, table 3.45).
const CONFIGURATION_EXTENSION: &[Row] = &[
    switch(29, "timestamp size", "48 bits", "64 bits").since(0x11),
    switch(28, "timestamp encoding", "Gray code", "natural binary").since(0x11),
    switch(
        27,
        "reduced function counter",
        "none",
        "counter 1 is reduced",
    )
    .since(0x11),
    switch(
        26,
        "Virtualization Extensions",
        "not implemented",
        "implemented",
    )
    .since(0x11),
    switch(25, "timestamps for DMB and DSB", "not traced", "traced"),
    switch(24, "DMB and DSB are waypoints", "no", "yes"),
    switch(23, "return stack", "not implemented", "implemented"),
    switch(22, "timestamping", "not implemented", "implemented"),
    rule(15, 13, "instrumentation resources", common::number),
    read_as_one(12, 12),
    switch(11, "registers readable", "some", "all"),
    rule(10, 3, "extended external inputs", common::number),
    rule(2, 0, "extended external input selectors", common::number),
];

/// ID Register, ETMIDR (IHI 0035B 3.16.28, table 3.44).
const ID: &[Row] = &[
    rule(31, 24, "implementer", common::implementer),
    read_as_one(20, 20),
    switch(
        19,
        "Security Extensions",
        "not implemented: always Secure",
        "implemented",
    ),
    switch(
        18,
        "32-bit Thumb instructions",
        "traced as two instructions",
        "traced as one instruction",
    ),
    read_as_one(15, 12),
    rule(11, 8, "major architecture version", |value| match value {
        3 => "PFTv1".into(),
        _ => "not a PFT architecture".into(),
    }),
    rule(7, 4, "minor architecture version", common::number),
    rule(3, 0, "implementation revision", common::revision),
];

#[cfg(test)]
mod tests {
    use super::super::tests::{field, set};
    use super::super::{Architecture, Field, describe};

    fn read(minor: u8, name: &str, value: u64) -> Vec<Field> {
        describe(Architecture::Pft { major: 1, minor }, name, value).unwrap()
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
        // Bit 12 reads as one: said where it does not.
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
}
