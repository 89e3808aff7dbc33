#!/usr/bin/env python3
"""Decodes the trace of many snapshots on the executors of a Spark cluster.

usage: shards.py [--master URL] [--armsnap FILE] [--size BYTES | --shards N] -o DATASET SNAPSHOT...

Each snapshot is divided into shards (`armsnap shards`). Executors decode them (`armsnap export --shard`), then
join those of each snapshot (`armsnap export --join`). DATASET gets a directory of Parquet files for each
table of docs/tables.md, with a column `snapshot`. The snapshots and DATASET must be on a file system that all
machines share.

A shard is written under a temporary name, and renamed when it is complete. So running a task again, or twice at
the same time, changes nothing, and a restarted job continues where it ended. A job with other snapshots or
sizes needs another DATASET.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import uuid
from functools import reduce
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql.functions import lit

TABLES = ["blocks", "calls", "edges", "events", "exceptions", "functions", "gaps", "lines"]

# As in docs/cluster.md.
EXEC = """
SELECT exec.snapshot, exec.track, pages.sequence + exec.sequence AS sequence, exec.buffer, exec.offset,
    exec.block, exec.taken, exec.instructions, coalesce(exec.time, pages.time) AS time,
    coalesce(pages.cycle + exec.cycle, exec.cycle, pages.cycle) AS cycle,
    exec.el, exec.context_id, exec.vmid
FROM shard_exec AS exec
JOIN pages ON exec.snapshot = pages.snapshot AND exec.track = pages.track AND exec.buffer = pages.buffer
    AND exec.page = pages.page AND exec.shard = pages.shard
UNION ALL
SELECT snapshot, track, sequence, buffer, offset, block, taken, instructions, time, cycle, el, context_id,
    vmid
FROM joined_exec
"""

QUERIES = {
    "instructions": """
        SELECT exec.snapshot, count(*) AS rows,
            sum(coalesce(exec.instructions, blocks.instructions)) AS instructions
        FROM exec
        LEFT JOIN blocks ON exec.snapshot = blocks.snapshot AND exec.block = blocks.block
        GROUP BY exec.snapshot ORDER BY exec.snapshot""",
    "hottest edges": """
        SELECT build_id, from_in_file, to_in_file, kind, sum(count) AS count
        FROM edges WHERE kind <> 'not_taken'
        GROUP BY build_id, from_in_file, to_in_file, kind
        ORDER BY count DESC, from_in_file, to_in_file LIMIT 10""",
    "exceptions": """
        SELECT snapshot, name, count(*) AS returned,
            percentile_disc(0.5) WITHIN GROUP (ORDER BY end_instruction - begin_instruction) AS median
        FROM exceptions WHERE returned GROUP BY snapshot, name ORDER BY snapshot, name""",
}


def make(final, command):
    """Runs a command that makes a directory, unless the directory already exists: then it is complete."""
    if final.is_dir():
        return
    final.parent.mkdir(parents=True, exist_ok=True)
    temporary = final.parent / f".{uuid.uuid4()}"
    try:
        done = subprocess.run([*command, "-o", str(temporary)], stderr=subprocess.PIPE, text=True)
        # Status 1, and a directory was made: a part of the trace cannot be decoded, as a message says.
        if not temporary.is_dir():
            raise RuntimeError(f"{' '.join(command)}: {done.stderr}")
        try:
            temporary.rename(final)
        except OSError:
            # Another attempt finished first. Both wrote the same.
            if not final.is_dir():
                raise
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def shard_directory(work, snapshot, shard):
    return work / "shards" / snapshot / shard.replace("/", "-of-")


def decode(armsnap, work, task):
    """Decodes a shard. Runs on an executor."""
    snapshot, path, shard = task
    command = [armsnap, "export", path, "--as", "parquet", "--shard", shard]
    make(shard_directory(work, snapshot, shard), command)


def join(armsnap, work, task):
    """Joins the shards of a snapshot. Runs on an executor."""
    snapshot, path, shards = task
    directories = [str(shard_directory(work, snapshot, shard)) for shard in shards]
    command = [armsnap, "export", path, "--as", "parquet", "--join", *directories]
    make(work / "joined" / snapshot, command)


def tables(spark, work, plans):
    """Returns the tables of all snapshots, by name."""

    def union(paths):
        parts = [
            spark.read.parquet(*map(str, files)).withColumn("snapshot", lit(snapshot))
            for snapshot, files in paths
        ]
        return reduce(lambda one, other: one.unionByName(other), parts)

    def joined(table):
        return union((snapshot, [work / "joined" / snapshot / f"{table}.parquet"]) for snapshot in plans)

    all_tables = {table: joined(table) for table in TABLES}
    joined("pages").createOrReplaceTempView("pages")
    joined("exec").createOrReplaceTempView("joined_exec")
    shards = (
        (snapshot, [shard_directory(work, snapshot, shard) / "exec.parquet" for shard in plan])
        for snapshot, (_, plan) in plans.items()
    )
    union(shards).createOrReplaceTempView("shard_exec")
    all_tables["exec"] = spark.sql(EXEC)
    return all_tables


def write(spark, work, data_set, plans):
    """Writes the data set, under a temporary name until all tables are complete."""
    temporary = work / f".{uuid.uuid4()}"
    for name, table in tables(spark, work, plans).items():
        table.write.parquet(str(temporary / name))
    temporary.rename(data_set / "tables")


def plan(armsnap, path, cut):
    """Returns the shards of a snapshot."""
    command = [armsnap, "shards", path, *cut]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True)
    # Status 1, and a plan was printed: a part of the trace cannot be decoded.
    if not done.stdout:
        sys.exit(f"shards.py: no plan for {path}: {' '.join(command)} ended with status {done.returncode}")
    return [shard["shard"] for shard in json.loads(done.stdout)["shards"]]


def keep(work, plans):
    """Writes the plans to the directory of the shards; fails if it holds shards of other plans."""
    file, text = work / "plans.json", json.dumps(plans, indent=2, sort_keys=True)
    if file.exists() and file.read_text() != text:
        sys.exit(f"shards.py: {work} has shards of other snapshots or sizes; remove it, or choose another -o")
    work.mkdir(parents=True, exist_ok=True)
    temporary = work / f".{uuid.uuid4()}"
    temporary.write_text(text)
    temporary.rename(file)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--master", help="the cluster (default: that of spark-submit, or this machine)")
    parser.add_argument("--armsnap", default="armsnap", help="the program on all machines")
    size = parser.add_mutually_exclusive_group()
    size.add_argument("--size", help="bytes of trace in a shard")
    size.add_argument("--shards", help="shards of each snapshot")
    parser.add_argument("-o", "--output", required=True, type=Path, help="the data set")
    parser.add_argument("snapshots", nargs="+", type=Path)
    arguments = parser.parse_args()

    cut = ["--size", arguments.size] if arguments.size else []
    cut += ["--shards", arguments.shards] if arguments.shards else []
    armsnap, data_set = arguments.armsnap, arguments.output.absolute()
    work = data_set / "work"
    paths = [snapshot.absolute() for snapshot in arguments.snapshots]
    if len({path.name for path in paths}) < len(paths):
        parser.error("two snapshots have the same name")

    # Small tasks: another machine soon redoes what a lost machine had begun.
    plans = {path.name: (str(path), plan(armsnap, str(path), cut)) for path in paths}
    keep(work, plans)

    builder = SparkSession.builder.appName("armsnap")
    if arguments.master:
        builder = builder.master(arguments.master)
    spark = builder.getOrCreate()
    context = spark.sparkContext

    shards = [(name, path, shard) for name, (path, shards) in plans.items() for shard in shards]
    context.parallelize(shards, len(shards)).foreach(lambda task: decode(armsnap, work, task))
    whole = [(name, path, shards) for name, (path, shards) in plans.items()]
    context.parallelize(whole, len(whole)).foreach(lambda task: join(armsnap, work, task))

    if not (data_set / "tables").is_dir():
        write(spark, work, data_set, plans)
    for table in [*TABLES, "exec"]:
        spark.read.parquet(str(data_set / "tables" / table)).createOrReplaceTempView(table)
    for title, query in QUERIES.items():
        rows = [json.loads(row) for row in spark.sql(query).toJSON().collect()]
        print(json.dumps({"query": title, "rows": rows}))
    spark.stop()


if __name__ == "__main__":
    sys.exit(main())
