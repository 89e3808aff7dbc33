//! Values in served trace frames: what is known at a frame is what is known at its past position.

use crate::past_values::{PROGRAM, SETS, in_order, past, recorded, recorded_for};
use armsnap::convert::trace_run::{Options, TraceRun};
use armsnap::snapshot::OpenOptions;
use armsnap::snapshot::model::Snapshot;

/// The position of some trace frames, and the number of frames.
fn places(snapshot: &std::path::Path) -> (Vec<(usize, u64)>, usize) {
    let loaded = Snapshot::open(snapshot, &OpenOptions::default()).unwrap();
    let options = Options::default();
    let run = TraceRun::of(&loaded, 0, false, &options, &mut Vec::new(), &mut |_, _| {});
    let run = run.unwrap();
    let frames = (1..run.frames()).rev().step_by(23).take(12);
    let number = |frame| run.instruction(frame).unwrap().number.unwrap();
    let places = frames.map(|frame| (frame, number(frame))).collect();
    (places, run.frames())
}

/// The parts of a session between marks.
fn parts(text: &str) -> Vec<&str> {
    text.split("<part>\n").skip(1).collect()
}

#[test]
fn frames_of_a_served_trace_have_the_values_of_their_positions() {
    for (set, registers) in
        SETS.into_iter()
            .zip(["x0 x1 x19 x29 x30", "r0 r1 r4 r11 lr", "r0 r1 r4 r7 lr"])
    {
        let Some(guest) = recorded_for(set, PROGRAM, "-O0") else {
            return;
        };
        let (places, _) = places(&guest.directory.path().join("recorded"));
        assert_eq!(places.len(), 12);
        let mut looks = vec![
            "echo <part>\\n".to_owned(),
            format!("info registers {registers} sp pc"),
            "backtrace".to_owned(),
        ];
        for offset in (0..32).step_by(4) {
            looks.extend([format!("x/xw $sp+{offset}"), "echo \\n".to_owned()]);
        }
        looks.push("echo <part>\\n".to_owned());
        let mut commands = Vec::new();
        for (frame, number) in &places {
            commands.push(format!("tfind {frame}"));
            commands.extend(looks.iter().cloned());
            commands.push("tfind none".to_owned());
            commands.push(format!("monitor goto 0+{number}"));
            commands.push("maintenance flush register-cache".to_owned());
            commands.push("maintenance flush dcache".to_owned());
            commands.extend(looks.iter().cloned());
        }
        let commands: Vec<&str> = commands.iter().map(String::as_str).collect();
        let text = past(&guest, &commands);
        let parts: Vec<&str> = parts(&text).into_iter().step_by(2).collect();
        assert_eq!(parts.len(), 2 * places.len(), "{text}");
        let (mut calls, mut words) = (0, 0);
        for (pair, place) in parts.chunks(2).zip(&places) {
            // The end of a back trace at a past position is the server's.
            let lines = |text: &str| -> Vec<String> {
                let lines = text.lines().filter(|line| !line.is_empty());
                let lines = lines.filter(|line| !line.starts_with("Backtrace stopped"));
                lines.map(str::to_owned).collect()
            };
            let (frame, past) = (lines(pair[0]), lines(pair[1]));
            assert_eq!(frame.len(), past.len(), "{set:?}: {place:?}");
            for (frame, past) in frame.iter().zip(&past) {
                match frame.strip_suffix("<unavailable>") {
                    // At a past position an unknown byte is an error.
                    Some(address) if address.starts_with("0x") => {
                        assert_eq!(address.trim_end(), past.trim_end(), "{set:?}: {place:?}");
                    }
                    _ => assert_eq!(frame, past, "{set:?}: {place:?}"),
                }
                assert!(!frame.starts_with(['#', 'x', 'r']) || !frame.contains("<unavailable>"));
                calls += usize::from(frame.starts_with("#1"));
                words += usize::from(frame.starts_with("0x") && frame == past);
            }
        }
        assert!(calls > 6 && words > 60, "{calls}, {words}: {text}");
    }
}

#[test]
fn the_user_chooses_which_values_frames_have() {
    let Some(guest) = recorded(PROGRAM, "-O0") else {
        return;
    };
    let (_, frames) = places(&guest.directory.path().join("recorded"));
    let last = frames - 1;
    let text = past(
        &guest,
        &[
            &format!("tfind {last}"),
            "info locals",
            "print $sp",
            "armsnap recover off",
            "tfind -",
            "print $sp",
            "armsnap recover inferred",
            "tfind",
            "print $sp",
            "print nodes",
        ],
    );
    in_order(
        &text,
        &[
            "node = 0x",
            "$1 = (void *) 0x",
            "are not recovered",
            "$2 = <unavailable>",
            "$3 = (void *) 0x",
            // This is not in the stack, so frames do not hold it.
            "$4 = <unavailable>",
        ],
    );
}
