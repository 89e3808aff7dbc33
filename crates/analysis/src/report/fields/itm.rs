//! Instrumentation Trace Macrocell: its control register, ITM_TCR in the architecture, which
//! writers of snapshots also name `CONTROL_REGISTER`, `ITM_CTRL` or `ITMTCR`.

use super::{Row, common, rule, switch, table};

/// The table of a register.
pub(super) fn rows(name: &str) -> Option<&'static [Row]> {
    let control = matches!(name, "CONTROL_REGISTER" | "ITM_CTRL" | "ITMTCR" | "ITM_TCR");
    control.then_some(CONTROL)
}

/// Trace Control Register, ITM_TCR (ARM DDI 0403E C1.7.6; STALLENA from ARM DDI 0553).
const CONTROL: &[Row] = &[
    switch(23, "BUSY", "idle", "the ITM was still processing trace"),
    rule(22, 16, "TraceBusID", common::trace_id),
    table(
        11,
        10,
        "GTSFREQ",
        &[
            "no global timestamps",
            "a global timestamp about every 128 cycles",
            "a global timestamp about every 8192 cycles",
            "a global timestamp after every packet, if there is room",
        ],
    ),
    table(
        9,
        8,
        "TSPrescale",
        &[
            "timestamp clock undivided",
            "divided by 4",
            "divided by 16",
            "divided by 64",
        ],
    ),
    switch(
        5,
        "STALLENA",
        "off",
        "the core stalls so that no data trace is lost",
    ),
    switch(
        4,
        "SWOENA",
        "off",
        "timestamps count the trace port's clock",
    ),
    switch(3, "TXENA", "off", "DWT packets are forwarded"),
    switch(2, "SYNCENA", "off", "synchronisation packets are traced"),
    switch(1, "TSENA", "off", "local timestamps are traced"),
    switch(0, "ITMENA", "the ITM is off", "the ITM is on"),
];

#[cfg(test)]
mod tests {
    use super::super::describe;
    use super::super::tests::{field, set};
    use armsnap_snapshot::capture::TraceArchitecture;

    #[test]
    fn the_control_register_by_each_of_its_names() {
        for name in [
            "CONTROL_REGISTER",
            "ITM_CTRL",
            "ITMTCR",
            "ITM_TCR",
            "itmtcr",
        ] {
            let fields = describe(TraceArchitecture::Itm, name, 0x0020_0006).unwrap();
            assert_eq!(set(&fields), ["TraceBusID", "SYNCENA", "TSENA"], "{name}");
            assert_eq!(field(&fields, "ITMENA").1, "the ITM is off");
        }
        assert!(describe(TraceArchitecture::Itm, "ITM_LAR", 0).is_none());
    }

    #[test]
    fn every_field() {
        let fields = describe(TraceArchitecture::Itm, "ITMTCR", 0x00FF_0F3F).unwrap();
        assert!(fields.iter().all(|field| field.name != "reserved"));
        assert_eq!(field(&fields, "GTSFREQ").0, 3);
        assert_eq!(field(&fields, "TSPrescale").1, "divided by 64");
        assert!(field(&fields, "TraceBusID").1.contains("reserved"));
    }
}
