//! Decoding in parts: the output is that of decoding as a whole, wherever the parts begin, and
//! whatever the trace is.

pub mod case;
mod made;

use case::*;
use std::path::Path;
use std::process::Command;

use crate::support::repeated::repeated;
use crate::support::skip;
use armsnap::decode::parts::Sizes;

#[test]
fn all_captures_decode_in_parts_as_a_whole() {
    let mut random = numbers(0x5eed);
    let mut taken = [0; 4];
    for path in snapshots() {
        cases(&path, |case| {
            let total = case.buffer.bytes();
            let mut case = Case {
                piece: (total / 16).clamp(1, 4 << 10) as usize,
                ..case
            };
            for (index, level) in LEVELS.into_iter().enumerate() {
                case.level = level;
                let forms: &[LineForm] = match level {
                    Level::Elements => &[LineForm::Text, LineForm::JsonLines, LineForm::Counts],
                    Level::Packets => &[LineForm::JsonLines, LineForm::Counts],
                    Level::Branches => &[
                        LineForm::Text,
                        LineForm::JsonLines,
                        LineForm::Records(0),
                        LineForm::Counts,
                    ],
                    // The disassembler is slow without optimisation.
                    Level::Instructions if total > 30 << 10 => &[LineForm::Counts],
                    Level::Instructions => &[LineForm::Text],
                };
                for &form in forms {
                    case.form = form;
                    let name = format!("{}: {}", path.display(), case.name());
                    let whole = case.whole();
                    let parts = parts(total, case.piece, &mut random);
                    let (joined, pages) = case.joined(&parts, false);
                    assert_same(&joined, &whole, &name);
                    taken[index] += pages;
                }
            }
        });
    }
    for pages in taken {
        skip::found_enough(pages as usize, 20);
    }
}

/// The recorded traces have few synchronisation points, so each is repeated.
#[test]
fn threads_decode_as_a_whole() {
    let mut split = 0;
    for path in snapshots() {
        cases(&path, |case| {
            let once = bytes_of(&case.buffer);
            let times = (24 << 10) / once.len() + 1;
            if once.len() < 64 || once.len() > 20 << 10 {
                return;
            }
            let mut case = with_bytes(case, once.repeat(times));
            case.piece = 1 << 10;
            for (level, form, jobs) in [
                (Level::Packets, LineForm::JsonLines, 2),
                (Level::Elements, LineForm::Counts, 3),
                (Level::Elements, LineForm::Text, 2),
                (Level::Branches, LineForm::Text, 3),
            ] {
                (case.level, case.form) = (level, form);
                let sizes = Sizes {
                    piece: case.piece,
                    part: 8 << 10,
                    output: 16 << 10,
                    lead_in: None,
                };
                if let Some(decoded) = case.on_threads(sizes, jobs) {
                    assert_same(&decoded, &case.whole(), &path.display().to_string());
                    split += 1;
                }
            }
        });
    }
    skip::found_enough(split, 10);
}

fn decode(snapshot: &Path, arguments: &[&str]) -> Vec<u8> {
    let mut command = Command::new(crate::support::armsnap());
    let output = command.arg("decode").arg(snapshot).args(arguments).output();
    let output = output.unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    output.stdout
}

#[test]
fn the_program_writes_the_same_with_any_number_of_threads() {
    let short = repeated("etmv4", 150 << 10);
    for arguments in [
        ["--level", "packets", "--format", "jsonl"],
        ["--level", "elements", "--format", "text"],
        ["--level", "branches", "--format", "jsonl"],
    ] {
        let one = decode(short.path(), &[&arguments[..], &["--jobs", "1"]].concat());
        assert!(one.len() > 1 << 18, "{}", one.len());
        for jobs in ["2", "3"] {
            let many = decode(short.path(), &[&arguments[..], &["--jobs", jobs]].concat());
            assert!(many == one, "{arguments:?}, {jobs} threads");
        }
    }
    let long = repeated("etmv4", 1200 << 10);
    let counts = |jobs| {
        let arguments = ["--format", "none", "--stats", "--jobs", jobs];
        let stats = decode(long.path(), &arguments);
        let stats: serde_json::Value = serde_json::from_slice(&stats).unwrap();
        ["bytes", "packets", "ranges", "instructions", "elements"].map(|name| stats[name].clone())
    };
    let one = counts("1");
    assert!(one[3].as_u64() > Some(1 << 20));
    assert_eq!(counts("2"), one);
    assert_eq!(counts("3"), one);
}

/// What other machines decode arrives as text.
#[test]
fn parts_and_their_states_travel_as_text() {
    let mut taken = 0;
    for path in snapshots() {
        cases(&path, |case| {
            let mut bytes = bytes_of(&case.buffer);
            bytes.truncate(3 << 10);
            let bytes = bytes.repeat(2);
            let mut case = with_bytes(case, bytes);
            let total = case.buffer.bytes();
            case.piece = (total / 12).max(1) as usize;
            case.form = LineForm::Text;
            for level in [Level::Elements, Level::Instructions] {
                case.level = level;
                let parts = parts(total, case.piece, numbers(total + 1));
                let (joined, pages) = case.joined(&parts, true);
                assert_same(&joined, &case.whole(), &case.name());
                taken += pages;
            }
        });
    }
    assert!(taken > 20, "{taken}");
}
