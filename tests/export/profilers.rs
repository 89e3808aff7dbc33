//! Profiles: Callgrind's, drcov's, and those of compilers, each read by its own tool.

use super::common::{arg, export, export_text, number, record, run, said, snapshots, stats};
use super::programs::coverage;
use crate::support::record::installed;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

#[test]
fn callgrind_annotate_counts_all_instructions() {
    if !installed(&["callgrind_annotate"]) {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    for snapshot in snapshots() {
        let known = number(&stats(&snapshot, &[]), "instructions");
        if known == 0 {
            continue;
        }
        let file = directory.path().join("callgrind.out");
        std::fs::write(&file, export(&snapshot, "callgrind", &[])).unwrap();
        let output = run("callgrind_annotate", &["--threshold=100", arg(&file)]);
        let text = String::from_utf8_lossy(&output.stdout).replace(',', "");
        assert!(output.status.success(), "{}", said(&output));
        assert!(said(&output).is_empty(), "{}", said(&output));
        let total = text
            .lines()
            .find(|line| line.contains("PROGRAM TOTALS"))
            .unwrap();
        assert_eq!(
            total.split_whitespace().next(),
            Some(&*known.to_string()),
            "{}: {total}",
            snapshot.display()
        );
        // It has the total from the file; the functions must have it as well.
        let functions = text.split("file:function").nth(1).unwrap().lines();
        let own = functions.filter_map(|line| {
            let count = line.trim().split(' ').next()?;
            line.contains("%)").then(|| count.parse::<u64>().unwrap())
        });
        assert_eq!(own.sum::<u64>(), known, "{}", snapshot.display());
    }
}

#[test]
fn calls_have_their_costs_and_lines() {
    let Some(recorded) = coverage() else { return };
    if !installed(&["callgrind_annotate"]) {
        return;
    }
    let file = recorded.path("callgrind.out");
    std::fs::write(&file, export(&recorded.snapshot(), "callgrind", &[])).unwrap();
    let annotate = |options: &[&str]| {
        let output = run("callgrind_annotate", &[options, &[arg(&file)]].concat());
        assert!(output.status.success(), "{}", said(&output));
        String::from_utf8_lossy(&output.stdout).replace(',', "")
    };
    let inclusive = annotate(&["--inclusive=yes", "--threshold=100"]);
    let cost = |name: &str| -> u64 {
        let end = format!("coverage.c:{name}");
        let line = inclusive.lines().find(|line| line.contains(&end)).unwrap();
        line.trim().split(' ').next().unwrap().parse().unwrap()
    };
    let text = export_text(&recorded.snapshot(), "folded", &[]);
    let under = |name: &str| -> u64 {
        let stacks = text.lines().map(|line| line.rsplit_once(' ').unwrap());
        let inside = stacks.filter(|(stack, _)| stack.split(';').any(|frame| frame == name));
        inside.map(|(_, count)| count.parse::<u64>().unwrap()).sum()
    };
    for name in ["main", "sum", "classify", "fib", "deep"] {
        assert_eq!(cost(name), under(name), "{name}");
    }
    // fib(10) makes 177 calls in all.
    let tree = annotate(&["--tree=calling", "--threshold=100"]);
    assert!(
        tree.contains("fib (176x)") && tree.contains("fib (1x)"),
        "{tree}"
    );
}

/// Modules, each with its range and path.
type Modules = Vec<(u64, u64, String)>;
/// Blocks: offset, length, module.
type Blocks = Vec<(u32, u16, u16)>;

/// Reads drcov as Lighthouse does.
fn drcov(bytes: &[u8]) -> (Modules, Blocks) {
    let mark = b"BB Table: ";
    let at = bytes.windows(mark.len()).position(|part| part == mark);
    let (head, table) = bytes.split_at(at.unwrap());
    let head = std::str::from_utf8(head).unwrap();
    let mut lines = head.lines();
    assert_eq!(lines.next(), Some("DRCOV VERSION: 2"));
    assert_eq!(lines.next(), Some("DRCOV FLAVOR: drcov"));
    let count = lines.next().unwrap();
    let count = count
        .strip_prefix("Module Table: version 2, count ")
        .unwrap();
    let columns = "Columns: id, base, end, entry, checksum, timestamp, path";
    assert_eq!(lines.next(), Some(columns));
    let hexadecimal = |text: &str| u64::from_str_radix(text.trim().trim_start_matches("0x"), 16);
    let modules: Vec<_> = lines
        .map(|line| {
            let parts: Vec<&str> = line.splitn(7, ", ").collect();
            let base = hexadecimal(parts[1]).unwrap();
            (base, hexadecimal(parts[2]).unwrap(), parts[6].to_owned())
        })
        .collect();
    assert_eq!(modules.len(), count.parse::<usize>().unwrap());
    let end = table.iter().position(|byte| *byte == b'\n').unwrap();
    let blocks = std::str::from_utf8(&table[mark.len()..end]).unwrap();
    let blocks: usize = blocks.strip_suffix(" bbs").unwrap().parse().unwrap();
    let (entries, rest) = table[end + 1..].as_chunks::<8>();
    assert_eq!((entries.len(), rest.len()), (blocks, 0));
    let entry = |entry: &[u8; 8]| {
        let start = u32::from_le_bytes(entry[..4].try_into().unwrap());
        let size = u16::from_le_bytes([entry[4], entry[5]]);
        (start, size, u16::from_le_bytes([entry[6], entry[7]]))
    };
    (modules, entries.iter().map(entry).collect())
}

/// The addresses that a listing of a snapshot executed.
fn executed(snapshot: &Path) -> BTreeSet<u64> {
    let output = super::common::armsnap(&["decode", arg(snapshot), "--format", "jsonl"]);
    let text = String::from_utf8(output.stdout).unwrap();
    let mut addresses = BTreeSet::new();
    for line in text.lines() {
        let element: serde_json::Value = serde_json::from_str(line).unwrap();
        if element["kind"] == "range" {
            let number = |name: &str| {
                let text = element[name].as_str().unwrap().trim_start_matches("0x");
                u64::from_str_radix(text, 16).unwrap()
            };
            addresses.extend(number("start")..number("end"));
        }
    }
    addresses
}

#[test]
fn drcov_has_each_executed_block() {
    for snapshot in snapshots() {
        let (modules, blocks) = drcov(&export(&snapshot, "drcov", &[]));
        let mut covered = BTreeSet::new();
        for (start, size, module) in &blocks {
            let (base, end, _) = &modules[usize::from(*module)];
            let start = base + u64::from(*start);
            assert!(start + u64::from(*size) <= *end);
            covered.extend(start..start + u64::from(*size));
        }
        assert_eq!(covered, executed(&snapshot), "{}", snapshot.display());
    }
}

type Pairs = BTreeMap<(u64, u64), u64>;

/// Reads two tables of counts; `between` stands between them.
fn counts(text: &str, arrow: &str, between: Option<&str>) -> (Pairs, Pairs) {
    let mut lines = text.lines();
    let ranges = table(&mut lines, "-");
    if let Some(between) = between {
        assert_eq!(lines.next(), Some(between));
    }
    (ranges, table(&mut lines, arrow))
}

/// Reads a table of counts.
fn table(lines: &mut std::str::Lines<'_>, arrow: &str) -> Pairs {
    let count: usize = lines.next().unwrap().parse().unwrap();
    let rows = lines.take(count).map(|line| {
        let (pair, count) = line.split_once(':').unwrap();
        let (first, second) = pair.split_once(arrow).unwrap();
        let number = |text| u64::from_str_radix(text, 16).unwrap();
        ((number(first), number(second)), count.parse().unwrap())
    });
    rows.collect()
}

#[test]
fn the_profile_of_a_phone_equals_that_of_simpleperf() {
    let shared = Path::new(env!("CARGO_MANIFEST_DIR")).join("../shared/captures/perf");
    if !shared.is_dir() {
        crate::support::skip::missing("../shared is not there");
        return;
    }
    let input = shared.join("perf_etm.data");
    let text = export_text(&input, "autofdo", &["--symfs", arg(&shared)]);
    let golden = std::fs::read_to_string(shared.join("perf_inject.data")).unwrap();
    let (ranges, branches) = counts(&text, "->", Some("0"));
    let (known_ranges, known_branches) = counts(&golden, "->", Some("0"));
    assert_eq!(ranges, known_ranges);
    // simpleperf writes 0 for a branch that leaves the program, and for one that Debian's perf sees
    // inside of it, as we do. A branch into code that is missing has no known target.
    for ((from, to), count) in &known_branches {
        let all = branches.iter().filter(|((known, _), _)| known == from);
        let all: Vec<u64> = all.map(|(_, count)| *count).collect();
        match to {
            0 => assert!(all.is_empty() || all == [*count], "{from:x}: {all:?}"),
            _ => assert_eq!(branches.get(&(*from, *to)), Some(count), "{from:x}"),
        }
    }
    let known: BTreeSet<u64> = known_branches.keys().map(|(from, _)| *from).collect();
    assert!(branches.keys().all(|(from, _)| known.contains(from)));
    let id = |text: &str| {
        let mut lines = text.lines();
        lines
            .find(|line| line.contains("build_id"))
            .unwrap()
            .to_owned()
    };
    assert_eq!(id(&text), id(&golden));
}

/// Profiles for compilers are counted without following calls, tables with them.
#[test]
fn branches_are_the_same_with_and_without_calls() {
    let Some(recorded) = coverage() else { return };
    let snapshot = recorded.snapshot();
    let text = export_text(&snapshot, "autofdo", &[]);
    let (_, branches) = counts(&text, "->", Some("0"));
    let mut sums = Pairs::new();
    for line in export_text(&snapshot, "jsonl", &["--table=edges"]).lines() {
        let row: serde_json::Value = serde_json::from_str(line).unwrap();
        let address = |name: &str| {
            let text = row[name].as_str()?.strip_prefix("0x")?;
            u64::from_str_radix(text, 16).ok()
        };
        if row["kind"] != "not_taken"
            && let Some(from) = address("from_in_file")
        {
            let to = address("to_in_file").unwrap_or(0);
            *sums.entry((from, to)).or_insert(0) += row["count"].as_u64().unwrap();
        }
    }
    assert!(branches.len() > 100, "{}", branches.len());
    assert_eq!(branches, sums);
}

#[test]
fn a_program_that_no_core_has_is_named() {
    let directory = tempfile::tempdir().unwrap();
    let (file, missing) = (directory.path().join("out"), directory.path().join("none"));
    let snapshot = super::common::recorded("ptm");
    let other = Path::new(crate::support::armsnap());
    for (program, why) in [
        (&*missing, "none: No such file or directory"),
        (other, "armsnap: expected a program of the cores"),
    ] {
        let output = super::common::armsnap(&[
            "export",
            arg(&snapshot),
            "--as=autofdo",
            "-o",
            arg(&file),
            "--program",
            arg(program),
        ]);
        assert_eq!(output.status.code(), Some(1));
        assert!(said(&output).contains(why), "{}", said(&output));
        assert!(!file.exists());
    }
}

#[test]
fn llvm_profgen_makes_a_profile_of_it() {
    let Some(recorded) = coverage() else { return };
    if !installed(&["llvm-profgen-19", "llvm-profdata-19"]) {
        return;
    }
    let (raw, made) = (recorded.path("raw.txt"), recorded.path("made.txt"));
    std::fs::write(&raw, export(&recorded.snapshot(), "llvm-profgen", &[])).unwrap();
    let binary = format!("--binary={}", arg(&recorded.program()));
    let raw = format!("--unsymbolized-profile={}", arg(&raw));
    let output = run("llvm-profgen-19", &[&binary, &raw, "--output", arg(&made)]);
    assert!(output.status.success(), "{}", said(&output));
    let output = run("llvm-profdata-19", &["show", "--sample", arg(&made)]);
    assert!(output.status.success(), "{}", said(&output));
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let function = |name: &str| {
        let mut parts = text.split("Function: ");
        let found = parts.find(|part| part.starts_with(name));
        found.unwrap_or_else(|| panic!("{name}: {text}"))
    };
    // fib(10) makes 177 calls in all.
    let fib = function("fib: ");
    assert!(fib.contains(", 177, 4 sampled lines"), "{fib}");
    assert!(fib.contains("  1: 177, calls: fib:176"), "{fib}");
    assert!(function("sum: ").contains("  5: 26, calls: classify:26"));
}

/// A program with rare calls in the path of its loop, compiled by clang.
struct Compiled {
    snapshot: std::path::PathBuf,
    program: std::path::PathBuf,
}

/// Compiles and records `hot.c`.
fn compiled(directory: &Path, name: &str, options: &[&str]) -> Compiled {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let program = directory.join(name);
    let snapshot = directory.join(format!("{name}.snapshot"));
    let headers = format!("-I{}", arg(&here.join("testdata/programs")));
    let source = here.join("tests/export/hot.c");
    let all = [
        &["--target=aarch64-linux-gnu", "-O2", "-g", "-ffreestanding"][..],
        &[
            "-fdebug-info-for-profiling",
            "-nostdlib",
            "-static",
            &headers,
        ],
        options,
        &[arg(&source), "-o", arg(&program)],
    ];
    let built = run("clang-19", &all.concat());
    assert!(built.status.success(), "{}", said(&built));
    record(&[], &snapshot, &program, &[]);
    Compiled { snapshot, program }
}

/// Direct branches that were taken.
fn taken(snapshot: &Path) -> u64 {
    let text = export_text(snapshot, "jsonl", &["--table=edges"]);
    let rows = text.lines().map(|line| {
        let row: serde_json::Value = serde_json::from_str(line).unwrap();
        row
    });
    let branches = rows.filter(|row| row["kind"] == "branch");
    branches.map(|row| row["count"].as_u64().unwrap()).sum()
}

#[test]
fn clang_lays_the_hot_path_straight_with_it() {
    if !installed(&[
        "clang-19",
        "llvm-profgen-19",
        "aarch64-linux-gnu-ld",
        "qemu-aarch64",
    ]) {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let before = compiled(directory.path(), "before", &[]);
    let (raw, made) = (directory.path().join("raw"), directory.path().join("made"));
    std::fs::write(&raw, export(&before.snapshot, "llvm-profgen", &[])).unwrap();
    let binary = format!("--binary={}", arg(&before.program));
    let raw = format!("--unsymbolized-profile={}", arg(&raw));
    let output = run("llvm-profgen-19", &[&binary, &raw, "--output", arg(&made)]);
    assert!(output.status.success(), "{}", said(&output));
    let with = format!("-fprofile-sample-use={}", arg(&made));
    let after = compiled(directory.path(), "after", &[&with]);
    let (before, after) = (taken(&before.snapshot), taken(&after.snapshot));
    // Three branches around rare calls in each of 20000 rounds, and the loop's.
    assert!(before > 50_000, "{before}");
    assert!(after * 2 < before, "{before} taken branches, then {after}");
}

#[test]
fn perf2bolt_matches_it_with_the_program() {
    let Some(recorded) = coverage() else { return };
    let perf2bolt = "/usr/lib/llvm-19/bin/perf2bolt";
    if !installed(&[perf2bolt]) {
        return;
    }
    let (raw, made) = (recorded.path("raw.bolt"), recorded.path("made.fdata"));
    std::fs::write(&raw, export(&recorded.snapshot(), "bolt", &[])).unwrap();
    let program = recorded.program();
    let output = run(
        perf2bolt,
        &["-pa", "-p", arg(&raw), "-o", arg(&made), arg(&program)],
    );
    let text = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    assert!(output.status.success(), "{text}");
    assert!(
        text.contains("Out of range traces involving unknown regions: 0"),
        "{text}"
    );
    let made = std::fs::read_to_string(made).unwrap();
    // Both calls of fib in itself; fib(10) makes 88 of each.
    let recursive = made.lines().filter(|line| {
        let parts: Vec<&str> = line.split(' ').collect();
        parts[1] == "fib/1" && parts[4] == "fib/1" && parts[5] == "0"
    });
    let counts: Vec<&str> = recursive
        .map(|line| line.rsplit(' ').next().unwrap())
        .collect();
    assert_eq!(counts, ["88", "88"], "{made}");
}
