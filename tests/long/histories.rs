//! Histories of real captures, stepped through in GDB in both directions: each stop is compared with
//! the decoder.
//!
//! GDB makes some thousand steps a second: scripts/test --long runs these optimised.

use std::collections::HashSet;

use crate::support::gdb::shared;
use crate::support::history::in_gdb::{Shown, steps, to_the_end, walk, walks};
use crate::support::history::{Step, decoded, exclusive_loads, same};

/// Steps in each direction of a core whose history is longer.
const MAX_STEPS: usize = 20_000;

/// Walks back from the end, and forward from the start; `sources`: the trace source of each thread, in
/// order.
fn both_ways(name: &str, options: &[&str], sources: &[&str], at_least: usize) {
    let Some(snapshot) = shared(name) else { return };
    let wanted: Vec<Vec<Step>> = sources.iter().map(|s| decoded(&snapshot, s)).collect();
    let all: usize = wanted.iter().map(Vec::len).sum();
    assert!(all >= at_least, "{all} steps");
    let mut commands = vec!["set scheduler-locking on".to_owned()];
    // A core whose trace contains no instruction has no pc to move from.
    let traced = || wanted.iter().enumerate().filter(|(_, w)| !w.is_empty());
    for (core, wanted) in traced() {
        commands.push(format!("thread {}", core + 1));
        // The last step forward leads to the halted state; then comes the end of history.
        let steps = MAX_STEPS.min(wanted.len() + 1);
        commands.push(walk("reverse-stepi", steps));
        commands.push("armsnap goto begin".to_owned());
        commands.push(walk("stepi", steps));
    }
    let commands: Vec<&str> = commands.iter().map(String::as_str).collect();
    let walks = walks(&snapshot, options, &commands);
    assert_eq!(walks.len(), 2 * traced().count());
    for (walks, (core, wanted)) in walks.chunks(2).zip(traced()) {
        let mut stops = walks.iter().flatten();
        assert!(stops.all(|shown| shown.thread == core + 1), "core {core}");
        let is_whole = wanted.len() < MAX_STEPS;
        let taken = |walk: &[Shown]| {
            if is_whole {
                to_the_end(walk)
            } else {
                steps(walk)
            }
        };
        let mut back = taken(&walks[0]);
        back.reverse();
        let unseen = if is_whole {
            0
        } else {
            wanted.len() - MAX_STEPS
        };
        same(
            &back,
            &wanted[unseen..],
            &format!("{name}: core {core}, back"),
        );
        let mut forward = taken(&walks[1]);
        if is_whole {
            assert!(forward.pop().is_some());
        }
        let rest = wanted.get(1..).unwrap_or_default();
        let loads = exclusive_loads(&snapshot, sources[core]);
        println!(
            "{name}: core {core}: {} back, {} forward",
            back.len(),
            forward.len()
        );
        let passed = same_forward(
            &forward,
            rest,
            &loads,
            &format!("{name}: core {core}, forward"),
        );
        assert!(passed == rest.len() || !is_whole, "{name}: core {core}");
    }
}

/// Forward, GDB executes a sequence of at most 16 instructions from a load-exclusive to its
/// store-exclusive as one step. Returns how many of the steps that are wanted were passed.
fn same_forward(found: &[Step], wanted: &[Step], loads: &HashSet<u64>, what: &str) -> usize {
    let mut rest = wanted;
    let mut before = Step::Gap;
    for (number, step) in found.iter().enumerate() {
        let over = match before {
            Step::At(address) if loads.contains(&address) => 16,
            _ => 0,
        };
        let at = rest.iter().take(over + 1).position(|wanted| wanted == step);
        let at = at
            .unwrap_or_else(|| panic!("{what}, step {number}: {step:x?} for {:x?}", rest.first()));
        rest = &rest[at + 1..];
        before = *step;
    }
    wanted.len() - rest.len()
}

#[test]
#[cfg_attr(debug_assertions, ignore = "with --release")]
fn tc2() {
    both_ways(
        "tc2-ptm-rstk-t32",
        &["--core=Cortex-A15_0"],
        &["PTM_0_2"],
        192_000,
    );
}

#[test]
#[cfg_attr(debug_assertions, ignore = "with --release")]
fn juno() {
    let sources = ["ETM_0", "ETM_1", "ETM_2", "ETM_3", "ETM_4", "ETM_5"];
    both_ways("juno_r1_1", &[], &sources, 48_000);
}

#[test]
#[cfg_attr(debug_assertions, ignore = "with --release")]
fn ack_test() {
    both_ways("001-ack_test", &[], &["ETE_0_s1"], 90_000);
}
