//! `armsnap record` of Linux programs: the trace decodes to exactly what was executed, and the
//! state equals the halted program's.

use crate::support::record::{
    Guest, assemble, build, decoded, installed, live, logged, places, record,
};
use armsnap::snapshot::OpenOptions;
use armsnap::snapshot::model::Snapshot;
use std::path::Path;
use std::process::Command;

/// A loop with calls, a table of jumps and recursion, without libraries.
const A64: &str = r#"
        .global _start
_start: mov x19, #60
again:  and x0, x19, #3
        adr x1, table
        ldrsw x2, [x1, x0, lsl #2]
        add x1, x1, x2
        blr x1
        mov x0, #6
        bl fib
        subs x19, x19, #1
        b.ne again
        .global last
last:   mov x8, #94
        mov x0, #7
        svc #0
one:    add x20, x20, #1
        ret
two:    tbz x20, #2, one
        ret
fib:    stp x29, x30, [sp, #-32]!
        str x0, [sp, #16]
        cmp x0, #2
        b.lt 1f
        sub x0, x0, #1
        bl fib
        str x0, [sp, #24]
        ldr x0, [sp, #16]
        sub x0, x0, #2
        bl fib
        ldr x1, [sp, #24]
        add x0, x0, x1
1:      ldp x29, x30, [sp], #32
        ret
        .balign 4
table:  .word one - table, two - table, one - table, two - table
"#;

/// A32 and T32 alternating, with IT blocks and a table branch.
const ARM: &str = r#"
        .syntax unified
        .arm
        .global _start
_start: mov r4, #60
again:  mov r0, r4
        blx thumb
        cmp r0, #3
        addlt r5, r5, #1
        subs r4, r4, #1
        bne again
        .global last
last:   mov r7, #248
        mov r0, #3
        svc #0
        .thumb
        .thumb_func
thumb:  push {r4, lr}
        and r0, r0, #3
        cmp r0, #1
        ite eq
        addeq r6, r6, #1
        subne r6, r6, #1
        tbb [pc, r0]
1:      .byte (2f - 1b) / 2, (3f - 1b) / 2, (2f - 1b) / 2, (3f - 1b) / 2
2:      adds r6, r6, #3
3:      cmp r6, #9
        it lt
        poplt {r4, pc}
        add.w r6, r6, #1
        pop {r4, pc}
"#;

const OPTIONS: [&[&str]; 5] = [
    &[],
    &["--branch-broadcast", "--sync", "200"],
    &["--cycles", "--return-stack"],
    &["--timestamps", "--sync", "64"],
    &[
        "--cycles",
        "--timestamps",
        "--branch-broadcast",
        "--return-stack",
    ],
];

fn exact(guest: &Guest, protocols: &[&str]) {
    let executed = logged(guest);
    for protocol in protocols {
        for (number, options) in OPTIONS.iter().enumerate() {
            let what = format!("{protocol} {options:?}");
            let name = format!("{protocol}{number}");
            let witness = guest.directory.path().join(format!("{name}.witness"));
            let mut arguments = vec!["--protocol", protocol];
            arguments.extend(*options);
            arguments.extend(["--witness", witness.to_str().unwrap()]);
            let run = record(guest, &name, &arguments, &[]);
            assert!(run.status.success(), "{what}: {run:?}");
            let told = places(&witness);
            assert_eq!(told.len(), 1, "{what}");
            let addresses: Vec<u64> = told[&0].iter().map(|place| place.address.0).collect();
            // All but the call that ends the program.
            assert!(
                addresses == executed[..executed.len() - 1],
                "{what}: {} told, {} logged",
                addresses.len(),
                executed.len()
            );
            let decoded = decoded(&guest.directory.path().join(&name));
            assert_eq!(decoded.len(), 1, "{what}");
            let decoded = decoded.into_values().next().unwrap();
            let first = decoded.iter().zip(&told[&0]).take_while(|(a, b)| a == b);
            let first = first.count();
            assert!(
                decoded == told[&0],
                "{what}: {first} of {} agree, decoded {:x?}, executed {:x?}",
                told[&0].len(),
                decoded.get(first.saturating_sub(2)..(first + 3).min(decoded.len())),
                told[&0].get(first.saturating_sub(2)..(first + 3).min(told[&0].len())),
            );
        }
    }
}

#[test]
fn the_trace_of_an_aarch64_program_equals_what_it_executed() {
    if let Some(guest) = assemble("aarch64", A64) {
        exact(&guest, &["etmv4"]);
    }
}

#[test]
fn the_trace_of_an_arm_program_equals_what_it_executed() {
    if let Some(guest) = assemble("arm", ARM) {
        exact(&guest, &["etmv4", "ptm", "etmv3"]);
    }
}

/// The commands' output of GDB on a snapshot or on the emulator.
fn gdb(arguments: &[&str], commands: &[&str]) -> String {
    let mut gdb = Command::new("timeout");
    gdb.args(["-k", "5", "60"]).args(arguments);
    gdb.args(["-batch", "-nx", "-ex", "set pagination off"]);
    for command in commands {
        gdb.args(["-ex", command]);
    }
    let run = gdb.output().unwrap();
    String::from_utf8_lossy(&run.stdout).into_owned()
}

/// Lines of a back trace, and values.
fn frames(text: &str) -> Vec<String> {
    let lines = text.lines().filter(|line| line.starts_with(['#', '$']));
    lines.map(str::to_owned).collect()
}

#[test]
fn a_crash_has_the_same_back_trace_as_the_live_program() {
    let source = r#"
        #include <stdio.h>
        struct node { struct node *next; int value; };
        __attribute__((noinline)) static int sum(struct node *at, int depth)
        {
            int rest = depth > 0 ? sum(at->next, depth - 1) : at->next->value;
            return rest + at->value;
        }
        int main(int argc, char **argv)
        {
            struct node last = { (struct node *)0x10, 3 };
            struct node middle = { &last, 2 };
            struct node first = { &middle, 1 };
            return sum(&first, 2) + argc;
        }
    "#;
    for architecture in ["aarch64", "arm"] {
        let Some(guest) = build(architecture, "crash.c", source, &["-static", "-O1"]) else {
            return;
        };
        if !installed(&["gdb-multiarch"]) {
            return;
        }
        let run = record(&guest, "crash", &["--last", "4096"], &["one", "two"]);
        assert!(run.status.success(), "{run:?}");
        let told = String::from_utf8_lossy(&run.stderr).into_owned();
        assert!(told.contains("stopped by SIGSEGV"), "{told}");
        let snapshot = guest.directory.path().join("crash");
        let saved = gdb(
            &[
                crate::support::armsnap(),
                "gdb",
                snapshot.to_str().unwrap(),
                "--",
            ],
            &["backtrace", "print *at@1"],
        );
        let live = live(&guest, &[], &["one", "two"], |socket| {
            gdb(
                &["gdb-multiarch", guest.program.to_str().unwrap()],
                &[
                    &format!("target remote {}", socket.display()),
                    "continue",
                    "backtrace",
                    "print *at@1",
                ],
            )
        });
        let (saved, live) = (frames(&saved), frames(&live));
        assert_eq!(live.len(), 5, "{live:?}");
        assert_eq!(saved, live);
    }
}

fn told(guest: &Guest, name: &str, options: &[&str], arguments: &[&str]) -> (String, Vec<u64>) {
    let witness = guest.directory.path().join(format!("{name}.witness"));
    let mut all = options.to_vec();
    all.extend(["--witness", witness.to_str().unwrap()]);
    let run = record(guest, name, &all, arguments);
    assert!(run.status.success(), "{run:?}");
    let places = places(&witness).remove(&0).unwrap_or_default();
    let addresses = places.iter().map(|place| place.address.0).collect();
    (String::from_utf8_lossy(&run.stderr).into_owned(), addresses)
}

#[test]
fn a_recording_ends_at_until_and_instructions() {
    let Some(guest) = assemble("aarch64", A64) else {
        return;
    };
    let executed = logged(&guest);
    let fib = guest.symbol("fib");
    let first = executed.iter().position(|address| *address == fib).unwrap();
    for (name, place) in [
        ("by-name", "fib".to_owned()),
        ("by-address", format!("{fib:#x}")),
    ] {
        let (said, addresses) = told(&guest, name, &["--until", &place], &[]);
        assert!(
            said.contains(&format!("stopped at {place}, PC {fib:#x}")),
            "{said}"
        );
        assert_eq!(addresses, executed[..first]);
    }
    // At the N-th visit, by source line, and with options before the program without `--`.
    let third = executed
        .iter()
        .enumerate()
        .filter(|(_, a)| **a == fib)
        .nth(2)
        .unwrap()
        .0;
    let line = 1 + A64
        .lines()
        .position(|line| line.starts_with("fib:"))
        .unwrap();
    for (name, place) in [
        ("third", "fib".to_owned()),
        ("line", format!("program.s:{line}")),
    ] {
        let (said, addresses) = told(&guest, name, &["--until", &place, "--count", "3"], &[]);
        let wanted = format!("stopped at {place} (visit 3), PC {fib:#x}");
        assert!(said.contains(&wanted), "{said}");
        assert_eq!(addresses, executed[..third]);
        let decoded = decoded(&guest.directory.path().join(name));
        let decoded: Vec<u64> = decoded["ETMV4_0"].iter().map(|p| p.address.0).collect();
        assert_eq!(decoded, addresses);
    }
    let steps = (third + 1).to_string();
    let options = ["--until", "fib", "--count", "9", "--instructions", &steps];
    let (said, addresses) = told(&guest, "both", &options, &[]);
    assert!(
        said.contains(&format!("after {steps} instructions")),
        "{said}"
    );
    assert_eq!(addresses, executed[..=third]);
    let (path, elsewhere) = (guest.directory.path(), tempfile::tempdir().unwrap());
    let run = Command::new(crate::support::armsnap())
        .args([
            "record",
            "--exit-zero",
            "-o",
            "in-path",
            "program",
            "--until",
            "ignored",
        ])
        .env(
            "PATH",
            std::env::join_paths([path, Path::new("/usr/bin")]).unwrap(),
        )
        .current_dir(elsewhere.path())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&run.stderr).into_owned();
    assert!(said.contains("about to exit with status 7"), "{said}");
    for count in [1, 10, 1500, 3000] {
        let name = format!("after-{count}");
        let number = count.to_string();
        let (said, addresses) = told(&guest, &name, &["--instructions", &number], &[]);
        assert!(
            said.contains(&format!("after {count} instructions")),
            "{said}"
        );
        assert_eq!(addresses, executed[..count]);
        let decoded = decoded(&guest.directory.path().join(&name));
        let decoded: Vec<u64> = decoded["ETMV4_0"].iter().map(|p| p.address.0).collect();
        assert_eq!(decoded, addresses, "{count}");
    }
    let (said, addresses) = told(&guest, "more", &["--instructions", "99999999"], &[]);
    assert!(said.contains("about to exit with status 7"), "{said}");
    assert_eq!(addresses, executed[..executed.len() - 1]);
}

#[test]
fn last_keeps_the_end_of_the_trace() {
    let Some(guest) = assemble("aarch64", A64) else {
        return;
    };
    let (_, executed) = told(&guest, "last", &["--last", "300"], &[]);
    let snapshot = guest.directory.path().join("last");
    let frames = std::fs::metadata(snapshot.join("trace.bin")).unwrap().len();
    assert!((100..600).contains(&frames), "{frames}");
    let decoded = decoded(&snapshot);
    let decoded: Vec<u64> = decoded["ETMV4_0"].iter().map(|p| p.address.0).collect();
    assert!(decoded.len() > 100);
    assert_eq!(decoded, executed[executed.len() - decoded.len()..]);
}

#[test]
fn signals_have_the_address_that_they_interrupted() {
    // A timer ends a loop of conditional branches: the outcome of the last one is only known
    // from the address that the signal interrupted.
    let source = r#"
        #include <signal.h>
        #include <sys/time.h>
        static volatile int ticks;
        static volatile unsigned odd;
        static void tick(int signal) { ticks++; }
        int main(void)
        {
            struct itimerval timer = { { 0, 0 }, { 0, 100 } };
            int seen = 0;
            signal(SIGALRM, tick);
            setitimer(ITIMER_REAL, &timer, 0);
            for (unsigned i = 1; seen < 3; i = i * 1103515245 + 12345) {
                if (i & 0x10000)
                    odd++;
                if (ticks != seen) {
                    seen = ticks;
                    setitimer(ITIMER_REAL, &timer, 0);
                }
            }
            timer.it_value.tv_usec = 0;
            setitimer(ITIMER_REAL, &timer, 0);
            return 0;
        }
    "#;
    for (architecture, protocol) in [("aarch64", "etmv4"), ("arm", "ptm")] {
        let Some(guest) = build(architecture, "signals.c", source, &["-static", "-O1"]) else {
            return;
        };
        let options = ["--protocol", protocol];
        let (said, executed) = told(&guest, "signals", &options, &[]);
        assert!(said.contains("about to exit with status 0"), "{said}");
        let decoded = decoded(&guest.directory.path().join("signals"));
        let decoded = decoded.into_values().next().unwrap();
        let decoded: Vec<u64> = decoded.iter().map(|place| place.address.0).collect();
        let first = decoded
            .iter()
            .zip(&executed)
            .take_while(|(a, b)| a == b)
            .count();
        assert!(
            decoded == executed,
            "{protocol}: {first} of {} agree",
            executed.len()
        );
    }
}

#[test]
fn registers_and_stores_of_each_instruction() {
    let source = r#"
        .global _start
_start: mov x0, #5
        sub sp, sp, #16
again:  str x0, [sp, #8]
        ldr x1, [sp, #8]
        stp w0, w1, [sp]
        subs x0, x0, #1
        b.ne again
        add sp, sp, #16
        mov x8, #94
        svc #0
"#;
    let Some(guest) = assemble("aarch64", source) else {
        return;
    };
    let file = guest.directory.path().join("registers");
    let options = ["--witness-registers", file.to_str().unwrap()];
    let (_, executed) = told(&guest, "stepped", &options, &[]);
    let reader = std::io::BufReader::new(std::fs::File::open(&file).unwrap());
    let mut reader = armsnap::record::register_log::Reader::new(reader).unwrap();
    let index = |name: &str| reader.names().iter().position(|n| n == name).unwrap();
    let (x0, x1, sp, pc) = (index("x0"), index("x1"), index("sp"), index("pc"));
    let mut places = Vec::new();
    let mut stores = Vec::new();
    while reader.step().unwrap() {
        let values = reader.values();
        places.push(values[pc]);
        let offset = |store: &(u64, Vec<u8>)| (store.0.wrapping_sub(values[sp]), store.1.clone());
        stores.extend(reader.stores().iter().map(offset));
    }
    assert_eq!((reader.values()[x0], reader.values()[x1]), (0, 1));
    // The state before each instruction, and where the program was about to exit.
    assert_eq!(places[..places.len() - 1], executed);
    let expected = (1..=5).rev().flat_map(|value: u64| {
        let half = (value as u32).to_le_bytes().to_vec();
        [
            (8, value.to_le_bytes().to_vec()),
            (0, half.clone()),
            (4, half),
        ]
    });
    assert_eq!(stores, expected.collect::<Vec<_>>());
}

#[test]
fn addresses_to_stop_at_are_those_of_instructions() {
    use object::{Object, ObjectSymbol};
    let Some(guest) = assemble("aarch64", A64) else {
        return;
    };
    let elf = std::fs::read(&guest.program).unwrap();
    let elf = object::File::parse(&*elf).unwrap();
    let address = |name: &str| {
        let found = elf.symbols().find(|symbol| symbol.name() == Ok(name));
        found.unwrap().address()
    };
    for (name, offset, is_code) in [
        ("last", 0, true),
        ("last", 2, false),
        // Data among code, which the program reads: a trap there would change what it does.
        ("table", 0, false),
        ("table", 4, false),
        ("one", 0, true),
    ] {
        let until = format!("{:#x}", address(name) + offset);
        let run = record(
            &guest,
            &format!("{name}{offset}"),
            &["--until", &until],
            &[],
        );
        let said = String::from_utf8_lossy(&run.stderr).into_owned();
        let (status, says) = match is_code {
            true => (Some(0), until),
            false => (Some(2), format!("--until {until}: no instruction is there")),
        };
        assert_eq!(run.status.code(), status, "{name}+{offset}: {said}");
        assert!(said.contains(&says), "{name}+{offset}: {said}");
    }
}

#[test]
fn programs_that_cannot_be_recorded_are_errors_without_output() {
    let Some(guest) = assemble("aarch64", A64) else {
        return;
    };
    let check = |options: &[&str], status: i32, wanted: &str| {
        let run = record(&guest, "none", options, &[]);
        let said = String::from_utf8_lossy(&run.stderr).into_owned();
        assert_eq!(run.status.code(), Some(status), "{said}");
        assert!(said.contains(wanted), "{said}");
        assert!(!guest.directory.path().join("none").exists());
    };
    check(&["--protocol", "ptm"], 2, "use etmv4");
    check(
        &["--until", "nowhere"],
        2,
        "no function or label has this name",
    );
    check(
        &["--until", "program.s:9999"],
        2,
        "no code belongs to this line",
    );
    check(&["--count", "2"], 2, "--until");
    check(
        &["--until", "0x10"],
        2,
        "no instruction is there in the program",
    );
    check(&["--witness", "/nowhere/at/all"], 1, "/nowhere/at/all");
    let run = Command::new(crate::support::armsnap())
        .env("PATH", "/nowhere")
        .args(["record", "--exit-zero", "-o"])
        .arg(guest.directory.path().join("none"))
        .arg("--")
        .arg(&guest.program)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&run.stderr).into_owned();
    assert_eq!(run.status.code(), Some(1));
    assert!(said.contains("install the package qemu-user"), "{said}");
    let no_program = Command::new(crate::support::armsnap())
        .args(["record", "--exit-zero", "-o"])
        .arg(guest.directory.path().join("none"))
        .args(["--", "/bin/sh"])
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&no_program.stderr).into_owned();
    assert!(
        said.contains("expected a program for AArch64 or Arm"),
        "{said}"
    );
    assert!(!guest.directory.path().join("none").exists());
    let first = record(&guest, "twice", &[], &[]);
    assert!(first.status.success(), "{first:?}");
    let second = record(&guest, "twice", &[], &[]);
    assert_eq!(second.status.code(), Some(2), "{second:?}");
    let forced = record(&guest, "twice", &["--force"], &[]);
    assert!(forced.status.success(), "{forced:?}");
}

/// Faults whose handler continues behind them, within the first and the last instructions that are
/// stepped through, and system calls.
const FAULTS: &str = r#"
        .global _start
_start: mov x0, #11
        adr x1, action
        mov x2, #0
        mov x3, #8
        mov x8, #134
        svc #0
        mov x19, #200
        mov x20, #0
again:  ldr x1, [x20]
        .rept 9
        add x21, x21, #1
        .endr
        mov x8, #172
        svc #0
call:   mov x0, #5
1:      subs x0, x0, #1
        b.ne 1b
        subs x19, x19, #1
        b.ne again
        mov x8, #94
        mov x0, #7
        svc #0
handler:ldr x0, [x2, #440]
        add x0, x0, #4
        str x0, [x2, #440]
        ret
        .balign 8
action: .quad handler, 4, 0, 0
"#;

#[test]
fn a_recording_ends_after_instructions_with_signals_and_system_calls() {
    let Some(guest) = assemble("aarch64", FAULTS) else {
        return;
    };
    let (said, executed) = told(&guest, "all", &[], &[]);
    assert!(said.contains("about to exit with status 7"), "{said}");
    let (again, call) = (guest.symbol("again"), guest.symbol("call"));
    for count in [100, 1000, 1024, 2500, 4000, 6000] {
        let name = format!("after-{count}");
        let number = count.to_string();
        let (said, addresses) = told(&guest, &name, &["--instructions", &number], &[]);
        assert!(said.contains("instructions, stopped after "), "{said}");
        assert_eq!(addresses, executed[..addresses.len()]);
        // A system call is executed together with the next instruction.
        let last = executed[addresses.len() - 2] + 4;
        let after_call = last == call || executed[addresses.len() - 1] == again + 4;
        let more = addresses.len() - count;
        assert!(more == 0 || more == 1 && after_call, "{count}: {more}");
    }
}

#[test]
fn a_crash_in_a_handler_that_is_called_once() {
    let source = r#"
        #include <signal.h>
        static void crashed(int signal) { raise(signal); }
        int main(void)
        {
            struct sigaction action = { .sa_handler = crashed, .sa_flags = SA_RESETHAND };
            sigaction(SIGSEGV, &action, 0);
            return *(volatile int *)8;
        }
    "#;
    for architecture in ["aarch64", "arm"] {
        let Some(guest) = build(architecture, "once.c", source, &["-static", "-O1"]) else {
            return;
        };
        let (said, _) = told(&guest, "once", &[], &[]);
        assert!(said.contains("stopped by SIGSEGV"), "{said}");
    }
}

#[test]
fn until_is_every_function_of_that_name_and_no_variable() {
    const OTHER: &str =
        "static int place(int a) { return a - 1; }\nint other(int a) { return place(a); }\n";
    const MAIN: &str = r#"
        int other(int);
        volatile unsigned done = 7;
        __attribute__((noinline)) static int place(int a) { return a + 1; }
        int main(int argc, char **argv) { done++; return argc > 1 ? other(argc) : place(argc); }
    "#;
    let directory = tempfile::tempdir().unwrap();
    let other = directory.path().join("other.c");
    std::fs::write(&other, OTHER).unwrap();
    let options = ["-static", "-O0", other.to_str().unwrap()];
    for architecture in ["aarch64", "arm"] {
        let Some(guest) = build(architecture, "main.c", MAIN, &options) else {
            return;
        };
        for (name, arguments) in [("own", &[][..]), ("other", &["more"])] {
            let (said, _) = told(&guest, name, &["--until", "place"], arguments);
            assert!(said.contains("stopped at place"), "{said}");
        }
        let run = record(&guest, "data", &["--until", "done"], &[]);
        let said = String::from_utf8_lossy(&run.stderr).into_owned();
        assert!(
            said.contains("no function or label has this name"),
            "{said}"
        );
    }
}

#[test]
fn the_first_instruction_is_one_visit() {
    let source = "        .global _start\n_start: subs x1, x1, #1\n        b.mi _start\n\
                  \x20       mov x8, #94\n        svc #0\n";
    let Some(guest) = assemble("aarch64", source) else {
        return;
    };
    let start = guest.symbol("_start");
    // Registers are zero at the start: once around.
    let options = ["--until", "_start", "--count", "2"];
    let (said, addresses) = told(&guest, "second", &options, &[]);
    assert!(said.contains("stopped at _start (visit 2)"), "{said}");
    assert_eq!(addresses, [start, start + 4]);
}

#[test]
fn memory_of_a_file_that_was_cut() {
    let source = r#"
        #include <fcntl.h>
        #include <stdlib.h>
        #include <sys/mman.h>
        #include <unistd.h>
        static char *map(long at, int size, int flags, int file)
        {
            return mmap((void *)at, size, PROT_READ | PROT_WRITE, flags | MAP_FIXED, file, 0);
        }
        int main(int argc, char **argv)
        {
            int file = open(argv[1], O_RDWR | O_CREAT, 0600);
            ftruncate(file, 0x3000);
            *map(0x70000000, 0x3000, MAP_SHARED, file) = 1;
            *map(0x70003000, 0x1000, MAP_PRIVATE | MAP_ANONYMOUS, -1) = 2;
            return ftruncate(file, 0x1000);
        }
    "#;
    let Some(guest) = build("aarch64", "cut.c", source, &["-static"]) else {
        return;
    };
    let file = guest.directory.path().join("cut");
    let run = record(&guest, "snapshot", &[], &[file.to_str().unwrap()]);
    assert!(run.status.success(), "{run:?}");
    let path = guest.directory.path().join("snapshot");
    let loaded = Snapshot::open(&path, &OpenOptions::default()).unwrap();
    let dumps = &loaded.snapshot.devices[0].dumps;
    for address in [0x7000_0000, 0x7000_3000] {
        let mut dumps = dumps.iter();
        assert!(dumps.any(|dump| dump.address == address), "{address:#x}");
    }
}

#[test]
fn the_processor_has_sve_only_if_wanted() {
    const SOURCE: &str = r#"
        .global _start
_start: .inst 0x04bf5020    // rdvl x0, #1
        mov x8, #94
        svc #0
"#;
    let Some(guest) = assemble("aarch64", SOURCE) else {
        return;
    };
    let said = |options: &[&str]| {
        let mut command = Command::new(crate::support::armsnap());
        let snapshot = guest.directory.path().join("snapshot");
        command.args(["record", "--force", "-o"]).arg(snapshot);
        command.args(options).arg("--").arg(&guest.program);
        let output = command.env_remove("QEMU_CPU").output().unwrap();
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    let without = said(&[]);
    assert!(without.contains("stopped by SIGILL, PC"), "{without}");
    assert!(without.contains("`--cpu max` has it"), "{without}");
    let with = said(&["--cpu", "max"]);
    assert!(with.contains("about to exit with status 64"), "{with}");
}
