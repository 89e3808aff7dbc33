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
        // Programs are no inputs, whatever follows the first byte of a trace file's.
        (
            &["gdb", "program"],
            1,
            "armsnap record -- ./program makes one",
        ),
        (&["info", "./program"], 1, "armsnap record -- ./program"),
        (
            &["decode", "/bin/sh"],
            1,
            "neither a core file nor a program for Arm",
        ),
        // Outputs.
        (
            &["decode", demo, "-o", "nowhere/out"],
            1,
            "nowhere/out: No such file",
        ),
        (
            &["decode", demo, "-o", "/dev/full"],
            1,
            "/dev/full: No space",
        ),
        (
            &["import", "--memory", "text.txt@0x0", "nowhere/x"],
            1,
            "nowhere/x: No such file",
        ),
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
            125,
            "no script and no raw image",
        ),
        (&["record", "-o", "x", "--", "./program"], 125, "chmod +x"),
        (
            &["record", "-o", "x", "--", "/bin/sh"],
            125,
            "armsnap doctor",
        ),
    ] {
        let (code, said) = said(directory.path(), words);
        assert_eq!(code, Some(status), "{words:?}: {said}");
        assert!(
            said.contains(next),
            "{words:?}: expected {next:?}, found {said}"
        );
    }
}

/// Runs a command line of the shell; `$0` is armsnap.
fn shell(directory: &Path, script: &str) -> (Option<i32>, String) {
    let mut command = std::process::Command::new("sh");
    command.current_dir(directory).args(["-c", script]);
    let output = run(command.arg(armsnap().get_program()));
    (output.status.code(), text(&output))
}

#[test]
fn what_cannot_be_read_is_not_called_missing() {
    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str| directory.path().join(name);
    fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o755)).unwrap();
    fs::create_dir(at("closed")).unwrap();
    fs::write(at("perf.data"), "PERFILE2").unwrap();
    for name in ["closed", "perf.data"] {
        fs::set_permissions(at(name), fs::Permissions::from_mode(0o0)).unwrap();
    }
    // Permissions do not bind root.
    let as_user = match fs::File::open(at("perf.data")) {
        Ok(_) => "exec setpriv --reuid=65534 --clear-groups",
        Err(_) => "exec",
    };
    let said = |words: &str| shell(directory.path(), &format!("{as_user} \"$0\" {words}"));
    for words in ["info closed", "info perf.data", "import closed x"] {
        let (code, said) = said(words);
        assert_eq!(code, Some(1), "{words}: {said}");
        let denied = said.to_lowercase().contains("permission denied");
        assert!(denied, "{words}: {said}");
    }
    let (code, listed) = said("");
    assert_eq!(code, Some(0), "{listed}");
    let unreadable = "Its files that cannot be read, which may be inputs: 2";
    assert!(listed.contains(unreadable), "{listed}");
    // The directory of a job whose permissions were taken away.
    fs::create_dir(at("here")).unwrap();
    fs::set_permissions(at("here"), fs::Permissions::from_mode(0o777)).unwrap();
    let (code, here) = shell(
        directory.path(),
        &format!("cd here; chmod 0 .; {as_user} \"$0\""),
    );
    assert_eq!(code, Some(0), "{here}");
    assert!(here.contains("This directory cannot be read: "), "{here}");
}

#[test]
fn help_that_cannot_be_written_is_an_error() {
    let directory = tempfile::tempdir().unwrap();
    for words in ["--help", "help decode", "--version"] {
        let script = format!("\"$0\" {words} > /dev/full");
        let (code, said) = shell(directory.path(), &script);
        assert_eq!(code, Some(1), "{words}: {said}");
        assert!(said.contains("No space"), "{words}: {said}");
    }
    let (code, said) = shell(directory.path(), "\"$0\" --wrong 2> /dev/full");
    assert_eq!(code, Some(2), "{said}");
}

#[test]
fn names_that_gdb_cannot_take_are_refused() {
    use std::os::unix::ffi::OsStrExt;
    let directory = tempfile::tempdir().unwrap();
    let name = std::ffi::OsStr::from_bytes(b"demo\xff");
    let link = directory.path().join(name);
    std::os::unix::fs::symlink(testdata("demo"), link).unwrap();
    let mut command = armsnap();
    command.current_dir(directory.path()).arg("gdb").arg(name);
    let output = run(command.args(["--", "-batch"]));
    let said = text(&output);
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains("is not Unicode"), "{said}");
}

#[test]
fn the_name_of_standard_output_is_not_replaced() {
    let directory = tempfile::tempdir().unwrap();
    let demo = testdata("demo");
    let script = format!(
        "echo first > out; \"$0\" decode {} -o /dev/stdout --force >> out",
        demo.display()
    );
    let (code, said) = shell(directory.path(), &script);
    assert_eq!(code, Some(0), "{said}");
    let out = fs::read_to_string(directory.path().join("out")).unwrap();
    assert!(out.starts_with("first\n"), "{out}");
    assert!(out.lines().count() > 10, "{out}");
    assert!(Path::new("/dev/stdout").is_symlink());
    let script = format!("\"$0\" decode {} > /dev/full", demo.display());
    let (code, said) = shell(directory.path(), &script);
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("standard output: No space"), "{said}");
}
