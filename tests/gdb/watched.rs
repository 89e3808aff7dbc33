//! Moves of all threads together, and watched values that are not known.

use crate::support::gdb::session;
use crate::support::record::{Guest, build, forget_start, record};

/// Two threads one after the other, each with two calls and stores; then stores of the first thread.
const THREADS: &str = r"
#include <pthread.h>
int shared;
__attribute__((noinline)) void mark(int number) { __asm__ volatile(`` : : `r`(number) : `memory`); }
static void *run(void *of)
{
    int number = (int)(long)of;
    mark(number);
    shared = number * 10;
    mark(number + 100);
    return 0;
}
int main(void)
{
    pthread_t thread;
    for (long number = 1; number <= 2; number++) {
        pthread_create(&thread, 0, run, (void *)number);
        pthread_join(thread, 0);
    }
    shared = 5;
    return 0;
}
";

/// Stores of values that nothing reveals at the end.
const UNKNOWN: &str = r"
#include <stdio.h>
int kept, table[8];
__attribute__((noinline)) int hash(int of) { return (of * 2654435761u) >> 20; }
__attribute__((noinline)) void put(int number) { kept = hash(number + table[number]); }
int main(void)
{
    FILE *random = fopen(`/dev/urandom`, `r`);
    fread(table, sizeof table, 1, random);
    for (int number = 0; number < 3; number++)
        put(number);
    kept = 0;
    for (int number = 0; number < 8; number++)
        table[number] = 0;
    puts(`done`);
    return 0;
}
";

fn recorded(program: &str, options: &[&str]) -> Option<Guest> {
    let program = program.replace('`', "\"");
    let guest = build("aarch64", "program.c", &program, options)?;
    let run = record(&guest, "recorded", &[], &[]);
    assert!(run.status.success(), "{run:?}");
    Some(guest)
}

fn commands(guest: &Guest, commands: &[&str]) -> String {
    session(&guest.directory.path().join("recorded"), &[], commands)
}

/// Checks that each text of `wanted` occurs as often as its number says.
#[track_caller]
fn occur(text: &str, wanted: &[(&str, usize)]) {
    for (what, count) in wanted {
        assert_eq!(text.matches(what).count(), *count, "{what:?} in {text}");
    }
}

#[test]
fn all_threads_go_to_the_beginning() {
    let Some(guest) = recorded(THREADS, &["-O0", "-static", "-pthread"]) else {
        return;
    };
    for thread in ["thread 1", "thread 2"] {
        let go = [thread, "armsnap goto begin", "break mark"];
        let moves = ["continue"; 5];
        let text = commands(&guest, &[&go[..], &moves[..]].concat());
        occur(
            &text,
            &[
                ("Thread 2 \"cpu_1\" hit Breakpoint 1, mark ", 2),
                ("Thread 3 \"cpu_2\" hit Breakpoint 1, mark ", 2),
                ("No more reverse-execution history", 1),
            ],
        );
    }
}

#[test]
fn a_watchpoint_stops_at_the_stores_of_all_threads() {
    let Some(guest) = recorded(THREADS, &["-O0", "-static", "-pthread"]) else {
        return;
    };
    let stops = |text: &str, number: u8| {
        let name = format!("Thread {number} \"cpu_{}\"", number - 1);
        text.matches(&format!("{name} stopped")).count()
            + text.matches(&format!("{name} hit")).count()
    };
    let back = [&["watch shared"][..], &["reverse-continue"; 4]].concat();
    let forward = [
        &["armsnap goto begin", "watch shared"][..],
        &["continue"; 4],
    ]
    .concat();
    for moves in [back, forward] {
        let text = commands(&guest, &moves);
        assert_eq!(
            [1, 2, 3].map(|thread| stops(&text, thread)),
            [1; 3],
            "{text}"
        );
        occur(&text, &[("No more reverse-execution history", 1)]);
    }
}

#[test]
fn a_watchpoint_stops_at_stores_of_unknown_values() {
    let Some(guest) = recorded(UNKNOWN, &["-O1", "-static"]) else {
        return;
    };
    forget_start(&guest.directory.path().join("recorded"));
    let unknown = "is watched is not known before and after it\n";
    for watch in ["watch kept", "watch kept if kept == 3", "watch -l kept"] {
        let back = [&[watch][..], &["reverse-continue"; 5]].concat();
        let text = commands(&guest, &back);
        occur(
            &text,
            &[
                ("New value = <unreadable>", 1),
                (unknown, 3),
                ("Program stopped.", 3),
                (" in put (number=", 3),
                ("No more reverse-execution history", 1),
            ],
        );
        let forward = [&["armsnap goto begin", watch][..], &["continue"; 5]].concat();
        let text = commands(&guest, &forward);
        let last = usize::from(!watch.contains("if"));
        occur(
            &text,
            &[
                (unknown, 3),
                ("Program stopped.", 3),
                ("New value = 0", last),
                ("No more reverse-execution history", 1 + 1 - last),
            ],
        );
    }
}
