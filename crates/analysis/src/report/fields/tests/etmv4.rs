use super::{field, set};
use crate::report::fields::{Field, describe};
use armsnap_snapshot::capture::TraceArchitecture;

fn etm(name: &str, value: u64) -> Vec<Field> {
    describe(TraceArchitecture::Etmv4 { minor: 0 }, name, value).unwrap()
}

fn ete(minor: u8, name: &str, value: u64) -> Vec<Field> {
    describe(TraceArchitecture::Ete { major: 1, minor }, name, value).unwrap()
}

#[test]
fn trcconfigr_of_real_captures() {
    assert_eq!(set(&etm("TRCCONFIGR", 0xC1)), ["VMID", "CID"]);
    assert_eq!(set(&etm("TRCCONFIGR", 0x1)), [""; 0]);
    assert_eq!(set(&ete(3, "TRCCONFIGR", 0x8001)), ["VMIDOPT"]);
    assert_eq!(set(&ete(0, "TRCCONFIGR", 0x8019)), ["VMIDOPT", "CCI", "BB"]);
    assert_eq!(set(&ete(1, "TRCCONFIGR", 0x8801)), ["VMIDOPT", "TS"]);
    let fields = ete(0, "TRCCONFIGR", 0xA001);
    assert_eq!(
        field(&fields, "QE"),
        (1, "Q elements with instruction counts".into())
    );
}

#[test]
fn trcconfigr_without_its_bit_0() {
    let fields = ete(0, "TRCCONFIGR", 0);
    assert_eq!(
        field(&fields, "reserved"),
        (0, "not all ones, though reserved as ones".into())
    );
}

#[test]
fn trcconfigr_of_a_data_trace() {
    // DV, DA, COND=7, INSTP0=3.
    let fields = etm("TRCCONFIGR", 0x0003_0707);
    assert_eq!(set(&fields), ["DV", "DA", "COND", "INSTP0"]);
    assert_eq!(
        field(&fields, "INSTP0").1,
        "loads and stores are P0 elements"
    );
    // ETE has none of these.
    assert_eq!(set(&ete(0, "TRCCONFIGR", 0x0003_0707)), ["reserved"; 3]);
}

#[test]
fn instrumentation_override_came_with_ete_1_3() {
    assert_eq!(set(&ete(3, "TRCCONFIGR", 0x4_0001)), ["ITO"]);
    assert_eq!(set(&ete(2, "TRCCONFIGR", 0x4_0001)), ["reserved"]);
}

#[test]
fn trcauthstatus_of_real_captures() {
    let fields = etm("TRCAUTHSTATUS", 0xCC);
    assert_eq!(set(&fields), ["SNID", "NSNID"]);
    assert_eq!(field(&fields, "SNID"), (3, "implemented, enabled".into()));
    assert_eq!(field(&fields, "SID"), (0, "not implemented".into()));
}

#[test]
fn trcdevarch_of_ete() {
    let fields = ete(3, "TRCDEVARCH", 0x4773_5A13);
    assert_eq!(field(&fields, "ARCHITECT"), (0x23B, "Arm".into()));
    assert_eq!(field(&fields, "REVISION"), (3, "minor version 3".into()));
    assert_eq!(field(&fields, "ARCHVER"), (5, "ETEv1".into()));
    assert_eq!(field(&fields, "ARCHPART").1, "PE trace architecture");
}
