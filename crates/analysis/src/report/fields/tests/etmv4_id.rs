use super::{field, set};
use crate::report::fields::{Field, describe};
use armsnap_snapshot::capture::TraceArchitecture;

fn etm(name: &str, value: u64) -> Vec<Field> {
    describe(TraceArchitecture::Etmv4 { minor: 2 }, name, value).unwrap()
}

fn ete(minor: u8, name: &str, value: u64) -> Vec<Field> {
    describe(TraceArchitecture::Ete { major: 1, minor }, name, value).unwrap()
}

#[test]
fn trcidr0_of_a_cortex_a53() {
    let fields = etm("TRCIDR0", 0x2800_0EA1);
    assert_eq!(
        set(&fields),
        [
            "COMMOPT", "TSSIZE", "NUMEVENT", "RETSTACK", "TRCCCI", "TRCBB"
        ]
    );
    assert_eq!(field(&fields, "TSSIZE").1, "64 bits");
    assert_eq!(field(&fields, "NUMEVENT"), (3, "4 events".into()));
    assert_eq!(field(&fields, "COMMOPT").1, "commit mode 1");
}

#[test]
fn trcidr0_of_ete() {
    // TSMARK, ITE, QSUPP=3, QFILT.
    let fields = ete(3, "TRCIDR0", 0x28C1_CEA1);
    assert_eq!(
        set(&fields),
        [
            "COMMOPT", "TSSIZE", "TSMARK", "ITE", "QSUPP", "QFILT", "NUMEVENT", "RETSTACK",
            "TRCCCI", "TRCBB"
        ]
    );
    assert_eq!(field(&fields, "QSUPP").0, 3);
    assert!(set(&ete(0, "TRCIDR0", 0x28C1_CEA1)).contains(&"reserved"));
}

#[test]
fn trcidr1() {
    let fields = etm("TRCIDR1", 0x4100_F403);
    assert_eq!(field(&fields, "DESIGNER").1, "Arm");
    assert_eq!(field(&fields, "TRCARCHMAJ"), (4, "ETMv4".into()));
    assert_eq!(field(&fields, "TRCARCHMIN"), (0, "minor version 0".into()));
    assert_eq!(field(&fields, "REVISION").1, "revision 3");
    assert_eq!(
        field(&ete(0, "TRCIDR1", 0x4100_FFF0), "TRCARCHMAJ").1,
        "see TRCDEVARCH"
    );
}

#[test]
fn trcidr2() {
    let fields = etm("TRCIDR2", 0x488);
    assert_eq!(field(&fields, "IASIZE"), (8, "64 bits".into()));
    assert_eq!(field(&fields, "CIDSIZE"), (4, "32 bits".into()));
    assert_eq!(field(&fields, "VMIDSIZE"), (1, "8 bits".into()));
    assert_eq!(field(&fields, "DASIZE"), (0, "not implemented".into()));
    assert_eq!(field(&fields, "CCSIZE").1, "cycle counter of 12 bits");
    let fields = ete(0, "TRCIDR2", 0xD000_1088);
    assert_eq!(field(&fields, "WFXMODE").0, 1);
    assert_eq!(field(&fields, "VMIDOPT").0, 2);
    assert_eq!(field(&fields, "CCSIZE").1, "cycle counter of 20 bits");
    assert_eq!(field(&fields, "VMIDSIZE").1, "32 bits");
}

#[test]
fn trcidr3_to_5_of_a_cortex_a57() {
    let fields = etm("TRCIDR3", 0x007B_0004);
    assert_eq!(field(&fields, "EXLEVEL_NS"), (7, "EL0 EL1 EL2".into()));
    assert_eq!(field(&fields, "EXLEVEL_S"), (0xB, "EL0 EL1 EL3".into()));
    assert_eq!(field(&fields, "CCITMIN").0, 4);
    assert_eq!(field(&fields, "NUMPROC").1, "traces 1 core");
    // [13:12] = 1, [30:28] = 2: 10 and one more.
    assert_eq!(
        field(&etm("TRCIDR3", 0x2000_1000), "NUMPROC").1,
        "traces one of 11 cores"
    );

    let fields = etm("TRCIDR4", 0x1117_0004);
    assert_eq!(field(&fields, "NUMACPAIRS").1, "4");
    assert_eq!(field(&fields, "NUMRSPAIR").1, "8");
    assert_eq!(field(&fields, "NUMSSCC").1, "1");

    let fields = etm("TRCIDR5", 0x2807_0804);
    assert_eq!(field(&fields, "NUMCNTR").1, "2");
    assert_eq!(field(&fields, "NUMSEQSTATE").1, "4");
    assert_eq!(field(&fields, "TRACEIDSIZE").1, "7 bits");
    assert_eq!(field(&fields, "NUMEXTINSEL").1, "4");
    assert_eq!(field(&fields, "NUMEXTIN").1, "4");
}

#[test]
fn speculation_depth() {
    assert_eq!(field(&ete(0, "TRCIDR8", 0xFF), "MAXSPEC").0, 255);
    assert_eq!(
        field(&etm("TRCIDR8", 0), "MAXSPEC").1,
        "no speculation is traced"
    );
}

#[test]
fn keys_are_etmv4_only() {
    assert_eq!(set(&etm("TRCIDR9", 5)), ["NUMP0KEY"]);
    assert_eq!(set(&ete(0, "TRCIDR9", 5)), ["reserved"; 2]);
}
