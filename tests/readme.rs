//! The README's transcripts are what the program prints.

mod gdb;
mod program_support;

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// A command of a transcript, and the lines below it.
#[derive(Debug)]
struct Step {
    command: String,
    /// What is typed at GDB's prompt.
    typed: Vec<String>,
    /// What is printed; `…` stands for any lines.
    lines: Vec<String>,
}

/// The commands of the README's indented blocks that begin with `$`.
fn steps(readme: &str) -> Vec<Step> {
    let mut steps: Vec<Step> = Vec::new();
    let mut open = false;
    for line in readme.lines() {
        let Some(line) = line.strip_prefix("    ") else {
            // An empty line may be a part of what is printed.
            if line.is_empty() && open {
                steps.last_mut().unwrap().lines.push(String::new());
            } else {
                open = false;
            }
            continue;
        };
        if let Some(command) = line.strip_prefix("$ ") {
            open = true;
            steps.push(Step {
                command: command.to_owned(),
                typed: Vec::new(),
                lines: Vec::new(),
            });
        } else if let (true, Some(typed)) = (open, line.strip_prefix("(gdb) ")) {
            let step = steps.last_mut().unwrap();
            step.typed.push(typed.to_owned());
            step.lines.push("…".to_owned());
        } else if open {
            steps.last_mut().unwrap().lines.push(line.to_owned());
        }
    }
    steps
}

/// Fails unless `lines` are the begin of `found`; `…` skips up to the line that comes next.
fn compare(command: &str, lines: &[String], found: &str) {
    let mut rest = found.lines().map(str::trim_end);
    let mut skip = false;
    let end = lines.iter().rposition(|line| !line.is_empty());
    for line in &lines[..end.map_or(0, |end| end + 1)] {
        if line == "…" {
            skip = true;
            continue;
        }
        let next = match skip {
            true => rest.find(|found| found == line),
            false => rest.next(),
        };
        assert_eq!(next, Some(line.as_str()), "{command}: {found}");
        skip = false;
    }
}

/// Runs the steps that `wanted` chooses, in `directory`; answers how many.
fn run(directory: &Path, wanted: impl Fn(&str) -> bool) -> usize {
    run_with(directory, false, wanted)
}

/// The same; with `errors` what is printed is that of both streams.
fn run_with(directory: &Path, errors: bool, wanted: impl Fn(&str) -> bool) -> usize {
    let steps = steps(include_str!("../README.md"));
    let mut count = 0;
    for step in steps.iter().filter(|step| wanted(&step.command)) {
        let command = step.command.split("  #").next().unwrap();
        let mut shell = command.replacen("armsnap", env!("CARGO_BIN_EXE_armsnap"), 1);
        let with_gdb = shell.contains(" gdb ");
        if with_gdb {
            gdb::need_gdb();
            let separator = if shell.contains(" -- ") { "" } else { " --" };
            shell += &format!("{separator} -nx -batch -iex 'set width 0'");
        }
        for typed in &step.typed {
            shell += &format!(" -ex '{typed}'");
        }
        if errors {
            shell += " 2>&1";
        }
        let mut child = Command::new("sh");
        child.args(["-c", &shell]).current_dir(directory);
        let output = gdb::run(child.stdin(Stdio::null()));
        assert!(output.status.success(), "{command}: {}", gdb::text(&output));
        compare(
            command,
            &step.lines,
            &String::from_utf8_lossy(&output.stdout),
        );
        count += 1;
    }
    count
}

#[test]
fn on_our_own_snapshots() {
    let place = Path::new(env!("CARGO_MANIFEST_DIR"));
    let count = run(place, |command| {
        command.contains(" testdata/")
            && !command.contains(" serve ")
            && !command.contains("lldb")
            && !command.contains("armsnap save ")
    });
    assert_eq!(count, 3);
}

#[test]
fn what_is_saved_from_gdb() {
    let place = tempfile::tempdir().unwrap();
    std::os::unix::fs::symlink(gdb::testdata(""), place.path().join("testdata")).unwrap();
    let count = run(place.path(), |command| command.contains("armsnap save "));
    assert_eq!(count, 1);
    assert!(place.path().join("copy/snapshot.ini").is_file());
}

/// A directory with a program and its sources.
fn place_of(program: &str, sources: &[&str]) -> tempfile::TempDir {
    let place = tempfile::tempdir().unwrap();
    let copy = |from: &Path| {
        let name = from.file_name().unwrap();
        std::fs::copy(from, place.path().join(name)).unwrap();
    };
    copy(&program_support::program(program).elf);
    for source in sources {
        copy(&gdb::testdata("programs").join(source));
    }
    place
}

#[test]
fn a_program_and_its_crash() {
    let place = place_of("crash-a64", &["crash.c", "linux.h"]);
    let count = run_with(place.path(), true, |command| {
        command.ends_with(" crash-a64.elf") || command == "armsnap gdb crash"
    });
    assert_eq!(count, 3);
}

#[test]
fn two_cores_of_a_machine() {
    let place = place_of("cores-a64-bare-a64", &["cores-a64.c", "start-a64.S"]);
    let count = run_with(place.path(), true, |command| {
        command.starts_with("armsnap record --system ") || command == "armsnap gdb cores"
    });
    assert_eq!(count, 2);
}

#[test]
fn on_real_captures() {
    let Some(capture) = gdb::shared("tc2-ptm-rstk-t32") else {
        return;
    };
    let place: PathBuf = capture.parent().unwrap().to_owned();
    let count = run(&place, |command| {
        command.starts_with("armsnap decode ") && !command.contains(" -o ")
    });
    assert_eq!(count, 2);
}
