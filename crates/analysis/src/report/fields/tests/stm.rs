use super::{field, set};
use crate::report::fields::describe;
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
