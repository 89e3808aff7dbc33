//! Scripts that come with a snapshot: GDB runs none of them, regardless of the user's safe-path,
//! unless the user allows it. A GDB without support for Arm is reported.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use crate::support::gdb::{armsnap, need_gdb, run, testdata, text};

/// The origin of each kind of script, and the file that it creates.
const SCRIPTS: [&str; 4] = ["section", "python", "commands", "gdbinit"];

/// A snapshot with a `.gdbinit`, whose program has scripts inside and beside it.
fn snapshot(directory: &Path) {
    let from = testdata("mps2-m4");
    for entry in fs::read_dir(&from).unwrap().map(Result::unwrap) {
        if entry.file_type().unwrap().is_file() {
            fs::copy(entry.path(), directory.join(entry.file_name())).unwrap();
        }
    }
    let at = |name: &str| directory.join(name).display().to_string();
    // GDB manual, ".debug_gdb_scripts": 4 is Python in the section itself.
    let section = format!("\x04script\nopen('{}', 'w')\n\0", at("made-section"));
    fs::write(directory.join("section"), section).unwrap();
    let status = Command::new("arm-none-eabi-objcopy")
        .arg(format!(
            "--add-section=.debug_gdb_scripts={}",
            at("section")
        ))
        .arg(at("program.elf"))
        .status();
    assert!(status.expect("install binutils-arm-none-eabi").success());
    let write = |name: &str, text: String| fs::write(directory.join(name), text).unwrap();
    write(
        "program.elf-gdb.py",
        format!("open('{}', 'w')\n", at("made-python")),
    );
    write(
        "program.elf-gdb.gdb",
        format!("shell touch {}\n", at("made-commands")),
    );
    write(".gdbinit", format!("shell touch {}\n", at("made-gdbinit")));
}

/// The scripts that ran.
fn ran(directory: &Path) -> Vec<&'static str> {
    let made = |name: &&str| directory.join(format!("made-{name}")).exists();
    SCRIPTS.into_iter().filter(made).collect()
}

/// Runs GDB in the snapshot's directory, with a configuration that trusts all scripts.
fn in_snapshot(command: &mut Command, directory: &Path, home: &Path) -> String {
    need_gdb();
    fs::write(home.join(".gdbinit"), "set auto-load safe-path /\n").unwrap();
    command.current_dir(directory).env("HOME", home);
    text(&run(command.env_remove("XDG_CONFIG_HOME")))
}

#[test]
fn scripts_of_a_snapshot_do_not_run() {
    let (directory, home) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    snapshot(directory.path());
    for (option, wanted) in [(None, &[][..]), (Some("--allow-scripts"), &SCRIPTS[..])] {
        let mut command = armsnap();
        command.args(["gdb", "."]).args(option);
        command.args(["--", "-batch", "-ex", "print $pc"]);
        let shown = in_snapshot(&mut command, directory.path(), home.path());
        assert!(shown.contains("grant"), "{shown}");
        assert_eq!(ran(directory.path()), wanted, "{shown}");
    }
}

#[test]
fn scripts_do_not_run_at_attach() {
    let (directory, home) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    snapshot(directory.path());
    // The user's own directory is trusted.
    fs::remove_file(directory.path().join(".gdbinit")).unwrap();
    let commands = home.path().join("armsnap.py");
    fs::write(&commands, run(armsnap().arg("gdb-commands")).stdout).unwrap();
    for (option, wanted) in [("", 0), (" --allow-scripts", 1)] {
        let mut command = Command::new("gdb-multiarch");
        command.args(["-batch", "-ex", &format!("source {}", commands.display())]);
        // GDB then reads the program itself, not the server's copy.
        command.args(["-ex", "set sysroot /"]);
        let program = crate::support::armsnap();
        command.args(["-ex", &format!("set armsnap-program {program}")]);
        command.args([
            "-ex",
            &format!("armsnap attach .{option}"),
            "-ex",
            "print $pc",
        ]);
        let shown = in_snapshot(&mut command, directory.path(), home.path());
        assert!(shown.contains("grant"), "{shown}");
        let ran = ran(directory.path());
        assert_eq!(usize::from(!ran.is_empty()), wanted, "{ran:?}: {shown}");
    }
}

#[test]
fn a_gdb_without_support_for_arm_is_reported() {
    need_gdb();
    let directory = tempfile::tempdir().unwrap();
    let script = |name: &str, text: &str| {
        let path = directory.path().join(name);
        fs::write(&path, format!("#!/bin/sh\n{text}\n")).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        path
    };
    let session = |gdb: &Path, snapshot: &str| {
        let mut command = armsnap();
        command
            .arg("gdb")
            .arg(testdata(snapshot))
            .arg("--gdb")
            .arg(gdb);
        run(command.args(["--", "-nx", "-batch", "-ex", "print $pc"]))
    };
    // Debian's gdb; one for microcontrollers; a program that is not GDB and does not end.
    let other = script("other", "echo set architecture i386:x86-64");
    let small = script(
        "small",
        "case \"$*\" in *aarch64*);; *batch*) exec gdb-multiarch \"$@\";; esac",
    );
    let none = script("none", "exec yes");
    for (gdb, snapshot, architecture) in [
        (&other, "mps2-m4", "M-profile"),
        (&other, "virt-a57", "AArch64"),
        (&small, "virt-a57", "AArch64"),
        (&none, "virt-a57", "AArch64"),
    ] {
        let output = session(gdb, snapshot);
        let wanted = format!(
            "{} has no support for {architecture}: install",
            gdb.display()
        );
        assert!(text(&output).contains(&wanted), "{}", text(&output));
        assert_eq!(output.status.code(), Some(1));
    }
    let shown = text(&session(&small, "mps2-m4"));
    assert!(shown.contains("<grant+"), "{shown}");
}
