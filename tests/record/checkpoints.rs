//! States in the middle of a recording: where they are in the trace, their registers and memory.

use crate::past_values::Recorded;
use crate::support::record::{build, record};
use armsnap::snapshot::replay::{Contents, Input, Inputs, Piece};
use armsnap::timeline::{Direction, Entry};
use std::collections::BTreeMap;
use std::path::Path;

/// Changes memory and its mappings, handles a signal, and then changes nothing for long.
const PROGRAM: &str = r#"
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
static char buffer[20000];
static volatile int total;
static void handle(int number) { total += number; }
__attribute__((noinline)) static void spin(unsigned n) {
#ifdef __aarch64__
  __asm__ volatile("1: subs %w0, %w0, #1\n b.ne 1b" : "+r"(n) :: "cc");
#else
  __asm__ volatile("1: subs %0, %0, #1\n bne 1b" : "+r"(n) :: "cc");
#endif
}
static char *map(void) { return mmap(0, 65536, 3, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0); }
int main(void) {
  char *first = map();
  memset(buffer, 1, sizeof buffer);
  first[5000] = 7;
  spin(1000000);
  munmap(first + 16384, 16384);
  char *second = map();
  second[70] = first[60000] = 5;
  memset(buffer + 9000, 0, 9000);
  signal(SIGUSR1, handle);
  raise(SIGUSR1);
  spin(4000000);
  _exit(0);
}
"#;

const PAGE: u64 = 4096;

/// Memory by page.
#[derive(Default)]
struct Memory(BTreeMap<u64, Vec<u8>>);

impl Memory {
    fn write(&mut self, address: u64, bytes: &[u8]) {
        for (at, byte) in (address..).zip(bytes) {
            let page = self.0.entry(at / PAGE * PAGE);
            page.or_insert_with(|| vec![0; PAGE as usize])[(at % PAGE) as usize] = *byte;
        }
    }

    fn apply(&mut self, pieces: &[Piece<'_>], saved: &Memory) {
        for piece in pieces {
            let (from, length) = (piece.address, piece.length);
            match piece.contents {
                Contents::Zeros => self.write(from, &vec![0; length as usize]),
                Contents::Bytes(bytes) => self.write(from, bytes),
                Contents::AsSaved(_) => {
                    for page in (from..from + length).step_by(PAGE as usize) {
                        self.write(page, &saved.0[&page]);
                    }
                }
                Contents::Gone => self
                    .0
                    .retain(|page, _| !(from..from + length).contains(page)),
            }
        }
    }
}

/// The memory that a snapshot saves.
fn saved(directory: &Path) -> Memory {
    let mut memory = Memory::default();
    for file in std::fs::read_dir(directory).unwrap() {
        let path = file.unwrap().path();
        let name = path.file_stem().unwrap().to_str().unwrap();
        if let Some(address) = name.strip_prefix("memory_") {
            let address = u64::from_str_radix(address, 16).unwrap();
            memory.write(address, &std::fs::read(&path).unwrap());
        }
    }
    memory
}

fn checkpoints_agree(architecture: &'static str, flags: &[&str]) {
    let mut all = vec!["-static", "-O1"];
    all.extend(flags);
    let Some(guest) = build(architecture, "program.c", PROGRAM, &all) else {
        return;
    };
    let run = record(&guest, "snapshot", &[], &[]);
    assert!(run.status.success(), "{run:?}");
    let directory = guest.directory.path().join("snapshot");
    let saved = saved(&directory);
    let bytes = std::fs::read(directory.join("replay.bin")).unwrap();
    let inputs = Inputs::open(bytes.into()).unwrap();
    let mut recorded = Recorded::open(guest, None);
    let history = recorded.history();
    let begin = history.begin();
    let events = history.entries(begin, Direction::Forward);
    let events: Vec<(u64, u64)> = events
        .filter_map(|event| match event.entry {
            Entry::Run { range, .. } => Some((event.offset.0, range.start.0)),
            Entry::Gap(gap) => panic!("{gap:?}"),
            _ => None,
        })
        .collect();
    let mut memory = Memory::default();
    memory.apply(&inputs.start().unwrap().memory, &saved);
    let (mut at, mut last, mut count, mut calls) = (inputs.calls(), None, 0, 0);
    while let Some((input, next)) = inputs.input(at).unwrap() {
        at = next;
        let checkpoint = match input {
            Input::Call(_) => {
                calls += 1;
                continue;
            }
            Input::Checkpoint(checkpoint) => checkpoint,
            Input::Turn(turn) => panic!("{turn:?}"),
        };
        let first = events.iter().find(|event| event.0 >= checkpoint.offset);
        assert_eq!(first.unwrap().1, checkpoint.pc, "{:#x}", checkpoint.offset);
        memory.apply(&checkpoint.memory, &saved);
        let names = ["TPIDR_EL0", "TPIDRURO"];
        let mut registers = checkpoint.registers.iter();
        let pointer = registers.find(|register| names.contains(&register.name.as_str()));
        assert!(pointer.unwrap().value.0.iter().any(|byte| *byte != 0));
        let mut registers = checkpoint.registers.iter();
        let stack = registers.find(|register| ["SP", "R13"].contains(&register.name.as_str()));
        let stack = stack.unwrap().value.0.iter().rev();
        last = Some(stack.fold(0, |value, byte| value << 8 | u64::from(*byte)));
        count += 1;
    }
    assert!(count >= 2 && calls > 5, "{count} {calls}");
    // The rest of the program uses only its stack.
    let stack = last.unwrap();
    let differ = |page: &&u64| memory.0.get(page) != saved.0.get(page);
    let all = memory.0.keys().chain(saved.0.keys());
    let different: Vec<&u64> = all.filter(differ).collect();
    let near = |page: &&u64| page.abs_diff(stack) < 2 * PAGE;
    assert!(different.iter().all(near), "{different:x?} {stack:x}");
}

#[test]
fn checkpoints_of_a64_programs() {
    checkpoints_agree("aarch64", &[]);
}

#[test]
fn checkpoints_of_a32_programs() {
    checkpoints_agree("arm", &["-marm"]);
}

#[test]
fn checkpoints_of_t32_programs() {
    checkpoints_agree("arm", &["-mthumb"]);
}
