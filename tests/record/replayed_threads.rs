//! Values in programs with several threads: the recording has the order in which they executed.

use crate::support::record::{build, record};
use serde_json::Value;
use std::collections::BTreeMap;
use std::process::Command;

/// Threads that add to one sum under a lock, wait for each other, and allocate.
const PROGRAM: &str = r#"
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
enum { THREADS = 4, ROUNDS = 60 };
struct node { struct node *next; long sum; char text[24]; };
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t turn = PTHREAD_COND_INITIALIZER;
static struct node *head;
static long sum, count, begun;
static _Atomic long rounds;
__attribute__((noinline)) void step(long number, long now, long last, struct node *node) {
  __asm__ volatile("" :: "r"(number), "r"(now), "r"(last), "r"(node) : "memory");
}
__attribute__((noinline)) void *work(void *arg) {
  long id = (long)arg, waste = 0;
  pthread_mutex_lock(&lock);
  begun++;
  pthread_cond_broadcast(&turn);
  while (begun < THREADS) pthread_cond_wait(&turn, &lock);
  pthread_mutex_unlock(&lock);
  for (long i = 0; i < ROUNDS; i++) {
    struct node *node = calloc(1, sizeof *node);
    for (long k = 0; k < 200 + id * 50; k++) waste += k ^ i;
    pthread_mutex_lock(&lock);
    sum += id * 1000 + i;
    node->sum = sum;
    node->next = head;
    strcpy(node->text, "of a thread");
    head = node;
    step(++count, sum, node->next ? node->next->sum : 0, node);
    pthread_mutex_unlock(&lock);
    rounds++;
  }
  return (void *)waste;
}
int main(void) {
  pthread_t all[THREADS];
  for (long i = 0; i < THREADS; i++) pthread_create(&all[i], NULL, work, (void *)i);
  for (long i = 0; i < THREADS; i++) pthread_join(all[i], NULL);
  return (int)rounds;
}
"#;

const THREADS: usize = 4;
const ROUNDS: i64 = 60;

fn number(value: &Value) -> i64 {
    assert_eq!(value["status"], "proved", "{value}");
    let text = value["value"].as_str().unwrap();
    i64::from_str_radix(text.strip_prefix("0x").unwrap(), 16).unwrap()
}

/// Every value that any thread added is known, and follows from the one that another thread added before.
fn all_is_known(architecture: &'static str, flags: &[&str], options: &[&str]) {
    let all = [&["-g", "-pthread"], flags].concat();
    let Some(guest) = build(architecture, "program.c", PROGRAM, &all) else {
        return;
    };
    let run = record(&guest, "snapshot", options, &[]);
    assert!(run.status.success(), "{run:?}");
    let snapshot = guest.directory.path().join("snapshot");
    let answers = |question: [&str; 2]| {
        let run = Command::new(crate::support::armsnap())
            .arg("ask")
            .arg(&snapshot)
            .args(question)
            .args(["--format", "jsonl"])
            .output()
            .unwrap();
        assert!(run.status.success(), "{run:?}");
        let text = String::from_utf8(run.stdout).unwrap();
        let lines = text.lines().map(|line| serde_json::from_str(line).unwrap());
        lines.collect::<Vec<Value>>()
    };
    let ids: BTreeMap<String, i64> = answers(["calls", "work"])
        .iter()
        .map(|call| {
            let thread = call["thread"].as_str().unwrap().to_owned();
            (thread, number(&call["arguments"][0]))
        })
        .collect();
    assert_eq!(ids.len(), THREADS);
    let mut rounds = BTreeMap::<String, i64>::new();
    let mut steps = BTreeMap::new();
    for call in answers(["calls", "step"]) {
        let thread = call["thread"].as_str().unwrap().to_owned();
        let round = rounds.entry(thread.clone()).or_default();
        let arguments = call["arguments"].as_array().unwrap();
        let values: Vec<i64> = arguments.iter().map(number).collect();
        steps.insert(values[0], (ids[&thread] * 1000 + *round, values));
        *round += 1;
    }
    assert_eq!(steps.len(), THREADS * ROUNDS as usize);
    let mut before = 0;
    for (count, (step, (added, values))) in (1..).zip(&steps) {
        assert_eq!(
            (*step, values[1], values[2]),
            (count, before + added, before)
        );
        before += added;
    }
}

/// A thread reads into a buffer, and waits; meanwhile the other one makes the kernel fill it, and reads it.
const KERNEL: &str = r#"
#include <pthread.h>
#include <unistd.h>
static long buffer = 0x4444;
static volatile int begun;
static int ends[2];
__attribute__((noinline)) void see(long value) { __asm__ volatile("" :: "r"(value) : "memory"); }
static void *work(void *arg) {
  begun = 1;
  while (read(ends[0], &buffer, sizeof buffer) != sizeof buffer);
  return arg;
}
int main(void) {
  pthread_t other;
  long value = 0x5555;
  if (pipe(ends) < 0) return 1;
  see(buffer);
  pthread_create(&other, 0, work, 0);
  while (!begun) usleep(100);
  usleep(20000);
  write(ends[1], &value, sizeof value);
  for (int i = 0; i < 20; i++) see(*(volatile long *)&buffer);
  pthread_join(other, 0);
  see(*(volatile long *)&buffer);
  return 0;
}
"#;

#[test]
fn what_the_kernel_may_write_meanwhile_is_unknown() {
    let flags = ["-g", "-O1", "-static", "-pthread"];
    let Some(guest) = build("aarch64", "program.c", KERNEL, &flags) else {
        return;
    };
    let run = record(&guest, "snapshot", &[], &[]);
    assert!(run.status.success(), "{run:?}");
    let run = Command::new(crate::support::armsnap())
        .arg("ask")
        .arg(guest.directory.path().join("snapshot"))
        .args(["calls", "see", "--format", "jsonl"])
        .output()
        .unwrap();
    let text = String::from_utf8(run.stdout).unwrap();
    let lines = text.lines().map(|line| serde_json::from_str(line).unwrap());
    let calls: Vec<Value> = lines.collect();
    assert_eq!(calls.len(), 22, "{text}");
    assert_eq!(number(&calls[0]["arguments"][0]), 0x4444);
    for call in &calls[1..21] {
        let value = &call["arguments"][0];
        // Whether it was known before the call returned is a matter of time.
        assert!(
            value["status"] == "unknown" || number(value) == 0x5555,
            "{value}"
        );
    }
    assert_eq!(number(&calls[21]["arguments"][0]), 0x5555);
}

#[test]
fn values_of_threads_are_known() {
    all_is_known("aarch64", &["-O1", "-static"], &[]);
}

#[test]
fn values_of_threads_that_use_exclusive_stores_are_known() {
    let flags = ["-O2", "-march=armv8-a", "-mno-outline-atomics"];
    all_is_known("aarch64", &flags, &["--cpu", "cortex-a53"]);
}

#[test]
fn values_of_threads_in_a32_code_are_known() {
    all_is_known("arm", &["-O1", "-static", "-marm"], &[]);
}

#[test]
fn values_of_threads_in_t32_code_are_known() {
    all_is_known("arm", &["-O2", "-static", "-mthumb"], &[]);
}

#[test]
fn values_of_threads_traced_in_other_protocols_are_known() {
    for protocol in ["ptm", "etmv3"] {
        let flags = ["-O1", "-static", "-mthumb"];
        all_is_known("arm", &flags, &["--protocol", protocol]);
    }
}
