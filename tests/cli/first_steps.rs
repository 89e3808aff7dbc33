//! `armsnap` alone, `armsnap doctor` and `armsnap demo`.

use crate::support::gdb::{armsnap, need_gdb, run, testdata, text};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

#[test]
fn alone_it_names_what_it_can_do_with_the_files_around_it() {
    let directory = tempfile::tempdir().unwrap();
    let here = || text(&run(armsnap().current_dir(directory.path())));
    assert!(here().contains("nothing that armsnap reads"), "{}", here());
    let at = |name: &str| directory.path().join(name);
    fs::write(at("notes.txt"), "text").unwrap();
    let mut library = fs::read(testdata("demo/demo.elf")).unwrap();
    // ET_DYN.
    library[16] = 3;
    fs::write(at("lib.so.1"), library).unwrap();
    fs::copy(testdata("demo/demo.elf"), at("it's")).unwrap();
    fs::copy(testdata("tsave-aarch64/saved.tf"), at("saved.tf")).unwrap();
    fs::create_dir(at("crash\x1b[31m")).unwrap();
    fs::copy(
        testdata("demo/snapshot.ini"),
        at("crash\x1b[31m/snapshot.ini"),
    )
    .unwrap();
    fs::write(at("-perf.data"), b"PERFILE2 and more").unwrap();
    let mut core = b"\x7fELF\x02\x01\x01".to_vec();
    core.resize(16, 0);
    // ET_CORE, EM_AARCH64.
    core.extend([4, 0, 183, 0]);
    core.resize(64, 0);
    fs::write(at("core.12"), core).unwrap();
    // A pipe does not block the listing.
    assert!(
        Command::new("mkfifo")
            .arg(at("pipe"))
            .status()
            .unwrap()
            .success()
    );
    let shown = here();
    for line in [
        "  $'crash\\x1b[31m': a snapshot",
        "  ./-perf.data: a recording of perf",
        "    armsnap decode ./-perf.data",
        "  core.12: a core file",
        "  saved.tf: a trace file",
        "  './it'\\''s': a program for Arm",
        "    armsnap record -- './it'\\''s'",
        "    armsnap demo",
    ] {
        assert!(shown.contains(line), "{line}\n{shown}");
    }
    for absent in ["notes", "lib.so", "\x1b", "pipe"] {
        assert!(!shown.contains(absent), "{absent}: {shown}");
    }
    // In a snapshot's own directory.
    let inside = text(&run(armsnap().current_dir(testdata("demo"))));
    assert!(
        inside.contains("  .: a snapshot\n    armsnap gdb . "),
        "{inside}"
    );
    // The order is that of the names, snapshots first.
    let first = shown.find("a snapshot").unwrap();
    assert!(first < shown.find("a recording").unwrap(), "{shown}");
}

/// Writes a script into a directory of programs.
fn fake(directory: &Path, name: &str, script: &str) {
    let path = directory.join(name);
    fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
}

#[test]
fn the_doctor_names_what_is_missing_and_what_does_not_work() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path();
    let doctor = || {
        let output = run(armsnap().arg("doctor").env("PATH", path));
        assert!(output.status.success());
        text(&output)
    };
    let shown = doctor();
    assert!(shown.contains("missing  gdb-multiarch"), "{shown}");
    assert!(
        shown.contains("apt install gdb-multiarch lldb qemu-user qemu-system-arm "),
        "{shown}"
    );
    fake(
        path,
        "qemu-aarch64",
        "case $1 in --version) echo v7;; *) echo ' -plugin X';; esac",
    );
    fake(path, "qemu-arm", "echo v7");
    // A GDB for another architecture.
    fake(path, "gdb-multiarch", "echo 'GNU gdb \x1b[31m x86'");
    let shown = doctor();
    assert!(shown.contains("ok       qemu-aarch64"), "{shown}");
    assert!(shown.contains("faulty   qemu-arm"), "{shown}");
    assert!(
        shown.contains("was built without plugins, which record needs"),
        "{shown}"
    );
    assert!(shown.contains("faulty   gdb-multiarch"), "{shown}");
    assert!(shown.contains("has no support for aarch64"), "{shown}");
    assert!(!shown.contains('\x1b'), "{shown}");
}

#[test]
fn without_a_debugger_its_package_is_named() {
    let nowhere = tempfile::tempdir().unwrap();
    for words in [&["gdb"][..], &["dap"]] {
        let mut command = armsnap();
        command
            .args(words)
            .arg(testdata("demo"))
            .env("PATH", nowhere.path());
        let output = run(&mut command);
        assert_eq!(output.status.code(), Some(1));
        assert!(
            text(&output).contains("apt install gdb-multiarch"),
            "{}",
            text(&output)
        );
    }
}

#[test]
fn the_demo_walks_back_to_the_fault_and_leaves_nothing() {
    need_gdb();
    let temporary = tempfile::tempdir().unwrap();
    let mut command = armsnap();
    command
        .arg("demo")
        .current_dir("/")
        .env("TMPDIR", temporary.path());
    let output = run(command.env("HOME", temporary.path()));
    let shown = text(&output);
    assert!(output.status.success(), "{shown}");
    let mut rest = shown.as_str();
    for line in [
        "Step 1 of 5",
        "#0  0x000000000040013c in price (order=order@entry=0x401280 <orders+32>) at ./demo.c:28",
        "= {pieces = 5, item = 0x0}",
        "Step 2 of 5",
        "  0+54             cancel",
        "Step 3 of 5",
        "stored to 0x401288  demo.c:24",
        "Step 4 of 5",
        "New value = (const struct item *) 0x400250 <paper>",
        "in cancel (number=number@entry=2) at ./demo.c:24",
        "number = 2",
        "Step 5 of 5",
        "{pieces = 0, item = 0x400240 <ink>}, {pieces = 5, item = 0x400250 <paper>}",
        "44\t    cancel(2);",
        "{pieces = 1, item = 0x400240 <ink>}, {pieces = 5, item = 0x400250 <paper>}",
        "That was the walk.",
    ] {
        let at = rest.find(line).unwrap_or_else(|| panic!("{line}\n{shown}"));
        rest = &rest[at + line.len()..];
    }
    let left: Vec<_> = fs::read_dir(temporary.path()).unwrap().collect();
    assert!(left.is_empty(), "{left:?}");
}

#[test]
fn a_demo_that_is_terminated_leaves_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str| directory.path().join(name);
    fs::create_dir(at("tmp")).unwrap();
    // It says that it runs, and runs until its input ends.
    let script = format!("echo > '{}'; exec /bin/cat", at("runs").display());
    fake(directory.path(), "gdb-multiarch", &script);
    let mut command = armsnap();
    command
        .arg("demo")
        .env("PATH", directory.path())
        .env("TMPDIR", at("tmp"));
    let mut demo = command.stdin(Stdio::piped()).spawn().unwrap();
    let deadline = Instant::now() + Duration::from_secs(60);
    while !at("runs").exists() {
        assert!(Instant::now() < deadline, "the debugger does not start");
        thread::sleep(Duration::from_millis(20));
    }
    assert_eq!(fs::read_dir(at("tmp")).unwrap().count(), 1);
    let kill = format!("kill -TERM {}", demo.id());
    assert!(
        Command::new("sh")
            .args(["-c", &kill])
            .status()
            .unwrap()
            .success()
    );
    // The pipe stays open, so that only the signal ends it.
    let _input = demo.stdin.take();
    let status = demo.wait().unwrap();
    assert_eq!(status.signal(), Some(15), "{status}");
    assert_eq!(fs::read_dir(at("tmp")).unwrap().count(), 0);
}

#[test]
fn the_recording_of_the_demo_is_written_once() {
    let directory = tempfile::tempdir().unwrap();
    let written = directory.path().join("demo");
    let demo = || run(armsnap().arg("demo").arg("-o").arg(&written));
    assert!(demo().status.success());
    for entry in fs::read_dir(testdata("demo")).unwrap() {
        let entry = entry.unwrap();
        let copy = fs::read(written.join(entry.file_name())).unwrap();
        assert_eq!(copy, fs::read(entry.path()).unwrap(), "{entry:?}");
    }
    assert_eq!(demo().status.code(), Some(2));
}

#[test]
fn the_demo_says_where_it_has_no_room() {
    let scratch = tempfile::tempdir().unwrap();
    let missing = scratch.path().join("missing");
    let output = run(armsnap().arg("demo").env("TMPDIR", &missing));
    let said = text(&output);
    assert_eq!(output.status.code(), Some(1), "{said}");
    let start = format!("{}: no temporary directory can be made", missing.display());
    assert!(
        said.starts_with(&start) && said.contains("TMPDIR, or -o"),
        "{said}"
    );
}
