//! `armsnap record` of Linux programs: the trace decodes to exactly what was executed, and the
//! state equals the halted program's.

use crate::support::record::{
    Guest, assemble, build, decoded, installed, live, logged, places, record,
};
use armsnap::snapshot::OpenOptions;
use armsnap::snapshot::model::Snapshot;
use std::process::Command;

/// A loop with calls, a table of jumps and recursion, without libraries.
pub const A64: &str = r#"
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

pub fn told(guest: &Guest, name: &str, options: &[&str], arguments: &[&str]) -> (String, Vec<u64>) {
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
