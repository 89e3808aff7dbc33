//! Helpers for tests of trace files: snapshots → trace files and back, with the library and with the
//! program.

#![allow(dead_code, reason = "each test uses a part of it")]

pub mod frames;

use crate::support::gdb::{armsnap, run, text};
use armsnap::convert::Error;
use armsnap::convert::snapshot::{self, RestoredSnapshot};
use armsnap::convert::trace_file::{self, CoreRun, Options};
use armsnap::snapshot::files::InMemory;
use armsnap::snapshot::model::Snapshot;
use armsnap::snapshot::{OpenOptions, OpenSnapshot};
use armsnap::tfile::{ByteOrder, Description, Tracepoint, Writer};
use serde_json::Value;
use std::path::{Path, PathBuf};

/// The recorded snapshots: one of each protocol.
pub const RECORDED: [&str; 3] = ["recorded/etmv4", "recorded/ptm", "recorded/etmv3"];

/// Runs `armsnap convert`, which must succeed; returns its messages.
pub fn convert(options: &[&str], paths: [&Path; 2]) -> String {
    let mut command = armsnap();
    command.arg("convert").args(options).args(paths);
    let output = run(&mut command);
    assert!(output.status.success(), "{}", text(&output));
    text(&output)
}

/// The listing of `armsnap decode`, an object for each line.
pub fn listing(path: &Path, level: &str) -> Vec<Value> {
    let mut decode = armsnap();
    decode.arg("decode").arg(path);
    decode.args(["--level", level, "--format", "jsonl"]);
    let output = run(&mut decode);
    assert!(output.status.success(), "{}", text(&output));
    let listing = String::from_utf8(output.stdout).unwrap();
    let lines = listing.lines().map(serde_json::from_str);
    lines.map(Result::unwrap).collect()
}

pub fn open(path: &Path) -> OpenSnapshot {
    Snapshot::open(path, &OpenOptions::default()).unwrap()
}

/// A part of a snapshot as a trace file.
pub fn write(
    loaded: &OpenSnapshot,
    core_run: CoreRun,
    options: &Options,
) -> Result<Vec<u8>, Error> {
    let mut notes = Vec::new();
    trace_file::write(
        loaded,
        core_run,
        options,
        Vec::new(),
        &mut notes,
        &mut |_, _| {},
    )
}

/// The trace files of a snapshot.
pub fn trace_files(loaded: &OpenSnapshot, options: &Options) -> Vec<Vec<u8>> {
    let runs = trace_file::core_runs(loaded, options).unwrap().into_iter();
    runs.map(|core_run| write(loaded, core_run, options).unwrap())
        .collect()
}

pub fn read(bytes: &[u8], frame: Option<usize>, merge: bool) -> Result<RestoredSnapshot, Error> {
    let options = snapshot::Options {
        frame,
        merge,
        chosen: None,
    };
    let bytes = bytes.to_vec().into();
    snapshot::read(&bytes, "x.tf", &options, &mut Vec::new())
}

/// The snapshot that a trace file carries.
pub fn back(bytes: &[u8]) -> OpenSnapshot {
    match read(bytes, None, false).unwrap() {
        RestoredSnapshot::Carried(carried) => carried.open().unwrap(),
        RestoredSnapshot::Made(..) => panic!("it carries no snapshot"),
    }
}

/// The real captures.
pub fn captures() -> Vec<PathBuf> {
    let shared = concat!(env!("CARGO_MANIFEST_DIR"), "/../shared/snapshots");
    let Ok(entries) = std::fs::read_dir(shared) else {
        crate::support::skip::missing("../shared is not there");
        return Vec::new();
    };
    let all = entries.map(|entry| entry.unwrap().path());
    let mut all: Vec<PathBuf> = all.filter(|path| path.is_dir()).collect();
    all.sort();
    assert!(all.len() > 15);
    all
}

/// The files named by the .ini files of a snapshot: paths as written, with their bytes.
pub fn blobs(loaded: &OpenSnapshot) -> Vec<(String, Option<Vec<u8>>)> {
    let snapshot = &loaded.snapshot;
    let dumps = snapshot.devices.iter().flat_map(|device| &device.dumps);
    let mut named: Vec<(&Path, &str)> = dumps.map(|d| (&*d.place.file, &*d.file)).collect();
    if let Some(trace) = &snapshot.trace {
        let files = trace.buffers.iter().flat_map(|buffer| &buffer.files);
        named.extend(files.map(|file| (&*trace.place.file, &**file)));
    }
    let programs = snapshot.other_sections.iter();
    let programs = programs.filter(|section| section.name.starts_with("program"));
    let programs = programs.flat_map(|section| &section.entries);
    let straight = snapshot.devices.iter().flat_map(|device| &device.other);
    let other = programs.chain(straight);
    let other = other.filter(|(key, _)| ["file", "straight_code"].contains(&&**key));
    named.extend(other.map(|(_, file)| (Path::new(""), &**file)));
    let libraries = loaded.files().libraries();
    named.extend(libraries.iter().map(|file| (Path::new(""), &**file)));
    named
        .into_iter()
        .map(|(from, written)| {
            let bytes = loaded.file(from, written);
            (written.to_owned(), bytes.ok().map(|bytes| bytes.to_vec()))
        })
        .collect()
}

/// Checks that two snapshots and their files are the same.
pub fn same(there: &OpenSnapshot, back: &OpenSnapshot) {
    assert_eq!(there.snapshot, back.snapshot);
    assert_eq!(there.notes, back.notes);
    assert_eq!(there.entry, back.entry);
    assert_eq!(blobs(there), blobs(back));
}

/// The target description of a core with two registers.
pub const CORE: &str = "<target><architecture>arm</architecture>\
    <reg name=\"r0\" bitsize=\"32\"/><reg name=\"pc\" bitsize=\"32\" regnum=\"15\"/></target>\n";

/// A trace file of another writer.
pub fn foreign(description: &Description, order: ByteOrder) -> Writer<Vec<u8>> {
    Writer::new(Vec::new(), description, order).unwrap()
}

/// The description of a file with frames of two tracepoints, one of them with two locations.
pub fn description(target: &str) -> Description {
    Description {
        register_bytes: 8,
        target: Some(target.to_owned()),
        tracepoints: vec![
            Tracepoint::at(1, 0x8000),
            Tracepoint::at(2, 0x9000),
            Tracepoint::at(2, 0xa000),
        ],
        ..Description::default()
    }
}

/// The snapshot made from a frame, and its dumps.
pub fn made(bytes: &[u8], frame: Option<usize>, merge: bool) -> (Snapshot, InMemory) {
    match read(bytes, frame, merge).unwrap() {
        RestoredSnapshot::Made(snapshot, dumps) => (*snapshot, dumps),
        RestoredSnapshot::Carried(_) => panic!("nothing is carried"),
    }
}
