//! Tables as Parquet files, read by DuckDB: the same rows as JSON Lines, and the queries of
//! docs/tables.md against what the other exports and `decode` say.

use super::common::{arg, armsnap, export_text, number, record, recorded, said, snapshots, stats};
use super::programs::{Recorded, coverage};
use crate::support::skip;
use serde_json::{Map, Value};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

pub const TABLES: [&str; 9] = [
    "calls",
    "exceptions",
    "gaps",
    "events",
    "functions",
    "edges",
    "lines",
    "blocks",
    "exec",
];

/// Python with DuckDB, in `target/python`; `scripts/setup` makes it.
pub fn duckdb() -> Option<PathBuf> {
    let python = Path::new(env!("CARGO_MANIFEST_DIR")).join("target/python/bin/python");
    let mut import = Command::new(&python);
    let imported = import.args(["-c", "import duckdb"]).output();
    let works = imported.is_ok_and(|output| output.status.success());
    if !works {
        skip::unavailable("the Python package duckdb (scripts/setup installs it)");
    }
    works.then_some(python)
}

const READ: &str = r#"
import duckdb, json, sys
duckdb.sql("SET threads = 1; SET enable_progress_bar = false")
for query in sys.argv[1:]:
    found = duckdb.sql(query)
    if found is None:
        print("[]")
        continue
    print(json.dumps([dict(zip(found.columns, row)) for row in found.fetchall()]))
"#;

/// Runs queries in a directory; returns the rows of each.
#[track_caller]
pub fn query(python: &Path, directory: &Path, queries: &[&str]) -> Vec<Vec<Value>> {
    let mut command = Command::new("timeout");
    command.arg("120").arg(python).args(["-c", READ]);
    let output = command.args(queries).current_dir(directory).output();
    let output = output.unwrap();
    assert!(output.status.success(), "{}", said(&output));
    let text = String::from_utf8(output.stdout).unwrap();
    let results = text.lines().map(|line| serde_json::from_str(line).unwrap());
    results.collect()
}

/// The query of docs/tables.md or docs/cluster.md whose comment starts like this.
pub fn documented(comment: &str) -> &'static str {
    let tables = include_str!("../../docs/tables.md");
    let shards = include_str!("../../docs/cluster.md");
    let texts = [tables, shards].into_iter();
    let mut blocks = texts.flat_map(|text| text.split("```sql\n").skip(1));
    let found = blocks.find(|block| block.starts_with(&format!("-- {comment}")));
    found.unwrap().split("```").next().unwrap()
}

/// Exports a snapshot to a directory of this name.
#[track_caller]
pub fn export(snapshot: &Path, directory: &Path, name: &str) {
    let to = directory.join(name);
    let output = armsnap(&["export", arg(snapshot), "--as=parquet", "-o", arg(&to)]);
    assert!(output.status.success(), "{}", said(&output));
}

type Row = Map<String, Value>;

/// The rows of a table as JSON Lines.
#[track_caller]
fn rows(snapshot: &Path, table: &str) -> Vec<Row> {
    rows_of(snapshot, &[table])
        .remove(table)
        .unwrap_or_default()
}

/// The rows of tables as JSON Lines; addresses are numbers.
#[track_caller]
fn rows_of(snapshot: &Path, tables: &[&str]) -> BTreeMap<String, Vec<Row>> {
    let options: Vec<&str> = tables.iter().flat_map(|table| ["--table", table]).collect();
    let text = export_text(snapshot, "jsonl", &options);
    let mut found: BTreeMap<String, Vec<Row>> = BTreeMap::new();
    for line in text.lines() {
        let mut row: Row = serde_json::from_str(line).unwrap();
        let Some(Value::String(table)) = row.remove("table") else {
            panic!("{line}");
        };
        for (name, value) in &mut row {
            let digits = value.as_str().and_then(|text| text.strip_prefix("0x"));
            // Functions without a symbol are named by their address.
            if let Some(digits) = digits.filter(|_| !name.ends_with("function")) {
                *value = u64::from_str_radix(digits, 16).unwrap().into();
            }
        }
        found.entry(table).or_default().push(row);
    }
    found
}

fn count(row: &Row, name: &str) -> u64 {
    row[name].as_u64().unwrap()
}

/// Exports each snapshot once, for all that is checked of it.
#[test]
fn duckdb_reads_what_the_other_exports_contain() {
    let Some(python) = duckdb() else { return };
    let directory = tempfile::tempdir().unwrap();
    let (mut paths, mut latencies, mut before_gaps) = (0, 0, 0);
    for (index, snapshot) in snapshots().iter().enumerate() {
        let name = index.to_string();
        let directory = directory.path().join(&name);
        std::fs::create_dir(&directory).unwrap();
        export(snapshot, &directory, "run");
        let instructions = number(&stats(snapshot, &[]), "instructions");
        tables_equal_those_of_json_lines(&python, snapshot, &directory, instructions);
        paths += each_executed_block_is_a_row(&python, snapshot, &directory, instructions);
        latencies += exceptions_have_a_latency(&python, snapshot, &directory);
        before_gaps += calls_come_before_gaps(&python, snapshot, &directory);
    }
    skip::found_enough(paths, 3);
    skip::found_in_captures(latencies, 1);
    skip::found_in_captures(before_gaps, 4);
}

fn tables_equal_those_of_json_lines(
    python: &Path,
    snapshot: &Path,
    directory: &Path,
    instructions: u64,
) {
    let what = snapshot.display();
    let mut tables: Vec<&str> = TABLES.to_vec();
    if instructions > 200_000 {
        // Hundreds of megabytes as text.
        tables.retain(|table| *table != "exec");
    }
    let selects = tables
        .iter()
        .map(|table| format!("SELECT * FROM 'run/{table}.parquet'"));
    let selects: Vec<String> = selects.collect();
    let selects: Vec<&str> = selects.iter().map(String::as_str).collect();
    let found = query(python, directory, &selects);
    let mut known = rows_of(snapshot, &tables);
    for (table, found) in tables.iter().zip(found) {
        let known = known.remove(*table).unwrap_or_default();
        assert_eq!(found.len(), known.len(), "{what}: {table}");
        for (found, known) in found.into_iter().zip(known) {
            assert_eq!(found, Value::Object(known), "{what}: {table}");
        }
    }
}

/// Returns 1 if it compared the path with the listing.
fn each_executed_block_is_a_row(
    python: &Path,
    snapshot: &Path,
    directory: &Path,
    instructions: u64,
) -> usize {
    let what = snapshot.display();
    let joined =
        "FROM 'run/exec.parquet' AS exec LEFT JOIN 'run/blocks.parquet' AS blocks USING (block)";
    let own = "coalesce(exec.instructions, blocks.instructions)";
    let sum = format!("SELECT sum({own})::BIGINT AS sum {joined}");
    let unknown = format!("SELECT * {joined} WHERE {own} IS NULL");
    // Each row starts where the one before ends.
    let torn = format!(
        "SELECT * FROM (SELECT sequence, sum({own}) OVER (PARTITION BY track ORDER BY place \
         ROWS UNBOUNDED PRECEDING) - {own} AS before FROM \
         (SELECT row_number() OVER () AS place, * FROM 'run/exec.parquet') AS exec \
         LEFT JOIN 'run/blocks.parquet' AS blocks USING (block)) WHERE sequence <> before"
    );
    let starts = format!("SELECT start {joined} WHERE start IS NOT NULL");
    let found = query(python, directory, &[&sum, &unknown, &torn]);
    let all = found[0][0]["sum"].as_u64().unwrap_or(0);
    assert_eq!(all, instructions, "{what}");
    assert_eq!(found[1], Vec::<Value>::new(), "{what}");
    assert_eq!(found[2], Vec::<Value>::new(), "{what}");
    if instructions == 0 || instructions > 100_000 {
        return 0;
    }
    let starts = query(python, directory, &[&starts]).remove(0);
    let starts = starts.iter().map(|row| row["start"].as_u64().unwrap());
    let mut starts: Vec<u64> = starts.collect();
    // The listing has all cores in one order.
    let output = armsnap(&["decode", arg(snapshot), "--format", "jsonl"]);
    let text = String::from_utf8(output.stdout).unwrap();
    let ranges = text
        .lines()
        .filter(|line| line.contains("\"kind\":\"range\""));
    let mut listed: Vec<u64> = ranges.map(start).collect();
    starts.sort_unstable();
    listed.sort_unstable();
    assert_eq!(starts, listed, "{what}");
    1
}

fn start(line: &str) -> u64 {
    let row: Value = serde_json::from_str(line).unwrap();
    let start = row["start"].as_str().unwrap();
    u64::from_str_radix(start.strip_prefix("0x").unwrap(), 16).unwrap()
}

/// The recorded program once more, with arguments.
fn again(recorded: &Recorded, directory: &Path) -> PathBuf {
    let snapshot = directory.join("again");
    let program = recorded.program();
    record(&[], &snapshot, &program, &["a", "b", "c"]);
    snapshot
}

#[test]
fn queries_compare_two_runs() {
    let (Some(python), Some(recorded)) = (duckdb(), coverage()) else {
        return;
    };
    let directory = tempfile::tempdir().unwrap();
    let runs = [recorded.snapshot(), again(recorded, directory.path())];
    export(&runs[0], directory.path(), "before");
    export(&runs[1], directory.path(), "after");
    let queries = [
        documented("The hottest edges"),
        documented("Lines that only"),
    ];
    let found = query(&python, directory.path(), &queries);

    let mut sums: BTreeMap<(u64, u64, String), u64> = BTreeMap::new();
    for row in runs.iter().flat_map(|run| rows(run, "edges")) {
        assert_eq!(row["build_id"].as_str().unwrap().len(), 40);
        let kind = row["kind"].as_str().unwrap().to_owned();
        // The program is static.
        let edge = (count(&row, "from"), count(&row, "to"), kind);
        *sums.entry(edge).or_insert(0) += count(&row, "count");
    }
    assert_eq!(found[0].len(), 10);
    let mut taken: Vec<_> = sums
        .iter()
        .filter(|(edge, _)| edge.2 != "not_taken")
        .collect();
    taken.sort_by_key(|((from, to, _), count)| (u64::MAX - *count, *from, *to));
    for (row, ((from, to, kind), count)) in found[0].iter().zip(taken) {
        assert_eq!(row["from_in_file"], *from);
        assert_eq!(row["to_in_file"], *to);
        assert_eq!(row["kind"], **kind);
        assert_eq!(row["count"], *count);
    }

    let lines = |snapshot| -> BTreeSet<(String, u64)> {
        let text = export_text(snapshot, "lcov", &[]);
        let mut file = String::new();
        let mut lines = BTreeSet::new();
        for line in text.lines() {
            if let Some(path) = line.strip_prefix("SF:") {
                path.clone_into(&mut file);
            } else if let Some(pair) = line.strip_prefix("DA:")
                && let Some((line, count)) = pair.split_once(',')
                && count != "0"
            {
                lines.insert((file.clone(), line.parse().unwrap()));
            }
        }
        lines
    };
    let (before, after) = (lines(&runs[0]), lines(&runs[1]));
    let only: Vec<_> = after.difference(&before).cloned().collect();
    let found = found[1].iter().map(|row| {
        let file = row["file"].as_str().unwrap().to_owned();
        (file, row["line"].as_u64().unwrap())
    });
    assert_eq!(found.collect::<Vec<_>>(), only);
    assert!(only.iter().any(|(file, _)| file.ends_with("coverage.c")));
}

#[test]
fn queries_follow_one_run() {
    let (Some(python), Some(recorded)) = (duckdb(), coverage()) else {
        return;
    };
    let directory = tempfile::tempdir().unwrap();
    let snapshot = recorded.snapshot();
    export(&snapshot, directory.path(), "run");
    let queries = [
        documented("How long it is"),
        documented("The edges again"),
        "SELECT count(*) AS count FROM 'run/gaps.parquet'",
    ];
    let found = query(&python, directory.path(), &queries);

    let calls = rows(&snapshot, "calls");
    let begins = |name: &str, clock: &str| -> Vec<u64> {
        let own = calls.iter().filter(|row| row["function"] == name);
        let mut begins: Vec<u64> = own.map(|row| count(row, clock)).collect();
        begins.sort_unstable();
        begins
    };
    let next = |begin: u64, clock: &str| {
        let all = begins("fib", clock).into_iter();
        all.filter(|next| *next > begin).min().unwrap() - begin
    };
    let from = begins("classify", "begin_instruction").into_iter();
    let cycles = begins("classify", "begin_cycle").into_iter();
    let known = from.zip(cycles).map(|(begin, cycle)| {
        let instructions = next(begin, "begin_instruction");
        (begin, instructions, next(cycle, "begin_cycle"))
    });
    let number = |row: &Value, name: &str| row[name].as_u64().unwrap();
    let times = found[0].iter().map(|row| {
        let begin = number(row, "begin_instruction");
        (begin, number(row, "instructions"), number(row, "cycles"))
    });
    assert_eq!(times.collect::<Vec<_>>(), known.collect::<Vec<_>>());
    assert_eq!(found[0].len(), 26);

    // Nothing is missing in this trace, so that each block leads to the next one.
    assert_eq!(found[2][0]["count"], 0);
    let edges = rows(&snapshot, "edges").into_iter();
    let taken = edges.filter(|row| row["kind"] != "not_taken");
    let taken = taken.map(|row| (count(&row, "count"), count(&row, "from"), count(&row, "to")));
    let executed = found[1].iter().map(|row| {
        let edge = (number(row, "from"), number(row, "to"));
        (number(row, "count"), edge.0, edge.1)
    });
    let (taken, executed): (BTreeSet<_>, BTreeSet<_>) = (taken.collect(), executed.collect());
    assert_eq!(executed, taken);
}

/// Returns the number of kinds of exceptions.
fn exceptions_have_a_latency(python: &Path, snapshot: &Path, directory: &Path) -> usize {
    let what = snapshot.display();
    let found = query(python, directory, &[documented("Latency of exceptions")]).remove(0);
    let mut lengths: BTreeMap<(String, String), Vec<u64>> = BTreeMap::new();
    for row in rows(snapshot, "exceptions") {
        if row["returned"] == true {
            let text = |name: &str| row[name].as_str().unwrap().to_owned();
            let length = count(&row, "end_instruction") - count(&row, "begin_instruction");
            let key = (text("track"), text("name"));
            lengths.entry(key).or_default().push(length);
        }
    }
    assert_eq!(found.len(), lengths.len(), "{what}");
    for (row, ((track, name), mut all)) in found.iter().zip(lengths) {
        all.sort_unstable();
        assert_eq!((&row["track"], &row["name"]), (&track.into(), &name.into()));
        assert_eq!(row["returned"], all.len());
        assert_eq!(row["minimum"], all[0]);
        assert_eq!(row["median"], all[(all.len() - 1) / 2]);
        assert_eq!(row["maximum"], all[all.len() - 1]);
    }
    found.len()
}

/// The parts of a call that the query needs: begin, depth, end, function.
type Call = (u64, i64, u64, String);

/// Returns the number of calls found.
fn calls_come_before_gaps(python: &Path, snapshot: &Path, directory: &Path) -> usize {
    let what = snapshot.display();
    let found = query(python, directory, &[documented("The last three calls")]).remove(0);
    let mut tracks: BTreeMap<String, Vec<Call>> = BTreeMap::new();
    for row in rows(snapshot, "calls") {
        let text = |name: &str| row[name].as_str().unwrap().to_owned();
        let depth = row["depth"].as_i64().unwrap();
        let (begin, end) = (
            count(&row, "begin_instruction"),
            count(&row, "end_instruction"),
        );
        let calls = tracks.entry(text("track")).or_default();
        calls.push((begin, depth, end, text("function")));
    }
    for calls in tracks.values_mut() {
        calls.sort_by_key(|(begin, depth, end, _)| (*begin, *depth, *end));
    }
    let mut rest = found.iter();
    for (index, gap) in rows(snapshot, "gaps").iter().enumerate() {
        let track = gap["track"].as_str().unwrap();
        let calls = tracks.get(track).map(Vec::as_slice).unwrap_or_default();
        let before = count(gap, "begin_instruction");
        let end = calls.partition_point(|(begin, ..)| *begin < before);
        for number in end.saturating_sub(3)..end {
            let (begin, depth, end, function) = &calls[number];
            let mut caller = calls[..number].iter();
            let caller = caller.rfind(|(_, around, ..)| *around == depth - 1);
            let caller = caller.filter(|(_, _, until, _)| until >= end);
            let row = rest.next().unwrap();
            assert_eq!(row["gap"], index + 1, "{what}");
            assert_eq!(row["kind"], gap["kind"], "{what}");
            assert_eq!(row["begin_instruction"], *begin);
            assert_eq!(row["function"], **function);
            let caller = caller.map(|(.., function)| function.as_str());
            assert_eq!(row["caller"].as_str(), caller, "{what}: {row}");
        }
    }
    assert_eq!(rest.next(), None, "{what}");
    found.len()
}

#[test]
fn a_directory_is_not_overwritten() {
    let directory = tempfile::tempdir().unwrap();
    let to = directory.path().join("run");
    let snapshot = recorded("etmv4");
    let export = |options: &[&str]| {
        let arguments = ["export", arg(&snapshot), "--as=parquet", "-o", arg(&to)];
        armsnap(&[&arguments[..], options].concat())
    };
    let output = export(&["--table=calls", "--table=exec", "--table=calls"]);
    assert!(output.status.success(), "{}", said(&output));
    let files = || {
        let files = std::fs::read_dir(&to).unwrap();
        let names = files.map(|file| file.unwrap().file_name().into_string().unwrap());
        names.collect::<BTreeSet<_>>()
    };
    let both = BTreeSet::from(["calls.parquet".to_owned(), "exec.parquet".to_owned()]);
    assert_eq!(files(), both);
    let output = export(&["--force"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(said(&output).contains("a directory is not overwritten"));
    assert_eq!(files(), both);
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 1);
}
