//! Coverage, read by lcov and genhtml, and compared with gcov.

use super::common::{arg, export, export_text, run, said};
use super::programs::{Recorded, coverage};
use crate::support::record::installed;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::io::Read;

/// The numbers after `name` in the record of the program's source file, first by second.
fn of_source(text: &str, name: &str) -> BTreeMap<u32, u64> {
    let records = text.split("end_of_record");
    let mut own = records.filter(|record| record.contains("/coverage.c\n"));
    let own = own.next().expect("the source file");
    let values = own.lines().filter_map(|line| line.strip_prefix(name));
    let pairs = values.map(|value| value.split_once(',').unwrap());
    pairs
        .map(|(first, second)| (first.parse().unwrap(), second.parse().unwrap()))
        .collect()
}

/// Lines and functions of the same program by gcov.
fn gcov(recorded: &Recorded) -> (BTreeMap<u32, u64>, BTreeMap<String, u64>) {
    let directory = recorded.path("gcov");
    std::fs::create_dir(&directory).unwrap();
    std::fs::copy(recorded.path("coverage.c"), directory.join("coverage.c")).unwrap();
    let script = format!(
        "cd {} && aarch64-linux-gnu-gcc -O0 -g -static --coverage coverage.c -o counted \
         && qemu-aarch64 ./counted && aarch64-linux-gnu-gcov --json-format counted-coverage.gcda",
        arg(&directory)
    );
    let output = run("sh", &["-c", &script]);
    assert!(output.status.success(), "{}", said(&output));
    let packed = std::fs::read_dir(&directory).unwrap();
    let mut packed = packed.map(|entry| entry.unwrap().path());
    let packed = packed.find(|path| path.extension().is_some_and(|end| end == "gz"));
    let mut json = Vec::new();
    flate2::read::GzDecoder::new(std::fs::File::open(packed.unwrap()).unwrap())
        .read_to_end(&mut json)
        .unwrap();
    let json: Value = serde_json::from_slice(&json).unwrap();
    let file = &json["files"][0];
    let lines = file["lines"].as_array().unwrap().iter();
    let lines = lines.map(|line| {
        let number = line["line_number"].as_u64().unwrap() as u32;
        (number, line["count"].as_u64().unwrap())
    });
    let functions = file["functions"].as_array().unwrap().iter();
    let functions = functions.map(|function| {
        let name = function["name"].as_str().unwrap().to_owned();
        (name, function["execution_count"].as_u64().unwrap())
    });
    (lines.collect(), functions.collect())
}

#[test]
fn lines_and_functions_equal_those_of_gcov() {
    let Some(recorded) = coverage() else { return };
    if !installed(&["aarch64-linux-gnu-gcov"]) {
        return;
    }
    let text = export_text(&recorded.snapshot(), "lcov", &[]);
    let found = of_source(&text, "DA:");
    let (lines, functions) = gcov(recorded);
    let source = super::programs::SOURCE;
    let mut compared = 0;
    for (number, count) in &lines {
        let line = source.lines().nth(*number as usize - 1).unwrap();
        // gcov has lines without an instruction, such as `case 0:`.
        let Some(own) = found.get(number) else {
            let label = line.contains("case ") || line.contains("default:");
            assert!(label, "{number}: {line}");
            continue;
        };
        // What follows setjmp is executed again when longjmp returns there.
        let twice = u64::from(line.contains("setjmp"));
        assert_eq!(*own, count + twice, "{number}: {line}");
        compared += 1;
    }
    assert!(compared > 30, "{compared} lines");
    let own: BTreeMap<String, u64> = text
        .lines()
        .filter_map(|line| line.strip_prefix("FNDA:")?.split_once(','))
        .map(|(count, name)| (name.to_owned(), count.parse().unwrap()))
        .collect();
    for (name, count) in functions {
        assert_eq!(own[&name], count, "{name}");
    }
}

#[test]
fn branches_are_counted_both_ways() {
    let Some(recorded) = coverage() else { return };
    let text = export_text(&recorded.snapshot(), "lcov", &[]);
    let source = super::programs::SOURCE;
    let line_of = |part: &str| {
        let line = source.lines().position(|line| line.contains(part));
        line.unwrap() + 1
    };
    let branches = |part: &str| -> Vec<&str> {
        let prefix = format!("BRDA:{},", line_of(part));
        let records = text.split("end_of_record");
        let own = records.filter(|record| record.contains("/coverage.c\n"));
        let lines = own.flat_map(str::lines);
        let found = lines.filter(|line| line.starts_with(&prefix));
        found.map(|line| line.rsplit(',').next().unwrap()).collect()
    };
    // 40 times around, then out.
    let mut loops = branches("i < n");
    loops.sort_unstable();
    assert_eq!(loops, ["1", "40"]);
    // A function that was never called.
    assert_eq!(branches("while (n > 10)"), ["-", "-"]);
    // A condition that never held: one way only.
    assert!(branches("argc > 3").contains(&"0"));
}

/// Tools add the counts of several runs by line and number.
#[test]
fn branches_have_the_same_numbers_whatever_was_executed() {
    let snapshot = super::common::recorded("ptm");
    let branches = |options: &[&str]| -> BTreeSet<String> {
        let text = export_text(&snapshot, "lcov", options);
        let found = text.lines().filter_map(|line| line.strip_prefix("BRDA:"));
        let numbers = found.map(|branch| branch.rsplit_once(',').unwrap().0.to_owned());
        numbers.collect()
    };
    let whole = branches(&[]);
    let part = branches(&["--from", "instruction:1400"]);
    assert!(!part.is_empty() && part.len() < whole.len(), "{part:?}");
    assert!(part.is_subset(&whole), "{part:?} {whole:?}");
}

#[test]
fn lcov_and_genhtml_read_it() {
    let Some(recorded) = coverage() else { return };
    if !installed(&["lcov", "genhtml"]) {
        return;
    }
    let info = export(&recorded.snapshot(), "lcov", &[]);
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("coverage.info");
    std::fs::write(&file, &info).unwrap();
    let branches = ["--rc", "lcov_branch_coverage=1"];
    let output = run(
        "lcov",
        &[&["--summary", arg(&file)][..], &branches].concat(),
    );
    assert!(output.status.success(), "{}", said(&output));
    let text = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    let info = String::from_utf8(info).unwrap();
    let sum = |name: &str| -> u64 {
        let values = info.lines().filter_map(|line| line.strip_prefix(name));
        values.map(|value| value.parse::<u64>().unwrap()).sum()
    };
    for (hit, found, what) in [
        ("LH:", "LF:", "lines"),
        ("FNH:", "FNF:", "functions"),
        ("BRH:", "BRF:", "branches"),
    ] {
        let wanted = format!("({} of {} {what})", sum(hit), sum(found));
        assert!(text.contains(&wanted), "{wanted}: {text}");
        assert!(sum(hit) > 0);
    }
    let html = directory.path().join("html");
    let output = run("genhtml", &["-q", "-o", arg(&html), arg(&file)]);
    assert!(output.status.success(), "{}", said(&output));
    assert!(html.join("index.html").is_file());
}

/// The real captures have no debug information.
#[test]
fn without_source_lines_there_is_no_coverage() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("out");
    let snapshot = super::common::recorded("ptm");
    let output = super::common::armsnap(&[
        "export",
        arg(&snapshot),
        "--as",
        "lcov",
        "-o",
        arg(&file),
        "--elf",
        crate::support::armsnap(),
    ]);
    assert_eq!(output.status.code(), Some(1));
    assert!(
        said(&output).contains("no source lines"),
        "{}",
        said(&output)
    );
    assert!(!file.exists());
}
