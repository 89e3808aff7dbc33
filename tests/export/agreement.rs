//! All formats agree with `decode --stats`.

use super::common::{
    arg, armsnap, export_text, number, record, recorded, run, said, snapshots, stats,
};
use super::programs::SOURCE;
use crate::support::record::installed;
use armsnap::snapshot::OpenOptions;
use armsnap::snapshot::memory::CoreMemory;
use armsnap::snapshot::model::Snapshot;
use armsnap::timeline::{Direction, PointKind, Timeline, TracedCore};
use object::{Object, ObjectSymbol};
use serde_json::Value;
use std::path::Path;
use std::sync::Arc;

/// The sum of a file of folded stacks.
fn folded(snapshot: &Path, options: &[&str]) -> u64 {
    let text = export_text(snapshot, "folded", options);
    let counts = text.lines().map(|line| line.rsplit_once(' ').unwrap().1);
    counts.map(|count| count.parse::<u64>().unwrap()).sum()
}

#[test]
fn stacks_contain_all_instructions() {
    let mut some = 0;
    for snapshot in snapshots() {
        let known = number(&stats(&snapshot, &[]), "instructions");
        assert_eq!(folded(&snapshot, &[]), known, "{}", snapshot.display());
        assert_eq!(folded(&snapshot, &["--jobs", "1"]), known);
        some += usize::from(known > 0);
    }
    assert!(some > 2);
}

#[test]
fn a_start_that_is_not_reached_is_noted() {
    let directory = tempfile::tempdir().unwrap();
    let export = |from: &str| {
        let file = directory.path().join("out");
        let snapshot = recorded("etmv4");
        let (snapshot, file) = (arg(&snapshot), arg(&file));
        let arguments = ["export", snapshot, "--as", "folded", "-o", file, "--force"];
        let output = armsnap(&[&arguments[..], &["--from", from]].concat());
        assert!(output.status.success(), "{}", said(&output));
        (std::fs::read_to_string(file).unwrap(), said(&output))
    };
    let note = "does not reach the start";
    let (stacks, notes) = export("instruction:1");
    assert!(!stacks.is_empty() && !notes.contains(note), "{notes}");
    let (stacks, notes) = export("instruction:1000000000000");
    assert!(stacks.is_empty() && notes.contains(note), "{notes}");
}

/// The addresses of the executed straight lines of a part.
fn starts(snapshot: &Path, options: &[&str]) -> Vec<u64> {
    let all = [&["--table=exec", "--core=Cortex-A57_0"], options].concat();
    let text = export_text(snapshot, "jsonl", &all);
    let starts = text.lines().map(|line| {
        let row: Value = serde_json::from_str(line).unwrap();
        row["sequence"].as_u64().unwrap()
    });
    starts.collect()
}

#[test]
fn a_part_starts_and_ends_at_positions() {
    let snapshot = recorded("etmv4");
    let loaded = Snapshot::open(&snapshot, &OpenOptions::default()).unwrap();
    let devices = &loaded.snapshot.devices;
    let device = devices
        .iter()
        .position(|device| device.name == "Cortex-A57_0");
    let device = device.unwrap();
    let memory = Arc::new(CoreMemory::new(&loaded, &devices[device]));
    let mut timeline = Timeline::open(&loaded, &[TracedCore { device, memory }]);
    let history = timeline.history(device).unwrap();
    let all = starts(&snapshot, &[]);
    let (mut executed, mut checked) = (0, 0);
    let mut here = Some(history.begin());
    while let Some(position) = here {
        let place = history.place(position).unwrap();
        if let PointKind::Instruction { number, .. } = place.kind {
            // A part consists of whole lines: this one, or from the next one on.
            if executed % 23 == 0 {
                let name = position.to_string();
                let (after, before): (Vec<u64>, Vec<u64>) =
                    all.iter().partition(|sequence| **sequence >= executed);
                assert_eq!(starts(&snapshot, &["--from", &name]), after, "{name}");
                if executed > 0 {
                    assert_eq!(starts(&snapshot, &["--to", &name]), before, "{name}");
                }
                checked += usize::from(number > 0);
            }
            executed += 1;
        }
        here = history.step(position, Direction::Forward);
    }
    assert!(checked > 5, "{checked} in the middle of a line");

    let refused = |place: &str, options: &[&str]| {
        let from = ["export", arg(&snapshot), "--as=folded", "-o/dev/null"];
        let output = armsnap(&[&from[..], &["--from", place], options].concat());
        assert_eq!(output.status.code(), Some(2));
        said(&output)
    };
    assert!(refused("0+7", &[]).contains("a position belongs to one core"));
    let never = refused("0+99999", &["--core=Cortex-A57_0"]);
    assert!(never.contains("Cortex-A57_0 was never there"), "{never}");
}

/// A function of a stripped program, wherever it is loaded.
#[test]
fn code_without_symbols_is_named_by_its_file() {
    let (compiler, tools) = (
        "aarch64-linux-gnu-gcc",
        ["qemu-aarch64", "aarch64-linux-gnu-strip"],
    );
    if !installed(&[compiler, tools[0], tools[1]]) {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name);
    let (source, program, stripped) = (path("program.c"), path("program"), path("stripped"));
    std::fs::write(&source, SOURCE).unwrap();
    let build = ["-O0", "-pie", "-fPIE", arg(&source), "-o", arg(&program)];
    let built = run(compiler, &build);
    assert!(built.status.success(), "{}", said(&built));
    let made = run(tools[1], &["-o", arg(&stripped), arg(&program)]);
    assert!(made.status.success(), "{}", said(&made));
    let bytes = std::fs::read(&program).unwrap();
    let elf = object::File::parse(&*bytes).unwrap();
    let main = elf
        .symbols()
        .find(|symbol| symbol.name() == Ok("main"))
        .unwrap();
    let snapshot = path("snapshot");
    record(&[], &snapshot, &stripped, &[]);
    let stacks = export_text(&snapshot, "folded", &[]);
    let name = format!("stripped+{:#x}", main.address());
    assert!(stacks.contains(&name), "{name}: {stacks}");
}
