//! GDB's own moves at past positions, where only the program counter is known: they end where they end
//! when GDB knows every value (`record full` of a run in the emulator).

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use crate::support::gdb::{need_gdb, run_within, text};
use crate::support::record::{Guest, build, decoded, live};

/// Calls, recursion, function pointers, and with a library, calls through its PLT.
const PROGRAM: &str = r#"
#include <stdlib.h>
#include <string.h>
typedef int op(int, int);
static int add(int a, int b) { return a + b; }
static int mul(int a, int b) { return a * b; }
static op *ops[] = { add, mul };
__attribute__((noinline)) static int fib(int n)
{
    if (n < 2)
        return n;
    int a = fib(n - 1);
    int b = fib(n - 2);
    return a + b;
}
struct node { struct node *next; char name[24]; int value; };
static struct node nodes[6], *list;
static int used;
__attribute__((noinline)) static void push(const char *name, int value)
{
    struct node *node = &nodes[used++];
    strcpy(node->name, name);
    node->value = value;
    node->next = list;
    list = node;
}
__attribute__((noinline)) static int total(void)
{
    int sum = 0;
    for (struct node *node = list; node; node = node->next)
        sum = ops[sum & 1](sum, node->value);
    return sum;
}
static int compare(const void *a, const void *b)
{
    const struct node *left = a, *right = b;
    return strcmp(left->name, right->name);
}
__attribute__((noinline)) static int depth(struct node *node)
{
    char copy[24];
    memcpy(copy, node->name, sizeof copy);
    if (!node->next)
        return (int)strlen(copy);
    return depth(node->next) + (int)strlen(copy);
}
int main(void)
{
    push("wheel", 12);
    push("spoke", 1);
    push("frame", 40);
    push("bell", 3);
    int f = fib(6);
    int t = total();
    t += depth(list);
    qsort(nodes, used, sizeof *nodes, compare);
    t += atoi("1234") + f;
    *(volatile int *)8 = t;
    return 0;
}
"#;

/// The library functions, for a program without a library.
const ALONE: &str = r#"
    static void strcpy(char *to, const char *from) { while ((*to++ = *from++)) ; }
    static void memcpy(char *to, const char *from, int n) { while (n--) *to++ = *from++; }
    static int strlen(const char *of) { int n = 0; while (of[n]) n++; return n; }
    static int strcmp(const char *a, const char *b)
    { while (*a && *a == *b) a++, b++; return *a - *b; }
    static int atoi(const char *of) { int n = 0; while (*of) n = 10 * n + *of++ - '0'; return n; }
    static void qsort(void *of, int n, int size, int (*compare)(const void *, const void *))
    { for (char *at = of; --n > 0; at += size) compare(at, at + size); }
    int main(void);
    void _start(void) { main(); }
"#;

const MOVES: [&str; 15] = [
    "reverse-step",
    "reverse-next",
    "reverse-stepi",
    "reverse-nexti",
    "reverse-finish",
    "step",
    "next",
    "stepi",
    "nexti",
    "finish",
    "until",
    "advance add",
    "bt",
    "up;finish",
    "up;reverse-finish",
];
/// The number of positions that moves start from, and of moves from each.
const PLACES: usize = 40;
const EACH: usize = 7;

/// Runs GDB; returns its output for each move.
fn moves(command: &mut Command, run: &str, moves: &Path) -> BTreeMap<String, String> {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/support/gdb/moves.py");
    command.env("RUN", run).env("MOVES", moves);
    command.args(["-ex", &format!("source {}", script.display())]);
    command.args(["-ex", "kill"]);
    let shown = text(&run_within(command, Duration::from_secs(600)));
    let told = shown.lines().filter_map(|line| {
        let (asked, told) = line.strip_prefix('@')?.split_once('@')?;
        Some((asked.to_owned(), told.to_owned()))
    });
    let told: BTreeMap<_, _> = told.collect();
    let asked = std::fs::read_to_string(moves).unwrap();
    assert_eq!(told.len(), asked.lines().count(), "{shown}");
    told
}

fn batch(command: &mut Command) -> &mut Command {
    command.args(["-nx", "-batch", "-iex", "set width 0"])
}

/// The results in an emulator, where GDB records the run.
fn known(guest: &Guest, cpu: &str, file: &Path) -> BTreeMap<String, String> {
    live(guest, &["-cpu", cpu], &[], |socket| {
        let mut command = Command::new("gdb-multiarch");
        batch(&mut command).arg(&guest.program);
        for gdb in [
            "set confirm off",
            "set record full insn-number-max unlimited",
            &format!("target remote {}", socket.display()),
            "break *main",
            "continue",
            "record full",
            "delete",
            "continue",
        ] {
            command.args(["-ex", gdb]);
        }
        moves(&mut command, "full", file)
    })
}

/// The results in armsnap's history of a recording.
fn past(saved: &Path, file: &Path) -> BTreeMap<String, String> {
    let mut gdb = Command::new(crate::support::armsnap());
    gdb.arg("gdb").arg(saved).arg("--");
    moves(batch(&mut gdb), "trace", file)
}

/// A program and the path of its recording; `None` without a compiler for it.
fn recorded(
    architecture: &'static str,
    cpu: &str,
    source: &str,
    options: &[&str],
) -> Option<(Guest, PathBuf)> {
    need_gdb();
    let guest = build(architecture, "moves.c", source, options)?;
    let saved = guest.directory.path().join("saved");
    let mut record = Command::new(crate::support::armsnap());
    record
        .args(["record", "--exit-zero", "-o"])
        .arg(&saved)
        .arg("--");
    // The library chooses the same functions for the processor.
    let recorded = crate::support::gdb::run(record.arg(&guest.program).env("QEMU_CPU", cpu));
    assert!(recorded.status.success(), "{recorded:?}");
    Some((guest, saved))
}

fn same_moves(architecture: &'static str, cpu: &str, source: &str, options: &[&str]) {
    let Some((guest, saved)) = recorded(architecture, cpu, source, options) else {
        return;
    };
    let executed = decoded(&saved).into_values().next().unwrap();
    let main = guest.symbol("main") & !1;
    let begin = executed.iter().position(|place| place.address.0 == main);
    let count = executed.len() - begin.unwrap();
    assert!(count > 300, "{count}");
    let file = guest.directory.path().join("moves");
    let mut number = 1_u64;
    let mut random = |below: usize| {
        number = number
            .wrapping_mul(6364136223846793005)
            .wrapping_add(1442695040888963407);
        (number >> 33) as usize % below
    };
    let mut asked = String::new();
    for part in 0..PLACES {
        // Spread over the run, except at its ends.
        let place = 10 + part * (count - 40) / PLACES + random((count - 40) / PLACES);
        let first = random(MOVES.len());
        for number in 0..EACH {
            asked += &format!("{place} {}\n", MOVES[(first + 2 * number) % MOVES.len()]);
        }
    }
    std::fs::write(&file, asked).unwrap();

    let known = known(&guest, cpu, &file);
    let past = past(&saved, &file);
    let (mut right, mut wrong) = (0, Vec::new());
    for (asked, known) in &known {
        let past = &past[asked];
        if known.ends_with(" end") || known.contains("error: ") {
            // The end of the run, or GDB finds no caller although it knows the stack.
            continue;
        }
        if known == past {
            right += 1;
        } else {
            wrong.push(format!("{asked}: {known}, but {past}"));
        }
    }
    // If armsnap and GDB differ, either may be wrong: 79 of 82 must agree.
    assert!(right > PLACES * EACH / 2, "{right}: {wrong:#?}");
    assert!(right * 3 >= wrong.len() * 79, "{right}: {wrong:#?}");
}

fn alone() -> String {
    let includes = |line: &&str| !line.starts_with("#include");
    let program: Vec<&str> = PROGRAM.lines().filter(includes).collect();
    format!("{ALONE}{}", program.join("\n"))
}

#[test]
fn moves_in_an_unoptimised_static_program() {
    same_moves("aarch64", "cortex-a57", PROGRAM, &["-O0", "-static"]);
}

#[test]
fn moves_in_an_optimised_static_program() {
    same_moves("aarch64", "cortex-a57", PROGRAM, &["-O2", "-static"]);
}

const FREE: [&str; 4] = ["-static", "-nostdlib", "-ffreestanding", "-fno-builtin"];

#[test]
fn moves_in_arm_code() {
    let options = [&FREE[..], &["-O0", "-marm"]].concat();
    same_moves("arm", "cortex-a15", &alone(), &options);
}

/// GDB before 18 does not record where a `push` of 16 bits writes the link register.
const WIDE_PUSH: &str = r#"
    __asm__(".macro push registers:vararg\n stmdb.w sp!, \\registers\n .endm");
"#;

#[test]
fn moves_in_thumb_code() {
    let options = [&FREE[..], &["-O0", "-mthumb"]].concat();
    let source = format!("{WIDE_PUSH}{}", alone());
    same_moves("arm", "cortex-a15", &source, &options);
}

/// The outermost function contains inlined code.
const INLINED: &str = r#"
static volatile int counter;
__attribute__((noinline)) static void leaf(int n) { counter += n; }
__attribute__((always_inline)) static inline void twice(int n)
{
    leaf(n);
    counter++;
    leaf(n + 1);
}
__asm__(".global _start\n_start: nop\nb main");
void main(void)
{
    for (int i = 0; i < 30; i++)
        twice(i);
    *(volatile int *)8 = counter;
}
"#;

#[test]
fn moves_in_inlined_code_of_the_outermost_function() {
    let options = [&FREE[..], &["-O1"]].concat();
    same_moves("aarch64", "cortex-a57", INLINED, &options);
}

/// Halts directly after a call.
const AFTER_A_CALL: &str = r#"
static int counter;
__attribute__((noinline)) static void inner(void) { counter++; }
__attribute__((noinline)) static void outer(int n)
{
    counter += n;
    inner();
}
__attribute__((noinline)) static void crash(void)
{
    int before = counter;
    outer(before);
    __builtin_trap();
}
int main(void)
{
    counter = 3;
    crash();
    return 0;
}
"#;

/// GDB knows the stack at the halted state but not in the past: the frame must be the same.
fn same_moves_from_after_a_call(
    architecture: &'static str,
    cpu: &str,
    source: &str,
    options: &[&str],
) {
    let Some((guest, saved)) = recorded(architecture, cpu, source, options) else {
        return;
    };
    let moves = [
        "bt",
        "reverse-next",
        "reverse-step",
        "reverse-stepi",
        "reverse-nexti",
        "reverse-next;reverse-next",
        "reverse-step;reverse-finish",
        "reverse-stepi;reverse-finish",
        "reverse-stepi;reverse-next",
        "reverse-stepi;up",
    ];
    let file = guest.directory.path().join("moves");
    std::fs::write(&file, moves.map(|of| format!("end {of}\n")).concat()).unwrap();
    let known = known(&guest, cpu, &file);
    assert!(
        known["end reverse-step"].contains(" crash main"),
        "{known:#?}"
    );
    assert_eq!(past(&saved, &file), known);
}

#[test]
fn moves_from_the_halted_state_after_a_call() {
    let within = AFTER_A_CALL.replace("outer(before);", "outer((inner(), __builtin_trap(), 3));");
    assert_ne!(within, AFTER_A_CALL);
    for source in [AFTER_A_CALL, &within] {
        same_moves_from_after_a_call("aarch64", "cortex-a57", source, &["-O0", "-static"]);
    }
}

#[test]
fn moves_from_the_halted_state_after_a_call_optimised() {
    // Only GDB shows frames of tail calls.
    let options = ["-O2", "-static", "-fno-optimize-sibling-calls"];
    same_moves_from_after_a_call("aarch64", "cortex-a57", AFTER_A_CALL, &options);
}

#[test]
fn moves_from_the_halted_state_after_a_call_in_32_bits() {
    let source = format!("int main(void);\nvoid _start(void) {{ main(); }}\n{AFTER_A_CALL}");
    let options = [&FREE[..], &["-O0", "-marm"]].concat();
    same_moves_from_after_a_call("arm", "cortex-a15", &source, &options);
}
