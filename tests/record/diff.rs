//! `armsnap diff`: recordings of programs for which it is known where they differ.

use crate::support::record::{Guest, build, installed, record};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// What programs are built on: system calls without a C library, and the first argument.
const BASE: &str = r#"
static long call(long n, long a, long b, long c) {
  register long x8 __asm__("x8") = n; register long x0 __asm__("x0") = a;
  register long x1 __asm__("x1") = b; register long x2 __asm__("x2") = c;
  __asm__ volatile("svc #0" : "+r"(x0) : "r"(x8), "r"(x1), "r"(x2) : "memory");
  return x0;
}
int work(char *text);
__attribute__((used)) void begin(char *text) { call(93, work(text), 0, 0); for (;;); }
__asm__(".global _start\n_start: mov x29, #0\n mov x30, #0\n ldr x0, [sp, #16]\n bl begin\n");
#line 1
"#;

/// Builds a program with a function `int work(char *argument)`.
fn program(text: &str) -> Option<Guest> {
    let flags = ["-static", "-nostdlib", "-ffreestanding", "-O1"];
    build("aarch64", "program.c", &format!("{BASE}{text}"), &flags)
}

fn run(guest: &Guest, name: &str, argument: &str) {
    let run = record(guest, name, &[], &[argument]);
    assert!(run.status.success(), "{run:?}");
}

fn diff(a: &Path, b: &Path, options: &[&str]) -> Output {
    let mut command = Command::new(crate::support::armsnap());
    let command = command.arg("diff").arg(a).arg(b).args(options);
    command.output().unwrap()
}

/// The object that is printed for recordings of two arguments.
fn compared(guest: &Guest, a: &str, b: &str) -> Value {
    run(guest, "a", a);
    run(guest, "b", b);
    let [a, b] = ["a", "b"].map(|name| guest.directory.path().join(name));
    let run = diff(&a, &b, &["--format", "json"]);
    let text = String::from_utf8(run.stdout.clone()).unwrap();
    let value: Value = serde_json::from_str(&text).unwrap_or_else(|_| panic!("{run:?}"));
    let same = value["same"].as_bool().unwrap();
    assert_eq!(run.status.code(), Some(i32::from(!same)), "{run:?}");
    for side in [&a, &b] {
        std::fs::remove_dir_all(side).unwrap();
    }
    value
}

const BRANCH: &str = r#"
int found;
__attribute__((noinline)) void note(int at) { found += at; }
__attribute__((noinline)) int check(const char *text) {
  int sum = 0;
  for (int i = 0; i < 8; i++) {
    if (text[i] == 'x')
      note(i);
    else
      sum++;
  }
  return sum;
}
int work(char *text) { return check(text); }
"#;

#[test]
fn the_branch_is_found_where_one_byte_of_input_differs() {
    let Some(guest) = program(BRANCH) else {
        return;
    };
    assert_eq!(compared(&guest, "abcdefgh", "abcdefgh")["same"], true);
    for at in 0..8 {
        let mut other = *b"abcdefgh";
        other[at] = b'x';
        let other = String::from_utf8(other.to_vec()).unwrap();
        let found = compared(&guest, "abcdefgh", &other);
        assert_eq!(found["thread"], "cpu_0");
        for side in ["a", "b"] {
            let place = &found[side];
            assert_eq!(place["kind"], "branch", "{found}");
            assert_eq!(place["function"], "check", "{found}");
            assert_eq!(place["line"], 7, "{found}");
            let cause = found["cause"][side].as_array().unwrap();
            let last = cause.last().unwrap();
            assert!(last["what"].as_str().unwrap().starts_with("loaded from"));
            assert_eq!(last["line"], 7, "{found}");
        }
        let first = &found["values"][0];
        assert_eq!(first["a"], format!("{:#x}", b'a' + at as u8), "{found}");
        assert_eq!(first["b"], "0x78", "{found}");
    }
}

#[test]
fn other_values_on_the_same_course_are_found_where_they_leave_the_program() {
    let output = "char text[4]; int work(char *from) { text[0] = 'a'; text[1] = from[0]; \
                  call(64, 2, (long)text, 2); return 0; }";
    let status = "int work(char *from) { return from[0] == 'x'; }";
    let number = "int work(char *from) { call(from[0] == 'x' ? 172 : 178, 0, 0, 0); return 0; }";
    let found = |text: &str| Some(compared(&program(text)?, "a", "x"));
    let (Some(output), Some(status), Some(number)) = (found(output), found(status), found(number))
    else {
        return;
    };
    for (found, name, a, b) in [
        (&output, "*(unsigned char *)(x1 + 1)", "0x61", "0x78"),
        (&status, "x0", "0x0", "0x1"),
        (&number, "x8", "0xb2", "0xac"),
    ] {
        assert_eq!(found["a"]["kind"], "value", "{found}");
        let wanted = serde_json::json!([{"name": name, "a": a, "b": b}]);
        assert_eq!(found["values"], wanted, "{found}");
        assert!(!found["cause"]["a"].as_array().unwrap().is_empty());
    }
}

#[test]
fn exit_statuses_have_8_bits() {
    let status = "int work(char *from) { return from[0] == 'x' ? 256 + 7 : 7; }";
    let Some(guest) = program(status) else {
        return;
    };
    assert_eq!(compared(&guest, "a", "x")["same"], true);
}

#[test]
fn a_branch_in_an_it_block_has_values() {
    const TEXT: &str = r#"
__attribute__((used)) int check(const char *text) {
  int found;
  __asm__("ldrb %0, [%1]\n cmp %0, #97\n mov %0, #0\n it eq\n beq.n 1f\n nop\n mov %0, #1\n1:"
          : "=&r"(found) : "r"(text) : "cc");
  return found;
}
__attribute__((used)) void begin(char *text) {
  register long r7 __asm__("r7") = 1;
  register long r0 __asm__("r0") = check(text);
  __asm__ volatile("svc #0" : : "r"(r7), "r"(r0));
}
__asm__(".global _start\n.thumb_func\n_start: ldr r0, [sp, #8]\n bl begin\n");
"#;
    let flags = ["-static", "-nostdlib", "-ffreestanding", "-O1", "-mthumb"];
    let Some(guest) = build("arm", "program.c", TEXT, &flags) else {
        return;
    };
    let found = compared(&guest, "a", "x");
    assert_eq!(found["a"]["kind"], "branch", "{found}");
    assert_eq!(found["values"][0]["a"], "0x61", "{found}");
    assert_eq!(found["values"][0]["b"], "0x78", "{found}");
}

#[test]
fn courses_that_stop_at_different_places_part_at_their_last_branch() {
    let Some(guest) = program(BRANCH) else {
        return;
    };
    let whole = compared(&guest, "abcdefgh", "xbcdefgh");
    let position = whole["a"]["position"].as_str().unwrap();
    let count: u64 = position.split_once('+').unwrap().1.parse().unwrap();
    let count = (count + 1).to_string();
    for (name, argument) in [("a", "abcdefgh"), ("b", "xbcdefgh")] {
        record(&guest, name, &["--instructions", &count], &[argument]);
    }
    let [a, b] = ["a", "b"].map(|name| guest.directory.path().join(name));
    let run = diff(&a, &b, &["--format", "json"]);
    let found: Value = serde_json::from_slice(&run.stdout).unwrap_or_else(|_| panic!("{run:?}"));
    assert_eq!(found["a"], whole["a"], "{found}");
    assert_eq!(found["values"], whole["values"], "{found}");
}

#[test]
fn an_earlier_end_is_found() {
    let text = "int work(char *from) { *(volatile int *)(from[0] == 'x' ? 8 : (long)from & ~3) = 1; return 0; }";
    let Some(guest) = program(text) else {
        return;
    };
    let found = compared(&guest, "x", "a");
    assert_eq!(found["a"]["kind"], "end", "{found}");
    assert_eq!(found["a"]["function"], "work", "{found}");
    assert_eq!(found["a"]["pc"], found["b"]["pc"], "{found}");
    assert_eq!(found["values"][0]["a"], "0x8", "{found}");
}

/// Compares the same run of two builds of a program.
fn builds(first: &str, second: &str, argument: &str) -> Option<Value> {
    let [first, second] = [program(first)?, program(second)?];
    let paths = [&first, &second].map(|guest| {
        run(guest, "snapshot", argument);
        guest.directory.path().join("snapshot")
    });
    let run = diff(&paths[0], &paths[1], &["--format", "json"]);
    let value: Value = serde_json::from_slice(&run.stdout).unwrap_or_else(|_| panic!("{run:?}"));
    let same = value["same"].as_bool().unwrap();
    assert_eq!(run.status.code(), Some(i32::from(!same)), "{run:?}");
    Some(value)
}

#[test]
fn builds_are_compared_by_functions_and_lines() {
    let changed = BRANCH.replace("'x'", "'d'");
    let Some(found) = builds(BRANCH, &changed, "abcdefgh") else {
        return;
    };
    for side in ["a", "b"] {
        assert_eq!(found[side]["kind"], "branch", "{found}");
        assert_eq!(found[side]["function"], "check", "{found}");
        assert_eq!(found[side]["line"], 7, "{found}");
    }
    // The changed character is not in the input.
    let found = builds(BRANCH, &changed, "mnopqrst").unwrap();
    assert_eq!(found["same"], true, "{found}");
    // Lines before the function, and a function that is not called.
    let moved = format!(
        "\n\n__attribute__((used)) int more(int a) {{ return a * a; }}\n{}",
        changed
    );
    let found = builds(BRANCH, &moved, "abcdefgh").unwrap();
    assert_eq!(found["a"]["line"], 7, "{found}");
    assert_eq!(found["b"]["line"], 10, "{found}");
    assert_eq!(builds(BRANCH, &moved, "mnopqrst").unwrap()["same"], true);
    // A function with other lines is compared by its calls.
    let longer = BRANCH.replace(
        "      note(i);\n",
        "      {\n      sum += i * 2;\n      note(i);\n      }\n",
    );
    assert_eq!(builds(BRANCH, &longer, "mnopqrst").unwrap()["same"], true);
    let found = builds(BRANCH, &longer.replace("'x'", "'d'"), "abcdefgh").unwrap();
    assert_eq!(found["b"]["function"], "check", "{found}");
}

#[test]
fn builds_differ_where_a_loop_on_one_line_goes_around_more_often() {
    let text = "int work(char *text) { volatile int n = 0; \
                for (int i = 'a'; i < text[0]; i++) n += i; return 0; }";
    let changed = text.replace("'a'", "'b'");
    let Some(found) = builds(text, &changed, "k") else {
        return;
    };
    assert_eq!(found["a"]["kind"], "branch", "{found}");
    assert_eq!(found["a"]["function"], "work", "{found}");
}

#[test]
fn it_is_said_that_builds_are_compared() {
    let (Some(first), Some(second)) = (program(BRANCH), program(&BRANCH.replace("'x'", "'d'")))
    else {
        return;
    };
    let [a, b] = [&first, &second].map(|guest| {
        run(guest, "snapshot", "mnopqrst");
        guest.directory.path().join("snapshot")
    });
    let said = "these are different builds";
    let text = diff(&a, &b, &[]);
    assert!(String::from_utf8_lossy(&text.stdout).contains(said));
    let json = diff(&a, &b, &["--format", "json"]);
    assert!(!String::from_utf8_lossy(&json.stdout).contains(said));
    assert!(String::from_utf8_lossy(&json.stderr).contains(said));
    let same = diff(&a, &a, &[]);
    assert!(!String::from_utf8_lossy(&same.stdout).contains(said));
}

/// Bare metal A64: computes and waits while a timer interrupts it.
const INTERRUPTED: &str = r#"
#include <stdint.h>
enum { GICD = 0x08000000, GICC = 0x08010000, TIMER = 30 };
static volatile uint32_t *word(uint64_t address) { return (volatile uint32_t *)address; }
volatile unsigned ticks, total;
static void timer(uint64_t time) {
    __asm__ volatile("msr cntp_tval_el0, %0\n msr cntp_ctl_el0, %1\n isb" : : "r"(time), "r"(1L));
}
void exception(int kind, void *saved) {
    uint32_t number = *word(GICC + 0xc);
    if ((number & 1023) == TIMER) {
        ticks++;
        timer(ticks < 3 ? 2000 : 1 << 30);
    }
    *word(GICC + 0x10) = number;
}
int run(void) {
    *word(GICD) = 1;
    *word(GICD + 0x100) = 1u << TIMER;
    *word(GICC + 4) = 0xff;
    *word(GICC) = 1;
    timer(2000);
    __asm__ volatile("msr daifclr, #2");
    for (unsigned i = 0; i < 3; i++) {
        while (ticks <= i)
            ;
        for (unsigned step = 0; step < 500; step++)
            total += step;
    }
    return 0;
}
void run_other(void) {}
"#;

#[test]
fn interrupts_and_polling_loops_are_passed_over() {
    let needed = ["aarch64-linux-gnu-gcc", "qemu-system-aarch64"];
    if !installed(&needed) {
        return;
    }
    let place = tempfile::tempdir().unwrap();
    let programs = Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata/programs");
    std::fs::write(place.path().join("poll.c"), INTERRUPTED).unwrap();
    let built = Command::new(needed[0])
        .args(["-g", "-O1", "-static", "-nostdlib", "-ffreestanding"])
        .args(["-mgeneral-regs-only", "-o", "poll.elf", "poll.c", "-T"])
        .args(["virt.ld", "start-a64.S"].map(|name| programs.join(name)))
        .current_dir(place.path())
        .output()
        .unwrap();
    assert!(built.status.success(), "{built:?}");
    let recorded = |shift: u32| {
        let out = place.path().join(format!("shift{shift}"));
        let run = Command::new(crate::support::armsnap())
            .args(["record", "--exit-zero", "--system", "virt", "--until"])
            .args(["halt_here", "--cpu", "cortex-a57", "--qemu", "-icount"])
            .args(["--qemu", &format!("shift={shift}"), "-o"])
            .arg(&out)
            .args(["--", "poll.elf"])
            .current_dir(place.path())
            .output();
        let run = run.unwrap();
        assert!(run.status.success(), "{run:?}");
        out
    };
    // The fewer instructions in a tick, the earlier the interrupts.
    let [first, second] = [recorded(3), recorded(5)];
    let size = |path: &Path| std::fs::metadata(path.join("trace.bin")).unwrap().len();
    assert_ne!(size(&first), size(&second));
    let run = diff(&first, &second, &[]);
    assert_eq!(run.status.code(), Some(0), "{run:?}");
}

/// Bare metal Cortex-M3: PendSV switches to another task and does not return to the first one.
const SWITCHED: &str = r#"
typedef unsigned u;
extern u stack_top;
volatile int out;
u stack[128];
volatile u *next;
void task(void) {
    for (int i = 0; i < 10; i++)
        out++;
    register u r0 __asm__("r0") = 0x18;
    register u r1 __asm__("r1") = 0x20026;
    __asm__ volatile("bkpt 0xab" : : "r"(r0), "r"(r1));
    for (;;) {}
}
__attribute__((naked)) void pendsv(void) {
    __asm__ volatile("ldr r0, =next\n ldr r0, [r0]\n msr psp, r0\n mvn lr, #2\n bx lr\n .ltorg");
}
void reset(void) {
    u *frame = &stack[120];
    frame[6] = (u)task & ~1u;
    frame[7] = 1 << 24;
    next = frame;
    *(volatile u *)0xe000ed04 = 1u << 28;
    __asm__ volatile("dsb\n isb");
    for (;;)
        out++;
}
void other(void) { for (;;) {} }
__attribute__((section(".vectors"), used)) void *const vectors[16] = {
    &stack_top, reset, other, other, other, other, other, 0, 0, 0, 0, other, other, 0, pendsv, other};
"#;

const SCRIPT: &str = "SECTIONS { . = 0; .text : { KEEP(*(.vectors)) *(.text*) *(.rodata*) } . = 0x20000000; \
    .data : { *(.data*) } .bss : { *(.bss*) *(COMMON) } stack_top = 0x20008000; }";

/// Builds a program for the Cortex-M3 and records it.
fn record_m3(place: &Path, [name, text]: [&str; 2], options: &[&str]) -> PathBuf {
    std::fs::write(place.join("image.c"), text).unwrap();
    std::fs::write(place.join("image.ld"), SCRIPT).unwrap();
    let built = Command::new("arm-none-eabi-gcc")
        .args(["-mthumb", "-mcpu=cortex-m3", "-g", "-O1", "-nostdlib"])
        .args(["-ffreestanding", "-o", "image.elf", "image.c"])
        .args(["-T", "image.ld"])
        .current_dir(place)
        .output()
        .unwrap();
    assert!(built.status.success(), "{built:?}");
    let run = Command::new(crate::support::armsnap())
        .args(["record", "--exit-zero", "--system", "mps2-an385"])
        .args(options)
        .args(["-o", name, "--", "image.elf"])
        .current_dir(place)
        .output()
        .unwrap();
    assert!(run.status.success(), "{run:?}");
    place.join(name)
}

/// Bare metal Cortex-M3: calls the system with a number from memory.
const SUPERVISOR: &str = r#"
typedef unsigned u;
extern u stack_top;
volatile u input = 1;
__attribute__((naked)) void reset(void) {
    __asm__ volatile("ldr r7, =input\n ldr r7, [r7]\n svc 0\n mov r7, #0\n"
                     "ldr r1, =0x20026\n mov r0, #0x18\n bkpt 0xab\n b .\n .ltorg");
}
__attribute__((naked)) void supervisor(void) { __asm__ volatile("bx lr"); }
void other(void) { for (;;) {} }
__attribute__((section(".vectors"), used)) void *const vectors[16] = {
    &stack_top, reset, other, other, other, other, other, 0, 0, 0, 0, supervisor, other, 0, other, other};
"#;

#[test]
fn system_calls_are_compared_where_their_kernel_is_traced() {
    if !installed(&["arm-none-eabi-gcc", "qemu-system-arm"]) {
        return;
    }
    let place = tempfile::tempdir().unwrap();
    let a = record_m3(place.path(), ["a", SUPERVISOR], &[]);
    let changed = SUPERVISOR.replace("input = 1", "input = 2");
    let b = record_m3(place.path(), ["b", &changed], &[]);
    let run = diff(&a, &b, &["--format", "json"]);
    let found: Value = serde_json::from_slice(&run.stdout).unwrap_or_else(|_| panic!("{run:?}"));
    let wanted = serde_json::json!([{"name": "r7", "a": "0x1", "b": "0x2"}]);
    assert_eq!(found["values"], wanted, "{found}");
}

#[test]
fn what_follows_a_switch_of_tasks_or_begins_elsewhere_is_not_compared() {
    if !installed(&["arm-none-eabi-gcc", "qemu-system-arm"]) {
        return;
    }
    let place = tempfile::tempdir().unwrap();
    let recorded =
        |name: &str, options: &[&str]| record_m3(place.path(), [name, SWITCHED], options);
    let whole = recorded("whole", &[]);
    let handler = recorded("handler", &["--from", "pendsv"]);
    let task = recorded("task", &["--from", "task"]);
    for (a, b, wanted) in [
        (&whole, &whole, "an interrupt there does not return"),
        (&handler, &task, "begin at different places"),
    ] {
        let run = diff(a, b, &[]);
        assert_eq!(run.status.code(), Some(2), "{run:?}");
        let text = String::from_utf8(run.stderr).unwrap();
        assert!(text.contains(wanted), "{text}");
    }
}

#[test]
fn what_cannot_be_compared_is_an_error() {
    let Some(guest) = program(BRANCH) else {
        return;
    };
    run(&guest, "a", "abcdefgh");
    let a = guest.directory.path().join("a");
    let run = diff(&a, &a.join("nothing"), &[]);
    assert_eq!(run.status.code(), Some(2), "{run:?}");
    assert!(run.stdout.is_empty(), "{run:?}");
    let run = diff(&a, &a, &[]);
    assert_eq!(
        (run.status.code(), &run.stdout[..]),
        (Some(0), &b"the same\n"[..])
    );
}
