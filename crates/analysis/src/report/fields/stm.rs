//! System Trace Macrocell: STMTCSR (ARM IHI 0054).

use super::{Row, common, rule, switch, table};

/// The table of a register.
pub(super) fn rows(name: &str) -> Option<&'static [Row]> {
    (name == "STMTCSR").then_some(CONTROL)
}

/// Trace Control and Status Register, STMTCSR (IHI 0054, "STMTCSR"; ARM DDI 0528, "Trace
/// Control and Status Register").
const CONTROL: &[Row] = &[
    switch(23, "BUSY", "idle", "the STM was still processing trace"),
    rule(22, 16, "TRACEID", common::trace_id),
    table(
        9,
        8,
        "TSPRESCALE",
        &[
            "timestamp clock undivided",
            "divided by 4",
            "divided by 16",
            "divided by 64",
        ],
    ),
    switch(
        5,
        "COMPEN",
        "data are not compressed",
        "leading zeros of data are left out",
    ),
    switch(4, "SWOEN", "off", "timestamps count an asynchronous clock"),
    switch(3, "HWTEN", "off", "hardware events are traced"),
    switch(2, "SYNCEN", "off", "synchronisation packets are traced"),
    switch(1, "TSEN", "off", "timestamps are traced"),
    switch(0, "EN", "the STM is off", "the STM is on"),
];

#[cfg(test)]
mod tests {
    use super::super::describe;
    use super::super::tests::{field, set};
    use armsnap_snapshot::capture::TraceArchitecture;

    #[test]
    fn stmtcsr_of_real_captures() {
        let fields = describe(TraceArchitecture::Stm, "STMTCSR", 0x00A0_0007).unwrap();
        assert_eq!(set(&fields), ["BUSY", "TRACEID", "SYNCEN", "TSEN", "EN"]);
        assert_eq!(field(&fields, "TRACEID"), (0x20, "0x20".into()));
        let fields = describe(TraceArchitecture::Stm, "stmtcsr", 0x00A0_0005).unwrap();
        assert_eq!(set(&fields), ["BUSY", "TRACEID", "SYNCEN", "EN"]);
        assert_eq!(field(&fields, "COMPEN").1, "data are not compressed");
    }
}
