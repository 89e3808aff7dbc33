//! `armsnap peripherals`, and names of peripherals in `armsnap fault`.

use std::process::Command;

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/testdata");

/// Runs armsnap with the description of the tests; returns what it prints, and whether it succeeded.
fn run(arguments: &[&str]) -> (String, String, bool) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_armsnap"));
    let svd = format!("{ROOT}/svd/mps2.svd");
    let output = command
        .args(arguments)
        .args(["--svd", &svd])
        .output()
        .unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    let success = output.status.success();
    (text(output.stdout), text(output.stderr), success)
}

#[test]
fn registers_have_the_values_of_the_dumps() {
    let board = format!("{ROOT}/mps2-m4");
    let (table, ..) = run(&["peripherals", &board]);
    assert!(
        table.contains("0xe000ed00          3      3  SCB: System control block"),
        "{table}"
    );
    assert!(
        table.contains("0x40005000          2      0  UART1: Serial port"),
        "{table}"
    );
    let (text, ..) = run(&["peripherals", &board, "scb.cpuid", "UART1"]);
    let wanted = "\
SCB at 0xe000ed00: System control block
  0xe000ed00  0x410fc240  CPUID
    [15:4]   0xc24  PARTNO = Cortex_M4
    [31:24]  0x41  IMPLEMENTER = Arm
UART1 at 0x40005000: Serial port
  0x40005000  unknown     DATA
  0x40005004  unknown     STATE
";
    assert_eq!(text, wanted);
    let (json, ..) = run(&["peripherals", &board, "UART1.DATA", "NVIC.ISER1", "--json"]);
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    let of = |index: usize| json[0]["peripherals"][index]["registers"][0].clone();
    assert_eq!(of(0)["value"], serde_json::Value::Null);
    assert_eq!(
        (&of(1)["value"], &of(1)["address"]),
        (&"0x0".into(), &"0xe000e104".into())
    );
    let (_, error, success) = run(&["peripherals", &board, "SCB.GONE"]);
    assert!(
        !success && error.contains("no peripheral or register matches \"SCB.GONE\""),
        "{error}"
    );
}

/// A bus error at a register that no dump has.
#[test]
fn a_fault_names_the_register() {
    let directory = tempfile::tempdir().unwrap();
    let board = directory.path();
    let mut scs = vec![0; 0x1000];
    scs[0xd28..0xd2c].copy_from_slice(&0x8200_u32.to_le_bytes());
    scs[0xd2c..0xd30].copy_from_slice(&0x4000_0000_u32.to_le_bytes());
    scs[0xd38..0xd3c].copy_from_slice(&0x4000_5004_u32.to_le_bytes());
    let files: [(&str, &[u8]); 3] = [
        (
            "snapshot.ini",
            b"[snapshot]\nversion=1.0\n[device_list]\na=a.ini\n",
        ),
        (
            "a.ini",
            b"[device]\nname=a\nclass=core\ntype=Cortex-M4\n[regs]\nPC=0x100\nSP=0x20000000\n\
              xPSR=0x01000003\n[dump0]\nfile=scs\naddress=0xe000e000\n",
        ),
        ("scs", &scs),
    ];
    for (name, bytes) in files {
        std::fs::write(board.join(name), bytes).unwrap();
    }
    let (text, ..) = run(&["fault", board.to_str().unwrap()]);
    let wanted =
        "0x40005004: UART1.STATE, in the peripheral region, the snapshot has no memory there";
    assert!(text.contains(wanted), "{text}");
}
