//! All commands agree on the sources of trace: their trace IDs, protocols and cores.

use armsnap::capture::{Capture, Protocol};
use armsnap::quantity::TraceId;
use armsnap::snapshot::model::Snapshot;
use armsnap::snapshot::{OpenOptions, OpenSnapshot};
use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;
use tempfile::TempDir;

/// A copy of the recorded two-core PTM snapshot with some texts replaced.
fn changed(changes: &[(&str, &str, &str)]) -> TempDir {
    let from = Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata/recorded/ptm");
    let to = TempDir::new().unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        std::fs::copy(entry.path(), to.path().join(entry.file_name())).unwrap();
    }
    for (file, old, new) in changes {
        let path = to.path().join(file);
        let text = std::fs::read_to_string(&path).unwrap();
        assert!(text.contains(old), "{old} is not in {file}");
        std::fs::write(path, text.replace(old, new)).unwrap();
    }
    to
}

fn open(directory: &TempDir) -> OpenSnapshot {
    Snapshot::open(directory.path(), &OpenOptions::default()).unwrap()
}

/// Standard output of a successful command.
fn armsnap(arguments: &[&str]) -> String {
    let mut command = Command::new(crate::support::armsnap());
    let output = command.args(arguments).output().unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{arguments:?}: {error}");
    String::from_utf8(output.stdout).unwrap()
}

/// The number of instructions that `decode` lists, by source.
fn decoded(directory: &TempDir) -> BTreeMap<String, usize> {
    let path = directory.path().to_str().unwrap();
    let listing = armsnap(&[
        "decode",
        path,
        "--level",
        "instructions",
        "--format",
        "jsonl",
    ]);
    let mut count = BTreeMap::new();
    for line in listing.lines() {
        let line: serde_json::Value = serde_json::from_str(line).unwrap();
        if line["kind"] == "instruction" {
            let source = line["source"].as_str().unwrap().to_owned();
            *count.entry(source).or_default() += 1;
        }
    }
    count
}

/// The trace frames of a core.
fn converted(directory: &TempDir, core: &str) -> Vec<String> {
    let out = TempDir::new().unwrap();
    let file = out.path().join("out.tf");
    let path = directory.path().to_str().unwrap();
    armsnap(&["convert", path, file.to_str().unwrap(), "--core", core]);
    let bytes = std::fs::read(file).unwrap();
    let file = armsnap::tfile::File::open(&bytes, None).unwrap();
    let frames = file.frames().map(|frame| {
        let frame = frame.unwrap();
        let blocks: Vec<_> = frame.blocks().collect();
        format!("{} {blocks:?}", frame.tracepoint)
    });
    frames.collect()
}

/// The last addresses in the history of each core.
fn history(directory: &TempDir) -> Vec<Vec<Option<armsnap::quantity::Address>>> {
    use armsnap::snapshot::memory::CoreMemory;
    use armsnap::timeline::{Direction, Timeline, TracedCore};
    let loaded = open(directory);
    let traced = |device: usize| TracedCore {
        device,
        memory: CoreMemory::new(&loaded, &loaded.snapshot.devices[device]).into(),
    };
    let cores = [traced(0), traced(1)];
    let mut timeline = Timeline::open(&loaded, &cores);
    let mut walks = Vec::new();
    for core in &cores {
        let history = timeline.history(core.device).expect("a history");
        let (mut here, mut walk) = (history.end(), Vec::new());
        for _ in 0..100 {
            let Some(before) = history.step(here, Direction::Backward) else {
                break;
            };
            here = before;
            walk.push(history.place(here).and_then(|place| place.pc()));
        }
        walks.push(walk);
    }
    walks
}

#[test]
fn stream_numbers_apply_to_all_commands() {
    let plain = changed(&[]);
    let streams = changed(&[
        ("trace_1.ini", "=0x00000011", "=0x00000010"),
        ("trace.ini", "PTM_1=ETB_0", "PTM_1(stream:1)=ETB_0"),
    ]);
    let (capture, notes) = Capture::open(&open(&streams));
    assert_eq!(notes, []);
    let ids: Vec<_> = capture.buffers[0]
        .sources
        .iter()
        .map(|s| s.trace_id)
        .collect();
    assert_eq!(ids, [TraceId(0x10), TraceId(0x11)]);
    assert_eq!(decoded(&streams), decoded(&plain));
    assert_ne!(history(&plain)[0], history(&plain)[1]);
    assert_eq!(history(&streams), history(&plain));
    for core in ["Cortex-A15_0", "Cortex-A15_1"] {
        assert!(
            converted(&streams, core) == converted(&plain, core),
            "{core}"
        );
    }
}

#[test]
fn a_second_stream_of_a_core_is_decoded_once() {
    let plain = changed(&[]);
    let twice = changed(&[
        ("trace.ini", "PTM_1=ETB_0", "PTM_0(stream:1)=ETB_0"),
        ("trace.ini", "Cortex-A15_1=PTM_1\n", ""),
    ]);
    let core = "Cortex-A15_0";
    assert!(converted(&twice, core) == converted(&plain, core));
    let loaded = open(&twice);
    let (capture, _) = Capture::open(&loaded);
    let (sources, notes) = capture.following(&loaded.snapshot, 0);
    assert_eq!(sources.len(), 1);
    assert_eq!(notes.len(), 1, "{notes:?}");
}

#[test]
fn the_id_registers_distinguish_a_ptm_from_an_etm() {
    let plain = changed(&[]);
    let files = ["trace_0.ini", "trace_1.ini"];
    let etm = changed(&files.map(|file| (file, "type=PTM1.1", "type=ETM")));
    let path = etm.path().to_str().unwrap();
    assert!(armsnap(&["info", path]).contains("PFTv1.1"));
    let (capture, _) = Capture::open(&open(&etm));
    assert!(
        capture.buffers[0]
            .sources
            .iter()
            .all(|s| s.protocol == Protocol::Ptm)
    );
    assert_eq!(decoded(&etm), decoded(&plain));
    assert!(decoded(&etm).values().sum::<usize>() > 0);
}

#[test]
fn trace_of_etmv1_and_etmv2_is_left_out() {
    for (etmidr, name) in [("0x4104f030", "ETMv1.3"), ("0x4104f110", "ETMv2.1")] {
        let early = changed(&[("trace_0.ini", "0x411cf312", etmidr)]);
        let (capture, notes) = Capture::open(&open(&early));
        let sources = capture.buffers[0].sources.iter();
        let names: Vec<&str> = sources.map(|source| source.name.as_str()).collect();
        assert_eq!(names, ["PTM_1"], "{notes:?}");
        let text = format!("PTM_0: trace of type \"{name}\" cannot be decoded");
        assert!(notes.iter().any(|note| note.text == text), "{notes:?}");
    }
}

#[test]
fn an_unformatted_buffer_is_of_its_first_source_that_can_be_decoded() {
    let unformatted = ("trace.ini", "format=coresight", "format=source_data");
    let unknown = [
        ("trace_0.ini", "type=PTM1.1", "type=HTM"),
        ("trace_0.ini", "ETMIDR=0x411cf312\n", ""),
        ("trace_0.ini", "ETMCR=0x00000000\n", ""),
    ];
    let data_trace = [
        ("trace_0.ini", "type=PTM1.1", "type=ETM4.2"),
        ("trace_0.ini", "ETMIDR=0x411cf312\n", ""),
        ("trace.ini", "PTM_0=ETB_0", "PTM_0(stream:1)=ETB_0"),
    ];
    for (edits, why) in [
        (unknown, "trace of type \"HTM\" cannot be decoded"),
        (
            data_trace,
            "its data trace cannot be decoded: it is left out",
        ),
    ] {
        let mut edits = edits.to_vec();
        edits.push(unformatted);
        let (capture, notes) = Capture::open(&open(&changed(&edits)));
        let sources = capture.buffers[0].sources.iter();
        let names: Vec<&str> = sources.map(|source| source.name.as_str()).collect();
        assert_eq!(names, ["PTM_1"], "{notes:?}");
        let text = format!("PTM_0: {why}");
        let texts: Vec<&str> = notes.iter().map(|note| note.text.as_str()).collect();
        assert!(texts.contains(&text.as_str()), "{texts:?}");
    }
    // The buffer's name says whose trace it is.
    let mut named = unknown.to_vec();
    named.extend([unformatted, ("trace_0.ini", "name=PTM_0", "name=ETB_0")]);
    named.push(("trace.ini", "PTM_0=", "ETB_0="));
    let (capture, _) = Capture::open(&open(&changed(&named)));
    assert!(capture.buffers[0].sources.is_empty());
}
