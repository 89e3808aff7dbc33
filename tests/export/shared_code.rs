//! Code without a symbol that several functions execute: stubs of a linker, tails that compilers merge.

use super::common::{arg, export_text, record, run, said};
use crate::support::record::installed;
use serde_json::Value;
use std::collections::BTreeMap;
use tempfile::TempDir;

/// `jumps` reaches code without a symbol before `main` calls it as a function.
const SOURCE: &str = "
    .macro function name
    .globl \\name
    .type \\name, %function
\\name:
    .endm
    .text
.Lshared:
    add x0, x0, #1
    cbz x0, .Lnever
    add x0, x0, #2
.Lnever:
    ret
    function jumps
    mov x0, #5
    b .Lshared
    .size jumps, . - jumps
    function _start
    mov x19, #3
    bl jumps
1:  bl .Lshared
    subs x19, x19, #1
    b.ne 1b
    mov x8, #93
    mov x0, #0
    svc #0
    .size _start, . - _start
";

/// `whole` goes on in the middle of `parted`, which nothing calls.
const MIDDLE: &str = "
    .macro function name
    .globl \\name
    .type \\name, %function
\\name:
    .endm
    .text
    function parted
    nop
.Lmiddle:
    add x0, x0, #1
    add x0, x0, #2
    ret
    .size parted, . - parted
    function whole
    mov x0, #5
    b .Lmiddle
    .size whole, . - whole
    function _start
    mov x19, #3
1:  bl whole
    subs x19, x19, #1
    b.ne 1b
    mov x8, #93
    mov x0, #0
    svc #0
    .size _start, . - _start
";

type Counts = BTreeMap<String, u64>;

fn add(counts: &mut Counts, name: &str, count: u64) {
    *counts.entry(name.to_owned()).or_default() += count;
}

fn by_stacks(text: &str) -> Counts {
    let mut counts = Counts::new();
    for line in text.lines() {
        let (stack, count) = line.rsplit_once(' ').unwrap();
        let name = stack.rsplit(';').next().unwrap();
        add(&mut counts, name, count.parse().unwrap());
    }
    counts
}

fn by_table(text: &str, column: &str) -> Counts {
    let mut counts = Counts::new();
    for line in text.lines() {
        let row: Value = serde_json::from_str(line).unwrap();
        let name = row["function"].as_str().unwrap();
        add(&mut counts, name, row[column].as_u64().unwrap());
    }
    counts
}

fn by_callgrind(text: &str) -> Counts {
    let mut counts = Counts::new();
    let mut function = "";
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        if let Some(name) = line.strip_prefix("fn=") {
            function = name;
        } else if line.starts_with("calls=") {
            lines.next();
        } else if line.starts_with("0x") {
            let count = line.rsplit(' ').next().unwrap();
            add(&mut counts, function, count.parse().unwrap());
        }
    }
    counts
}

const AARCH64: [&str; 2] = ["aarch64-linux-gnu-gcc", "qemu-aarch64"];

/// Builds and records a program whose source file has this name; returns a directory with its
/// `snapshot`.
fn recorded(tools: [&str; 2], (file, code): (&str, &str), options: &[&str]) -> Option<TempDir> {
    if !installed(&tools) {
        return None;
    }
    let directory = tempfile::tempdir().unwrap();
    let source = directory.path().join(file);
    let (program, snapshot) = (source.with_extension(""), directory.path().join("snapshot"));
    std::fs::write(&source, code).unwrap();
    let built = run(
        tools[0],
        &[options, &[arg(&source), "-o", arg(&program)]].concat(),
    );
    assert!(built.status.success(), "{}", said(&built));
    record(&[], &snapshot, &program, &[]);
    Some(directory)
}

/// The same for an assembler program without libraries.
fn assembled(code: &str) -> Option<TempDir> {
    recorded(AARCH64, ("shared.s", code), &["-nostdlib", "-static"])
}

#[test]
fn code_that_functions_share_counts_for_each_of_them() {
    let Some(directory) = assembled(SOURCE) else {
        return;
    };
    let snapshot = directory.path().join("snapshot");
    let stacks = by_stacks(&export_text(&snapshot, "folded", &[]));
    let shared = stacks.keys().find(|name| name.starts_with("shared+"));
    let shared = shared.unwrap_or_else(|| panic!("{stacks:?}"));
    assert_eq!((stacks["jumps"], stacks[shared]), (2 + 4, 3 * 4));
    let table = export_text(&snapshot, "jsonl", &["--table=functions"]);
    assert_eq!(by_table(&table, "instructions"), stacks);
    let totals = by_table(&table, "total_instructions");
    assert!(stacks.iter().all(|(name, own)| totals[name] >= *own));
    // Callgrind's counts are by code, which here belongs to the function that starts there.
    let callgrind = by_callgrind(&export_text(&snapshot, "callgrind", &[]));
    assert_eq!((callgrind["jumps"], callgrind[shared]), (2, 4 * 4));
}

/// Code that a function reaches by a branch into the middle of another one costs its caller, too.
#[test]
fn costs_without_a_call_belong_to_the_callers() {
    let Some(directory) = assembled(MIDDLE) else {
        return;
    };
    if !installed(&["callgrind_annotate"]) {
        return;
    }
    let snapshot = directory.path().join("snapshot");
    let file = directory.path().join("callgrind.out");
    std::fs::write(&file, export_text(&snapshot, "callgrind", &[])).unwrap();
    let options = ["--inclusive=yes", "--threshold=100", arg(&file)];
    let output = run("callgrind_annotate", &options);
    assert!(output.status.success(), "{}", said(&output));
    let text = String::from_utf8_lossy(&output.stdout).replace(',', "");
    let cost = |name: &str| -> u64 {
        let name = format!(":{name} ");
        let line = text.lines().find(|line| line.contains(&name)).unwrap();
        line.trim().split(' ').next().unwrap().parse().unwrap()
    };
    let table = export_text(&snapshot, "jsonl", &["--table=functions"]);
    let totals = by_table(&table, "total_instructions");
    assert_eq!((totals["parted"], totals["whole"]), (3 * 3, 3 * 2));
    for name in ["parted", "whole", "_start"] {
        assert_eq!(cost(name), totals[name], "{name}: {text}");
    }
}

/// `longjmp` leaves recursive calls, three times.
const JUMPS: &str = "
    #include <setjmp.h>
    #include <stdio.h>
    static jmp_buf back;
    static volatile int count;
    __attribute__((noinline)) static int dive(int depth) {
        if (depth == 0) longjmp(back, 1);
        return dive(depth - 1) + count;
    }
    __attribute__((noinline)) static int each(int depth) {
        if (setjmp(back)) return count++;
        return dive(depth) + count;
    }
    int main(void) {
        for (int depth = 1; depth < 4; depth++) each(depth);
        return count != 3;
    }
";

#[test]
fn longjmp_in_a_program_without_symbols_leaves_the_calls_around_it() {
    for tools in [AARCH64, ["arm-linux-gnueabihf-gcc", "qemu-arm"]] {
        let Some(directory) = recorded(tools, ("jumps.c", JUMPS), &["-O1", "-s"]) else {
            continue;
        };
        let (emulator, snapshot) = (tools[1], directory.path().join("snapshot"));
        let text = export_text(&snapshot, "jsonl", &["--table=calls"]);
        let rows: Vec<Value> = text
            .lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect();
        let of = |name: &str, value: &str| rows.iter().filter(|row| row[name] == value).count();
        assert_eq!(of("ended", "switched"), 0, "{emulator}");
        assert_eq!(of("kind", "caller"), 0, "{emulator}");
        // `dive` was open twice, three and four times.
        let own = |row: &&Value| {
            let name = row["function"].as_str().unwrap();
            row["ended"] == "unwound" && name.starts_with("jumps+")
        };
        let left: Vec<&Value> = rows.iter().filter(own).collect();
        let dives = left.iter().filter(|row| row["kind"] == "call").count();
        assert!(dives >= 2 + 3 + 4, "{emulator}: {left:?}");
    }
}
