//! Whole histories of real captures, stepped through in GDB in both directions: each
//! stop is compared with the decoder.
//!
//! GDB makes some thousand steps a second: scripts/test --long runs these with --release.

use std::collections::HashSet;

use crate::support::gdb::shared;
use crate::support::history::in_gdb::{to_the_end, walk, walks};
use crate::support::history::{Step, decoded, exclusive_loads, same};

/// `sources`: the trace source of each thread, in order.
fn whole(name: &str, options: &[&str], sources: &[&str], at_least: usize) {
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
        commands.push(walk("reverse-stepi", wanted.len() + 1));
        commands.push(walk("stepi", wanted.len() + 1));
    }
    let commands: Vec<&str> = commands.iter().map(String::as_str).collect();
    let walks = walks(&snapshot, options, &commands);
    assert_eq!(walks.len(), 2 * traced().count());
    for (walks, (core, wanted)) in walks.chunks(2).zip(traced()) {
        let mut stops = walks.iter().flatten();
        assert!(stops.all(|shown| shown.thread == core + 1), "core {core}");
        let mut back = to_the_end(&walks[0]);
        back.reverse();
        same(&back, wanted, &format!("{name}: core {core}, back"));
        let mut forward = to_the_end(&walks[1]);
        assert!(forward.pop().is_some());
        let rest = wanted.get(1..).unwrap_or_default();
        let loads = exclusive_loads(&snapshot, sources[core]);
        println!(
            "{name}: core {core}: {} back, {} forward",
            back.len(),
            forward.len()
        );
        same_forward(
            &forward,
            rest,
            &loads,
            &format!("{name}: core {core}, forward"),
        );
    }
}

/// Forward, GDB executes a sequence of at most 16 instructions from a load-exclusive to its
/// store-exclusive as one step.
fn same_forward(found: &[Step], wanted: &[Step], loads: &HashSet<u64>, what: &str) {
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
    assert_eq!(rest, [], "{what}");
}

#[test]
#[cfg_attr(debug_assertions, ignore = "with --release")]
fn tc2() {
    whole(
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
    whole("juno_r1_1", &[], &sources, 48_000);
}

#[test]
#[cfg_attr(debug_assertions, ignore = "with --release")]
fn ack_test() {
    whole("001-ack_test", &[], &["ETE_0_s1"], 90_000);
}
