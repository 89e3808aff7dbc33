//! Core files of microcontrollers: back traces are those of the state that they were made of, whoever wrote
//! them.

use crate::support::gdb::{armsnap, need_gdb, run, session, testdata, text};
use std::fs;
use std::path::Path;
use std::process::Command;

/// The frames of a back trace.
fn frames(text: &str) -> Vec<&str> {
    text.lines().filter(|line| line.starts_with('#')).collect()
}

/// The core file without notes of an owner.
fn without_notes_of(owner: &str, core: &Path) {
    let mut bytes = fs::read(core).unwrap();
    let name = format!("{owner}\0");
    let at = bytes
        .windows(name.len())
        .position(|part| part == name.as_bytes());
    let at = at.expect("a note of the owner");
    bytes[at] = b'?';
    fs::write(core, bytes).unwrap();
}

#[test]
fn core_files_of_cortex_m_are_of_the_m_profile() {
    need_gdb();
    let place = tempfile::tempdir().unwrap();
    let snapshot = testdata("mps2-m4");
    let program = snapshot.join("program.elf");
    let named = ["--elf", program.to_str().unwrap()];
    let core = |name: &str| place.path().join(name);
    let own = session(&snapshot, &[], &["bt", "print/x $xpsr"]);
    assert!(frames(&own).len() > 6, "{own}");

    let converted = core("converted.core");
    let output = run(armsnap().arg("convert").arg(&snapshot).arg(&converted));
    assert!(output.status.success(), "{}", text(&output));
    assert!(!text(&output).contains("d16"), "{}", text(&output));
    let plain = core("plain.core");
    fs::copy(&converted, &plain).unwrap();
    without_notes_of("GDB", &plain);
    let saved = core("saved.core");
    let command = format!("generate-core-file {}", saved.display());
    session(&snapshot, &[], &[&command]);

    for core in [&converted, &plain, &saved] {
        let shown = session(core, &named, &["bt", "print/x $xpsr"]);
        assert_eq!(frames(&shown), frames(&own), "{}: {shown}", core.display());
        assert!(shown.contains("$1 = 0x6100000b"), "{shown}");
        assert!(!shown.contains("$D16"), "{shown}");
        let info = text(&run(armsnap().arg("info").arg(core)));
        assert!(info.contains("M-profile (type ARMv7-M)"), "{info}");
    }
    // GDB reads what it would have written.
    let mut gdb = Command::new("gdb-multiarch");
    gdb.args(["-nx", "-batch", "-ex", "print/x $r0"])
        .arg(&program)
        .arg(&converted);
    let shown = text(&run(&mut gdb));
    assert!(shown.contains("$1 = 0x"), "{shown}");
}

#[test]
fn the_program_decides_where_registers_do_not() {
    let place = tempfile::tempdir().unwrap();
    let snapshot = testdata("mps2-m4");
    let core = place.path().join("core");
    let output = run(armsnap().arg("convert").arg(&snapshot).arg(&core));
    assert!(output.status.success(), "{}", text(&output));
    without_notes_of("GDB", &core);
    // LR and xPSR become 0.
    let mut bytes = fs::read(&core).unwrap();
    let status = 0x6100_000b_u32.to_le_bytes();
    let at = bytes.windows(4).position(|word| word == status).unwrap();
    bytes[at..at + 4].fill(0);
    bytes[at - 8..at - 4].fill(0);
    fs::write(&core, bytes).unwrap();
    let info = |more: &[&str]| text(&run(armsnap().arg("info").arg(&core).args(more)));
    assert!(
        info(&[]).contains("AArch32 (type ARMv7-A)"),
        "{}",
        info(&[])
    );
    let program = snapshot.join("program.elf");
    let shown = session(
        &core,
        &["--elf", program.to_str().unwrap()],
        &["info threads"],
    );
    assert!(shown.contains("ARMv7-M"), "{shown}");
}

#[test]
fn a_program_for_other_cores_is_never_dropped_in_silence() {
    let program = testdata("mps2-m4/program.elf");
    let shown = session(
        &testdata("virt-a57"),
        &["--elf", program.to_str().unwrap()],
        &["info threads"],
    );
    let note = "it is not used: it is for Arm of the M-profile, and the cores are AArch64";
    assert!(shown.contains(note), "{shown}");
}
