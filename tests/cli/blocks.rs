//! The command blocks of the documentation: the program takes each command, and what makes files for
//! other programs runs.

use crate::support::gdb::{run, run_within, testdata, text};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

const TOP: &str = env!("CARGO_MANIFEST_DIR");

/// A command of a page.
struct Written {
    page: String,
    command: String,
    /// It follows `$`, in a transcript.
    typed: bool,
}

/// The commands of README.md and docs/ that start with `armsnap`, in indented and fenced blocks.
fn commands() -> Vec<Written> {
    let mut pages = vec![Path::new(TOP).join("README.md")];
    let docs = fs::read_dir(Path::new(TOP).join("docs")).unwrap();
    pages.extend(docs.map(|entry| entry.unwrap().path()));
    pages.retain(|page| page.extension().is_some_and(|extension| extension == "md"));
    pages.sort();
    let mut found = Vec::new();
    for page in pages {
        let text = fs::read_to_string(&page).unwrap();
        let mut fenced = false;
        let mut lines = text.lines();
        while let Some(line) = lines.next() {
            if line.trim_start().starts_with("```") {
                fenced = !fenced;
            }
            let Some(code) = line.strip_prefix("    ").or_else(|| fenced.then_some(line)) else {
                continue;
            };
            let typed = code.starts_with("$ ");
            let mut command = code.trim_start_matches("$ ").trim().to_owned();
            // A command goes on in the next line after `&&` and `\`.
            while command.ends_with("&&") || command.ends_with('\\') {
                let more = lines.next().unwrap().trim();
                command = format!("{} {more}", command.trim_end_matches('\\').trim_end());
            }
            if command.starts_with("armsnap ") {
                let page = page.file_name().unwrap().to_string_lossy().into_owned();
                found.push(Written {
                    page,
                    command,
                    typed,
                });
            }
        }
    }
    found
}

/// A command without the remark behind it, for a shell that knows the program by a variable.
fn in_shell(command: &str) -> String {
    let command = command.split("  #").next().unwrap();
    command.replace("armsnap ", "\"$ARMSNAP\" ")
}

#[test]
fn commands_of_the_documentation_are_those_of_the_program() {
    let mut count = 0;
    for Written { page, command, .. } in commands() {
        let first = command.split([';', '|', '>', '&']).next().unwrap();
        // Forms, such as `armsnap COMMAND --help`; and what needs no input, and would run.
        let is_form = first.starts_with("armsnap = ")
            || first.contains("COMMAND")
            || first.contains('[')
            || first.contains('…');
        let runs = first.starts_with("armsnap demo") || first.starts_with("armsnap doctor");
        if is_form || runs {
            continue;
        }
        // No input is there.
        let place = tempfile::tempdir().unwrap();
        let mut shell = Command::new("sh");
        shell.args(["-c", &in_shell(first)]);
        shell.env("ARMSNAP", env!("CARGO_BIN_EXE_armsnap"));
        let output = run(shell.current_dir(place.path()));
        let said = text(&output);
        // What the parser of arguments ends with.
        assert!(!said.contains("try '--help'"), "{page}: {command}: {said}");
        count += 1;
    }
    assert!(count > 60, "{count}");
}

/// What the commands of the pages on exports begin, other programs read.
#[test]
fn transcripts_of_exports_run() {
    // Not in Debian, or without the program's own build: what armsnap writes for them is tested in
    // tests/export.
    let elsewhere = ["flamegraph.pl", "llvm-profgen", "perf2bolt"];
    let place = tempfile::tempdir().unwrap();
    for entry in fs::read_dir(testdata("demo")).unwrap() {
        let from = entry.unwrap().path();
        for name in ["board", "saved"] {
            let to = place.path().join(name);
            fs::create_dir_all(&to).unwrap();
            fs::copy(&from, to.join(from.file_name().unwrap())).unwrap();
        }
        // genhtml reads the sources beside it.
        fs::copy(&from, place.path().join(from.file_name().unwrap())).unwrap();
    }
    let there = fs::read_dir(place.path()).unwrap();
    let there: Vec<PathBuf> = there.map(|entry| entry.unwrap().path()).collect();
    let mut count = 0;
    for Written {
        page,
        command,
        typed,
    } in commands()
    {
        if !typed || !command.starts_with("armsnap export ") {
            continue;
        }
        let parts: Vec<&str> = command.split(" && ").collect();
        let parts = match elsewhere.iter().any(|name| command.contains(name)) {
            true => &parts[..1],
            false => &parts[..],
        };
        let mut shell = Command::new("sh");
        shell.args(["-c", &in_shell(&parts.join(" && "))]);
        shell.env("ARMSNAP", env!("CARGO_BIN_EXE_armsnap"));
        // A command may write what another one wrote.
        for entry in fs::read_dir(place.path()).unwrap() {
            let made = entry.unwrap().path();
            if there.contains(&made) {
                continue;
            }
            let removed = match made.is_dir() {
                true => fs::remove_dir_all(&made),
                false => fs::remove_file(&made),
            };
            removed.unwrap();
        }
        let output = run_within(shell.current_dir(place.path()), Duration::from_secs(120));
        assert!(
            output.status.success(),
            "{page}: {command}: {}",
            text(&output)
        );
        count += 1;
    }
    assert!(count > 12, "{count}");
}
