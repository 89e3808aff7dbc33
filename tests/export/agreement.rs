//! All formats agree with `decode --stats`.

use super::common::{export_text, number, snapshots, stats};
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
