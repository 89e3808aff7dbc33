//! The Spark job of examples/spark: two executors on this machine, one of which is killed while it
//! decodes a shard. The data set is that of one run.

use crate::support::program::record::Recording;
use crate::support::program::{End, Program};
use crate::support::record::installed;
use crate::support::skip;
use serde_json::Value;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// Python with PySpark, in `target/python`; `scripts/setup` makes it.
fn python() -> Option<PathBuf> {
    let python = Path::new(env!("CARGO_MANIFEST_DIR")).join("target/python/bin/python");
    let mut import = Command::new(&python);
    let imported = import.args(["-c", "import pyspark, duckdb"]).output();
    let java = Command::new("java").arg("-version").output();
    let works =
        |output: std::io::Result<Output>| output.is_ok_and(|output| output.status.success());
    if !works(imported) || !works(java) {
        skip::unavailable("PySpark (scripts/setup default-jre-headless pyspark)");
        return None;
    }
    Some(python)
}

/// A program with calls that are open while shards begin and end.
fn recording(directory: &Path) -> Option<Recording> {
    let compiler = "aarch64-linux-gnu-gcc";
    if !installed(&[compiler, "qemu-aarch64"]) {
        return None;
    }
    let elf = directory.join("shards");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/export/shards.c");
    let mut build = Command::new(compiler);
    let built = build.args(["-O1", "-g", "-static", "-o"]).arg(&elf);
    assert!(built.arg(source).status().unwrap().success());
    let program = Program {
        name: "shards-a64".to_owned(),
        elf,
        machine: None,
        end: End::Exit(0),
    };
    Some(Recording::of(&program, &["--timestamps", "--cycles"]))
}

/// In place of armsnap: the first time that it decodes the second shard it kills the executor that
/// runs it. It continues, like a process on a machine that was only cut off from the network.
const WRAPPER: &str = r#"#!/bin/bash
case "$*" in
*"--shard 2/"*)
    if mkdir "@MARK@" 2>/dev/null; then
        process=$PPID
        while [ "$(cat /proc/$process/comm)" != java ]; do
            process=$(awk '{ print $4 }' /proc/$process/stat)
        done
        kill -9 "$process"
        sleep 1
    fi
    ;;
esac
exec "@ARMSNAP@" "$@"
"#;

fn job(python: &Path, armsnap: &Path, data_set: &Path, snapshots: &[PathBuf]) -> Output {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let find = "import os, pyspark; print(os.path.dirname(pyspark.__file__))";
    let home = Command::new(python).args(["-c", find]).output().unwrap();
    let home = String::from_utf8(home.stdout).unwrap();
    let mut command = Command::new("timeout");
    command
        .arg("300")
        .arg(python)
        .arg(root.join("examples/spark/shards.py"))
        .args(["--master", "local-cluster[2,1,1024]", "--shards", "5"])
        .arg("--armsnap")
        .arg(armsnap)
        .arg("-o")
        .arg(data_set)
        .args(snapshots)
        .env("SPARK_HOME", home.trim())
        .env("SPARK_LOCAL_IP", "127.0.0.1")
        .env("PYSPARK_PYTHON", python)
        .env(
            "PYSPARK_SUBMIT_ARGS",
            "--conf spark.sql.shuffle.partitions=4 --conf spark.ui.enabled=false pyspark-shell",
        )
        .env(
            "SPARK_WORKER_DIR",
            data_set.parent().unwrap().join("workers"),
        )
        .current_dir(data_set.parent().unwrap());
    command.output().unwrap()
}

/// Compares a table of the data set with that of one run, in both directions.
const COMPARE: &str = r#"
import duckdb, sys
data_set, whole = sys.argv[1:3]
for table in sys.argv[3:]:
    columns = [row[0] for row in duckdb.sql(f"DESCRIBE SELECT * FROM '{whole}/{table}.parquet'").fetchall()]
    columns = ", ".join(f'"{column}"' for column in columns)
    found = f"SELECT {columns} FROM read_parquet('{data_set}/{table}/*.parquet') WHERE snapshot = 'one'"
    known = f"SELECT {columns} FROM '{whole}/{table}.parquet'"
    for left, right in [(found, known), (known, found)]:
        print(table, duckdb.sql(f"{left} EXCEPT ALL {right} LIMIT 3").fetchall())
"#;

#[test]
#[cfg_attr(debug_assertions, ignore = "with --release")]
fn a_killed_executor_changes_nothing() {
    let Some(python) = python() else { return };
    let armsnap = Path::new(crate::support::armsnap());
    let directory = tempfile::tempdir().unwrap();
    let Some(recording) = recording(directory.path()) else {
        return;
    };
    let snapshots = [directory.path().join("one"), directory.path().join("two")];
    std::os::unix::fs::symlink(recording.snapshot(), &snapshots[0]).unwrap();
    let small = Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata/recorded/etmv4");
    std::os::unix::fs::symlink(small, &snapshots[1]).unwrap();

    let (wrapper, mark) = (
        directory.path().join("armsnap"),
        directory.path().join("killed"),
    );
    let text = WRAPPER.replace("@MARK@", mark.to_str().unwrap());
    let text = text.replace("@ARMSNAP@", armsnap.to_str().unwrap());
    fs::write(&wrapper, text).unwrap();
    fs::set_permissions(&wrapper, fs::Permissions::from_mode(0o755)).unwrap();

    let data_set = directory.path().join("data");
    let output = job(&python, &wrapper, &data_set, &snapshots);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    assert!(mark.is_dir() && said.contains("Lost executor"), "{said}");

    // Nothing is left of the attempt that was killed.
    for name in fs::read_dir(data_set.join("work/shards/one")).unwrap() {
        let name = name.unwrap().file_name();
        assert!(name.to_str().unwrap().ends_with("-of-5"), "{name:?}");
    }
    let whole = directory.path().join("whole");
    let mut run = Command::new(armsnap);
    run.args(["export", "--as=parquet", "-o"]).arg(&whole);
    let run = run.arg(&snapshots[0]).output().unwrap();
    assert!(run.status.success(), "{run:?}");
    let tables = [
        "exec",
        "blocks",
        "calls",
        "edges",
        "events",
        "exceptions",
        "functions",
        "gaps",
        "lines",
    ];
    let mut compare = Command::new(&python);
    compare
        .args(["-c", COMPARE])
        .arg(data_set.join("tables"))
        .arg(&whole);
    let compared = compare.args(tables).output().unwrap();
    let text = String::from_utf8(compared.stdout).unwrap();
    assert_eq!(text.lines().count(), 2 * tables.len(), "{text}");
    assert!(text.lines().all(|line| line.ends_with(" []")), "{text}");

    // The queries.
    let answers = String::from_utf8(output.stdout).unwrap();
    let answers: Vec<Value> = answers
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let stats = Command::new(armsnap)
        .args(["decode", "--format=none", "--stats"])
        .arg(&snapshots[0])
        .output()
        .unwrap();
    let stats: Value = serde_json::from_slice(&stats.stdout).unwrap();
    assert_eq!(answers[0]["query"], "instructions");
    assert_eq!(answers[0]["rows"][0]["snapshot"], "one");
    assert_eq!(answers[0]["rows"][0]["instructions"], stats["instructions"]);
    assert_eq!(answers[1]["rows"].as_array().unwrap().len(), 10);

    // Run once more: everything exists already.
    let again = job(&python, &wrapper, &data_set, &snapshots);
    assert!(again.status.success());
    let text = String::from_utf8(again.stdout).unwrap();
    let rows: Value = serde_json::from_str(text.lines().next().unwrap()).unwrap();
    assert_eq!(rows, answers[0]);

    // Shards of other snapshots do not belong to it.
    let other = job(&python, &wrapper, &data_set, &snapshots[..1]);
    let said = String::from_utf8_lossy(&other.stderr);
    assert!(
        !other.status.success() && said.contains("other snapshots or sizes"),
        "{said}"
    );
}
