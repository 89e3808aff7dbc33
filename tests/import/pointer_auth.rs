//! Programs that sign return addresses: their back traces equal those of GDB in the core file itself, in
//! whatever form the state was kept.

use crate::capture;
use crate::support::gdb::{armsnap, need_gdb, run, session, text, write_snapshot};
use crate::support::program::program;
use std::path::Path;
use std::process::Command;

/// The lines of frames, without those that GDB prints when it opens a core file.
fn frames(text: &str) -> Vec<&str> {
    let lines: Vec<&str> = text.lines().filter(|line| line.starts_with('#')).collect();
    let newest = lines.iter().rposition(|line| line.starts_with("#0"));
    lines[newest.unwrap_or(0)..].to_vec()
}

fn gdb(arguments: &[&Path], commands: &[&str]) -> String {
    let mut gdb = Command::new("gdb-multiarch");
    gdb.args(["-nx", "-batch"]).args(arguments);
    for command in commands {
        gdb.args(["-ex", command]);
    }
    text(&run(&mut gdb))
}

#[test]
fn back_traces_equal_those_of_gdb_in_every_form() {
    need_gdb();
    let Some(captures) = capture("cores-lldb") else {
        return;
    };
    let core = captures.join("linux-aarch64-pac.core");
    let program = captures.join("linux-aarch64-pac.out");
    let place = tempfile::tempdir().unwrap();
    let at = |name: &str| place.path().join(name);
    let own = gdb(&[&program, &core], &["bt"]);
    let own = frames(&own);
    assert_eq!(own.len(), 3, "{own:?}");
    assert!(own[1].contains("[PAC] in foo"), "{own:?}");
    let named = ["--elf", program.to_str().unwrap()];
    let (saved, of_gdb) = (at("saved"), at("gdb.core"));
    let [save, generate] = [
        format!("armsnap save {}", saved.display()),
        format!("generate-core-file {}", of_gdb.display()),
    ];
    let shown = session(&core, &named, &["bt", "p/x $pauth_cmask", &save, &generate]);
    assert_eq!(frames(&shown), own, "{shown}");
    assert!(shown.contains("= 0x7f000000000000"), "{shown}");
    let command = |words: &[&str], from: &Path, to: &Path| {
        let output = run(armsnap().args(words).arg(from).arg(to));
        assert!(output.status.success(), "{}", text(&output));
    };
    command(&["import"], &core, &at("imported"));
    command(&["convert"], &at("imported"), &at("converted.core"));
    command(&["convert"], &at("imported"), &at("converted.tf"));
    command(&["convert"], &at("converted.tf"), &at("back"));
    for snapshot in ["imported", "back", "saved", "converted.core"] {
        let shown = session(&at(snapshot), &named, &["bt"]);
        assert_eq!(frames(&shown), own, "{snapshot}: {shown}");
    }
    for file in ["converted.core", "gdb.core"] {
        let shown = gdb(&[&program, &at(file)], &["bt"]);
        assert_eq!(frames(&shown), own, "{file}: {shown}");
    }
    let open = format!("target tfile {}", at("converted.tf").display());
    let shown = gdb(&[&program], &[&open, "tfind 0", "bt"]);
    assert_eq!(frames(&shown), own, "{shown}");
}

#[test]
fn back_traces_of_recordings_are_of_plain_addresses() {
    need_gdb();
    let place = tempfile::tempdir().unwrap();
    let snapshot = place.path().join("recorded");
    let mut record = armsnap();
    record.args(["record", "--cpu", "max", "--until", "signed_jump", "-o"]);
    record.arg(&snapshot).arg("--").arg(&program("pac-a64").elf);
    let output = run(&mut record);
    assert!(output.status.success(), "{}", text(&output));
    let shown = session(&snapshot, &[], &["bt", "reverse-stepi", "p/x $pauth_cmask"]);
    let found = frames(&shown);
    assert!(found.len() >= 3, "{shown}");
    for frame in &found[1..] {
        assert!(!frame.contains("??"), "{shown}");
    }
    assert!(
        found.iter().any(|frame| frame.contains("in collatz")),
        "{shown}"
    );
    assert!(shown.contains("[PAC]"), "{shown}");
    // The layout of pointers is the same at all positions.
    assert!(shown.contains("$1 = 0x7f000000000000"), "{shown}");
}

#[test]
fn memory_is_read_by_tagged_pointers_where_tags_are_ignored() {
    let core = |registers: &str| {
        format!(
            "class=core\ntype=Cortex-A710\n[regs]\nPC(size:64)=0x20000000\n{registers}\n\
             [dump]\nfile=ram.bin\naddress=0x20000000\n"
        )
    };
    let ram = [0x1f, 0x20, 0x03, 0xd5].repeat(16);
    for registers in [
        // A program of Linux.
        "CPSR=0x60000000",
        // A kernel with TCR_EL1.TBI0.
        "CPSR=0x3c5\nTCR_EL1(size:64)=0x2000000010",
    ] {
        let text = core(registers);
        let snapshot = write_snapshot(&[("c0", &text)], &[("ram.bin", &ram)]);
        let shown = session(snapshot.path(), &[], &["x/1xw 0x2a00000020000000"]);
        let line = "0x2a00000020000000:\t0xd503201f";
        assert!(shown.contains(line), "{registers}: {shown}");
    }
}
