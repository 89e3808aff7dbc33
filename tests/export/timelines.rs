//! Timelines: decoded again, slices nest, and their numbers agree with the other formats.

use super::common::{
    arg, armsnap, export, export_text, number, recorded, run, said, snapshots, stats,
};
use super::programs::coverage;
use crate::support::record::installed;
use crate::support::skip;
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

fn rows(snapshot: &Path, table: &str) -> Vec<Value> {
    let text = export_text(snapshot, "jsonl", &["--table", table]);
    let rows = text.lines().map(|line| serde_json::from_str(line).unwrap());
    let rows: Vec<Value> = rows.collect();
    assert!(rows.iter().all(|row| row["table"] == table));
    rows
}

/// Instructions by function, with everything that it called.
fn totals(snapshot: &Path) -> BTreeMap<String, u64> {
    let mut found = BTreeMap::new();
    for row in rows(snapshot, "functions") {
        let name = row["function"].as_str().unwrap().to_owned();
        *found.entry(name).or_insert(0) += row["total_instructions"].as_u64().unwrap();
    }
    found
}

#[test]
fn slices_of_chrome_nest() {
    let mut some = 0;
    for snapshot in snapshots() {
        let text = export_text(&snapshot, "chrome", &[]);
        let trace: Value = serde_json::from_str(&text).unwrap();
        let mut by_process: BTreeMap<u64, Vec<(u64, u64)>> = BTreeMap::new();
        for event in trace["traceEvents"].as_array().unwrap() {
            if event["ph"] == "X" {
                let number = |name: &str| event[name].as_u64().unwrap();
                let slice = (number("ts"), number("ts") + number("dur"));
                by_process.entry(number("pid")).or_default().push(slice);
            }
        }
        for slices in by_process.values_mut() {
            some += slices.len();
            // Longer ones first, so that each is inside of one that is open, or after it.
            slices.sort_by_key(|(begin, end)| (*begin, u64::MAX - end));
            let mut open: Vec<u64> = Vec::new();
            for (begin, end) in slices {
                while open.last().is_some_and(|last| last <= begin) {
                    open.pop();
                }
                let inside = open.last().is_none_or(|last| *end <= *last);
                assert!(inside, "{}: {begin}..{end}", snapshot.display());
                open.push(*end);
            }
        }
    }
    skip::found_enough(some, 1000);
}

#[test]
fn slices_last_as_long_as_their_functions() {
    let Some(recorded) = coverage() else { return };
    let snapshot = recorded.snapshot();
    let totals = totals(&snapshot);
    for clock in ["instructions", "cycles"] {
        let text = export_text(&snapshot, "chrome", &["--clock", clock]);
        let trace: Value = serde_json::from_str(&text).unwrap();
        let events = trace["traceEvents"].as_array().unwrap();
        let slices = |name: &str| -> Vec<u64> {
            let own = events.iter().filter(|event| event["name"] == name);
            own.filter_map(|event| event["dur"].as_u64()).collect()
        };
        for name in ["main", "sum"] {
            let [length] = slices(name)[..] else {
                panic!("{name}: {:?}", slices(name));
            };
            // A cycle for each instruction, counted up to the last branch.
            let known = totals[name];
            assert!(
                length.abs_diff(known) < 20,
                "{name} by {clock}: {length}, {known}"
            );
            assert!(clock != "instructions" || length == known);
        }
        assert_eq!(slices("fib").len(), 177);
        // deep left by longjmp.
        let deep = events.iter().filter(|event| event["name"] == "deep");
        let ended: Vec<&str> = deep
            .map(|event| event["args"]["ended"].as_str().unwrap())
            .collect();
        assert_eq!(ended, ["unwound"; 6]);
    }
}

/// Python with packages of the network, in `target/python`; `scripts/setup` makes it.
fn python() -> Option<PathBuf> {
    let python = Path::new(env!("CARGO_MANIFEST_DIR")).join("target/python/bin/python");
    let works = python.exists()
        && run(arg(&python), &["-c", "import perfetto"])
            .status
            .success();
    if !works {
        skip::unavailable("the Python package perfetto (scripts/setup installs it)");
    }
    works.then_some(python)
}

const READ_PERFETTO: &str = r#"
import sys
from perfetto.protos.perfetto.trace import perfetto_trace_pb2
trace = perfetto_trace_pb2.Trace()
trace.ParseFromString(open(sys.argv[1], "rb").read())
names, open_, last = {}, {}, {}
tracks, slices, instants = {}, 0, 0
unknown = 0
for packet in trace.packet:
    sequence = packet.trusted_packet_sequence_id
    if packet.HasField("track_descriptor"):
        tracks[packet.track_descriptor.uuid] = packet.track_descriptor.name
    if packet.sequence_flags & 1:
        names[sequence] = {}
    for name in packet.interned_data.event_names:
        names[sequence][name.iid] = name.name
    if not packet.HasField("track_event"):
        continue
    event = packet.track_event
    assert event.track_uuid in tracks
    stack = open_.setdefault(event.track_uuid, [])
    if event.type == event.TYPE_INSTANT:
        assert names[sequence][event.name_iid]
        instants += 1
        continue
    assert packet.timestamp >= last.get(event.track_uuid, 0)
    last[event.track_uuid] = packet.timestamp
    if event.type == event.TYPE_SLICE_BEGIN:
        stack.append((names[sequence][event.name_iid], packet.timestamp))
    elif event.type == event.TYPE_SLICE_END:
        name, begin = stack.pop()
        slices += 1
        print(name, packet.timestamp - begin, sep="\t")
    else:
        unknown += 1
assert not any(open_.values()) and not unknown
print("tracks", len(tracks), sep="\t", file=sys.stderr)
"#;

#[test]
fn perfetto_reads_its_trace() {
    let Some(python) = python() else { return };
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("trace.pftrace");
    let mut all = snapshots();
    all.extend(coverage().map(|recorded| recorded.snapshot()));
    for snapshot in all {
        std::fs::write(&file, export(&snapshot, "perfetto", &[])).unwrap();
        let output = run(arg(&python), &["-c", READ_PERFETTO, arg(&file)]);
        assert!(output.status.success(), "{}", said(&output));
        let text = String::from_utf8(output.stdout).unwrap();
        let calls = rows(&snapshot, "calls");
        assert_eq!(text.lines().count(), calls.len(), "{}", snapshot.display());
        // Both list calls in the order of their ends.
        for (line, row) in text.lines().zip(&calls) {
            let (name, length) = line.rsplit_once('\t').unwrap();
            assert_eq!(row["function"], name);
            let number = |name: &str| row[name].as_u64().unwrap();
            if row["kind"] != "caller" && row["track"] == calls[0]["track"] {
                let known = number("end_instruction") - number("begin_instruction");
                assert_eq!(length, known.to_string(), "{name}");
            }
        }
    }
}

#[test]
fn babeltrace_reads_calls_and_events() {
    if !installed(&["babeltrace2"]) {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    for (index, snapshot) in snapshots().iter().enumerate() {
        let made = directory.path().join(index.to_string());
        let output = armsnap(&["export", arg(snapshot), "--as", "ctf", "-o", arg(&made)]);
        assert!(output.status.success(), "{}", said(&output));
        let output = run("babeltrace2", &[arg(&made)]);
        assert!(output.status.success(), "{}", said(&output));
        assert!(said(&output).is_empty(), "{}", said(&output));
        let text = String::from_utf8(output.stdout).unwrap();
        let count = |name: &str| {
            let name = format!(" {name}: ");
            text.lines().filter(|line| line.contains(&name)).count()
        };
        let what = snapshot.display();
        let calls = rows(snapshot, "calls").len();
        assert_eq!((count("call"), count("return")), (calls, calls), "{what}");
        assert_eq!(count("gap"), rows(snapshot, "gaps").len(), "{what}");
        assert_eq!(count("event"), rows(snapshot, "events").len(), "{what}");
    }
}

#[test]
fn a_clock_that_the_trace_lacks_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("out");
    let snapshot = recorded("ptm");
    let output = armsnap(&[
        "export",
        arg(&snapshot),
        "--as",
        "chrome",
        "--clock",
        "cycles",
        "-o",
        arg(&file),
    ]);
    assert_eq!(output.status.code(), Some(1), "{}", said(&output));
    assert!(said(&output).contains("its trace has no cycles"));
    assert!(!file.exists());
}

/// `-` is standard output, as in other tools, and not a file of this name.
#[test]
fn a_hyphen_is_standard_output() {
    let snapshot = recorded("ptm");
    let directory = tempfile::tempdir().unwrap();
    let in_directory = |arguments: &[&str]| {
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_armsnap"));
        command.args(arguments).arg(&snapshot);
        let output = command.current_dir(directory.path()).output().unwrap();
        assert!(output.status.success(), "{}", said(&output));
        output.stdout
    };
    let stacks = in_directory(&["export", "--as=folded", "-o", "-"]);
    assert_eq!(stacks, export(&snapshot, "folded", &[]));
    let page = String::from_utf8(in_directory(&["report", "--html", "-"])).unwrap();
    assert!(page.trim_end().ends_with("</html>"));
    let left = std::fs::read_dir(directory.path()).unwrap().count();
    assert_eq!(left, 0);
}

/// An option that the format ignores would promise what the file does not say.
#[test]
fn options_of_other_formats_are_refused() {
    let snapshot = recorded("ptm");
    let wrong = [
        ("lcov", "--program=main"),
        ("csv", "--clock=time"),
        ("lcov", "--inline"),
        ("bolt", "--table=calls"),
    ];
    for (format, option) in wrong {
        let output = armsnap(&["export", arg(&snapshot), "--as", format, "-o-", option]);
        assert_eq!(output.status.code(), Some(2), "{format} {option}");
        let (name, _) = option.split_once('=').unwrap_or((option, ""));
        assert!(said(&output).starts_with(name), "{}", said(&output));
        assert!(output.stdout.is_empty());
    }
    for format in ["ctf", "parquet"] {
        let output = armsnap(&["export", arg(&snapshot), "--as", format, "-o-"]);
        assert_eq!(output.status.code(), Some(2), "{format}");
        assert!(said(&output).starts_with("-o -: "), "{}", said(&output));
    }
}

#[test]
fn tables_agree_with_each_other() {
    for snapshot in snapshots() {
        let what = snapshot.display().to_string();
        let functions = rows(&snapshot, "functions");
        let sum = |rows: &[Value], name: &str| -> u64 {
            rows.iter().map(|row| row[name].as_u64().unwrap()).sum()
        };
        let known = number(&stats(&snapshot, &[]), "instructions");
        let unknown: u64 = export_text(&snapshot, "folded", &[])
            .lines()
            .filter_map(|line| line.split_once(";[unknown path] "))
            .map(|(_, count)| count.parse::<u64>().unwrap())
            .sum();
        assert_eq!(sum(&functions, "instructions") + unknown, known, "{what}");
        // Each call of a function that counts is a row.
        let calls = rows(&snapshot, "calls");
        let counted = calls.iter().filter(|row| {
            let kind = row["kind"].as_str().unwrap();
            ["call", "jump", "exception", "handler", "signal"].contains(&kind)
        });
        assert_eq!(counted.count() as u64, sum(&functions, "calls"), "{what}");
        // The elements of the listing.
        let output = armsnap(&["decode", arg(&snapshot), "--format", "jsonl"]);
        let text = String::from_utf8(output.stdout).unwrap();
        let exceptions = text
            .lines()
            .filter(|line| line.contains("\"kind\":\"exception\""));
        assert_eq!(
            exceptions.count(),
            rows(&snapshot, "exceptions").len(),
            "{what}"
        );
        // As CSV: a line for each row, and one of names.
        for table in [
            "calls",
            "exceptions",
            "gaps",
            "events",
            "functions",
            "edges",
        ] {
            let text = export_text(&snapshot, "csv", &["--table", table]);
            assert_eq!(
                text.lines().count(),
                rows(&snapshot, table).len() + 1,
                "{what}"
            );
        }
    }
}

#[test]
fn edges_are_the_branches_that_were_taken() {
    let Some(recorded) = coverage() else { return };
    let edges = rows(&recorded.snapshot(), "edges");
    let count = |from: &str, to: &str, kind: &str| -> u64 {
        let found = edges.iter().filter(|row| {
            (&row["from_function"], &row["to_function"], &row["kind"])
                == (&from.into(), &to.into(), &kind.into())
        });
        found.map(|row| row["count"].as_u64().unwrap()).sum()
    };
    assert_eq!(count("fib", "fib", "call"), 176);
    assert_eq!(count("main", "fib", "call"), 1);
    assert_eq!(count("fib", "main", "return"), 1);
    assert_eq!(count("fib", "fib", "return"), 176);
    assert_eq!(count("sum", "classify", "call"), 26);
    assert_eq!(count("classify", "sum", "return"), 26);
}
