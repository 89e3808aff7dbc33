//! Stripped programs of Debian packages for armhf and arm64: `armsnap record` records
//! the instructions in the emulator's own log, and its trace decodes to them.
//!
//! Packages are downloaded once with apt, to `target/tmp`. Slow in a debug build:
//! scripts/test --long runs it optimised.

use crate::support::record::{decoded, installed, places};
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

/// The directory of a package, unpacked with its dependencies; `None` if it cannot
/// be downloaded.
pub fn unpacked(architecture: &str, package: &str) -> Option<PathBuf> {
    let all = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let root = all.join(format!("{architecture}-{package}"));
    if root.is_dir() {
        return Some(root);
    }
    // An existing directory is complete.
    let part = tempfile::tempdir_in(all).unwrap();
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("scripts/unpack-packages");
    let mut command = Command::new("timeout");
    command.arg("600").arg(script).arg(architecture);
    match command.arg(part.path()).arg(package).output() {
        Ok(run) if run.status.success() => {
            std::fs::rename(part.keep(), &root).unwrap();
            Some(root)
        }
        run => {
            crate::support::skip::unavailable(&format!(
                "{package}:{architecture} cannot be fetched through apt: {run:?}"
            ));
            None
        }
    }
}

/// Addresses of the instructions in the emulator's log.
fn logged(log: &Path) -> Vec<u64> {
    let mut places: Vec<u64> = Vec::new();
    for line in BufReader::new(File::open(log).unwrap()).lines() {
        let line = line.unwrap();
        // Trace 0: 0x7f… [flags/address/flags/flags] symbol
        if let Some(rest) = line.strip_prefix("Trace ") {
            let inside = rest.split('[').nth(1).unwrap();
            let address = inside.split('/').nth(1).unwrap();
            places.push(u64::from_str_radix(address, 16).unwrap());
        } else if line.starts_with("Stopped execution") {
            places.pop();
        }
    }
    places
}

/// A command with the directory of libraries, the program and its arguments.
fn command(what: &[&str], root: &Path, program: &[&str]) -> Command {
    let mut command = Command::new(what[0]);
    command
        .args(&what[1..])
        .arg(root)
        .arg(root.join(program[0]));
    command.args(&program[1..]).stdin(Stdio::null());
    command
}

fn said(run: &Output) -> String {
    String::from_utf8_lossy(&run.stderr).into_owned()
}

/// Records a program, and compares with a run in which the emulator logs each instruction.
fn exact(package: &str, program: &[&str], status: i32) {
    for (architecture, emulator) in [("armhf", "qemu-arm"), ("arm64", "qemu-aarch64")] {
        if !installed(&[emulator]) {
            return;
        }
        let Some(root) = unpacked(architecture, package) else {
            return;
        };
        let plain = command(&[emulator, "-L"], &root, program).output().unwrap();
        assert_eq!(plain.status.code(), Some(status), "{}", said(&plain));
        let directory = tempfile::tempdir().unwrap();
        let (log, witness) = (
            directory.path().join("log"),
            directory.path().join("witness"),
        );
        for logs in [true, false] {
            let what = format!("{package}:{architecture}, logged: {logs}");
            let out = directory.path().join("out");
            let own = crate::support::armsnap();
            let options = [
                own,
                "record",
                "--exit-zero",
                "--force",
                "-o",
                out.to_str().unwrap(),
            ];
            let options = [
                &options[..],
                &["--witness", witness.to_str().unwrap(), "--sysroot"],
            ];
            let mut command = command(&options.concat(), &root, program);
            if logs {
                command
                    .env("QEMU_SINGLESTEP", "1")
                    .env("QEMU_LOG", "nochain,exec");
                command.env("QEMU_LOG_FILENAME", &log);
            }
            let run = command.output().unwrap();
            let told = said(&run);
            assert!(run.status.success(), "{what}: {told}");
            let wanted = format!("stopped about to exit with status {status}, PC ");
            assert!(told.contains(&wanted), "{what}: {told}");
            assert_eq!(run.stdout, plain.stdout, "{what}");
            let executed = places(&witness);
            assert_eq!(executed.len(), 1, "{what}");
            let executed = &executed[&0];
            let decoded = decoded(&out).into_values().next().unwrap();
            assert!(decoded == *executed, "{what}: decoded");
            if logs {
                let logged = logged(&log);
                let (before, end) = logged.split_at(executed.len().min(logged.len()));
                let told = executed.iter().map(|place| place.address.0);
                assert!(
                    told.eq(before.iter().copied()),
                    "{what}: {} logged",
                    logged.len()
                );
                // The call that ends it, and the trap that stops it there.
                assert!((1..=2).contains(&end.len()), "{what}: {end:x?}");
                assert!(
                    end.iter().all(|address| *address == end[0]),
                    "{what}: {end:x?}"
                );
            }
        }
    }
}

#[test]
#[cfg_attr(debug_assertions, ignore = "with --release")]
fn static_busybox() {
    let script = "i=0; while [ $i -lt 20 ]; do i=$((i+1)); done; echo $i; exit 5";
    exact("busybox-static", &["bin/busybox", "sh", "-c", script], 5);
}

#[test]
#[cfg_attr(debug_assertions, ignore = "with --release")]
fn busybox() {
    exact("busybox", &["bin/busybox", "seq", "3"], 0);
}

/// Its child processes run as without recording.
#[test]
#[cfg_attr(debug_assertions, ignore = "with --release")]
fn static_bash() {
    let script = "for i in 1 2 3; do echo $((i * i)); done; exit 3";
    exact("bash-static", &["bin/bash-static", "-c", script], 3);
}

#[test]
#[cfg_attr(debug_assertions, ignore = "with --release")]
fn sqlite() {
    let script = "create table t(a, b); insert into t values(1, 'one'), (2, 'two'); \
                  select sum(a), max(b) from t;";
    exact(
        "sqlite3",
        &["usr/bin/sqlite3", "-init", "/dev/null", ":memory:", script],
        0,
    );
}

#[test]
#[cfg_attr(debug_assertions, ignore = "with --release")]
fn lua() {
    let script = "local t = {} for i = 1, 30 do t[i] = i * i end print(#t, t[30]) os.exit(6)";
    exact("lua5.4", &["usr/bin/lua5.4", "-e", script], 6);
}

/// A shell whose child processes fail.
#[test]
fn children_of_a_static_bash() {
    for architecture in ["armhf", "arm64"] {
        let emulator = if architecture == "armhf" {
            "qemu-arm"
        } else {
            "qemu-aarch64"
        };
        if !installed(&[emulator]) {
            return;
        }
        let Some(root) = unpacked(architecture, "bash-static") else {
            return;
        };
        let directory = tempfile::tempdir().unwrap();
        let out = directory.path().join("out");
        let script = "(exit 3) || echo failed $?; x=$(echo in a pipe | cat); echo $x; exit 4";
        let program = ["bin/bash-static", "-c", script];
        let own = crate::support::armsnap();
        let options = [
            own,
            "record",
            "--exit-zero",
            "-o",
            out.to_str().unwrap(),
            "--sysroot",
        ];
        let run = command(&options, &root, &program).output().unwrap();
        let told = said(&run);
        assert_eq!(
            String::from_utf8_lossy(&run.stdout),
            "failed 3\nin a pipe\n",
            "{told}"
        );
        assert_eq!(
            told.matches("processes that the program started").count(),
            1,
            "{told}"
        );
        assert!(
            told.contains("stopped about to exit with status 4, "),
            "{told}"
        );
    }
}
