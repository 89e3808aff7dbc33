//! Program Flow Trace (PTM): ETMCR, ETMCCER, ETMIDR, ETMTRACEIDR (ARM IHI 0035B). The names
//! are those of ETMv3, and so are many fields.

use super::{Bits, Row, Words, etm, read_as_one, row, rule, switch};

/// The tables of the registers.
pub(super) const TABLES: etm::Tables = etm::Tables {
    control: CONTROL,
    configuration_extension: CONFIGURATION_EXTENSION,
    id: ID,
};

/// Main Control Register, ETMCR (IHI 0035B 3.16.1, table 3.17).
const CONTROL: &[Row] = &[
    row(
        Bits((29, 29), Some((8, 8))),
        "return stack with branch broadcast",
        Words::Forbidden(
            "PROHIBITED combination of bits 29 and 8: the PTM's behaviour is unpredictable",
        ),
    ),
    etm::VMID.since(0x11),
    switch(
        29,
        "return stack",
        "off",
        "predicted returns are not traced",
    ),
    etm::TIMESTAMP,
    etm::PROCESSOR,
    etm::INSTRUMENTATION_ACCESS,
    etm::SOFTWARE_WRITES,
    etm::DEBUGGER_WRITES,
    etm::CONTEXT_ID_SIZE,
    etm::CYCLE_ACCURATE,
    switch(
        10,
        "PTM programming",
        "off",
        "the PTM is being programmed, it traces nothing",
    ),
    etm::DEBUG_REQUEST,
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
    etm::TIMESTAMP_SIZE.since(0x11),
    etm::TIMESTAMP_ENCODING.since(0x11),
    etm::REDUCED_COUNTER.since(0x11),
    etm::VIRTUALIZATION.since(0x11),
    switch(25, "timestamps for DMB and DSB", "not traced", "traced"),
    switch(24, "DMB and DSB are waypoints", "no", "yes"),
    switch(23, "return stack", "not implemented", "implemented"),
    etm::TIMESTAMPING,
    etm::INSTRUMENTATION,
    read_as_one(12, 12),
    etm::READABLE,
    etm::EXTERNAL_INPUTS,
    etm::EXTERNAL_INPUT_SELECTORS,
];

/// ID Register, ETMIDR (IHI 0035B 3.16.28, table 3.44).
const ID: &[Row] = &[
    etm::IMPLEMENTER,
    read_as_one(20, 20),
    etm::SECURITY,
    etm::THUMB,
    read_as_one(15, 12),
    rule(11, 8, "major architecture version", |value| match value {
        3 => "PFTv1".into(),
        _ => "not a PFT architecture".into(),
    }),
    etm::MINOR_VERSION,
    etm::REVISION,
];

#[cfg(test)]
mod tests {
    use super::super::tests::{field, set};
    use super::super::{Field, describe};
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
}
