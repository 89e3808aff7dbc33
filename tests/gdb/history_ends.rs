//! Moves that reach an end of history while GDB steps over one of its breakpoints.

use crate::support::gdb::{ends_of_history, session};
use crate::support::record::{Guest, build, record};

const PROGRAM: &str = r"
int add(int a, int b)
{
    return a + b;
}
int main(void)
{
    int sum = 0;
    for (int i = 0; i < 3; i++)
        sum = add(sum, i);
    return sum;
}
";

fn recorded(architecture: &'static str) -> Option<Guest> {
    let guest = build(architecture, "program.c", PROGRAM, &["-O0", "-static"])?;
    let run = record(&guest, "recorded", &[], &[]);
    assert!(run.status.success(), "{run:?}");
    Some(guest)
}

/// GDB evaluates conditions and counts by itself, and steps over such a breakpoint.
#[test]
fn breakpoints_at_the_ends_do_not_hang_later_moves() {
    for architecture in ["aarch64", "arm"] {
        let Some(guest) = recorded(architecture) else {
            return;
        };
        let snapshot = guest.directory.path().join("recorded");
        for set in [
            &["break *_start if 0"][..],
            &["break *_start", "ignore 1 9"],
        ] {
            let moves = [
                "reverse-continue",
                "reverse-continue",
                "stepi",
                "reverse-stepi",
            ];
            let more = ["print $_exitcode", "reverse-stepi"];
            let text = session(&snapshot, &[], &[set, &moves[..], &more[..]].concat());
            // One for each move backward, except the first step back, which reaches the start of
            // history.
            assert_eq!(ends_of_history(&text), 3, "{text}");
            assert!(text.contains("$1 = void"), "{text}");
        }
        let moves = ["break *$pc", "continue", "continue", "delete"];
        let more = ["reverse-stepi", "stepi", "print 7 * 6"];
        let text = session(&snapshot, &[], &[&moves[..], &more[..]].concat());
        assert!(ends_of_history(&text) >= 2, "{text}");
        assert!(text.contains("$1 = 42"), "{text}");
    }
}

/// GDB steps over its own breakpoint at `_start`, where it expects another frame.
#[test]
fn moves_by_lines_end_at_the_start_of_history() {
    let Some(guest) = recorded("aarch64") else {
        return;
    };
    let text = session(
        &guest.directory.path().join("recorded"),
        &[],
        &[&["reverse-next"; 8][..], &["print 7 * 6"]].concat(),
    );
    assert!(ends_of_history(&text) >= 2, "{text}");
    assert!(text.contains("$1 = 42"), "{text}");
}
