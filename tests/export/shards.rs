//! Shards: decoded one by one and joined, they are equal to one run, row for row.

use super::common::{arg, armsnap, export, record, recorded, run, said, snapshots};
use super::parquet::{TABLES, documented, duckdb, export as export_tables, query};
use crate::support::record::installed;
use crate::support::repeated::repeated;
use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;
use serde_json::Value;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};

/// Decodes each shard, and joins them in `directory/run`.
#[track_caller]
fn join(snapshot: &Path, shards: u32, directory: &Path) {
    let mut joined = vec![
        "export".to_owned(),
        arg(snapshot).to_owned(),
        "--as=parquet".to_owned(),
        "-o".to_owned(),
        arg(&directory.join("run")).to_owned(),
    ];
    // The order does not matter.
    for number in (1..=shards).rev() {
        let to = shard(snapshot, number, shards, directory);
        joined.extend(["--join".to_owned(), arg(&to).to_owned()]);
    }
    let joined: Vec<&str> = joined.iter().map(String::as_str).collect();
    let output = armsnap(&joined);
    assert!(output.status.success(), "{}", said(&output));
}

#[track_caller]
fn shard(snapshot: &Path, number: u32, of: u32, directory: &Path) -> PathBuf {
    let to = directory.join(format!("shard-{number}"));
    let shard = format!("--shard={number}/{of}");
    let run = [
        "export",
        arg(snapshot),
        "--as=parquet",
        &shard,
        "-o",
        arg(&to),
    ];
    let output = armsnap(&run);
    assert!(output.status.success(), "{}", said(&output));
    to
}

/// The plan.
#[track_caller]
fn plan(snapshot: &Path, shards: u32) -> Value {
    let output = armsnap(&["shards", arg(snapshot), "--parts", &shards.to_string()]);
    assert!(output.status.success(), "{}", said(&output));
    serde_json::from_slice(&output.stdout).unwrap()
}

/// Compares all tables with those in `directory/../whole`. Returns the number of rows of `exec` that
/// are from shards, and of those that were decoded when they were joined.
#[track_caller]
fn compare(python: &Path, what: &str, directory: &Path) -> (u64, u64) {
    let mut queries = vec![format!(
        "CREATE VIEW path AS {}",
        documented("The executed blocks")
    )];
    for table in TABLES {
        let joined = match table {
            "exec" => "path".to_owned(),
            table => format!("'run/{table}.parquet'"),
        };
        let whole = format!("'../whole/{table}.parquet'");
        for (left, right) in [(&joined, &whole), (&whole, &joined)] {
            queries.push(format!(
                "SELECT * FROM {left} EXCEPT ALL SELECT * FROM {right} LIMIT 3"
            ));
        }
    }
    queries.push("SELECT count(*) AS rows FROM 'run/exec.parquet'".to_owned());
    queries.push("SELECT count(*) AS rows FROM '../whole/exec.parquet'".to_owned());
    queries
        .push("SELECT coalesce(sum(rows), 0)::BIGINT AS rows FROM 'run/pages.parquet'".to_owned());
    let queries: Vec<&str> = queries.iter().map(String::as_str).collect();
    let found = query(python, directory, &queries);
    for (query, rows) in queries
        .iter()
        .zip(&found)
        .take(1 + 2 * TABLES.len())
        .skip(1)
    {
        assert_eq!(rows, &Vec::<Value>::new(), "{what}: {query}");
    }
    let counts = found[1 + 2 * TABLES.len()..].iter();
    let counts: Vec<u64> = counts
        .map(|rows| rows[0]["rows"].as_u64().unwrap())
        .collect();
    assert_eq!(counts[0] + counts[2], counts[1], "{what}");
    (counts[2], counts[0])
}

/// Compares one run with shards of these numbers; returns the sums of [`compare`].
fn check(python: &Path, snapshot: &Path, numbers: &[u32]) -> (u64, u64) {
    let directory = tempfile::tempdir().unwrap();
    export_tables(snapshot, directory.path(), "whole");
    let (mut from_shards, mut again) = (0, 0);
    for &number in numbers {
        let here = directory.path().join(number.to_string());
        std::fs::create_dir(&here).unwrap();
        join(snapshot, number, &here);
        let what = format!("{} in {number} shards", snapshot.display());
        let (shards, joined) = compare(python, &what, &here);
        from_shards += shards;
        again += joined;
    }
    (from_shards, again)
}

/// ETMv4, ETE, ETMv3, PTM, ITM and STM; with and without cycles, timestamps, contexts and return
/// stacks; several cores, sources and buffers.
#[test]
fn shards_of_captures_equal_one_run() {
    let Some(python) = duckdb() else { return };
    let long = repeated("etmv4", 64 << 10);
    let mut all = snapshots();
    all.push(long.path().to_owned());
    for (index, snapshot) in all.iter().enumerate() {
        let number = [3, 7, 2, 1][index % 4];
        check(&python, snapshot, &[number]);
    }
}

/// Builds shards.c with a compiler, and records it; `None` if the tools are not installed.
fn recording(
    compiler: &str,
    emulator: &str,
    options: &[&str],
    directory: &Path,
) -> Option<PathBuf> {
    if !installed(&[compiler, emulator]) {
        return None;
    }
    let (program, snapshot) = (directory.join("shards"), directory.join("snapshot"));
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/export/shards.c");
    let build = ["-O1", "-g", "-static", arg(&source), "-o", arg(&program)];
    let built = run(compiler, &build);
    assert!(built.status.success(), "{}", said(&built));
    record(options, &snapshot, &program, &[]);
    Some(snapshot)
}

/// The compiler, the emulator, options of the recording, numbers of shards.
type Case = (
    (&'static str, &'static str),
    &'static [&'static str],
    &'static [u32],
);

const A64: (&str, &str) = ("aarch64-linux-gnu-gcc", "qemu-aarch64");
const A32: (&str, &str) = ("arm-linux-gnueabihf-gcc", "qemu-arm");

/// Each shard starts in the middle of calls that others began.
#[test]
fn shards_of_programs_equal_one_run() {
    let Some(python) = duckdb() else { return };
    let cases: [Case; 4] = [
        (A64, &["--cycles", "--timestamps"], &[1, 2, 3, 7]),
        (
            A64,
            &["--return-stack", "--no-timestamps", "--sync=1024"],
            &[3, 7],
        ),
        (A32, &["--protocol=ptm", "--return-stack", "--cycles"], &[3]),
        (A32, &["--protocol=etmv3"], &[2]),
    ];
    for ((compiler, emulator), options, numbers) in cases {
        let directory = tempfile::tempdir().unwrap();
        let Some(snapshot) = recording(compiler, emulator, options, directory.path()) else {
            return;
        };
        let (shards, again) = check(&python, &snapshot, numbers);
        // Pages in which a return leads to a caller from before the shard are decoded again. PTM
        // traces no address there if it has a return stack.
        let most = if options.contains(&"--protocol=ptm") {
            shards * 9
        } else {
            shards / 2
        };
        assert!(again < most, "{options:?}: {again} of {shards}");
        let plan = plan(&snapshot, 3);
        let sizes = plan["shards"].as_array().unwrap().iter();
        let sizes: Vec<u64> = sizes
            .map(|shard| shard["bytes"].as_u64().unwrap())
            .collect();
        let total: u64 = sizes.iter().sum();
        assert!(
            sizes.iter().all(|size| size * 2 < total),
            "{options:?}: {sizes:?}"
        );
    }
}

/// Where the shards start is not where they were cut: each starts at its place, none overlaps.
#[test]
fn a_plan_covers_the_trace() {
    let mut cut = 0;
    let long = repeated("etmv4", 64 << 10);
    let mut all = snapshots();
    all.push(long.path().to_owned());
    for snapshot in &all {
        let plan = plan(snapshot, 5);
        let shards = plan["shards"].as_array().unwrap();
        assert_eq!(shards.len(), 5);
        let mut ends: Vec<u64> = Vec::new();
        let mut sum = 0;
        for (index, shard) in shards.iter().enumerate() {
            assert_eq!(shard["shard"], format!("{}/5", index + 1));
            let parts = shard["parts"].as_array().unwrap();
            cut += usize::from(index > 0 && !parts.is_empty());
            let mut bytes = 0;
            for part in parts {
                let number = |name: &str| part[name].as_u64().unwrap();
                let buffer = number("buffer") as usize;
                ends.resize(ends.len().max(buffer + 1), 0);
                assert_eq!(number("start"), ends[buffer], "{}", snapshot.display());
                assert!(number("lead_in") <= number("start") && number("start") < number("end"));
                ends[buffer] = number("end");
                bytes += number("end") - number("start");
            }
            assert_eq!(shard["bytes"].as_u64().unwrap(), bytes);
            sum += bytes;
        }
        assert_eq!(
            plan["bytes"].as_u64().unwrap(),
            sum,
            "{}",
            snapshot.display()
        );
    }
    assert!(cut > 0);
}

/// Other formats are made of shards, too.
#[test]
fn formats_of_joined_shards_are_those_of_one_run() {
    let long = repeated("etmv4", 64 << 10);
    let snapshot = long.path().to_owned();
    let directory = tempfile::tempdir().unwrap();
    let plan = plan(&snapshot, 2);
    for shard in plan["shards"].as_array().unwrap() {
        assert!(shard["bytes"].as_u64() > Some(16 << 10), "{shard}");
    }
    let shards = [1, 2].map(|number| shard(&snapshot, number, 2, directory.path()));
    for format in ["lcov", "folded", "callgrind", "chrome", "jsonl"] {
        let join = ["--join", arg(&shards[0]), arg(&shards[1])];
        let (joined, whole) = (
            export(&snapshot, format, &join),
            export(&snapshot, format, &[]),
        );
        assert_eq!(
            String::from_utf8_lossy(&joined),
            String::from_utf8_lossy(&whole),
            "{format}"
        );
    }
}

#[test]
fn shards_that_do_not_fit_are_refused() {
    let long = repeated("etmv4", 64 << 10);
    let (snapshot, other) = (long.path().to_owned(), recorded("ptm"));
    let directory = tempfile::tempdir().unwrap();
    let first = shard(&snapshot, 1, 3, directory.path());
    let second = shard(&snapshot, 2, 3, directory.path());
    let third = shard(&snapshot, 3, 3, directory.path());
    let out = directory.path().join("out");
    let refused = |snapshot: &Path, shards: &[&Path], status: i32, why: &str| {
        let mut run = vec!["export", arg(snapshot), "--as=lcov", "-o", arg(&out)];
        for shard in shards {
            run.extend(["--join", arg(shard)]);
        }
        let output = armsnap(&run);
        assert_eq!(output.status.code(), Some(status), "{}", said(&output));
        assert!(said(&output).contains(why), "{why}: {}", said(&output));
        assert!(!out.exists());
    };
    let all = [&*first, &*second, &*third];
    refused(&snapshot, &[&first, &third], 2, "shard 2/3 is missing");
    refused(
        &snapshot,
        &[&first, &second, &second, &third],
        2,
        "shard 2/3 is there more than once",
    );
    refused(&other, &all, 1, "another snapshot");
    refused(&snapshot, &[directory.path()], 1, "course.shard");
    // Anything may be in such a file.
    let file = second.join("course.shard");
    let sound = std::fs::read(&file).unwrap();
    let mut inside = Vec::new();
    GzDecoder::new(&*sound).read_to_end(&mut inside).unwrap();
    let inside_at = |at: usize| {
        let mut bytes = inside.clone();
        bytes[at] ^= 0x55;
        let mut packed = GzEncoder::new(Vec::new(), Compression::fast());
        packed.write_all(&bytes).unwrap();
        packed.finish().unwrap()
    };
    let outside_at = |at: usize| {
        let mut bytes = sound.clone();
        bytes[at] ^= 0x55;
        bytes
    };
    let damaged = (0..sound.len()).step_by(sound.len() / 20 + 1);
    let damaged = damaged.map(|at| (at, outside_at(at)));
    let within = (0..inside.len()).step_by(inside.len() / 60 + 1);
    for (at, bytes) in damaged.chain(within.map(|at| (at, inside_at(at)))) {
        std::fs::write(&file, &bytes).unwrap();
        let mut run = vec![
            "export",
            arg(&snapshot),
            "--as=lcov",
            "--force",
            "-o",
            arg(&out),
        ];
        run.extend(all.iter().flat_map(|shard| ["--join", arg(shard)]));
        let output = armsnap(&run);
        assert!(
            matches!(output.status.code(), Some(0..=2)),
            "{at}: {}",
            said(&output)
        );
        assert!(
            !said(&output).contains("panicked"),
            "{at}: {}",
            said(&output)
        );
        if output.status.success() {
            std::fs::remove_file(&out).unwrap();
        }
    }
    std::fs::write(&file, &sound[..sound.len() / 2]).unwrap();
    refused(&snapshot, &all, 1, "course.shard");
}

#[test]
fn options_that_do_not_fit_shards_are_refused() {
    let snapshot = recorded("etmv4");
    let directory = tempfile::tempdir().unwrap();
    let out = directory.path().join("out");
    let refused = |options: &[&str]| {
        let output = armsnap(&[&["export", arg(&snapshot), "-o", arg(&out)], options].concat());
        assert_eq!(
            output.status.code(),
            Some(2),
            "{options:?}: {}",
            said(&output)
        );
    };
    refused(&["--as=parquet", "--shard=0/3"]);
    refused(&["--as=parquet", "--shard=4/3"]);
    refused(&["--as=parquet", "--shard=1"]);
    refused(&["--as=lcov", "--shard=1/3"]);
    refused(&["--as=parquet", "--shard=1/3", "--from=main"]);
    refused(&["--as=parquet", "--shard=1/3", "--core=Cortex-A57_0"]);
    let output = armsnap(&["shards", arg(&snapshot), "--shards=0"]);
    assert_eq!(output.status.code(), Some(2), "{}", said(&output));
}
