//! `armsnap decode --by-time`: several sources of one buffer in one listing, from bytes made by hand from
//! the Armv7-M Architecture Reference Manual (DDI 0403E), appendix D4.

use crate::perf_generated::frames;
use crate::support::gdb::{armsnap, run, text};
use serde_json::Value;
use std::fs;

/// D4.2.1.
const SYNC: [u8; 6] = [0, 0, 0, 0, 0, 0x80];

/// D4.2.8: a byte written to port 0.
fn written(byte: u8) -> Vec<u8> {
    vec![0x01, byte]
}

/// D4.2.5: a global timestamp, below 128.
fn time(ticks: u8) -> Vec<u8> {
    vec![0x94, ticks]
}

/// D4.2.5: the upper bits of the timestamps, which are 0.
fn high() -> Vec<u8> {
    vec![0xb4, 0x80, 0x80, 0x80, 0x00]
}

#[test]
fn sources_are_merged_by_their_timestamps() {
    let stream = |parts: &[Vec<u8>]| [&SYNC[..], &parts.concat()].concat();
    let early = stream(&[written(b'a'), time(10), high(), written(b'c'), time(30)]);
    let late = stream(&[
        written(b'b'),
        time(20),
        high(),
        written(b'd'),
        time(40),
        written(b'e'),
    ]);
    let untimed = stream(&[written(b'x')]);
    let place = tempfile::tempdir().unwrap();
    let mut files = vec![
        (
            "snapshot.ini".to_owned(),
            "[snapshot]\nversion=1.0\n[device_list]\nd1=1.ini\nd2=2.ini\nd3=3.ini\n\
             [trace]\nmetadata=trace.ini\n"
                .to_owned(),
        ),
        (
            "trace.ini".to_owned(),
            "[trace_buffers]\nbuffers=b\n[b]\nname=B\nfile=trace.bin\nformat=coresight\n\
             [source_buffers]\nITM_1=B\nITM_2=B\nITM_3=B\n"
                .to_owned(),
        ),
    ];
    files.extend((1..=3).map(|id| {
        let device = format!(
            "[device]\nname=ITM_{id}\nclass=trace_source\ntype=ITM\n[regs]\nITMTCR=0x000{id}0001\n"
        );
        (format!("{id}.ini"), device)
    }));
    for (name, contents) in files {
        fs::write(place.path().join(name), contents).unwrap();
    }
    let trace = frames(&[(2, &late), (3, &untimed), (1, &early)]);
    fs::write(place.path().join("trace.bin"), trace).unwrap();
    let decoded = |options: &[&str]| {
        let output = run(armsnap().arg("decode").arg(place.path()).args(options));
        assert!(output.status.success(), "{}", text(&output));
        let notes = String::from_utf8(output.stderr).unwrap();
        (String::from_utf8(output.stdout).unwrap(), notes)
    };
    let letters = |lines: &str| -> String {
        let lines = lines
            .lines()
            .map(|line| serde_json::from_str::<Value>(line).unwrap());
        let written = lines.filter(|line| line["port"] == 0);
        let value = |line: Value| match &line["value"] {
            Value::String(hex) => u8::from_str_radix(hex.trim_start_matches("0x"), 16).unwrap(),
            number => u8::try_from(number.as_u64().unwrap()).unwrap(),
        };
        written.map(|line| char::from(value(line))).collect()
    };
    let (merged, notes) = decoded(&["--by-time", "--format", "jsonl"]);
    // The one without timestamps is before the source that is behind it in the buffer.
    assert_eq!(letters(&merged), "xabcde", "{merged}");
    let note = "ITM_3: it has no timestamps: its lines are where they are in the buffer";
    assert!(notes.contains(note), "{notes}");
    // The lines are those of the sources apart.
    let (apart, _) = decoded(&["--format", "jsonl"]);
    let sorted = |lines: &str| {
        let mut lines: Vec<String> = lines.lines().map(str::to_owned).collect();
        lines.sort();
        lines
    };
    assert_eq!(sorted(&merged), sorted(&apart));
    // Those of each source stay in their order, in text too.
    let (merged, _) = decoded(&["--by-time"]);
    for source in ["ITM_1", "ITM_2", "ITM_3"] {
        let id = format!(" 0{}  ", &source[4..]);
        let own: Vec<&str> = merged.lines().filter(|line| line.contains(&id)).collect();
        let (alone, _) = decoded(&["--source", source]);
        assert_eq!(own, alone.lines().collect::<Vec<_>>(), "{source}");
    }
    let refused =
        run(armsnap()
            .arg("decode")
            .arg(place.path())
            .args(["--by-time", "--level", "packets"]));
    assert!(
        text(&refused).contains("--by-time: expected --level elements or instructions"),
        "{}",
        text(&refused)
    );
}
