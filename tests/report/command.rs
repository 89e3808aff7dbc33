//! The command line of `armsnap report`: files, exit status, parts.

use crate::{Report, TESTDATA, recorded, report};
use std::fs;
use std::path::Path;

#[test]
fn nothing_is_overwritten_without_force() {
    let directory = tempfile::tempdir().unwrap();
    let page = directory.path().join("page.html");
    let path = page.to_str().unwrap();
    fs::write(&page, "mine").unwrap();
    let refused = report(&recorded("ptm"), &["--html", path]);
    assert_eq!(refused.status.code(), Some(2), "{refused:?}");
    assert_eq!(fs::read_to_string(&page).unwrap(), "mine");
    let forced = report(&recorded("ptm"), &["--html", path, "--force"]);
    assert_eq!(forced.status.code(), Some(0), "{forced:?}");
    assert!(
        fs::read_to_string(&page)
            .unwrap()
            .starts_with("<!DOCTYPE html>")
    );
    let left: Vec<_> = fs::read_dir(directory.path()).unwrap().collect();
    assert_eq!(left.len(), 1, "{left:?}");
}

#[test]
fn input_is_not_overwritten_even_with_force() {
    let directory = tempfile::tempdir().unwrap();
    for file in fs::read_dir(recorded("ptm")).unwrap() {
        let file = file.unwrap();
        fs::copy(file.path(), directory.path().join(file.file_name())).unwrap();
    }
    let trace = directory.path().join("trace.bin");
    let before = fs::read(&trace).unwrap();
    let refused = report(
        directory.path(),
        &["--html", trace.to_str().unwrap(), "--force"],
    );
    assert_eq!(refused.status.code(), Some(2), "{refused:?}");
    assert_eq!(fs::read(&trace).unwrap(), before);
}

/// What cannot be read leaves no page.
#[test]
fn faulty_input_leaves_no_file() {
    let directory = tempfile::tempdir().unwrap();
    let page = directory.path().join("page.html");
    let none = report(Path::new("/none"), &["--html", page.to_str().unwrap()]);
    assert_eq!(none.status.code(), Some(1), "{none:?}");
    let wrong = report(
        &recorded("ptm"),
        &["--html", page.to_str().unwrap(), "--sources", "/none"],
    );
    assert_eq!(wrong.status.code(), Some(2), "{wrong:?}");
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0);
}

#[test]
fn the_summary_alone_writes_no_page() {
    let output = report(&recorded("ptm"), &["--summary"]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let whole = Report::of(&recorded("ptm"), &[]);
    assert_eq!(String::from_utf8(output.stdout).unwrap(), whole.summary);
}

/// An empty name is a mistake of the caller, such as an unset variable.
#[test]
fn empty_names_are_refused() {
    for option in ["--from", "--to", "--core"] {
        let refused = report(&recorded("ptm"), &["--summary", option, ""]);
        assert_eq!(refused.status.code(), Some(2), "{refused:?}");
        let message = String::from_utf8(refused.stderr).unwrap();
        let expected = format!("error: a value is required for '{option} ");
        assert!(message.starts_with(&expected), "{message}");
    }
}

/// A part keeps its place on the axis.
#[test]
fn a_part_of_the_trace() {
    let part = [
        "--core",
        "Cortex-A57_0",
        "--from",
        "instruction:200",
        "--to",
        "instruction:400",
    ];
    let report = Report::of(&recorded("etmv4"), &part);
    let data = report.data();
    let tracks = data["tracks"].as_array().unwrap();
    assert_eq!(tracks.len(), 1);
    let (first, last) = (tracks[0]["first"].as_u64(), tracks[0]["length"].as_u64());
    let executed = report.total(&data, "instructions");
    assert_eq!(last.unwrap() - first.unwrap(), executed);
    assert!((200..220).contains(&first.unwrap()), "{first:?}");
    assert!((150..=200).contains(&executed), "{executed}");
}

#[test]
fn a_part_does_not_end_before_it_starts() {
    for (from, to) in [("instruction:400", "instruction:200"), ("0+9", "0+4")] {
        let part = ["--core", "Cortex-A57_0", "--from", from, "--to", to];
        let output = report(&recorded("etmv4"), &part);
        assert_eq!(output.status.code(), Some(2), "{output:?}");
        let message = String::from_utf8(output.stderr).unwrap();
        assert!(
            message.contains(&format!("--from {from} is after --to {to}")),
            "{message}"
        );
    }
}

/// Source files outside of the directories that are named stay private.
#[test]
fn source_is_read_below_the_named_directories_only() {
    let without = Report::of(&recorded("etmv4"), &[]).data();
    let texts = |data: &serde_json::Value| {
        let files = data["files"].as_array().unwrap().iter();
        files.filter(|file| file["text"].is_array()).count()
    };
    assert_eq!(texts(&without), 0);
    let sources = format!("{TESTDATA}/virt-a57");
    let with = Report::of(&recorded("etmv4"), &["--sources", &sources]).data();
    assert_eq!(texts(&with), 3);
    assert_eq!(without["functions"], with["functions"]);
}
