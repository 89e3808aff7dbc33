//! Frames of inlined functions in folded stacks.

use super::common::{arg, armsnap, export_text, number, record, run, said, stats};
use crate::support::record::installed;
use std::collections::BTreeMap;

const SOURCE: &str = r#"
#define INLINE __attribute__((always_inline)) static inline
#define CALLED __attribute__((noipa)) static

INLINE void inner(void) { __asm__ volatile("nop\n nop\n nop"); }
INLINE void middle(void) { __asm__ volatile("nop"); inner(); }
CALLED void called(void) { __asm__ volatile("nop\n nop"); }
INLINE void calls(void) { called(); }
CALLED void outer(int n) {
    while (n--) {
        middle();
        calls();
    }
}
int main(void) {
    outer(10);
    return 0;
}
"#;

/// Instructions by stack; without frames of inlined functions, if those are to be left out.
fn stacks(text: &str, inlined: bool) -> BTreeMap<String, u64> {
    let mut stacks = BTreeMap::new();
    for line in text.lines() {
        let (stack, count) = line.rsplit_once(' ').unwrap();
        let frames = stack.split(';');
        let frames = frames.filter(|frame| inlined || !frame.ends_with("_[i]"));
        let stack = frames.collect::<Vec<_>>().join(";");
        *stacks.entry(stack).or_insert(0) += count.parse::<u64>().unwrap();
    }
    stacks
}

#[test]
fn inlined_functions_are_frames() {
    if !installed(&["aarch64-linux-gnu-gcc", "qemu-aarch64"]) {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let place = |name: &str| directory.path().join(name);
    let (source, program, snapshot) = (place("inlined.c"), place("inlined"), place("snapshot"));
    std::fs::write(&source, SOURCE).unwrap();
    let build = ["-O1", "-g", "-static", arg(&source), "-o", arg(&program)];
    let built = run("aarch64-linux-gnu-gcc", &build);
    assert!(built.status.success(), "{}", said(&built));
    record(&[], &snapshot, &program, &[]);

    let text = export_text(&snapshot, "folded", &["--inline"]);
    let found = stacks(&text, true);
    assert_eq!(
        found.values().sum::<u64>(),
        number(&stats(&snapshot, &[]), "instructions")
    );
    // Nothing else changes.
    let plain = export_text(&snapshot, "folded", &[]);
    assert_eq!(stacks(&text, false), stacks(&plain, true));
    assert!(!plain.contains("_[i]"));
    let count = |end: &str| {
        let all = found.iter().filter(|(stack, _)| stack.ends_with(end));
        all.map(|(_, count)| count).sum::<u64>()
    };
    assert_eq!(count("main;outer;middle_[i];inner_[i]"), 30, "{text}");
    assert_eq!(count("main;outer;middle_[i]"), 10, "{text}");
    // The call is in an inlined function; `called` returns as well.
    assert_eq!(count("main;outer;calls_[i]"), 10, "{text}");
    assert_eq!(count("main;outer;calls_[i];called"), 30, "{text}");

    let file = place("out");
    let wrong = [
        "export",
        arg(&snapshot),
        "--as=lcov",
        "--inline",
        "-o",
        arg(&file),
    ];
    let output = armsnap(&wrong);
    assert_eq!(output.status.code(), Some(2), "{}", said(&output));
    assert!(!file.exists());
}

const HEADER: &str = r#"
__attribute__((always_inline)) static inline void inner(void) {
    __asm__ volatile("nop\n nop\n nop");
}
"#;

const INCLUDES: &str = r#"
#include "inner.h"
__attribute__((noipa)) static void called(void) {}
__attribute__((noipa)) static void outer(int n) {
    while (n--) {
        inner();
        called();
    }
}
int main(void) {
    outer(10);
    outer(20);
    return 0;
}
"#;

#[test]
fn callgrind_annotate_counts_inlined_lines_in_their_file() {
    let needed = [
        "aarch64-linux-gnu-gcc",
        "qemu-aarch64",
        "callgrind_annotate",
    ];
    if !installed(&needed) {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let place = |name: &str| directory.path().join(name);
    let (source, program, snapshot) = (place("includes.c"), place("includes"), place("snapshot"));
    std::fs::write(place("inner.h"), HEADER).unwrap();
    std::fs::write(&source, INCLUDES).unwrap();
    let build = ["-O1", "-g", "-static", arg(&source), "-o", arg(&program)];
    let built = run("aarch64-linux-gnu-gcc", &build);
    assert!(built.status.success(), "{}", said(&built));
    record(&[], &snapshot, &program, &[]);

    let text = export_text(&snapshot, "callgrind", &[]);
    let file = place("callgrind.out");
    std::fs::write(&file, &text).unwrap();
    let options = ["--auto=yes", "--threshold=100", "--show-percs=no"];
    let output = run(
        "callgrind_annotate",
        &[&options[..], &[arg(&file)]].concat(),
    );
    let shown = String::from_utf8_lossy(&output.stdout).replace(',', "");
    let counted = |what: &str, count: u64| {
        let mut lines = shown.lines().map(str::trim);
        let with = |line: &str| line.starts_with(&format!("{count} ")) && line.contains(what);
        assert!(lines.any(with), "{count} {what} in {shown}");
    };
    // Of the function that the code is in, and of the line that it comes from.
    counted("inner.h:outer", 90);
    counted("__asm__ volatile", 90);
    // It is code of `outer`, between other code of that function.
    let entry = text.split("\nfn=outer\n").nth(1).unwrap();
    let entry = entry.split("\n\n").next().unwrap();
    let (before, inlined) = entry.split_once("\nfi=").unwrap();
    assert!(!before.contains("inner.h"), "{entry}");
    let (inlined, after) = inlined.split_once("\nfe=").unwrap();
    assert!(inlined.lines().next().unwrap().ends_with("inner.h"));
    assert!(after.lines().next().unwrap().ends_with("includes.c"));
}
