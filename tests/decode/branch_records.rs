//! `armsnap decode --format binary`: the records contain what JSON Lines do, and the programs in
//! docs/decoding.md read them.

use crate::in_parts::case::snapshots;
use crate::support::repeated::repeated;
use crate::support::{armsnap, skip};
use serde_json::{Map, Value, json};
use std::path::Path;
use std::process::{Command, Output};

fn decode(snapshot: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(armsnap());
    command.arg("decode").arg(snapshot);
    command.args(["--level", "branches"]).args(arguments);
    command.output().unwrap()
}

fn number(bytes: &[u8]) -> u64 {
    let mut all = [0; 8];
    all[..bytes.len()].copy_from_slice(bytes);
    u64::from_le_bytes(all)
}

fn hex(value: u64) -> Value {
    format!("{value:#x}").into()
}

/// A record as the object of its line, by the tables of the documentation.
fn object(sources: &Value, record: &[u8]) -> Value {
    let source = &sources[number(&record[24..26]) as usize];
    let (value, flags) = (number(&record[16..24]), record[27]);
    let extra = &record[28..];
    let mut fields: Map<String, Value> = source.as_object().unwrap().clone();
    let mut set = |name: &str, value: Value| fields.insert(name.to_owned(), value);
    set("offset", number(&record[..8]).into());
    let kinds = [
        "branch",
        "exception",
        "context",
        "event",
        "event",
        "timestamp",
        "marker",
    ];
    set("kind", kinds[usize::from(record[26])].into());
    if flags & 1 != 0 {
        set("cycle", number(&record[8..16]).into());
    }
    match record[26] {
        0 => drop(set("address", hex(value))),
        1 => {
            set("number", number(extra).into());
            if flags & 2 != 0 {
                set("return_address", hex(value));
            }
        }
        2 => {
            let isa = ["A64", "A32", "T32", "TEE", "Jaz"];
            set("isa", isa[usize::from(extra[0])].into());
            let security = ["secure", "non-secure", "root", "realm"];
            let known = |name, unknown: bool, value: Value| (!unknown).then_some((name, value));
            let fields = [
                known("el", extra[1] == 255, extra[1].into()),
                security
                    .get(usize::from(extra[2]))
                    .map(|name| ("security", json!(name))),
                known("bits", extra[3] == 255, extra[3].into()),
                known("vmid", flags & 4 == 0, hex(value >> 32)),
                known("context_id", flags & 2 == 0, hex(value & 0xffff_ffff)),
            ];
            for (name, value) in fields.into_iter().flatten() {
                set(name, value);
            }
        }
        3 => drop(set("number", value.into())),
        4 => drop(set("trigger", true.into())),
        _ => drop(set("value", hex(value))),
    }
    fields.into()
}

/// The header's sources, and the records.
fn parsed(bytes: &[u8]) -> (Value, &[[u8; 32]]) {
    assert_eq!(bytes[..8], *b"ASBRNCH1");
    let (header, records) = bytes.split_at(number(&bytes[8..12]) as usize);
    assert_eq!((header.len() % 32, number(&header[12..16])), (0, 32));
    let names: Value = serde_json::from_slice(&header[16..]).unwrap();
    let (records, rest) = records.as_chunks();
    assert!(rest.is_empty());
    (names["sources"].clone(), records)
}

/// A line without what records leave out: the names of exceptions, and times of another clock.
fn line(text: &str) -> Value {
    let mut line: Value = serde_json::from_str(text).unwrap();
    let fields = line.as_object_mut().unwrap();
    fields.remove("perf_time");
    if fields["kind"] == "exception" {
        fields.remove("name").unwrap();
    }
    line
}

#[test]
fn records_contain_what_lines_contain() {
    let (mut kinds, mut counted) = ([0; 7], 0);
    for path in snapshots() {
        let text = decode(&path, &["--format", "jsonl", "--jobs", "1"]).stdout;
        let text = String::from_utf8(text).unwrap();
        let wanted: Vec<Value> = text.lines().map(line).collect();
        let one = decode(&path, &["--format", "binary", "--jobs", "1"]).stdout;
        let several = decode(&path, &["--format", "binary", "--jobs", "3"]).stdout;
        if one.is_empty() {
            assert!(wanted.is_empty() && several.is_empty());
            continue;
        }
        let (sources, records) = parsed(&one);
        let found: Vec<Value> = records.iter().map(|r| object(&sources, r)).collect();
        let of = |lines: &[Value], source: &Value| -> Vec<Value> {
            let is_its = |line: &&Value| {
                let names = source.as_object().unwrap();
                names.iter().all(|(name, value)| line[name] == *value)
            };
            lines.iter().filter(is_its).cloned().collect()
        };
        // Pages of sources have other lengths.
        for source in sources.as_array().unwrap() {
            let (found, wanted) = (of(&found, source), of(&wanted, source));
            for (found, wanted) in found.iter().zip(&wanted) {
                assert_eq!(found, wanted, "{}", path.display());
            }
            assert_eq!(found.len(), wanted.len(), "{}", path.display());
        }
        assert_eq!(found.len(), wanted.len(), "{}", path.display());
        assert!(one == several, "{}: several cores", path.display());
        for record in records {
            kinds[usize::from(record[26])] += 1;
            counted += usize::from(record[27] & 1);
        }
    }
    skip::found_enough(kinds[0], 1000);
    skip::found_enough(kinds[2], 10);
    skip::found_enough(counted, 10);
}

/// Counts of cycles continue in the next part of the trace.
#[test]
fn running_counts_do_not_depend_on_the_number_of_threads() {
    let snapshot = repeated("etmv4", 1200 << 10);
    let written = |format, jobs| {
        let output = decode(snapshot.path(), &["--format", format, "--jobs", jobs]);
        assert!(output.status.success());
        output.stdout
    };
    let one = written("binary", "1");
    let (_, all) = parsed(&one);
    let cycles = all.iter().map(|record| number(&record[8..16]));
    assert!(cycles.max() > Some(1_000_000));
    for format in ["binary", "text", "jsonl"] {
        let one = written(format, "1");
        assert!(written(format, "2") == one, "{format}");
        assert!(written(format, "3") == one, "{format}");
    }
}

/// The programs of the documentation; they print what is counted from JSON Lines.
#[test]
fn documented_programs_read_records() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let page = std::fs::read_to_string(root.join("docs/decoding.md")).unwrap();
    let programs: Vec<&str> = page
        .split("```python\n")
        .skip(1)
        .map(|rest| rest.split_once("```").unwrap().0)
        .collect();
    assert_eq!(programs.len(), 2);
    let snapshot = root.join("testdata/recorded/etmv4");
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("run.branches");
    let output = decode(
        &snapshot,
        &["--format", "binary", "-o", file.to_str().unwrap()],
    );
    assert!(output.status.success());
    let text = decode(&snapshot, &["--format", "jsonl"]).stdout;
    let mut wanted = std::collections::BTreeMap::<String, usize>::new();
    for line in String::from_utf8(text).unwrap().lines() {
        let line: Value = serde_json::from_str(line).unwrap();
        if line["kind"] == "branch" {
            let (source, address) = (line["source"].as_str(), line["address"].as_str());
            let name = format!("{} {}", source.unwrap(), address.unwrap());
            *wanted.entry(name).or_default() += 1;
        }
    }
    assert!(wanted.len() > 1);
    for program in programs {
        if program.contains("numpy") && !has_numpy() {
            skip::unavailable("the Python package numpy");
            continue;
        }
        let output = Command::new("python3")
            .args(["-c", program])
            .arg(&file)
            .output()
            .unwrap();
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{errors}");
        let text = String::from_utf8(output.stdout).unwrap();
        let found = text.lines().map(|line| {
            let (name, count) = line.rsplit_once(' ').unwrap();
            (name.to_owned(), count.parse().unwrap())
        });
        assert_eq!(found.collect::<std::collections::BTreeMap<_, _>>(), wanted);
    }
}

fn has_numpy() -> bool {
    let output = Command::new("python3")
        .args(["-c", "import numpy"])
        .output();
    output.is_ok_and(|output| output.status.success())
}

#[test]
fn records_are_refused_where_nothing_reads_them() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let snapshot = root.join("testdata/recorded/etmv4");
    for arguments in [
        &["--level", "elements"][..],
        &["--level", "branches", "--stats"],
    ] {
        let output = Command::new(armsnap())
            .arg("decode")
            .arg(&snapshot)
            .args(["--format", "binary"])
            .args(arguments)
            .output()
            .unwrap();
        assert_eq!(output.status.code(), Some(2));
        assert!(output.stdout.is_empty());
        let errors = String::from_utf8(output.stderr).unwrap();
        assert!(errors.contains("--format binary: expected "), "{errors}");
    }
}
