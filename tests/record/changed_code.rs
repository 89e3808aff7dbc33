//! `armsnap record` of programs that write code, run it, and write other code to the same place:
//! each instruction is listed as it ran, or not at all.

use crate::support::convert::convert;
use crate::support::record::{Guest, build, places, record};
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Writes functions to the same address and calls each; at the end it contains something else.
const PROGRAM: &str = r#"
#include <stdint.h>
#if defined __aarch64__
typedef uint32_t word;
enum { MMAP = 222, EXIT = 94 };
#define MOV(n) (0x52800000 | (n) << 5)
#define RET 0xd65f03c0
#define NOP 0xd503201f
#define SKIP 0x14000002 /* over the next instruction */
__attribute__((always_inline)) static inline long call(long n, long a, long b, long c, long d, long e, long f) {
    register long x8 __asm__("x8") = n, x0 __asm__("x0") = a, x1 __asm__("x1") = b;
    register long x2 __asm__("x2") = c, x3 __asm__("x3") = d, x4 __asm__("x4") = e, x5 __asm__("x5") = f;
    __asm__ volatile("svc #0" : "+r"(x0) : "r"(x8), "r"(x1), "r"(x2), "r"(x3), "r"(x4), "r"(x5) : "memory");
    return x0;
}
#define LEAVE(s) __asm__ volatile("mov x0, %0\n mov x8, #94\n svc #0" : : "r"((long)(s)) : "x0", "x8")
#else
enum { MMAP = 192 };
__attribute__((always_inline)) static inline long call(long n, long a, long b, long c, long d, long e, long f) {
    register long r0 __asm__("r0") = a, r1 __asm__("r1") = b, r2 __asm__("r2") = c;
    register long r3 __asm__("r3") = d, r4 __asm__("r4") = e, r5 __asm__("r5") = f;
    __asm__ volatile("push {r7}\n mov r7, %1\n svc #0\n pop {r7}"
        : "+r"(r0) : "r"(n), "r"(r1), "r"(r2), "r"(r3), "r"(r4), "r"(r5) : "memory");
    return r0;
}
#define LEAVE(s) __asm__ volatile("mov r0, %0\n mov r7, #248\n svc #0" : : "r"(s) : "r0", "r7")
#if defined __thumb__
typedef uint16_t word;
#define MOV(n) (0x2000 | (n))
#define RET 0x4770
#define NOP 0xbf00
#define SKIP 0xe000
#else
typedef uint32_t word;
#define MOV(n) (0xe3a00000 | (n))
#define RET 0xe12fff1e
#define NOP 0xe320f000
#define SKIP 0xea000000
#endif
#endif

static const word functions[][4] = {
    {MOV(1), RET}, {MOV(2), RET}, {NOP, MOV(3), RET}, {SKIP, NOP, MOV(4), RET},
    {MOV(1), RET}, {MOV(2), RET}, {MOV(6), RET}, {NOP, NOP, MOV(7), RET},
};

__attribute__((noinline)) static void put(word *to, const word *from) {
    for (int i = 0; i < 4; i++)
        to[i] = from[i];
    __builtin___clear_cache((char *)to, (char *)(to + 4));
}

__attribute__((used)) static void begin(void) {
    word *code = (word *)call(MMAP, 0, 4096, 7, 0x22, -1, 0);
    int sum = 0;
    for (int times = 0; times < 3; times++)
        for (unsigned i = 0; i < sizeof functions / sizeof *functions; i++) {
            put(code, functions[i]);
            sum += ((int (*)(void))((uintptr_t)code | (sizeof(word) == 2)))();
        }
    static const word end[4] = {RET, RET, RET, RET};
    put(code, end);
    LEAVE(sum);
    for (;;);
}
#if defined __thumb__
__asm__(".thumb\n .syntax unified\n .thumb_func\n");
#endif
__asm__(".global _start\n .type _start, %function\n _start: bl begin\n");
"#;

fn program(architecture: &'static str, options: &[&str]) -> Option<Guest> {
    let mut all = vec![
        "-O1",
        "-ffreestanding",
        "-fno-stack-protector",
        "-static",
        "-nostartfiles",
        "-nostdlib",
    ];
    all.extend(options);
    all.push("-lgcc");
    build(architecture, "program.c", PROGRAM, &all)
}

fn recorded(guest: &Guest, name: &str, options: &[&str]) -> (PathBuf, Vec<u64>, String) {
    let witness = guest.directory.path().join(format!("{name}.witness"));
    let mut arguments = options.to_vec();
    arguments.extend(["--witness", witness.to_str().unwrap()]);
    let run = record(guest, name, &arguments, &[]);
    assert!(run.status.success(), "{run:?}");
    let said = String::from_utf8_lossy(&run.stderr).into_owned();
    let told = places(&witness).remove(&0).unwrap();
    let told = told.iter().map(|place| place.address.0).collect();
    (guest.directory.path().join(name), told, said)
}

/// The listing of `decode`: instructions with their words, and gaps where memory is missing.
fn listed(snapshot: &Path) -> Vec<Value> {
    let run = Command::new(crate::support::armsnap())
        .args(["decode", "--level", "instructions", "--format", "jsonl"])
        .arg(snapshot)
        .output()
        .unwrap();
    assert!(run.status.success(), "{run:?}");
    String::from_utf8_lossy(&run.stdout)
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .filter(|line: &Value| {
            matches!(
                line["kind"].as_str(),
                Some("instruction" | "memory_missing" | "bad_packet")
            )
        })
        .collect()
}

fn number(value: &Value) -> u64 {
    u64::from_str_radix(value.as_str().unwrap().trim_start_matches("0x"), 16).unwrap()
}

/// The word of an instruction, whose bytes are in memory order.
fn word(line: &Value) -> u64 {
    number(&line["bytes"]).swap_bytes() >> (64 - 4 * line["bytes"].as_str().unwrap().len())
}

/// The words that run at the changing address, three times.
fn words(size: u64, [mov, ret, nop, skip]: [u64; 4]) -> Vec<(u64, u64)> {
    let mov = |n: u64| {
        if size == 4 && mov == 0x5280_0000 {
            mov | n << 5
        } else {
            mov | n
        }
    };
    let mut once = Vec::new();
    let mut function = |words: &[u64], skipped: Option<u64>| {
        let mut at = 0;
        for &word in words {
            once.push((at, word));
            at += if skipped == Some(at) { 2 * size } else { size };
        }
    };
    function(&[mov(1), ret], None);
    function(&[mov(2), ret], None);
    function(&[nop, mov(3), ret], None);
    function(&[skip, mov(4), ret], Some(0));
    function(&[mov(1), ret], None);
    function(&[mov(2), ret], None);
    function(&[mov(6), ret], None);
    function(&[nop, nop, mov(7), ret], None);
    once.repeat(3)
}

/// The words in the trace of a snapshot at the changing address, in order.
fn of_place(snapshot: &Path, code: u64) -> Vec<(u64, u64)> {
    let listed = listed(snapshot).into_iter();
    let inside = listed.filter(|line| number(&line["address"]) >= code);
    inside
        .map(|line| (number(&line["address"]) - code, word(&line)))
        .collect()
}

/// Checks that every instruction is listed as it ran.
fn exact(guest: &Guest, name: &str, options: &[&str], words: &[(u64, u64)]) {
    let (snapshot, told, said) = recorded(guest, name, options);
    assert!(
        said.contains("code changed while the trace was made"),
        "{said}"
    );
    let listed = listed(&snapshot);
    let addresses: Vec<u64> = listed.iter().map(|line| number(&line["address"])).collect();
    assert_eq!(addresses, told, "{options:?}");
    // Code outside of the program ran at the changing address.
    let code = addresses.iter().max().unwrap() & !0xfff;
    assert_eq!(of_place(&snapshot, code), words, "{options:?}");
}

#[test]
fn versions_are_kept_in_trace_files() {
    let Some(guest) = program("aarch64", &[]) else {
        return;
    };
    let (snapshot, told, _) = recorded(&guest, "recorded", &[]);
    let code = told.iter().max().unwrap() & !0xfff;
    let words = of_place(&snapshot, code);
    assert_eq!(words.len(), 60);
    let place = |name: &str| guest.directory.path().join(name);
    for (name, there, back) in [
        ("whole", &[][..], &[][..]),
        (
            "waypoints",
            &["--state-only", "--frames", "waypoints"],
            &["--trace"],
        ),
        (
            "instructions",
            &["--state-only", "--frames", "instructions"],
            &["--trace"],
        ),
    ] {
        let (file, again) = (place(&format!("{name}.tf")), place(name));
        convert(there, [&snapshot, &file]);
        convert(back, [&file, &again]);
        assert_eq!(of_place(&again, code), words, "{name}");
    }
}

#[test]
fn each_version_of_a64_code_is_decoded_as_it_ran() {
    let Some(guest) = program("aarch64", &[]) else {
        return;
    };
    let words = words(4, [0x5280_0000, 0xd65f_03c0, 0xd503_201f, 0x1400_0002]);
    exact(&guest, "plain", &[], &words);
    exact(&guest, "often", &["--sync", "32"], &words);
    exact(
        &guest,
        "all",
        &[
            "--cycles",
            "--timestamps",
            "--return-stack",
            "--branch-broadcast",
        ],
        &words,
    );
}

const A32: [u64; 4] = [0xe3a0_0000, 0xe12f_ff1e, 0xe320_f000, 0xea00_0000];

#[test]
fn each_version_of_a32_code_is_decoded_as_it_ran() {
    let Some(guest) = program("arm", &["-marm"]) else {
        return;
    };
    let words = words(4, A32);
    exact(&guest, "plain", &[], &words);
    exact(&guest, "often", &["--sync", "32", "--return-stack"], &words);
}

#[test]
fn each_version_of_t32_code_is_decoded_as_it_ran() {
    let Some(guest) = program("arm", &["-mthumb"]) else {
        return;
    };
    let words = words(2, [0x2000, 0x4770, 0xbf00, 0xe000]);
    exact(&guest, "plain", &[], &words);
    exact(&guest, "often", &["--sync", "32", "--return-stack"], &words);
}

#[test]
fn without_context_ids_changed_code_is_a_gap() {
    let Some(guest) = program("arm", &["-marm"]) else {
        return;
    };
    for protocol in ["ptm", "etmv3"] {
        let (snapshot, told, said) = recorded(&guest, protocol, &["--protocol", protocol]);
        assert!(
            said.contains("code changed while the trace was made"),
            "{said}"
        );
        let code = told.iter().max().unwrap() & !0xfff;
        let listed = listed(&snapshot);
        let missing = listed
            .iter()
            .filter(|line| line["kind"] == "memory_missing");
        assert!(missing.count() > 0, "{protocol}");
        let mut found: BTreeMap<u64, u64> = BTreeMap::new();
        for line in listed.iter().filter(|line| line["kind"] == "instruction") {
            let address = number(&line["address"]);
            if address >= code {
                *found.entry(address - code).or_default() |= word(line);
            }
        }
        // 4: "bx lr", and twice "mov"; 12: "bx lr" alone, which never changed.
        assert!(
            found.keys().all(|&offset| offset == 12),
            "{protocol}: {found:x?}"
        );
        // All other executed code is listed.
        let outside = |address: &&u64| **address < code;
        let addresses: Vec<u64> = listed
            .iter()
            .filter(|line| line["kind"] == "instruction")
            .map(|line| number(&line["address"]))
            .collect();
        let addresses: Vec<&u64> = addresses.iter().filter(outside).collect();
        assert_eq!(
            addresses,
            told.iter().filter(outside).collect::<Vec<_>>(),
            "{protocol}"
        );
    }
}

#[test]
fn gdb_shows_the_code_that_ran() {
    let Some(guest) = program("aarch64", &[]) else {
        return;
    };
    let (snapshot, told, _) = recorded(&guest, "gdb", &[]);
    let code = told.iter().max().unwrap() & !0xfff;
    let stop = format!("break *{code:#x}");
    // The final contents; then the start of the last function, and of the earlier ones.
    let at_end = format!("x/2i {code:#x}");
    let mut commands = vec![at_end.as_str(), &stop];
    let here = ["x/i $pc", "monitor where"];
    for _ in 0..4 {
        commands.push("reverse-continue");
        commands.extend(here);
    }
    let text = crate::support::gdb::session(&snapshot, &[], &commands);
    let shown: Vec<&str> = text.lines().filter(|line| line.contains(":\t")).collect();
    let shown: Vec<&str> = shown
        .iter()
        .map(|line| line.split_once('\t').unwrap().1)
        .collect();
    let mut wanted = vec!["ret".to_owned(), "ret".to_owned(), "nop".to_owned()];
    wanted.extend([6, 2, 1].map(|n| format!("mov\tw0, #{n:#x}")));
    let shown: Vec<&str> = shown
        .iter()
        .map(|line| line.split("//").next().unwrap().trim_end())
        .collect();
    assert_eq!(shown, wanted, "{text}");
    let said = "the code here changed while the trace was made: version";
    assert_eq!(text.matches(said).count(), 4, "{text}");
}

#[test]
fn unchanged_code_is_not_listed() {
    let still = "_start: mov x8, #94\nmov x0, #0\nsvc #0\n.globl _start\n";
    let Some(guest) = crate::support::record::assemble("aarch64", still) else {
        return;
    };
    let (snapshot, _, said) = recorded(&guest, "still", &[]);
    assert!(!said.contains("changed"), "{said}");
    assert!(!snapshot.join("changed_code.txt").exists());
    let text = std::fs::read_to_string(snapshot.join("snapshot.ini")).unwrap();
    assert!(!text.contains("changed"), "{text}");
}
