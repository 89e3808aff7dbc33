//! The transcripts in README.md and docs/ equal the program's output.

use std::path::Path;
use std::process::{Command, Stdio};

/// A command of a transcript, and the lines below it.
#[derive(Debug)]
struct Step {
    command: String,
    /// The input at GDB's prompt.
    typed: Vec<String>,
    /// The output; `…` stands for any lines.
    lines: Vec<String>,
}

const README: &str = include_str!("../../README.md");
const TOUR: &str = include_str!("../../docs/tour.md");
const DEBUGGING: &str = include_str!("../../docs/debugging.md");
const TASKS: &str = include_str!("../../docs/tasks.md");
const TUTORIAL: &str = include_str!("../../docs/tutorial.md");
const RECORDING: &str = include_str!("../../docs/recording.md");
const REPORTS: &str = include_str!("../../docs/reports.md");
const TROUBLESHOOTING: &str = include_str!("../../docs/troubleshooting.md");

/// Whether a test runs a command.
type Wanted = fn(&str) -> bool;

const IN_TESTDATA: Wanted = |command| {
    command.contains(" testdata/")
        && !command.contains(" serve ")
        && !command.contains("lldb")
        && !command.contains("armsnap save ")
        && !command.contains("armsnap report ")
        && !command.contains(".tf")
};
const CHECK: Wanted = |command| command == "armsnap check bad";
const SAVE: Wanted = |command| command.contains("armsnap save ");
const REPORT: Wanted = |command| command.contains("armsnap report ");
const CRASH: Wanted =
    |command| command.ends_with(" crash-a64.elf") || command == "armsnap gdb crash";
const DISTANT: Wanted =
    |command| command.ends_with(" sensors-a64.elf") || command == "armsnap gdb sensors";
const TWO_CORES: Wanted =
    |command| command.starts_with("armsnap record --system ") || command == "armsnap gdb cores";
const TRACE_FILES: Wanted = |command| command.contains("regulator.tf");
const RECORDED: Wanted = |command| command.starts_with("armsnap gdb testdata/recorded/");
const CAPTURE: Wanted = |command| command.starts_with("armsnap gdb 001-ack_test");
const RECORDS: Wanted = |command| command.contains("crash-a64.elf");

/// The commands in a text's indented blocks, which start with `$`.
fn steps(text: &str) -> Vec<Step> {
    let mut steps: Vec<Step> = Vec::new();
    let mut open = false;
    for line in text.lines() {
        let Some(line) = line.strip_prefix("    ") else {
            // An empty line may be part of the output.
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

/// What GDB prints if a session failed, which no `…` stands for.
const FAULTS: [&str; 6] = [
    "is not available",
    "No threads.",
    "Python Exception",
    "Remote connection closed",
    "The program is not being run.",
    "internal-error",
];

/// Fails if GDB's output has a fault that the transcript does not show.
fn has_no_fault(command: &str, lines: &[String], found: &str) {
    let shown = |fault: &str| lines.iter().any(|line| line.contains(fault));
    for fault in FAULTS.into_iter().filter(|fault| !shown(fault)) {
        assert!(!found.contains(fault), "{command}: {fault}: {found}");
    }
}

/// Fails unless `found` starts with `lines`; `…` skips up to the next line.
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

/// Runs the steps of the README and of the tour that `wanted` selects, in `directory`; returns their
/// number.
fn run(directory: &Path, wanted: impl Fn(&str) -> bool) -> usize {
    let pages = [README, TOUR].into_iter();
    pages
        .map(|page| run_with(page, directory, false, &wanted))
        .sum()
}

/// The same for any text; with `errors`, the output includes standard error.
fn run_with(text: &str, directory: &Path, errors: bool, wanted: impl Fn(&str) -> bool) -> usize {
    let steps = steps(text);
    let mut count = 0;
    for step in steps.iter().filter(|step| wanted(&step.command)) {
        let command = step.command.split("  #").next().unwrap();
        let mut shell = command.replacen("armsnap", crate::support::armsnap(), 1);
        let through_us = shell.contains(" gdb ");
        if through_us || shell.starts_with("gdb-multiarch ") {
            crate::support::gdb::need_gdb();
            if through_us && !shell.contains(" -- ") {
                shell += " --";
            }
            shell += " -nx -batch -iex 'set width 0'";
        }
        for typed in &step.typed {
            shell += &format!(" -ex '{typed}'");
        }
        if errors {
            shell += " 2>&1";
        }
        if shell.contains(" check ") {
            // The snapshot has errors.
            shell += " || [ $? = 1 ]";
        }
        if shell.contains(" record ") {
            // The status is that of the program.
            shell += " || [ $? != 125 ]";
        }
        let mut child = Command::new("sh");
        child.args(["-c", &shell]).current_dir(directory);
        let output = crate::support::gdb::run(child.stdin(Stdio::null()));
        assert!(
            output.status.success(),
            "{command}: {}",
            crate::support::gdb::text(&output)
        );
        if through_us {
            has_no_fault(command, &step.lines, &crate::support::gdb::text(&output));
        }
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
fn transcripts_with_snapshots_in_testdata() {
    let place = Path::new(env!("CARGO_MANIFEST_DIR"));
    let count = run(place, IN_TESTDATA);
    assert_eq!(count, 6);
}

#[test]
fn the_transcript_of_check() {
    let place = tempfile::tempdir().unwrap();
    let bad = place.path().join("bad");
    std::fs::create_dir(&bad).unwrap();
    for entry in std::fs::read_dir(crate::support::gdb::testdata("virt-a57")).unwrap() {
        let from = entry.unwrap().path();
        if from.is_file() {
            std::fs::copy(&from, bad.join(from.file_name().unwrap())).unwrap();
        }
    }
    let core = bad.join("cpu_1.ini");
    let text = std::fs::read_to_string(&core).unwrap();
    let damaged = text
        .replace("PC(size:64)=0x000000004010025C", "PC(size:64)=0xZZ")
        .replace("file=data.bin", "file=dta.bin");
    assert_ne!(text, damaged);
    std::fs::write(&core, damaged).unwrap();
    let count = run(place.path(), CHECK);
    assert_eq!(count, 1);
}

#[test]
fn the_transcript_of_save() {
    let place = tempfile::tempdir().unwrap();
    std::os::unix::fs::symlink(
        crate::support::gdb::testdata(""),
        place.path().join("testdata"),
    )
    .unwrap();
    let count = run(place.path(), SAVE);
    assert_eq!(count, 1);
    assert!(place.path().join("copy/snapshot.ini").is_file());
}

#[test]
fn the_transcript_of_report() {
    let place = tempfile::tempdir().unwrap();
    std::os::unix::fs::symlink(
        crate::support::gdb::testdata(""),
        place.path().join("testdata"),
    )
    .unwrap();
    for page in [TOUR, REPORTS] {
        assert_eq!(run_with(page, place.path(), false, REPORT), 1);
        std::fs::remove_file(place.path().join("etmv4.html")).unwrap();
    }
}

/// A directory with a program and its sources.
fn place_of(program: &str, sources: &[&str]) -> tempfile::TempDir {
    let place = tempfile::tempdir().unwrap();
    let copy = |from: &Path| {
        let name = from.file_name().unwrap();
        std::fs::copy(from, place.path().join(name)).unwrap();
    };
    copy(&crate::support::program::program(program).elf);
    for source in sources {
        copy(&crate::support::gdb::testdata("programs").join(source));
    }
    place
}

#[test]
fn the_transcript_of_a_crash() {
    let place = place_of("crash-a64", &["crash.c", "linux.h"]);
    let count = run_with(README, place.path(), true, CRASH);
    assert_eq!(count, 2);
    let count = run_with(TOUR, place.path(), true, CRASH);
    assert_eq!(count, 1);
}

#[test]
fn the_transcript_of_a_distant_cause() {
    let place = place_of("sensors-a64", &["sensors.c", "linux.h"]);
    let count = run_with(TOUR, place.path(), true, DISTANT);
    assert_eq!(count, 2);
}

#[test]
fn the_transcript_of_two_cores() {
    let place = place_of("cores-a64-bare-a64", &["cores-a64.c", "start-a64.S"]);
    let count = run_with(TOUR, place.path(), true, TWO_CORES);
    assert_eq!(count, 2);
}

#[test]
fn the_transcript_of_trace_files() {
    let place = tempfile::tempdir().unwrap();
    std::os::unix::fs::symlink(
        crate::support::gdb::testdata(""),
        place.path().join("testdata"),
    )
    .unwrap();
    let count = run(place.path(), TRACE_FILES);
    assert_eq!(count, 4);
    for made in ["again", "history"] {
        let file = place.path().join(made).join("snapshot.ini");
        assert!(file.is_file(), "{made}");
    }
}

#[test]
fn transcripts_of_the_debugging_guide() {
    let place = Path::new(env!("CARGO_MANIFEST_DIR"));
    let count = run_with(DEBUGGING, place, true, RECORDED);
    assert_eq!(count, 4);
}

#[test]
fn transcripts_of_the_guide_to_recording() {
    let place = place_of("crash-a64", &["crash.c", "linux.h"]);
    assert_eq!(run_with(RECORDING, place.path(), true, RECORDS), 3);
}

/// From top to bottom, in an empty directory.
#[test]
fn the_tutorial() {
    let place = tempfile::tempdir().unwrap();
    assert_eq!(run_with(TUTORIAL, place.path(), true, |_| true), 9);
}

/// From top to bottom. The pictures and tables are there at the end.
#[test]
fn the_recipes_of_tasks() {
    if Command::new("genhtml").arg("--version").output().is_err() {
        return crate::support::skip::missing("genhtml (lcov)");
    }
    let place = tempfile::tempdir().unwrap();
    let at = |name: &str| place.path().join(name);
    let testdata = crate::support::gdb::testdata("");
    std::os::unix::fs::symlink(&testdata, at("testdata")).unwrap();
    assert_eq!(
        run_with(TASKS, place.path(), true, |_| true),
        steps(TASKS).len()
    );
    for made in [
        "coverage/index.html",
        "crash.html",
        "calls.csv",
        "crash.tf",
        "alone/snapshot.ini",
    ] {
        assert!(at(made).is_file(), "{made}");
    }
}

#[test]
fn transcripts_with_a_real_capture() {
    let Some(capture) = crate::support::gdb::shared("001-ack_test") else {
        return;
    };
    let count = run_with(DEBUGGING, capture.parent().unwrap(), true, CAPTURE);
    assert_eq!(count, 1);
}

#[test]
fn explained_messages() {
    let top = Path::new(env!("CARGO_MANIFEST_DIR"));
    assert_eq!(run_with(TROUBLESHOOTING, top, false, |_| true), 1);
}

/// Snapshots in transcripts are in the repository, or made by earlier commands; for captures the text
/// says where to find them.
#[test]
fn transcripts_use_only_files_that_a_reader_has() {
    // The README and the tour need no capture.
    let captures = DEBUGGING.contains("github.com/Linaro/OpenCSD");
    for (text, name, captures) in [
        (README, "README.md", false),
        (TOUR, "docs/tour.md", false),
        (DEBUGGING, "docs/debugging.md", captures),
    ] {
        // A copy described in a sentence.
        let mut made = vec!["bad"];
        let all = steps(text);
        for step in &all {
            let words: Vec<&str> = step.command.split_whitespace().collect();
            if let [
                "armsnap",
                "gdb" | "decode" | "info" | "convert" | "check",
                input,
                ..,
            ] = words[..]
            {
                let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(input);
                let there = input.starts_with("testdata/") && path.exists();
                let known = there || made.contains(&input) || input.starts_with("--");
                assert!(known || captures, "{name}: {}", step.command);
            }
            made.extend(words);
        }
    }
}

/// Every transcript is run by one of these tests, or has a reason here.
#[test]
fn transcripts_are_run_or_not_for_a_reason() {
    /// A part of a command, and why no test here runs it.
    const OTHERS: [(&str, &str); 8] = [
        (
            "armsnap gdb-commands > ",
            "in another GDB: tests/gdb/save.rs",
        ),
        ("armsnap serve ", "serves until it is ended: tests/gdb"),
        ("lldb -o ", "as the tests of LLDB do: tests/gdb/lldb.rs"),
        ("armsnap export ", "in fenced blocks: tests/cli/blocks.rs"),
        (
            "armsnap fault board",
            "this program and others: tests/record/faults.rs",
        ),
        (
            "armsnap diff good bad",
            "this program and others: tests/record/diff.rs",
        ),
        (
            "armsnap peripherals ",
            "of the same snapshot: tests/snapshot/peripherals.rs",
        ),
        ("-- ./stock ", "shows an option with any program"),
    ];
    let top = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut pages = vec![top.join("README.md")];
    let docs = std::fs::read_dir(top.join("docs")).unwrap();
    pages.extend(docs.map(|entry| entry.unwrap().path()));
    let mut count = 0;
    for page in pages {
        let run: &[Wanted] = match page.file_name().and_then(|name| name.to_str()) {
            Some("README.md") => &[IN_TESTDATA, CRASH],
            Some("tour.md") => &[
                IN_TESTDATA,
                CHECK,
                SAVE,
                REPORT,
                CRASH,
                DISTANT,
                TWO_CORES,
                TRACE_FILES,
            ],
            Some("debugging.md") => &[RECORDED, CAPTURE],
            Some("tutorial.md" | "tasks.md" | "troubleshooting.md") => &[|_| true],
            Some("recording.md") => &[RECORDS],
            Some("reports.md") => &[REPORT],
            Some(name) if name.ends_with(".md") => &[],
            _ => continue,
        };
        for step in steps(&std::fs::read_to_string(&page).unwrap()) {
            let command = &step.command;
            let runs = run.iter().any(|wanted| wanted(command));
            let other = OTHERS.iter().any(|(part, _)| command.contains(part));
            assert!(runs || other, "{}: {command}", page.display());
            count += 1;
        }
    }
    assert!(count > 35, "{count}");
}
