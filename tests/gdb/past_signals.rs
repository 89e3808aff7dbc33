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

/// The frames of functions.
fn others<'t>(frames: &[&'t str]) -> Vec<&'t str> {
    let mut frames = frames.to_vec();
    frames.retain(|name| *name != SIGNAL);
    frames
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
        // After the checkpoint that follows a signal, its frame is known.
        let inside = stopped(&["tbreak deep", "continue", "bt"]);
        let inside = functions(&inside);
        assert!(inside.contains(&SIGNAL) || !found, "{inside:?}");
        assert_eq!(others(&inside), others(&[&["deep"], &shown[..]].concat()));
        let back = stopped(&["tbreak deep", "continue", "reverse-finish", "bt"]);
        assert_eq!(others(&functions(&back)), others(&shown));
        // Out of the handler: where the signal arrived, or the code that the handler returns to.
        let before = stopped(&["reverse-finish", "bt"]);
        let outer = shown.iter().filter(|name| **name != SIGNAL).skip(1);
        let outer: Vec<_> = outer.copied().collect();
        assert_eq!(functions(&before), outer);
        if handler == "on_fault" {
            // The handler makes the program continue after the instruction, in the same function.
            let line = SIGNALS.lines().position(|line| line.contains("return out"));
            let line_after = format!("tbreak program.c:{}", line.unwrap() + 1);
            let after = stopped(&[&line_after, "continue", "bt"]);
            assert_eq!(functions(&after), outer);
        } else {
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

/// A program that dies of a fault, whose handler first ran on a stack of its own.
const OTHER_STACK: &str = r#"
#define _GNU_SOURCE
#include <signal.h>
#include <stddef.h>
#include <ucontext.h>

static char stack[65536] __attribute__((aligned(16)));
volatile int code, nothing;

__attribute__((noinline)) static int inner(const siginfo_t *info) {
    return code = info->si_code + nothing;
}

static void handler(int number, siginfo_t *info, void *context) {
    struct sigaction action = {.sa_handler = SIG_DFL};
    inner(info);
    sigaction(number, &action, NULL);
}

int main(void) {
    stack_t other = {.ss_sp = stack, .ss_size = sizeof stack};
    struct sigaction action = {.sa_sigaction = handler, .sa_flags = SA_SIGINFO | SA_ONSTACK};
    sigaltstack(&other, NULL);
    sigaction(SIGSEGV, &action, NULL);
    return *(volatile int *)(long)nothing;
}
"#;

#[test]
fn a_handler_has_a_stack_of_its_own() {
    let Some(guest) = build("aarch64", "program.c", OTHER_STACK, &["-O1", "-static"]) else {
        return;
    };
    let recorded = record(&guest, "recorded", &[], &[]);
    assert!(
        guest.directory.path().join("recorded").exists(),
        "{recorded:?}"
    );
    let recorded = guest.directory.path().join("recorded");
    let values =
        ["$sp", "$x0", "$x1", "$x2", "$x30", "*(int *)$x1"].map(|value| format!("print/x {value}"));
    for function in ["handler", "inner"] {
        let at = format!("break {function}");
        let truth = live(&guest, &CPU, &[], |socket| {
            let mut gdb = Command::new("gdb-multiarch");
            gdb.args(["-nx", "-batch"]).arg(&guest.program);
            gdb.args(["-ex", &format!("target remote {}", socket.display())]);
            for command in ["handle SIGSEGV nostop noprint pass", &at, "continue"] {
                gdb.args(["-ex", command]);
            }
            gdb.args(values.iter().flat_map(|value| ["-ex", value]));
            text(&run(&mut gdb))
        });
        let mut commands = vec![at.as_str(), "reverse-continue"];
        commands.extend(values.iter().map(String::as_str));
        let shown = session(&recorded, &[], &commands);
        let printed = |text: &str| -> Vec<String> {
            let lines = text.lines().filter(|line| line.starts_with('$'));
            lines.map(str::to_owned).collect()
        };
        assert_eq!(printed(&truth).len(), values.len(), "{truth}");
        let (shown, truth) = (printed(&shown), printed(&truth));
        let [known, right] = [&shown, &truth].map(|lines| match function {
            // The registers of its frame are those that it was called with.
            "inner" => [&lines[..2], &lines[4..5]].concat(),
            _ => lines.clone(),
        });
        assert_eq!(known, right, "{function}");
    }
}

/// A function that returns a structure, long before signals whose handlers return.
const BEFORE: &str = r#"
#include <signal.h>
#include <unistd.h>
typedef struct { long a[5]; double d; } big;
static volatile int seen;
__attribute__((noinline)) big scale(big b, int k)
{
    for (int i = 0; i < 5; i++)
        b.a[i] *= k;
    b.d /= k;
    return b;
}
__attribute__((noinline)) static int twice(volatile int *n) { return *n * 2; }
static void handler(int number)
{
    volatile int own = number;
#ifdef CALLS
    own = twice(&own);
    write(1, "", 0);
#endif
#ifdef ADDS
    seen += own;
#else
    seen = 1;
#endif
}
int main(void)
{
    big b = { { 1, 2, 3, 4, 5 }, 10.5 };
    b = scale(b, 3);
    signal(SIGUSR1, handler);
    signal(SIGALRM, handler);
    raise(SIGUSR1);
    raise(SIGALRM);
    raise(SIGUSR1);
    return (int)b.a[0] - 3;
}
"#;

/// Values that do not depend on a signal are known before it as if there were no signal.
#[test]
fn what_is_before_signals_stays_proved() {
    for (options, compiler) in [
        (&["--data-addresses"][..], &["-O1", "-static", "-DADDS"][..]),
        (&[], &["-O1", "-static"]),
        (&[], &["-O0", "-static", "-DCALLS"]),
        (&["--data-addresses"], &["-O0", "-static", "-DCALLS"]),
    ] {
        let Some(guest) = build("aarch64", "program.c", BEFORE, compiler) else {
            return;
        };
        let run = record(&guest, "recorded", options, &[]);
        assert!(run.status.success(), "{run:?}");
        let recorded = guest.directory.path().join("recorded");
        let commands = ["break scale", "reverse-continue"];
        let asked = ["sp", "x8"].map(|name| format!("armsnap registers {name}"));
        let more = [&asked[0], &asked[1], "finish"];
        let shown = session(&recorded, &[], &[&commands[..], &more[..]].concat());
        let proved = shown.lines().filter(|line| line.ends_with(" proved"));
        assert_eq!(proved.count(), 2, "{options:?} {compiler:?}: {shown}");
        let value = "= {a = {3, 6, 9, 12, 15}, d = 3.5}";
        assert!(shown.contains(value), "{options:?} {compiler:?}: {shown}");
    }
}
