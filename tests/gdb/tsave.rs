//! A trace file saved by GDB from a live session with gdbserver on AArch64 Linux
//! (`scripts/make-trace-file`): served and converted, it shows the same as the live session.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use crate::support::gdb::{armsnap, run, session, testdata, text};
use armsnap::tfile::File;

fn saved() -> PathBuf {
    testdata("tsave-aarch64").join("saved.tf")
}

/// The values shown in a trace frame, by name: registers, `calls`, `total` and `order`.
type Shown = BTreeMap<String, String>;

fn shown(text: &str) -> Vec<Shown> {
    let frames = text.split("frame:").skip(1).map(|frame| {
        let mut shown = Shown::new();
        let (head, rest) = frame.split_once('\n').unwrap();
        shown.insert("frame".into(), head.into());
        for line in rest.lines() {
            let mut words = line.split_whitespace();
            match line.split_once(':') {
                Some((name @ ("calls" | "total" | "order"), value)) => {
                    shown.insert(name.into(), value.into());
                }
                _ => {
                    let (Some(name), Some(value)) = (words.next(), words.next()) else {
                        continue;
                    };
                    // Other registers have names in capitals in a snapshot.
                    shown.insert(name.to_ascii_lowercase(), value.into());
                }
            }
        }
        shown
    });
    frames.collect()
}

fn expected() -> Vec<Shown> {
    let text = std::fs::read_to_string(testdata("tsave-aarch64").join("expected.txt")).unwrap();
    let frames = shown(&text);
    assert_eq!(frames.len(), 12);
    assert!(frames.iter().all(|frame| frame.len() >= 40), "{frames:?}");
    frames
}

/// Checks that the named values are the same.
fn same(found: &Shown, wanted: &Shown, names: impl Fn(&str) -> bool) {
    for (name, value) in wanted.iter().filter(|(name, _)| names(name)) {
        assert_eq!(found.get(name), Some(value), "{name} of {wanted:?}");
    }
}

/// Runs a session that prints the same values as the live one.
fn look(input: &Path, before: &str, after: &str) -> Vec<Shown> {
    let directory = tempfile::tempdir().unwrap();
    let script = directory.path().join("script");
    let show = "info registers\necho calls:\noutput $calls\necho \\ntotal:\noutput total\n\
                echo \\norder:\noutput orders\necho \\n\n";
    std::fs::write(&script, format!("set width 0\n{before}{show}{after}")).unwrap();
    let program = testdata("tsave-aarch64").join("program.elf");
    let options = ["--elf", program.to_str().unwrap()];
    let source = format!("source {}", script.display());
    shown(&session(input, &options, &[&source]))
}

#[test]
fn served_it_shows_the_same_as_the_live_session() {
    let found = look(
        &saved(),
        "tfind start\nwhile $trace_frame != -1\necho frame:\n\
         printf \"%d %d\\n\", $trace_frame, $tracepoint\n",
        "tfind\nend\n",
    );
    let expected = expected();
    assert_eq!(found.len(), expected.len());
    for (found, wanted) in found.iter().zip(&expected) {
        // GDB renumbers the tracepoints of a trace file.
        same(found, wanted, |name| name != "frame");
    }
}

#[test]
fn converted_it_shows_the_same_as_the_live_session() {
    let directory = tempfile::tempdir().unwrap();
    let expected = expected();
    // At a call, stepped from there, and after the loop.
    for frame in [0, 4, 6, 11] {
        let snapshot = directory.path().join(format!("{frame}"));
        let mut convert = armsnap();
        convert.arg("convert").args(["--frame", &frame.to_string()]);
        let output = run(convert.arg(saved()).arg(&snapshot));
        assert!(output.status.success(), "{}", text(&output));
        let found = look(&snapshot, "echo frame:\\n\n", "");
        let registers = |name: &str| !["frame", "calls", "total", "order"].contains(&name);
        same(&found[0], &expected[frame], registers);
    }
}

#[test]
fn source_texts_of_tracepoints_are_kept() {
    let bytes = std::fs::read(saved()).unwrap();
    let file = File::open(&bytes, None).unwrap();
    let description = file.description();
    assert!(description.unknown.is_empty(), "{:?}", description.unknown);
    let written = description.write().unwrap();
    let kinds = ["R ", "status ", "tsv ", "tp "];
    let text = String::from_utf8_lossy(&bytes);
    let head = text.split("\n\n").next().unwrap();
    let lines = |text: &str| {
        let lines = text.lines().map(str::to_owned);
        let mut lines: Vec<_> = lines
            .filter(|line| kinds.iter().any(|kind| line.starts_with(kind)))
            .collect();
        lines.sort();
        lines
    };
    assert!(lines(head).len() > 20);
    assert_eq!(lines(&written), lines(head));
    assert_eq!(file.count(), 12);
}
