//! Frames of coroutines, whose stacks the program switches.

use crate::support::gdb::session;
use crate::support::record::{Guest, build, forget_start, record};

const PROGRAM: &str = r"
#include <ucontext.h>
static ucontext_t back, first, second;
static char stacks[2][65536];
static int order[32], count;
static void run(int id, int seed)
{
    int local = id * 1000 + seed;
    for (int round = 0; round < 3; round++) {
        local += round;
        order[count++] = local;
        swapcontext(id == 1 ? &first : &second, id == 1 ? &second : &first);
    }
    swapcontext(id == 1 ? &first : &second, &back);
}
static void prepare(ucontext_t *context, int id, int seed)
{
    getcontext(context);
    context->uc_stack.ss_sp = stacks[id - 1];
    context->uc_stack.ss_size = sizeof stacks[0];
    makecontext(context, (void (*)(void))run, 2, id, seed);
}
int main(void)
{
    prepare(&first, 1, 7);
    prepare(&second, 2, 9);
    swapcontext(&back, &first);
    return 0;
}
";

/// What GDB prints from the start of the last two calls of `run`, over ten moves by lines, and of `commands` there.
fn after_moves(guest: &Guest, commands: &[&str]) -> String {
    let start = [
        "break run",
        "reverse-continue",
        "reverse-continue",
        "delete",
    ];
    let moves = ["next"; 10];
    let snapshot = guest.directory.path().join("recorded");
    session(&snapshot, &[], &[&start[..], &moves[..], commands].concat())
}

#[test]
fn frames_of_coroutines_are_on_their_own_stacks() {
    for (architecture, options) in [
        ("aarch64", &["-O0", "-static"][..]),
        ("arm", &["-O0", "-static", "-marm"]),
    ] {
        let Some(guest) = build(architecture, "program.c", PROGRAM, options) else {
            return;
        };
        let run = record(&guest, "recorded", &["--data-addresses"], &[]);
        assert!(run.status.success(), "{run:?}");
        let text = after_moves(&guest, &["print local", "print id", "info locals"]);
        let stops: Vec<&str> = text
            .lines()
            .filter(|line| line.contains("Breakpoint 1, "))
            .collect();
        // In A32 some values are unknown, but none is that of another coroutine.
        let unknown = |stop: &str| architecture == "arm" && stop.contains("id=<unavailable>, ");
        for (stop, id, seed) in [
            (stops[0], "id=2, ", "seed=9)"),
            (stops[1], "id=1, ", "seed=7)"),
        ] {
            assert!(stop.contains(id) || unknown(stop), "{text}");
            assert!(stop.contains(seed), "{text}");
        }
        assert!(text.contains("= 1008\n"), "{text}");
        assert!(text.contains("= 1\n"), "{text}");
        assert!(
            !text.contains("No more reverse-execution history"),
            "{text}"
        );
    }
}

/// A move by lines comes back to the function from another stack, even where the stack pointer is not known.
#[test]
fn moves_come_back_from_other_stacks() {
    let Some(guest) = build("aarch64", "program.c", PROGRAM, &["-O0", "-static"]) else {
        return;
    };
    let run = record(&guest, "recorded", &[], &[]);
    assert!(run.status.success(), "{run:?}");
    forget_start(&guest.directory.path().join("recorded"));
    let text = after_moves(&guest, &["backtrace 1"]);
    assert!(!text.contains("No more reverse-execution"), "{text}");
    let last = text.lines().rfind(|line| line.starts_with("#0 "));
    assert!(last.is_some_and(|line| line.contains("run (")), "{text}");
    // Which coroutine the frame belongs to cannot be known there: a message says so, and no values
    // of the other coroutine are shown.
    assert_eq!(text.matches("stacks were switched").count(), 1, "{text}");
    assert!(!last.is_some_and(|line| line.contains("id=1") || line.contains("id=2")));
}

/// Generators whose stacks the program itself switches, without call frame information.
const SWITCHES: &str = include_str!("../long/past_programs/coroutines.c");

/// A switch between stacks whose pointers and calls are unknown does not make a move run to the end
/// of history.
#[test]
fn moves_come_back_from_switches_without_frame_information() {
    for (architecture, options) in [
        ("aarch64", &["-O0"][..]),
        ("aarch64", &["-O2"]),
        ("arm", &["-O0", "-marm"]),
    ] {
        let options = [options, &["-DOWN_SWITCH", "-static"]].concat();
        let Some(guest) = build(architecture, "program.c", SWITCHES, &options) else {
            return;
        };
        let run = record(&guest, "recorded", &[], &[]);
        assert!(run.status.success(), "{run:?}");
        let to_yield = ["break yields", "reverse-continue", "reverse-continue"];
        let to_walk = [
            "delete",
            "armsnap goto end",
            "break walk",
            "reverse-continue",
        ];
        let text = session(
            &guest.directory.path().join("recorded"),
            &[],
            &[
                &to_yield[..],
                &["delete", "next", "next", "next", "backtrace 1"],
                &to_walk,
                &["delete", "echo <finish>\\n", "finish", "backtrace 1"],
            ]
            .concat(),
        );
        assert!(!text.contains("No more reverse-execution"), "{text}");
        let (_, finished) = text.split_once("<finish>").unwrap();
        let last = finished.lines().rfind(|line| line.starts_with("#0 "));
        assert!(last.is_some_and(|line| line.contains(" walk (")), "{text}");
    }
}
