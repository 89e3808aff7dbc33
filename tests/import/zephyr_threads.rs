//! Core dumps of Zephyr with the kernel's list of threads: each has its registers, and GDB unwinds it; from the
//! log of the console, too.

use crate::support::gdb::{armsnap, need_gdb, run, session, text};
use crate::support::inputs::zephyr::{
    ARM64, CORTEX_M, build, log, threads_of_a_cortex_m, threads_of_an_arm64,
};
use std::fs;
use std::path::Path;

const COMMANDS: [&str; 6] = [
    "info threads",
    "thread 1",
    "bt",
    "thread 2",
    "bt",
    "info registers",
];

fn check(directory: &Path, dump: &[u8], program: &Path, wanted: &[&str]) {
    need_gdb();
    let raw = directory.join("zephyr.bin");
    fs::write(&raw, dump).unwrap();
    let console = directory.join("console.log");
    fs::write(&console, log(dump)).unwrap();
    let options = ["--elf", program.to_str().unwrap()];
    let snapshot = directory.join("snapshot");
    let mut import = armsnap();
    import
        .arg("import")
        .arg(&console)
        .arg(&snapshot)
        .args(options);
    let output = run(&mut import);
    let said = text(&output);
    assert!(said.contains("2 cores (main, sleeper)"), "{said}");
    assert!(said.contains("1 thread did not run"), "{said}");
    assert!(said.contains("1 thread more without known ones"), "{said}");
    for (path, options) in [(&raw, &options[..]), (&console, &options), (&snapshot, &[])] {
        let said = session(path, options, &COMMANDS);
        for wanted in wanted {
            assert!(said.contains(wanted), "{wanted}: {said}");
        }
    }
    let said = text(&run(armsnap().arg("info").arg(&console)));
    assert!(said.contains("other threads are not read: --elf"), "{said}");
}

#[test]
fn threads_of_a_cortex_m_have_registers() {
    let scratch = tempfile::tempdir().unwrap();
    let Some(program) = build(scratch.path(), &CORTEX_M) else {
        return;
    };
    let dump = threads_of_a_cortex_m();
    check(
        scratch.path(),
        &dump,
        &program,
        &[
            "#0  failing ()",
            "#0  sleeping ()",
            "in failing ()",
            // 32 bytes, 72 of the FPU, and 4.
            "sp             0x2000086c",
            "r11            0x4b",
        ],
    );
}

#[test]
fn threads_of_arm64_have_registers() {
    let scratch = tempfile::tempdir().unwrap();
    let Some(program) = build(scratch.path(), &ARM64) else {
        return;
    };
    let dump = threads_of_an_arm64();
    check(
        scratch.path(),
        &dump,
        &program,
        &[
            "#0  failing ()",
            "#0  sleeping ()",
            "x19            0x113",
            "sp             0x20000800",
            "pc             0x8100",
        ],
    );
}
