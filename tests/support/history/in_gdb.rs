//! A history as shown by GDB, move by move.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use super::Step;
use crate::support::gdb::{ends_of_history, need_gdb, run_within, text};

/// A stop, as GDB shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shown {
    /// The thread.
    pub thread: usize,
    /// The kind of place.
    pub step: Step,
    /// Whether it is at a breakpoint.
    pub breakpoint: bool,
    /// Whether an end of history was reached.
    pub end: bool,
}

/// A command that makes GDB move a number of times and print each stop.
pub fn walk(with: &str, times: usize) -> String {
    format!("python walk('{with}', {times})")
}

/// The stops of each walk among the commands of a session.
pub fn walks(snapshot: &Path, options: &[&str], commands: &[&str]) -> Vec<Vec<Shown>> {
    need_gdb();
    let mut command = Command::new(crate::support::armsnap());
    command.arg("gdb").arg(snapshot).args(options);
    command.args(["--", "-nx", "-batch", "-ex"]);
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/support/gdb/walk.py");
    command.arg(format!("source {}", script.display()));
    for gdb in commands {
        command.args(["-ex", gdb]);
    }
    let shown = text(&run_within(&mut command, Duration::from_secs(1200)));
    let (_, walks) = shown
        .split_once("@walk\n")
        .unwrap_or_else(|| panic!("{shown}"));
    let walks: Vec<Vec<Shown>> = walks.split("@walk\n").map(stops).collect();
    let wanted = commands
        .iter()
        .filter(|command| command.starts_with("python walk"));
    assert_eq!(walks.len(), wanted.count(), "{shown}");
    walks
}

/// The stops of a walk: GDB's output for a stop precedes its line.
fn stops(walk: &str) -> Vec<Shown> {
    let mut stops = Vec::new();
    let mut said = walk;
    while let Some((before, line)) = said.split_once("\n@").or_else(|| said.split_once('@')) {
        let (line, rest) = line.split_once('\n').unwrap();
        let words: Vec<&str> = line.split(' ').collect();
        let [thread, pc, why] = words[..] else {
            panic!("{line}");
        };
        let pc = u64::from_str_radix(pc.strip_prefix("0x").unwrap(), 16).unwrap();
        let step = match why {
            "SIGLOST" => Step::Gap,
            "" | "breakpoint" => Step::At(pc),
            _ => panic!("{line}"),
        };
        stops.push(Shown {
            thread: thread.parse().unwrap(),
            step,
            breakpoint: why == "breakpoint",
            end: ends_of_history(before) > 0,
        });
        said = rest;
    }
    stops
}

/// The steps of a walk to an end of history, which the last move reaches.
pub fn to_the_end(walk: &[Shown]) -> Vec<Step> {
    let moved = walk.iter().take_while(|shown| !shown.end);
    let steps: Vec<Step> = moved.map(|shown| shown.step).collect();
    assert!(steps.len() < walk.len(), "no end of history");
    steps
}

/// The steps of a walk that reaches no end of history.
pub fn steps(walk: &[Shown]) -> Vec<Step> {
    let end = walk.iter().position(|shown| shown.end);
    assert_eq!(end, None, "an end of history");
    walk.iter().map(|shown| shown.step).collect()
}
