//! Programs executed again from the recorded start, compared with the emulator.

use crate::past_values::{Recorded, compare};
use crate::support::record::{build, installed, record};
use armsnap::recover::{Cause, End, Options, Recovery, Wanted, What};
use armsnap::semantics::Location;
use armsnap::snapshot::OpenOptions;
use armsnap::snapshot::model::Snapshot;
use armsnap::stop::Cancel;
use armsnap::timeline::Direction;
use std::collections::BTreeSet;
use std::process::Command;

/// System calls that fill buffers and change mappings; exclusive stores.
const PROGRAM: &str = r#"
typedef unsigned long word;
static word call(word n, word a, word b, word c, word d, word e) {
  register word x8 __asm__("x8") = n, x0 __asm__("x0") = a, x1 __asm__("x1") = b, x2 __asm__("x2") = c;
  register word x3 __asm__("x3") = d, x4 __asm__("x4") = e, x5 __asm__("x5") = 0;
  __asm__ volatile("svc #0" : "+r"(x0) : "r"(x8), "r"(x1), "r"(x2), "r"(x3), "r"(x4), "r"(x5) : "memory");
  return x0;
}
static char buffer[400];
static word total, lock;
__attribute__((noinline)) static word sum(const volatile char *p, word n) {
  word s = 0;
  for (word i = 0; i < n; i++) s = s * 31 + p[i];
  return s;
}
__attribute__((noinline)) static void add(word *p, word n) {
  // The stepped program never succeeds, so it does not try again.
  __asm__ volatile("ldxr x9, [%0]; add x9, x9, %1; stxr w10, x9, [%0]; cbnz w10, 1f; nop; 1:"
                   :: "r"(p), "r"(n) : "x9", "x10", "memory");
}
__attribute__((noinline)) void work(void) {
  total = sum(buffer, 256);
  call(160, (word)buffer, 0, 0, 0, 0); // uname
  for (word i = 0; i < 8; i++) add(&lock, i + total);
  call(278, (word)buffer, 64, 0, 0, 0); // getrandom
  total += sum(buffer, 64);
  call(113, 0, (word)buffer, 0, 0, 0); // clock_gettime
  total += sum(buffer, 16);
  word heap = call(214, 0, 0, 0, 0, 0);
  call(214, heap + 8192, 0, 0, 0, 0);
  ((volatile word *)heap)[3] = total;
  volatile word *map = (word *)call(222, 0, 65536, 3, 0x22, -1); // mmap, anonymous
  map[1000] = ((volatile word *)heap)[3] + map[2000];
  word file = call(56, -100, (word)"/proc/self/exe", 0, 0, 0);
  volatile char *text = (volatile char *)call(222, 0, 4096, 1, 2, file);
  total += sum(text, 100) + call(63, file, (word)buffer, 100, 0, 0);
  map = (word *)call(216, (word)map, 65536, 262144, 1, 0); // mremap
  call(215, (word)text, 4096, 0, 0, 0);
  total += map[1000] + map[30000] + sum(buffer, 100);
  lock = total;
}
__asm__(".global _start\n_start: mov x29, #0\n mov x30, #0\n bl work\n mov x8, #93\n svc #0");
"#;

const FLAGS: [&str; 4] = ["-nostdlib", "-ffreestanding", "-fno-builtin", "-O1"];

#[test]
fn everything_is_known_of_a_replayed_program() {
    let Some(mut recorded) = Recorded::built("aarch64", PROGRAM, &[], &FLAGS) else {
        return;
    };
    let mut recovery = recorded.recovery();
    let [registers, stack_pointer, memory] = compare(&mut recorded, &mut recovery);
    for score in [registers, stack_pointer] {
        assert!(score.asked > 0 && score.proved == score.asked, "{score:?}");
    }
    // What was written to memory that was unmapped or moved since is not there any more.
    assert!(100 * memory.proved >= 95 * memory.asked, "{memory:?}");
}

/// System calls that fill several buffers, or as much as they return; a child.
const FURTHER: &str = r#"
typedef unsigned long word;
static word call(word n, word a, word b, word c, word d, word e, word f) {
  register word x8 __asm__("x8") = n, x0 __asm__("x0") = a, x1 __asm__("x1") = b, x2 __asm__("x2") = c;
  register word x3 __asm__("x3") = d, x4 __asm__("x4") = e, x5 __asm__("x5") = f;
  __asm__ volatile("svc #0" : "+r"(x0) : "r"(x8), "r"(x1), "r"(x2), "r"(x3), "r"(x4), "r"(x5) : "memory");
  return x0;
}
static char buffer[512], second[64];
static word total, words[16];
static int pair[2], length;
static struct { int file; short events, seen; } polled[2];
static struct { void *at; word bytes; } parts[3];
static struct { void *name; word name_bytes; void *parts; word count; void *control; word control_bytes; int flags; } message;
static struct { int events; int pad; word data; } ready[3];
__attribute__((noinline)) static word sum(const volatile void *p, word n) {
  const volatile unsigned char *c = p;
  word s = n;
  for (word i = 0; i < n; i++) s = s * 31 + c[i];
  return s;
}
__attribute__((noinline)) void work(void) {
  call(199, 1, 1, 0, (word)pair, 0, 0); // socketpair
  total += sum(pair, 8);
  call(64, pair[0], (word)"some text that is sent, and more", 32, 0, 0, 0);
  polled[0].file = pair[1]; polled[0].events = polled[1].events = 1; polled[1].file = pair[0];
  total += call(73, (word)polled, 2, 0, 0, 0, 0) + sum(polled, sizeof polled); // ppoll
  int events = call(20, 0, 0, 0, 0, 0, 0);
  ready[0].events = 5; ready[0].data = 0x1234567;
  call(21, events, 1, pair[1], (word)ready, 0, 0);
  total += call(22, events, (word)ready, 3, 0, 0, 8) + sum(ready, 16); // epoll_pwait
  parts[0].at = buffer; parts[0].bytes = 5; parts[1].at = second; parts[1].bytes = 6;
  total += call(65, pair[1], (word)parts, 2, 0, 0, 0) + sum(buffer, 8) + sum(second, 8); // readv
  message.name = buffer + 100; message.name_bytes = 20; message.parts = parts; message.count = 2;
  message.control = buffer + 200; message.control_bytes = 64;
  total += call(212, pair[1], (word)&message, 0, 0, 0, 0) + sum(&message, sizeof message) + sum(buffer, 256); // recvmsg
  length = 64;
  total += call(207, pair[1], (word)buffer, 4, 0, (word)second, (word)&length) + sum(buffer, 16) + length; // recvfrom
  length = 16;
  total += call(204, pair[1], (word)buffer, (word)&length, 0, 0, 0) + sum(buffer, 16) + length; // getsockname
  length = 4;
  total += call(209, pair[1], 1, 7, (word)buffer, (word)&length, 0) + sum(buffer, 8) + length; // getsockopt
  words[0] = 1 << pair[1]; words[8] = 0; words[9] = 1000;
  total += call(72, pair[1] + 1, (word)words, 0, 0, (word)(words + 8), 0) + sum(words, 128); // pselect6
  total += call(167, 16, (word)buffer, 0, 0, 0, 0) + sum(buffer, 16); // prctl
  total += call(148, (word)buffer, (word)(buffer + 8), (word)(buffer + 16), 0, 0, 0) + sum(buffer, 24); // getresuid
  total += call(169, (word)buffer, 0, 0, 0, 0, 0) + sum(buffer, 16); // gettimeofday
  total += call(158, 64, (word)buffer, 0, 0, 0, 0) + sum(buffer, 64); // getgroups
  word child = call(220, 17, 0, 0, 0, 0, 0); // fork
  if (child == 0) call(93, 3, 0, 0, 0, 0, 0);
  total += call(260, child, (word)buffer, 0, (word)(buffer + 16), 0, 0) + sum(buffer, 160); // wait4
  total += call(435, (word)buffer, 88, 0, 0, 0, 0); // clone3, which the emulator does not have
}
__asm__(".global _start\n_start: mov x29, #0\n mov x30, #0\n bl work\n mov x8, #93\n svc #0");
"#;

#[test]
fn everything_is_known_across_calls_with_several_buffers() {
    let Some(mut recorded) = Recorded::built("aarch64", FURTHER, &[], &FLAGS) else {
        return;
    };
    let mut recovery = recorded.recovery();
    let [registers, stack_pointer, _] = compare(&mut recorded, &mut recovery);
    for score in [registers, stack_pointer] {
        assert!(score.asked > 0 && score.proved == score.asked, "{score:?}");
    }
}

/// The nearest store to an address in the log, from one position towards another, which is found
/// by search too.
#[test]
fn searches_find_the_stores_that_the_emulator_saw() {
    let Some(mut recorded) = Recorded::built("aarch64", PROGRAM, &[], &FLAGS) else {
        return;
    };
    let mut recovery = recorded.recovery();
    let positions = recorded.positions();
    let numbers = recorded.numbers();
    // The stores of each instruction, the last one first. A call is stepped together with the
    // instruction after it.
    let states = std::mem::take(&mut recorded.states);
    let hits = |back: usize, address: u64| {
        let next = back.checked_sub(1).and_then(|next| numbers[next]);
        let mut stores = next.into_iter().flat_map(|next| &states[next].1);
        stores.any(|(start, bytes)| (*start..*start + bytes.len() as u64).contains(&address))
    };
    // The kernel stores to none of these addresses.
    let stores = states.iter().flat_map(|(_, stores)| stores);
    let middle = |(start, bytes): &(u64, Vec<u8>)| start + bytes.len() as u64 / 2;
    let addresses: BTreeSet<u64> = stores.map(middle).collect();
    let writes = Wanted {
        reads: false,
        writes: true,
    };
    let mut random = 12345_u32;
    let mut found = 0;
    for &address in &addresses {
        for direction in [Direction::Forward, Direction::Backward] {
            random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let from = (random >> 8) as usize % (positions.len() - 1);
            let last = positions.len() - 1;
            let (mut between, until) = match direction {
                Direction::Forward => (1..from + 1, 0),
                Direction::Backward => (from + 1..last + 1, last),
            };
            let wanted = match direction {
                Direction::Forward => between.rfind(|at| hits(*at, address)),
                Direction::Backward => between.find(|at| hits(*at, address)),
            };
            let cancel = Cancel::default();
            let mut start = positions[from];
            let hit = loop {
                let ends = (start, positions[until]);
                let range = address..address + 1;
                let history = recorded.history();
                let result = recovery
                    .accesses(history, ends, range, direction, writes, &cancel)
                    .unwrap();
                assert!(result.complete && result.may_have.is_none(), "{result:?}");
                // Calls that change mappings change their contents, and are not in the log.
                match result.hit.filter(|hit| hit.whole.is_none()) {
                    Some(call) if direction == Direction::Backward => start = call.position,
                    Some(call) => start = history.step(call.position, direction).unwrap(),
                    None => break result.hit.map(|hit| hit.position),
                }
            };
            assert_eq!(
                hit,
                wanted.map(|at| positions[at]),
                "{address:#x} {from} {direction:?}"
            );
            found += usize::from(wanted.is_some());
        }
    }
    assert!(
        addresses.len() > 10 && found > 10,
        "{} {found}",
        addresses.len()
    );
}

#[test]
fn a_debugger_sees_at_the_start_what_it_sees_in_the_running_program() {
    let places = ["break work", "continue", "break add", "continue"];
    let asked = [
        "info registers x0 x1 x2 x3 x8 x19 x20 x29 x30 sp pc",
        "x/32gx $sp",
        "x/4gx &buffer",
        "p total",
        "x/12i $pc",
    ];
    let mut flags = FLAGS.to_vec();
    flags.push("-static");
    if let Some([found, wanted]) = seen("aarch64", PROGRAM, &flags, &places, &asked) {
        assert_eq!(found, wanted);
    }
}

/// A program of about 15 million instructions, with the C library.
const LONG: &str = r#"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
static unsigned long total, table[64];
static char *texts[32];
__attribute__((noinline)) void tick(unsigned long n) { __asm__ volatile("" :: "r"(n)); }
__attribute__((noinline)) unsigned long work(unsigned long n) {
  unsigned long s = n;
  for (unsigned i = 0; i < 600000; i++) { s = s * 1103515245 + i; table[s >> 12 & 63] ^= s; }
  return s;
}
int main(void) {
  for (unsigned long n = 0; n < 3; n++) {
    total += work(n);
    free(texts[n % 5]);
    texts[n % 5] = malloc(100 + n);
    snprintf(texts[n % 5], 100, "round %lu of %lx", n, total);
    tick(n);
  }
  return 0;
}
"#;

/// Between the start and the end, execution begins at a checkpoint.
fn sees_the_same_in_the_middle(architecture: &'static str, flags: &[&str], registers: &str) {
    let places = ["break tick", "ignore 1 1", "continue"];
    let asked = [
        registers,
        // Beyond are random numbers of the C library.
        "x/4gx $sp",
        "p total",
        "p table",
        "p texts",
        "x/s texts[0]",
        "x/8gx texts[1] - 16",
    ];
    if let Some([found, wanted]) = seen(architecture, LONG, flags, &places, &asked) {
        assert_eq!(found, wanted);
    }
}

#[test]
fn a_debugger_sees_in_the_middle_what_it_sees_in_the_running_program() {
    let registers = "info registers x0 x1 x2 x3 x8 x19 x20 x29 x30 sp pc";
    sees_the_same_in_the_middle("aarch64", &["-static", "-O1"], registers);
}

#[test]
fn a_debugger_sees_in_the_middle_of_a32_code_what_it_sees_in_the_running_program() {
    let registers = "info registers r0 r1 r2 r3 r4 r5 r6 r7 r9 r11 sp lr pc";
    sees_the_same_in_the_middle("arm", &["-static", "-O1", "-marm"], registers);
}

#[test]
fn a_debugger_sees_in_the_middle_of_t32_code_what_it_sees_in_the_running_program() {
    let registers = "info registers r0 r1 r2 r3 r4 r5 r6 r7 r9 r11 sp lr pc";
    sees_the_same_in_the_middle("arm", &["-static", "-O1", "-mthumb"], registers);
}

/// What GDB prints at a place in the history of a recording, and in the running program.
fn seen(
    architecture: &'static str,
    source: &str,
    flags: &[&str],
    places: &[&str],
    asked: &[&str],
) -> Option<[String; 2]> {
    if !installed(&["gdb-multiarch"]) {
        return None;
    }
    let mut all = flags.to_vec();
    all.push("-g");
    let guest = build(architecture, "program.c", source, &all)?;
    let run = record(&guest, "snapshot", &[], &[]);
    assert!(run.status.success(), "{run:?}");
    let print = asked.iter().flat_map(|command| ["-ex", command]);
    let print: Vec<&str> = print.collect();
    let socket = guest.directory.path().join("socket");
    let emulator: &[&str] = match architecture {
        "aarch64" => &["qemu-aarch64", "-cpu", "max,sve=off", "-g"],
        _ => &["qemu-arm", "-g"],
    };
    let mut live = Command::new(emulator[0])
        .args(&emulator[1..])
        .args([&socket, &guest.program])
        .spawn()
        .unwrap();
    while !socket.exists() {
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    let places: Vec<&str> = places.iter().flat_map(|command| ["-ex", command]).collect();
    let target = format!("target remote {}", socket.display());
    let shown = |command: &mut Command| {
        let output = command.output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        // What both print, after the last stop.
        let from = text.rfind("\nx0 ").or_else(|| text.rfind("\nr0 "));
        let from = from.unwrap_or_else(|| panic!("{output:?}"));
        text[from..]
            .lines()
            .filter(|line| !line.starts_with('['))
            .collect::<Vec<_>>()
            .join("\n")
    };
    let wanted = shown(
        Command::new("gdb-multiarch")
            .args(["-nx", "-batch", "-ex", &target])
            .args(&places)
            .args(&print)
            .arg(&guest.program),
    );
    let _ = live.kill();
    let _ = live.wait();
    let found = shown(
        Command::new(crate::support::armsnap())
            .arg("gdb")
            .arg(guest.directory.path().join("snapshot"))
            .args(["--", "-nx", "-batch", "-ex", "reverse-continue"])
            .args(&places)
            .args(&print),
    );
    Some([found, wanted])
}

/// A pointer that is stored at the start, and a register that keeps a value, both used at the end.
const FAR: &str = r#"
typedef unsigned long word;
static word *volatile pointer, table[8];
static volatile word total;
__attribute__((noinline)) static void set(word at) { pointer = &table[at]; }
void work(void) {
  __asm__ volatile("mov x20, #0x1230\n add x20, x20, #4" ::: "x20");
  set(3);
  for (word i = 0; i < 40000; i++) total += i;
  __asm__ volatile("mov x21, x20\n str x21, [%0]\n mov x8, #93\n svc #0" :: "r"(pointer) : "x21", "memory");
}
__asm__(".global _start\n_start: mov x29, #0\n mov x30, #0\n bl work\n mov x8, #93\n svc #0");
"#;

/// Where values come from is found however far back, even if nothing there can be solved from the end.
#[test]
fn the_origin_of_a_value_is_found_at_any_distance() {
    let mut flags = FLAGS.to_vec();
    flags.extend(["-static", "-ffixed-x20"]);
    let Some(guest) = build("aarch64", "program.c", FAR, &flags) else {
        return;
    };
    let run = record(&guest, "snapshot", &[], &[]);
    assert!(run.status.success(), "{run:?}");
    let mut recorded = Recorded::open(guest, None);
    let options = Options {
        most_bytes: 8 << 20,
        ..Options::default()
    };
    let mut recovery = Recovery::new(recorded.facts(), options);
    let history = recorded.history();
    let cancel = Cancel::default();
    let end = history.end();
    let last = history.step(end, Direction::Backward).unwrap();
    let registers = recovery.registers(history, last, &cancel).unwrap();
    let stored = registers.get(Location::general(21)).unwrap();
    assert_eq!(stored.value, 0x1234);
    let what = What::Location(Location::general(21));
    let way = recovery.origin(history, last, what, 20, &cancel).unwrap();
    let causes: Vec<_> = way.instructions.iter().map(|link| link.cause).collect();
    let values = way.instructions.iter().filter_map(|link| link.value);
    let values: Vec<u64> = values.map(|known| known.value).collect();
    assert_eq!(causes[causes.len() - 1], Cause::Constant, "{way:?}");
    assert_eq!(values, [0x1234, 0x1234, 0x1230], "{way:?}");
    assert_eq!(way.end, End::Reached, "{way:?}");
    let first = way.instructions[way.instructions.len() - 1].position;
    assert!(first < history.begin().after(40), "{first}");
}

#[test]
fn a_damaged_file_costs_values_only() {
    let mut flags = FLAGS.to_vec();
    flags.push("-static");
    let Some(guest) = build("aarch64", "program.c", PROGRAM, &flags) else {
        return;
    };
    let run = record(&guest, "snapshot", &[], &[]);
    assert!(run.status.success(), "{run:?}");
    let path = guest.directory.path().join("snapshot/replay.bin");
    let mut bytes = std::fs::read(&path).unwrap();
    // The last record is that of the call that exits.
    let near_end = bytes.len() - 300;
    bytes[near_end] ^= 1;
    std::fs::write(&path, bytes).unwrap();
    let mut recorded = Recorded::open(guest, None);
    let mut recovery = recorded.recovery();
    let history = recorded.history();
    let cancel = Cancel::default();
    let (begin, end) = (history.begin(), history.end());
    let known = |found: armsnap::recover::Registers| found.0.iter().flatten().count();
    let at_begin = recovery.registers(history, begin, &cancel).unwrap();
    assert!(known(at_begin) > 90);
    let last = history.step(end, Direction::Backward).unwrap();
    recovery.registers(history, last, &cancel).unwrap();
    let limits: Vec<String> = recovery
        .limits(history)
        .iter()
        .map(ToString::to_string)
        .collect();
    assert!(
        limits
            .iter()
            .any(|limit| limit.contains("damaged at offset")),
        "{limits:?}"
    );
}

/// Memory at the end that is not what the replay leads to was written by somebody else, at an unknown
/// time.
#[test]
fn memory_of_others_at_the_end_costs_the_replay() {
    let mut flags = FLAGS.to_vec();
    flags.push("-static");
    let Some(guest) = build("aarch64", "program.c", PROGRAM, &flags) else {
        return;
    };
    let run = record(&guest, "snapshot", &[], &[]);
    assert!(run.status.success(), "{run:?}");
    let total = guest.symbol("total");
    let snapshot = guest.directory.path().join("snapshot");
    let dumped = Snapshot::open(&snapshot, &OpenOptions::default()).unwrap();
    let dumps = dumped.snapshot.devices[0].dumps.iter();
    let before = dumps.filter(|dump| dump.address <= total);
    let dump = before.max_by_key(|dump| dump.address).unwrap().clone();
    let mut recorded = Recorded::open(guest, None);
    for is_changed in [false, true] {
        let mut recovery = recorded.recovery();
        let history = recorded.history();
        let cancel = Cancel::default();
        let (begin, end) = (history.begin(), history.end());
        let writes = Wanted {
            reads: false,
            writes: true,
        };
        let range = total..total + 8;
        let ends = (begin, end);
        let found = recovery
            .accesses(history, ends, range, Direction::Forward, writes, &cancel)
            .unwrap();
        assert!(found.hit.is_some());
        // The whole history was executed.
        let range = 0..1;
        recovery
            .accesses(history, ends, range, Direction::Forward, writes, &cancel)
            .unwrap();
        let limits = recovery.limits(history);
        let mut limits = limits.iter().map(ToString::to_string);
        let is_dropped = limits.any(|limit| limit.contains("other registers or memory"));
        assert_eq!(is_dropped, is_changed);
        let file = snapshot.join(&dump.file);
        let mut bytes = std::fs::read(&file).unwrap();
        let at = dump.offset.unwrap_or(0) + (total - dump.address);
        bytes[at as usize] ^= 1;
        std::fs::write(&file, bytes).unwrap();
        recorded = Recorded::open(recorded.into_guest(), None);
    }
}

/// System calls that fill structures, and one that the processor's part of the kernel makes.
const ARM: &str = r#"
static int call(int n, int a, int b, int c, int d, int e) {
  register int r7 __asm__("r7") = n, r0 __asm__("r0") = a, r1 __asm__("r1") = b, r2 __asm__("r2") = c;
  register int r3 __asm__("r3") = d, r4 __asm__("r4") = e, r5 __asm__("r5") = 0;
  __asm__ volatile("svc #0" : "+r"(r0) : "r"(r7), "r"(r1), "r"(r2), "r"(r3), "r"(r4), "r"(r5) : "memory");
  return r0;
}
int area[80], position[2], total;
void work(void) {
  call(0xf0005, (int)area, 0, 0, 0, 0); // set_tls
  int *tls;
  __asm__ volatile("mrc p15, 0, %0, c13, c0, 3" : "=r"(tls));
  total = tls == area;
  call(397, -100, (int)"/", 0, 0x7ff, (int)area); // statx
  int file = call(322, -100, (int)"/proc/self/exe", 0, 0, 0);
  call(140, file, 0, 4, (int)position, 0); // _llseek
  for (int i = 0; i < 64; i++) total += area[i];
  total += position[0];
}
__asm__(".global _start\n_start: mov r11, #0\n mov lr, #0\n bl work\n mov r7, #1\n svc #0");
"#;

#[test]
fn calls_of_aarch32_are_replayed() {
    let flags = [
        "-nostdlib",
        "-ffreestanding",
        "-fno-builtin",
        "-O1",
        "-marm",
        "-static",
    ];
    let Some(guest) = build("arm", "program.c", ARM, &flags) else {
        return;
    };
    let run = record(&guest, "snapshot", &[], &[]);
    assert!(run.status.success(), "{run:?}");
    let [area, position, total] = ["area", "position", "total"].map(|name| guest.symbol(name));
    let mut recorded = Recorded::open(guest, None);
    let mut recovery = recorded.recovery();
    let history = recorded.history();
    let cancel = Cancel::default();
    let ends = (history.end(), history.begin());
    let writes = Wanted {
        reads: false,
        writes: true,
    };
    // The kernel wrote the first two, in one store each, the program the last.
    for (address, is_whole) in [(area + 4, false), (position, false), (total, true)] {
        let range = address..address + 4;
        let found = recovery
            .accesses(history, ends, range, Direction::Backward, writes, &cancel)
            .unwrap();
        let hit = found.hit.unwrap();
        assert_eq!(hit.whole.is_some(), is_whole, "{address:#x}");
        assert!(found.may_have.is_none() && found.complete, "{found:?}");
    }
    assert_eq!(recovery.limits(history), []);
}

/// Memory that is attached twice, and written at one address and read at the other, after a checkpoint.
const ATTACHED: &str = r#"
#include <signal.h>
#include <sys/ipc.h>
#include <sys/shm.h>
static volatile int *first, *second;
volatile int got;
static volatile long sum;
static void handle(int number) {
  for (int i = 0; i < 1000; i++) sum += i * number;
  second[0] = 1;
  first[0] = 7;
  got = second[0];
  first[0] = 1;
  for (int i = 0; i < 1000; i++) sum += i * number;
  got = 0;
}
int main(void) {
  int id = shmget(IPC_PRIVATE, 4096, IPC_CREAT | 0600);
  first = shmat(id, 0, 0);
  second = shmat(id, 0, 0);
  shmctl(id, IPC_RMID, 0);
  signal(SIGUSR1, handle);
  raise(SIGUSR1);
  return 0;
}
"#;

#[test]
fn memory_that_a_call_shares_is_not_known_after_a_checkpoint() {
    let Some(guest) = build("aarch64", "program.c", ATTACHED, &["-static", "-O1"]) else {
        return;
    };
    let run = record(&guest, "snapshot", &[], &[]);
    assert!(run.status.success(), "{run:?}");
    let got = guest.symbol("got");
    let mut recorded = Recorded::open(guest, None);
    let mut recovery = recorded.recovery();
    let history = recorded.history();
    let cancel = Cancel::default();
    let mut at = history.end();
    for _ in 0..12000 {
        at = history.step(at, Direction::Backward).unwrap();
        let mut byte = [None];
        recovery
            .memory(history, at, got, &mut byte, &cancel)
            .unwrap();
        assert_ne!(byte[0].map(|byte| byte.value), Some(1), "{at}");
    }
}
