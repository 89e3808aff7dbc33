//! Logs of Linux kernels that failed: GDB shows in them what it shows in the recorded system whose state
//! they print.

use crate::support::gdb::{armsnap, need_gdb, run, session, testdata, text};
use crate::support::inputs::kernel_log::{of_arm, of_arm64, of_old_arm64};
use std::fs;
use std::io::Write;

/// Frames and registers.
fn shown(said: &str) -> Vec<String> {
    let lines = said.lines().map(str::trim_end);
    let begins = ["#", "$"];
    let shown = lines.filter(|line| begins.iter().any(|begin| line.starts_with(begin)));
    shown.map(str::to_owned).collect()
}

#[test]
fn gdb_shows_the_state_that_is_printed() {
    need_gdb();
    let scratch = tempfile::tempdir().unwrap();
    let [etmv4, ptm] = ["recorded/etmv4", "recorded/ptm"].map(testdata);
    let arm64 = [
        "x/i $pc",
        "p/x $pc",
        "p/x $x30",
        "p/x $x19",
        "p/x $sp",
        "p/x $cpsr",
    ];
    let backtrace = ["bt", "p/x $pc", "p/x $x30", "x/4xw $sp"];
    let arm = [
        "bt",
        "p/x $pc",
        "p/x $lr",
        "p/x $r2",
        "p/x $r12",
        "x/8xw $sp",
    ];
    for (name, log, snapshot, program, commands) in [
        ("arm64", of_arm64(), &etmv4, "program.elf", &arm64[..]),
        ("old", of_old_arm64(), &etmv4, "program.elf", &backtrace),
        ("arm", of_arm(), &ptm, "cores-a15-bare-a15.elf", &arm),
    ] {
        let file = scratch.path().join(name);
        fs::write(&file, log).unwrap();
        let program = snapshot.join(program);
        let options = ["--vmlinux", program.to_str().unwrap()];
        let wanted = shown(&session(snapshot, &[], commands));
        assert!(wanted.len() >= 4, "{wanted:?}");
        let said = session(&file, &options, commands);
        assert_eq!(shown(&said), wanted, "{name}: {said}");
        let into = scratch.path().join(format!("{name}-snapshot"));
        let mut import = armsnap();
        import.arg("import").arg(&file).arg(&into).args(options);
        let output = run(&mut import);
        assert!(
            text(&output).contains("log of a Linux kernel: 1 core"),
            "{}",
            text(&output)
        );
        assert_eq!(shown(&session(&into, &[], commands)), wanted, "{name}");
    }
    let file = scratch.path().join("arm64");
    // A compressed log, and one of a kernel in which the function was smaller.
    let (packed, smaller) = (
        scratch.path().join("dmesg.gz"),
        scratch.path().join("smaller"),
    );
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(of_arm64().as_bytes()).unwrap();
    fs::write(&packed, encoder.finish().unwrap()).unwrap();
    fs::write(
        &smaller,
        of_arm64().replace("receipt+0x40/0x50", "receipt+0x40/0x4c"),
    )
    .unwrap();
    for (file, is_known) in [(&packed, true), (&smaller, false)] {
        let mut info = armsnap();
        info.arg("info").arg(file).arg("--vmlinux");
        let said = text(&run(info.arg(etmv4.join("program.elf"))));
        assert!(said.contains("the kernel says: Unable to handle"), "{said}");
        assert_eq!(
            !said.contains("PC is receipt+0x40 by the log"),
            is_known,
            "{said}"
        );
    }
    let said = text(&run(armsnap().arg("info").arg(&file)));
    for wanted in [
        "the kernel says: Unable to handle kernel NULL pointer dereference",
        "PC is receipt+0x40 by the log: its address is not known",
        "without the kernel (--vmlinux)",
    ] {
        assert!(said.contains(wanted), "{said}");
    }
    let said = text(&run(armsnap().arg("fault").arg(&file)));
    assert!(said.contains("ESR_EL1"), "{said}");
    let alone = text(&run(armsnap().current_dir(scratch.path())));
    assert!(
        alone.contains("arm64: the log of a Linux kernel that failed"),
        "{alone}"
    );
}
