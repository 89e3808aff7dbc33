//! Branch stacks as perf.data: read by perf, llvm-profgen and perf2bolt, whose counts are those of
//! the other exports.

use super::common::{arg, export, export_text, recorded, run, said};
use super::programs::{Recorded, coverage};
use crate::support::record::installed;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Taken branches, with their counts.
type Branches = BTreeMap<(u64, u64), u64>;

/// Exports a snapshot into a directory.
fn made(directory: &Path, snapshot: &Path, options: &[&str]) -> PathBuf {
    let file = directory.join("perf.data");
    std::fs::write(&file, export(snapshot, "perf", options)).unwrap();
    file
}

fn address(text: &str) -> u64 {
    u64::from_str_radix(text.trim_start_matches("0x"), 16).unwrap()
}

/// The branches that perf finds, with both ends; and those with one.
fn by_perf(file: &Path) -> (Branches, u64) {
    let output = run("perf", &["script", "-i", arg(file), "-F", "brstack"]);
    assert!(output.status.success(), "{}", said(&output));
    let text = String::from_utf8(output.stdout).unwrap();
    let (mut found, mut half) = (Branches::new(), 0);
    for entry in text.split_whitespace() {
        let mut parts = entry.split('/');
        let from = address(parts.next().unwrap());
        let to = address(parts.next().unwrap());
        match (from, to) {
            (0, _) | (_, 0) => half += 1,
            _ => *found.entry((from, to)).or_insert(0) += 1,
        }
    }
    (found, half)
}

/// Those in the table of edges.
fn edges(snapshot: &Path, options: &[&str]) -> Branches {
    let options = [&["--table=edges"], options].concat();
    let text = export_text(snapshot, "jsonl", &options);
    let mut found = Branches::new();
    for line in text.lines() {
        let row: serde_json::Value = serde_json::from_str(line).unwrap();
        if row["kind"] != "not_taken" {
            let end = |name: &str| address(row[name].as_str().unwrap());
            *found.entry((end("from"), end("to"))).or_insert(0) += row["count"].as_u64().unwrap();
        }
    }
    found
}

#[test]
fn perf_finds_each_branch_that_was_taken() {
    if !installed(&["perf"]) {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let mut snapshots = vec![recorded("etmv3"), recorded("etmv4"), recorded("ptm")];
    snapshots.extend(coverage().map(Recorded::snapshot));
    for snapshot in snapshots {
        let wanted = edges(&snapshot, &[]);
        assert!(wanted.len() > 5, "{}", snapshot.display());
        let (found, half) = by_perf(&made(directory.path(), &snapshot, &[]));
        assert_eq!(found, wanted, "{}", snapshot.display());
        // Where the trace begins and ends, at least.
        assert!(half >= 2, "{half}");
    }
}

#[test]
fn branches_of_t32_code_without_a_program_are_at_their_instructions() {
    if !installed(&["perf"]) {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let snapshot = directory.path().join("saved");
    std::fs::create_dir(&snapshot).unwrap();
    for file in std::fs::read_dir(recorded("etmv3")).unwrap() {
        let path = file.unwrap().path();
        if path.extension().is_none_or(|extension| extension != "elf") {
            std::fs::copy(&path, snapshot.join(path.file_name().unwrap())).unwrap();
        }
    }
    let (found, _) = by_perf(&made(directory.path(), &snapshot, &[]));
    // BL has four bytes, B two.
    assert!(found.keys().any(|(from, to)| to.abs_diff(*from) > 8));
    assert_eq!(found, edges(&snapshot, &[]));
}

#[test]
fn llvm_profgen_makes_the_same_profile_of_them() {
    let Some(recorded) = coverage() else { return };
    if !installed(&["perf", "llvm-profgen-19"]) {
        return;
    }
    let file = made(&recorded.path(""), &recorded.snapshot(), &[]);
    let raw = recorded.path("unsymbolized.txt");
    std::fs::write(&raw, export(&recorded.snapshot(), "llvm-profgen", &[])).unwrap();
    let binary = format!("--binary={}", arg(&recorded.program()));
    let profile = |input: String, name: &str| -> String {
        let out = recorded.path(name);
        let output = run(
            "llvm-profgen-19",
            &[&binary, &input, "--format=text", "--output", arg(&out)],
        );
        assert!(output.status.success(), "{}", said(&output));
        std::fs::read_to_string(out).unwrap()
    };
    let found = profile(format!("--perfdata={}", arg(&file)), "found.txt");
    let wanted = profile(
        format!("--unsymbolized-profile={}", arg(&raw)),
        "wanted.txt",
    );
    assert!(found.contains("fib:"), "{found}");
    assert_eq!(found, wanted);
}

#[test]
fn perf2bolt_finds_the_same_branches_of_the_program() {
    let Some(recorded) = coverage() else { return };
    let perf2bolt = "/usr/lib/llvm-19/bin/perf2bolt";
    if !installed(&["perf", perf2bolt]) {
        return;
    }
    let file = made(&recorded.path(""), &recorded.snapshot(), &[]);
    let out = recorded.path("stacks.fdata");
    let program = recorded.program();
    let output = run(
        perf2bolt,
        &["-p", arg(&file), "-o", arg(&out), arg(&program)],
    );
    let text = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    assert!(output.status.success(), "{text}");
    let made = std::fs::read_to_string(out).unwrap();
    // Both calls of fib in itself; fib(10) makes 88 of each.
    let recursive = made.lines().filter(|line| {
        let parts: Vec<&str> = line.split(' ').collect();
        parts.len() > 7 && parts[1] == "fib/1" && parts[4] == "fib/1" && parts[5] == "0"
    });
    let counts: Vec<&str> = recursive
        .map(|line| line.rsplit(' ').next().unwrap())
        .collect();
    assert_eq!(counts, ["88", "88"], "{text}\n{made}");
}

#[test]
fn perf_reports_branches_with_the_names_of_functions() {
    let Some(recorded) = coverage() else { return };
    if !installed(&["perf"]) {
        return;
    }
    let file = made(&recorded.path(""), &recorded.snapshot(), &[]);
    for options in [&["--branch-stack"][..], &["--branch-history"]] {
        let report = ["report", "-i", arg(&file), "--stdio"];
        let output = run("perf", &[&report, options].concat());
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(output.status.success(), "{}", said(&output));
        assert!(text.contains("fib"), "{text}");
    }
}
