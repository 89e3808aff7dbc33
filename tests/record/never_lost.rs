//! `armsnap record` writes what was traced, whatever happens after the program has run.

use crate::support::record::{Guest, build, decoded, installed, record};
use std::path::Path;
use std::process::{Command, Output, Stdio};

fn report(run: &Output) -> String {
    String::from_utf8_lossy(&run.stderr).into_owned()
}

fn run_in(guest: &Guest, directory: &Path, arguments: &[&str], temporary: &Path) -> Output {
    Command::new(crate::support::armsnap())
        .arg("record")
        .args(arguments)
        .arg("--")
        .arg(&guest.program)
        .current_dir(directory)
        .env("TMPDIR", temporary)
        .stdin(Stdio::null())
        .output()
        .unwrap()
}

fn exits() -> Option<Guest> {
    const EXIT: &str = ".globl _start\n_start: mov x8, #93\n mov x0, #0\n svc #0\n";
    build("aarch64", "exit.s", EXIT, &["-nostdlib", "-static"])
}

/// The threads end, or are about to, at any moment of the exit.
#[test]
fn a_program_exits_while_its_threads_end() {
    const SOURCE: &str = r"
        #include <pthread.h>
        #include <stdlib.h>
        #include <time.h>
        static void *wait(void *ms) {
            struct timespec t = { 0, (long)ms * 1000000L };
            nanosleep(&t, 0);
            return 0;
        }
        int main(void) {
            pthread_t t;
            for (long i = 0; i < 32; i++) pthread_create(&t, 0, wait, (void *)(10 + 2 * i));
            exit(3);
        }";
    let Some(guest) = build("aarch64", "ends.c", SOURCE, &["-static", "-pthread"]) else {
        return;
    };
    for number in 0..4 {
        let run = record(&guest, &format!("out{number}"), &[], &[]);
        let said = report(&run);
        assert!(run.status.success(), "{said}");
        assert!(said.contains("about to exit with status 3"), "{said}");
    }
}

/// Each thread that takes a signal stops in the emulator's GDB server.
#[test]
fn threads_take_signals_at_the_same_time() {
    const SOURCE: &str = r"
        #include <pthread.h>
        #include <signal.h>
        #include <stdlib.h>
        static volatile int taken;
        static void handle(int n) { __atomic_add_fetch(&taken, 1, __ATOMIC_SEQ_CST); }
        static void *send(void *own) {
            for (int i = 0; i < 25; i++) pthread_kill(pthread_self(), SIGUSR1);
            return 0;
        }
        int main(void) {
            pthread_t all[4];
            signal(SIGUSR1, handle);
            for (int i = 0; i < 4; i++) pthread_create(all + i, 0, send, 0);
            for (int i = 0; i < 4; i++) pthread_join(all[i], 0);
            exit(taken);
        }";
    let Some(guest) = build("aarch64", "kill.c", SOURCE, &["-static", "-pthread"]) else {
        return;
    };
    let run = record(&guest, "out", &[], &[]);
    let said = report(&run);
    assert!(run.status.success(), "{said}");
    assert!(said.contains("about to exit with status 100"), "{said}");
}

#[test]
fn a_microcontroller_locks_up() {
    if !installed(&["arm-none-eabi-as", "qemu-system-arm"]) {
        return;
    }
    const SOURCE: &str = "
        .syntax unified
        .cpu cortex-m4
        .thumb
        .word 0x20001000, start + 1, 0, fault + 1
        .global _start
        _start:
        .thumb_func
        start: movs r0, #100
        1: subs r0, #1
        bne 1b
        mov r1, #0xf0000000
        ldr r2, [r1]
        .thumb_func
        fault: .inst.n 0xde00
        ";
    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str| directory.path().join(name);
    std::fs::write(at("l.s"), SOURCE).unwrap();
    for (tool, from, to, option) in [
        ("arm-none-eabi-as", "l.s", "l.o", "-mthumb"),
        ("arm-none-eabi-ld", "l.o", "l.elf", "-Ttext=0"),
    ] {
        let mut command = Command::new(tool);
        command.arg(option).arg(at(from)).arg("-o").arg(at(to));
        assert!(command.status().unwrap().success());
    }
    let run = Command::new(crate::support::armsnap())
        .args(["record", "--system", "mps2-an386", "-o", "out", "l.elf"])
        .current_dir(directory.path())
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let said = report(&run);
    assert_eq!(run.status.code(), Some(125), "{said}");
    let wanted = "stopped where the emulator failed";
    assert!(said.contains(wanted), "{said}");
    let wanted = "registers and memory at the end are missing";
    assert!(said.contains(wanted), "{said}");
    let traced: usize = decoded(&at("out")).values().map(Vec::len).sum();
    assert!(traced > 200, "{traced}");
}

#[test]
fn temporary_directories_with_any_path() {
    let Some(guest) = exits() else { return };
    let long = "x".repeat(90);
    for name in ["a,b", "a:b c", &long] {
        let temporary = guest.directory.path().join(name);
        std::fs::create_dir(&temporary).unwrap();
        let here = guest.directory.path();
        let run = run_in(&guest, here, &["-o", &format!("out {name}")], &temporary);
        assert!(run.status.success(), "{}", report(&run));
        assert_eq!(temporary.read_dir().unwrap().count(), 0, "{name}");
    }
}

#[test]
fn an_empty_directory_is_filled() {
    let Some(guest) = exits() else { return };
    let here = guest.directory.path().join("here");
    std::fs::create_dir(&here).unwrap();
    let run = run_in(&guest, &here, &["-o", "."], &std::env::temp_dir());
    assert!(run.status.success(), "{}", report(&run));
    assert!(here.join("snapshot.ini").is_file());
    let names = here.read_dir().unwrap().flatten();
    let names = names.map(|entry| entry.file_name().to_string_lossy().into_owned());
    let hidden: Vec<String> = names.filter(|name| name.starts_with('.')).collect();
    assert!(hidden.is_empty(), "{hidden:?}");
}

/// The program itself creates a file with the name of the output.
#[test]
fn an_output_that_appears_meanwhile() {
    const SOURCE: &str = r#"
        #include <fcntl.h>
        int main(void) { return open("out", O_CREAT | O_WRONLY, 0600) < 0; }"#;
    let Some(guest) = build("aarch64", "makes.c", SOURCE, &["-static"]) else {
        return;
    };
    let here = guest.directory.path();
    let run = run_in(&guest, here, &["-o", "out"], &std::env::temp_dir());
    let said = report(&run);
    assert_eq!(run.status.code(), Some(125), "{said}");
    assert!(said.contains("the recording is kept as out.1"), "{said}");
    assert!(here.join("out.1/snapshot.ini").is_file());
    assert!(here.join("out").is_file());
}

/// Runs a shell script with a full temporary directory: a file system of this many bytes, at `$TMPDIR`. `None`
/// without permission for one.
fn with_little_room(directory: &Path, bytes: u32, arguments: &[&str]) -> Option<Output> {
    let script = "mount -t tmpfs -o size=$SIZE tmpfs $TMPDIR && shift && exec \"$@\"";
    let inside = |command: &[&str]| {
        let temporary = directory.join("little");
        std::fs::create_dir_all(&temporary).unwrap();
        Command::new("unshare")
            .args(["-rm", "sh", "-c", script, "sh", "-"])
            .args(command)
            .current_dir(directory)
            .env("TMPDIR", temporary)
            .env("SIZE", bytes.to_string())
            .stdin(Stdio::null())
            .output()
            .unwrap()
    };
    if !inside(&["true"]).status.success() {
        crate::support::skip::unavailable("a file system of its own (unshare -rm)");
        return None;
    }
    let own = [
        "timeout",
        "-k",
        "5",
        "120",
        crate::support::armsnap(),
        "record",
    ];
    Some(inside(&[&own[..], arguments].concat()))
}

#[test]
fn a_full_temporary_directory() {
    const SOURCE: &str = r"
        volatile unsigned odd, even, all[4096];
        int main(void) {
            for (unsigned x = 1;;) {
                x = x * 1664525u + 1013904223u;
                if (x >> 31) odd++; else even++;
                all[x >> 20]++;
            }
        }";
    let Some(guest) = build("aarch64", "busy.c", SOURCE, &["-static"]) else {
        return;
    };
    let here = guest.directory.path();
    let record = [
        "--branch-broadcast",
        "--cycles",
        "-o",
        "plain",
        "--",
        "./program",
    ];
    let Some(run) = with_little_room(here, 2 << 20, &record) else {
        return;
    };
    let said = report(&run);
    assert_eq!(run.status.code(), Some(125), "{said}");
    // The file for which there was no space, and what to do.
    let wanted = ".bin: No space left on device";
    assert!(said.contains(wanted), "{said}");
    assert!(said.contains("TMPDIR names another"), "{said}");
    assert!(said.contains("what was traced until then"), "{said}");
    let traced: usize = decoded(&here.join("plain")).values().map(Vec::len).sum();
    assert!(traced > 50_000, "{traced}");
    // There is no space at the start.
    let rest = ["-o", "none", "--", "./program"];
    if let Some(run) = with_little_room(here, 4096, &rest) {
        let said = report(&run);
        assert_eq!(run.status.code(), Some(125), "{said}");
        assert!(said.contains("little/armsnap-"), "{said}");
        assert!(!here.join("none").exists());
    }
}

/// Wherever the space runs out, the trace is kept: in the addresses, or in the memory of the
/// stopped program, which has holes.
#[test]
fn a_full_temporary_directory_with_data_addresses() {
    const SOURCE: &str = r"
        volatile unsigned all[4096];
        int main(int argc, char **argv) {
            unsigned x = 1;
            for (unsigned n = 0; argc > 1 || n < 2000; n++) {
                x = x * 1664525u + 1013904223u;
                all[x >> 20]++;
            }
        }";
    let Some(guest) = build("aarch64", "busy.c", SOURCE, &["-static", "-O1"]) else {
        return;
    };
    let here = guest.directory.path();
    for (room, more, file, addresses) in [
        (256 << 10, Some("for ever"), "data_addresses_0.bin", false),
        (512 << 10, None, "memory_", true),
        // Enough for what is not zero of its stack.
        (2 << 20, None, "memory_", true),
    ] {
        let name = format!("out-{room}");
        let record = ["--data-addresses", "-o", &name, "--", "./program"];
        let record: Vec<&str> = record.into_iter().chain(more).collect();
        let Some(run) = with_little_room(here, room, &record) else {
            return;
        };
        let said = report(&run);
        assert_eq!(run.status.code(), Some(125), "{room}: {said}");
        let (place, _) = said.split_once(": No space left on device").expect(&said);
        assert!(
            place.contains("little/armsnap-") && place.contains(file),
            "{room}: {said}"
        );
        assert!(said.contains("TMPDIR names another"), "{room}: {said}");
        assert!(
            said.contains("what was traced until then"),
            "{room}: {said}"
        );
        let traced: usize = decoded(&here.join(&name)).values().map(Vec::len).sum();
        assert!(traced > 20_000, "{room}: {traced}");
        let kept = here.join(&name).join("data_addresses_0.bin").exists();
        assert_eq!(kept, addresses, "{room}: {said}");
    }
}
