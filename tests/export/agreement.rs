//! All formats agree with `decode --stats`.

use super::common::{arg, armsnap, export_text, number, recorded, said, snapshots, stats};
use std::path::Path;

/// The sum of a file of folded stacks.
fn folded(snapshot: &Path, options: &[&str]) -> u64 {
    let text = export_text(snapshot, "folded", options);
    let counts = text.lines().map(|line| line.rsplit_once(' ').unwrap().1);
    counts.map(|count| count.parse::<u64>().unwrap()).sum()
}

#[test]
fn stacks_contain_all_instructions() {
    let mut some = 0;
    for snapshot in snapshots() {
        let known = number(&stats(&snapshot, &[]), "instructions");
        assert_eq!(folded(&snapshot, &[]), known, "{}", snapshot.display());
        assert_eq!(folded(&snapshot, &["--jobs", "1"]), known);
        some += usize::from(known > 0);
    }
    assert!(some > 2);
}

#[test]
fn a_start_that_is_not_reached_is_noted() {
    let directory = tempfile::tempdir().unwrap();
    let export = |from: &str| {
        let file = directory.path().join("out");
        let snapshot = recorded("etmv4");
        let (snapshot, file) = (arg(&snapshot), arg(&file));
        let arguments = ["export", snapshot, "--as", "folded", "-o", file, "--force"];
        let output = armsnap(&[&arguments[..], &["--from", from]].concat());
        assert!(output.status.success(), "{}", said(&output));
        (std::fs::read_to_string(file).unwrap(), said(&output))
    };
    let note = "does not reach the start";
    let (stacks, notes) = export("instruction:1");
    assert!(!stacks.is_empty() && !notes.contains(note), "{notes}");
    let (stacks, notes) = export("instruction:1000000000000");
    assert!(stacks.is_empty() && notes.contains(note), "{notes}");
}
