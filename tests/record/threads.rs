//! Histories of recorded Linux programs in GDB: entering the kernel is not a gap, threads
//! have a common time, and the state of ended threads does not contradict their trace.

use crate::support::gdb::session;
use crate::support::program::record::{Recording, executed};
use crate::support::program::{Program, all};
use std::collections::BTreeSet;
use std::process::Command;

fn programs(name: &str) -> impl Iterator<Item = &'static Program> {
    let begin = format!("{name}-");
    all()
        .iter()
        .filter(move |program| program.name.starts_with(&begin))
}

#[test]
fn signals_and_system_calls_are_not_gaps() {
    for program in programs("signals") {
        let protocols: &[&str] = match program.name.ends_with("-a64") {
            true => &["etmv4"],
            false => &["etmv4", "ptm", "etmv3"],
        };
        for protocol in protocols {
            let recording = Recording::of(program, &["--protocol", protocol]);
            let count = executed(&recording.witness())[&0].len();
            let commands = [
                "reverse-continue",
                "monitor where",
                "continue",
                "monitor where",
            ];
            let text = session(&recording.snapshot(), &[], &commands);
            let what = format!("{} {protocol}: {text}", program.name);
            assert!(
                !text.contains("SIGLOST") && !text.contains("gap in history"),
                "{what}"
            );
            assert_eq!(crate::support::gdb::ends_of_history(&text), 2, "{what}");
            // As many places as instructions, from start to end.
            assert!(
                text.contains(&format!("history is from 0+0 to 0+{count}")),
                "{what}"
            );
        }
    }
}

#[test]
fn open_calls_continue_after_a_signal_handler() {
    let program = programs("signals")
        .find(|program| program.name.ends_with("-a64"))
        .unwrap();
    let recording = Recording::of(program, &[]);
    let text = session(&recording.snapshot(), &[], &["monitor calls"]);
    // Calls before a signal are still open after its handler.
    for wanted in ["-- IRQ: on_user", "-- data fault: on_fault"] {
        assert!(text.contains(wanted), "{wanted}: {text}");
    }
    assert!(!text.contains("gap"), "{text}");
    assert_eq!(text.matches("--").count(), 2, "{text}");
    assert!(!text.contains("is an ELF file"), "{text}");
}

/// The timestamps of a trace, by source.
fn timestamps(recording: &Recording) -> Vec<(String, u64)> {
    let run = Command::new(crate::support::armsnap())
        .args(["decode", "--level", "elements", "--format", "jsonl"])
        .arg(recording.snapshot())
        .output()
        .unwrap();
    assert!(run.status.success(), "{run:?}");
    let lines = String::from_utf8(run.stdout).unwrap();
    let lines = lines
        .lines()
        .map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
    lines
        .filter(|line| line["kind"] == "timestamp")
        .map(|line| {
            let source = line["source"].as_str().unwrap().to_owned();
            let value = &line["value"];
            let text = value.as_str().map(|text| text.trim_start_matches("0x"));
            let value = text.map_or(value.as_u64(), |text| u64::from_str_radix(text, 16).ok());
            (source, value.unwrap())
        })
        .collect()
}

#[test]
fn threads_have_a_common_time() {
    for program in programs("threads") {
        let recording = Recording::of(program, &[]);
        let cores = executed(&recording.witness());
        assert!(cores.len() > 1, "{}", program.name);
        let all: usize = cores.values().map(Vec::len).sum();
        let told = timestamps(&recording);
        let sources: BTreeSet<&String> = told.iter().map(|(source, _)| source).collect();
        assert_eq!(sources.len(), cores.len(), "{}: {told:?}", program.name);
        for source in sources {
            let own: Vec<u64> = told
                .iter()
                .filter(|t| t.0 == *source)
                .map(|t| t.1)
                .collect();
            assert!(own.is_sorted(), "{}: {own:?}", program.name);
            assert!(
                own.iter().all(|&time| time <= all as u64),
                "{}: {own:?}",
                program.name
            );
        }
        let without = Recording::of(program, &["--no-timestamps"]);
        assert_eq!(timestamps(&without), [], "{}", program.name);
    }
}

/// A thread that ends and is joined, and one that continues.
const THREADS: &str = r#"
#include <pthread.h>
#include <unistd.h>
static void *short_lived(void *x) { return x; }
static void *long_lived(void *x) { for (;;) pause(); return x; }
int main(void) {
    pthread_t first, second;
    pthread_create(&second, 0, long_lived, 0);
    pthread_create(&first, 0, short_lived, 0);
    pthread_join(first, 0);
    return 3;
}
"#;

/// Two threads at a time, each of which is started before the one before it ends: QEMU numbers them
/// upwards.
const RELAY: &str = r#"
#include <pthread.h>
#include <semaphore.h>
static sem_t go[2];
static void *wait(void *x) { sem_wait(&go[(long)x]); return x; }
int main(void)
{
    pthread_t last, next;
    pthread_create(&last, 0, wait, (void *)1);
    for (int i = 0; i < 4200; i++) {
        pthread_create(&next, 0, wait, (void *)(long)(i % 2));
        sem_post(&go[(i + 1) % 2]);
        pthread_join(last, 0);
        last = next;
    }
    return 3;
}
"#;

#[test]
fn thousands_of_threads() {
    let options = ["-O1", "-static", "-pthread"];
    let Some(guest) = crate::support::record::build("aarch64", "relay.c", RELAY, &options) else {
        return;
    };
    let run = crate::support::record::record(&guest, "snapshot", &[], &[]);
    let said = String::from_utf8_lossy(&run.stderr).into_owned();
    assert!(said.contains("about to exit with status 3"), "{said}");
}

#[test]
fn a_thread_that_ended_does_not_contradict_its_trace() {
    let options = ["-O1", "-static", "-pthread"];
    let Some(guest) = crate::support::record::build("aarch64", "threads.c", THREADS, &options)
    else {
        return;
    };
    let run = crate::support::record::record(&guest, "snapshot", &[], &[]);
    assert!(run.status.success(), "{run:?}");
    let mut commands = Vec::new();
    for thread in 1..=3 {
        commands.push(format!("thread {thread}"));
        commands.push("monitor where".to_owned());
    }
    commands.push("reverse-stepi".to_owned());
    let commands: Vec<&str> = commands.iter().map(String::as_str).collect();
    let text = session(&guest.directory.path().join("snapshot"), &[], &commands);
    assert!(!text.contains("the trace ends before"), "{text}");
    assert_eq!(
        text.matches(", where the thread ended").count(),
        1,
        "{text}"
    );
    assert_eq!(text.matches(", the halted state\n").count(), 2, "{text}");
    assert_eq!(
        text.matches("note: the thread ended here").count(),
        1,
        "{text}"
    );
}
