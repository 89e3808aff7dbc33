//! Back traces through the handlers of signals at past positions, against the emulator's.

use crate::support::gdb::{run, session, text};
use crate::support::record::{build, live, record};
use std::process::Command;

/// A signal from the program itself, and one from a fault, whose handlers return.
const SIGNALS: &str = include_str!("../support/record/signals.c");
/// A processor without SVE: GDB fails at SVE's part of a signal's frame.
const CPU: [&str; 2] = ["-cpu", "cortex-a72"];
const SIGNAL: &str = "<signal handler called>";

/// The names of functions in the last back trace of an output.
fn functions(text: &str) -> Vec<&str> {
    let lines: Vec<&str> = text.lines().collect();
    let first = lines.iter().rposition(|line| line.starts_with("#0 "));
    let frames = lines[first.unwrap_or_else(|| panic!("{text}"))..].iter();
    let frames = frames.filter(|line| line.starts_with('#'));
    frames
        .map(|line| {
            let line = line.split_once(' ').unwrap().1.trim_start();
            let line = match line.split_once(" in ") {
                Some((address, line)) if address.starts_with("0x") => line,
                _ => line,
            };
            line.split(" (").next().unwrap()
        })
        .collect()
}

#[test]
fn handlers_have_callers() {
    let options = [
        "-O0",
        "-static",
        "-nostdlib",
        "-ffreestanding",
        "-fno-builtin",
    ];
    let Some(guest) = build("aarch64", "program.c", SIGNALS, &options) else {
        return;
    };
    let run_to_end = record(&guest, "recorded", &[], &[]);
    assert!(run_to_end.status.success(), "{run_to_end:?}");
    let recorded = guest.directory.path().join("recorded");
    let mut signals = 0;
    for (handler, interrupted) in [
        ("on_user", "call"),
        ("on_alarm", "call"),
        ("on_fault", "fault"),
    ] {
        let at = format!("break {handler}");
        let truth = live(&guest, &CPU, &[], |socket| {
            let mut gdb = Command::new("gdb-multiarch");
            gdb.args(["-nx", "-batch"]).arg(&guest.program);
            gdb.args(["-ex", &format!("target remote {}", socket.display())]);
            let signals = "handle SIGUSR1 SIGALRM SIGSEGV nostop noprint pass";
            for command in [signals, &at, "continue", "bt"] {
                gdb.args(["-ex", command]);
            }
            text(&run(&mut gdb))
        });
        let truth = functions(&truth);
        assert_eq!(truth[..3], [handler, SIGNAL, interrupted]);

        let to = [&at, "reverse-continue"];
        let stopped = |more: &[&str]| session(&recorded, &[], &[&to[..], more].concat());
        let shown = stopped(&["bt"]);
        let shown = functions(&shown);
        // GDB finds a signal by its frame, which is not always known.
        let found = shown.contains(&SIGNAL);
        signals += usize::from(found);
        let expected = truth.iter().filter(|name| found || **name != SIGNAL);
        assert_eq!(shown, expected.copied().collect::<Vec<_>>(), "{handler}");

        // In a function that the handler called, and back.
        let inside = stopped(&["tbreak deep", "continue", "bt"]);
        assert_eq!(functions(&inside), [&["deep"], &shown[..]].concat());
        let back = stopped(&["tbreak deep", "continue", "reverse-finish", "bt"]);
        assert_eq!(functions(&back), shown);
        // Out of the handler: where the signal arrived, or the code that the handler returns to.
        let before = stopped(&["reverse-finish", "bt"]);
        let outer = shown.iter().filter(|name| **name != SIGNAL).skip(1);
        assert_eq!(functions(&before), outer.copied().collect::<Vec<_>>());
        if handler != "on_fault" {
            // (The handler of the fault changes where the program goes on.)
            let after = stopped(&["finish", "bt"]);
            assert_eq!(functions(&after), shown[1..]);
        }
    }
    assert!(signals > 0, "no signal was found by its frame");

    // With SVE in the frames.
    let with_sve = record(&guest, "with_sve", &["--cpu", "max"], &[]);
    assert!(with_sve.status.success(), "{with_sve:?}");
    let with_sve = guest.directory.path().join("with_sve");
    let shown = session(
        &with_sve,
        &[],
        &["break on_alarm", "reverse-continue", "bt"],
    );
    let called = ["on_alarm", "call", "send", "work", "begin", "_start"];
    let shown = functions(&shown);
    let shown: Vec<_> = shown.into_iter().filter(|name| *name != SIGNAL).collect();
    assert_eq!(shown, called);
}
