use super::{field, set};
use crate::report::fields::describe;
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
