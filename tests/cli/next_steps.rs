//! The errors that users meet first end in what to do next.

use crate::support::gdb::{armsnap, run, testdata, text};
use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

/// Runs a command line in a directory; returns the exit status and what it said.
fn said(directory: &Path, words: &[&str]) -> (Option<i32>, String) {
    let output = run(armsnap().args(words).current_dir(directory));
    (output.status.code(), text(&output))
}

#[test]
fn errors_end_in_what_to_do_next() {
    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str| directory.path().join(name);
    fs::write(at("text.txt"), "text\n").unwrap();
    fs::write(at("script"), "#!/bin/sh\n").unwrap();
    fs::write(at("there.txt"), "").unwrap();
    fs::create_dir(at("directory")).unwrap();
    fs::write(at("directory/notes"), "").unwrap();
    fs::copy(testdata("demo/demo.elf"), at("program")).unwrap();
    fs::set_permissions(at("program"), fs::Permissions::from_mode(0o644)).unwrap();
    fs::set_permissions(at("script"), fs::Permissions::from_mode(0o755)).unwrap();
    let demo = testdata("demo").to_str().unwrap().to_owned();
    let demo = demo.as_str();
    let cores = testdata("virt-a57").to_str().unwrap().to_owned();
    let no_trace = cores.as_str();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = taken.local_addr().unwrap().to_string();
    let alone = "armsnap without arguments lists";
    for (words, status, next) in [
        // No snapshot.
        (&["info", "nowhere"][..], 1, alone),
        (&["gdb", "nowhere"], 1, alone),
        (&["serve", "nowhere"], 1, alone),
        (
            &["check", "nowhere"],
            1,
            "nowhere: no such file or directory",
        ),
        (&["info", "directory"], 1, alone),
        (&["decode", "directory"], 1, "snapshot.ini"),
        (&["info", "text.txt"], 1, "nor an input that armsnap knows"),
        // No trace.
        (&["decode", no_trace], 1, "armsnap gdb shows its state"),
        (
            &["export", no_trace, "--as", "lcov", "-o", "x"],
            1,
            "armsnap gdb",
        ),
        (&["report", no_trace], 1, "armsnap gdb"),
        // Names.
        (&["decode", demo, "--source", "X"], 2, "there are: ETMV4_0"),
        (&["decode", demo, "--buffer", "X"], 2, "there are: ETB_0"),
        (
            &["decode", demo, "--elf", "text.txt"],
            1,
            "name the program that the linker wrote",
        ),
        (&["serve", demo, "--core", "X"], 2, ": cpu_0"),
        (
            &["export", demo, "--as", "lcov", "--core", "X", "-o", "x"],
            2,
            "there are: cpu_0",
        ),
        (
            &["export", demo, "--as", "lcov", "--from", "gone", "-o", "x"],
            2,
            "(*0x8000)",
        ),
        // Outputs.
        (
            &["decode", demo, "-o", "there.txt"],
            2,
            "--force overwrites it",
        ),
        (&["convert", demo, "there.txt"], 2, "--force"),
        (
            &["export", demo, "--as", "parquet", "-o", "directory"],
            2,
            "-o names another",
        ),
        (&["demo", "-o", "directory"], 2, "-o names another"),
        // Inputs of other formats.
        (&["import", "nowhere", "x"], 1, "nowhere: no such file"),
        (
            &["import", "text.txt", "x"],
            1,
            "--raw takes a trace buffer",
        ),
        (&["import", demo, "x"], 1, "a snapshot needs no import"),
        // Debuggers.
        (
            &["gdb", demo, "--gdb", "nowhere-gdb"],
            1,
            "apt install gdb-multiarch",
        ),
        (
            &["serve", demo, "--listen", &taken],
            1,
            "a free port of 127.0.0.1 is chosen",
        ),
        // Recording.
        (
            &["record", "-o", "x", "--", "./script"],
            1,
            "no script and no raw image",
        ),
        (&["record", "-o", "x", "--", "./program"], 1, "chmod +x"),
        (&["record", "-o", "x", "--", "/bin/sh"], 1, "armsnap doctor"),
    ] {
        let (code, said) = said(directory.path(), words);
        assert_eq!(code, Some(status), "{words:?}: {said}");
        assert!(
            said.contains(next),
            "{words:?}: expected {next:?}, found {said}"
        );
    }
}
