//! Conditions of breakpoints at past positions: on known values they decide, on unknown ones they stop.

use super::past_values::{PROGRAM, in_order, past, recorded};
use crate::support::gdb::ends_of_history;

/// What GDB prints if it cannot evaluate a condition.
const NOTE: &str = "Error in testing";

#[test]
fn known_values_decide() {
    for level in ["-O0", "-O2"] {
        let Some(guest) = recorded(PROGRAM, level) else {
            return;
        };
        // The calls are sum(3), spoil(2), spoil(1), spoil(0), 40 times sum(2), sum(100), which crashes.
        let text = past(
            &guest,
            &[
                "break sum if limit == 3",
                "break spoil if depth == 1 && node == &nodes[1]",
                "break spoil if depth == 7",
                "reverse-continue",
                "print depth",
                "reverse-continue",
                "print limit",
                "info breakpoints",
                "echo <begin>\\n",
                "reverse-continue",
                "echo <forward>\\n",
                "continue",
                "print limit",
                "continue",
                "print depth",
                "echo <end>\\n",
                "continue",
            ],
        );
        assert!(!text.contains(NOTE), "{level}: {text}");
        in_order(
            &text,
            &[
                "Breakpoint 2, spoil (",
                "$1 = 1\n",
                "Breakpoint 1, sum (",
                "$2 = 3\n",
                "stop only if limit == 3",
                "breakpoint already hit 1 time",
                "stop only if depth == 1",
                "breakpoint already hit 1 time",
                "<begin>",
                "<forward>",
                "Breakpoint 1, sum (",
                "$3 = 3\n",
                "Breakpoint 2, spoil (",
                "$4 = 1\n",
                "<end>",
            ],
        );
        for (from, to) in [("<begin>", "<forward>"), ("<end>", "")] {
            let part = text.split(from).nth(1).unwrap();
            let part = if to.is_empty() {
                part
            } else {
                part.split(to).next().unwrap()
            };
            assert_eq!(ends_of_history(part), 1, "{from}: {text}");
        }
    }
}

#[test]
fn unknown_values_stop_with_a_note() {
    let Some(guest) = recorded(PROGRAM, "-O2") else {
        return;
    };
    // The flags are never recovered; the other registers are unknown while `recover` is off.
    for (commands, condition) in [
        (&["armsnap recover off"][..], "limit == 3"),
        (&["armsnap recover off"], "$x1 == 3"),
        (&["armsnap recover off"], "$w1 == 3"),
        (&["armsnap recover off"], "total == -1"),
        (&["armsnap recover off"], "$v0.d.u[0] == 1"),
        (&[], "($cpsr & 0x40000000) == 0 && limit == 7"),
    ] {
        let break_if = format!("break sum if {condition}");
        let mut all = commands.to_vec();
        all.extend([
            &*break_if,
            "reverse-continue",
            "echo <second>\\n",
            "reverse-continue",
            "info breakpoints",
        ]);
        let text = past(&guest, &all);
        in_order(
            &text,
            &[
                "Breakpoint 1, sum (",
                "<second>",
                "Breakpoint 1, sum (",
                "breakpoint already hit 2 times",
            ],
        );
        assert_eq!(text.matches(NOTE).count(), 2, "{condition}: {text}");
        assert_eq!(ends_of_history(&text), 0, "{condition}: {text}");
    }
}
