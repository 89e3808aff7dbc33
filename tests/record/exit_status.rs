//! The exit status of `armsnap record`: that of the program, or its own.

use crate::support::record::{assemble, build, installed};
use std::path::Path;
use std::process::{Command, Output, Stdio};

/// The status of `record` itself.
const OWN: i32 = 125;

fn record(directory: &Path, arguments: &[&str]) -> Output {
    Command::new(crate::support::armsnap())
        .arg("record")
        .args(arguments)
        .current_dir(directory)
        .stdin(Stdio::null())
        .output()
        .unwrap()
}

fn check(directory: &Path, arguments: &[&str], status: i32, says: &str) {
    let run = record(directory, arguments);
    let said = String::from_utf8_lossy(&run.stderr);
    assert_eq!(run.status.code(), Some(status), "{arguments:?}: {said}");
    assert!(said.contains(says), "{arguments:?}: {said}");
}

const LINUX: &str = r#"
    #include <signal.h>
    #include <stdlib.h>
    #include <unistd.h>
    static void handle(int n) { _exit(n); }
    int main(int argc, char **argv)
    {
        int number = atoi(argv[2]);
        switch (argv[1][0]) {
        case 'e': return number;
        case 'k': kill(getpid(), number); break;
        case 'h': signal(number, handle); raise(number); break;
        case 'f': __builtin_trap();
        case 's': *(volatile int *)8 = 1;
        }
        return 0;
    }"#;

#[test]
fn the_status_of_a_program_is_passed_on() {
    for architecture in ["aarch64", "arm"] {
        let Some(guest) = build(architecture, "ends.c", LINUX, &["-static"]) else {
            return;
        };
        let here = guest.directory.path();
        for (how, number, status) in [
            ("e", "0", 0),
            ("e", "1", 1),
            ("e", "2", 2),
            ("e", "255", 255),
            // Linux keeps eight bits.
            ("e", "259", 3),
            ("k", "15", 143),
            ("k", "6", 134),
            ("h", "15", 15),
            ("s", "0", 139),
        ] {
            let program = ["--", "./program", how, number];
            // The status is the same without recording.
            let mut plain = Command::new(guest.emulator());
            plain.arg(&guest.program).args([how, number]);
            let plain = plain.stderr(Stdio::null()).status().unwrap();
            let by_signal = std::os::unix::process::ExitStatusExt::signal(&plain);
            let shown = plain.code().or(by_signal.map(|signal| 128 + signal));
            assert_eq!(shown, Some(status), "{how} {number}");
            let options = ["--force", "-o", "out"];
            let whole = [&options[..], &program].concat();
            check(here, &whole, status, "out: ");
            let zero = [&["--exit-zero"], &whole[..]].concat();
            check(here, &zero, 0, "out: ");
        }
        // Ended before the program.
        let rest = ["--force", "-o", "out", "--", "./program", "e", "5"];
        for (option, value, says) in [
            ("--until", "main", "stopped at main"),
            ("--instructions", "20", "after 20 instructions"),
        ] {
            check(here, &[&[option, value], &rest[..]].concat(), 0, says);
        }
    }
}

#[test]
fn errors_of_armsnap_are_told_apart() {
    const EXIT: &str = ".globl _start\n_start: mov x8, #93\n mov x0, #1\n svc #0\n";
    let Some(guest) = assemble("aarch64", EXIT) else {
        return;
    };
    let here = guest.directory.path();
    check(here, &["-o", "out", "--", "./program"], 1, "status 1, PC");
    for (arguments, other, says) in [
        (&["-o", "out", "--", "./program"][..], 2, "--force"),
        (&["-o", "new", "--", "/no/program"], 1, "/no/program"),
        (&["-o", "new", "--", "./program.s"], 1, "program.s"),
        (&["--protocol", "ptm", "-o", "new", "./program"], 2, "etmv4"),
        (&["--until", "none", "-o", "new", "./program"], 2, "none"),
        // What the parser of arguments refuses.
        (&["--no-such-option", "--", "./program"], 2, "--help"),
        (&["-o", "new"], 2, "--help"),
        (
            &["--sync", "x", "--", "./program", "--exit-zero"],
            2,
            "--sync",
        ),
    ] {
        check(here, arguments, OWN, says);
        check(here, &[&["--exit-zero"], arguments].concat(), other, says);
    }
    assert!(!here.join("new").exists());
    let help = record(here, &["--help"]);
    assert_eq!(help.status.code(), Some(0));
    assert!(String::from_utf8_lossy(&help.stdout).contains("125"));
}

/// Semihosting: SYS_EXIT_EXTENDED with a status, and SYS_EXIT, which has none in AArch32.
#[test]
fn the_status_of_an_image_is_passed_on() {
    if !installed(&["arm-none-eabi-as", "aarch64-linux-gnu-as"]) {
        return;
    }
    if !installed(&["qemu-system-arm", "qemu-system-aarch64"]) {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str| directory.path().join(name);
    let m = |operation: u32, argument: &str| {
        format!(
            ".syntax unified\n .cpu cortex-m4\n .thumb\n .word 0x20001000, start + 1\n \
             .global _start\n _start:\n .thumb_func\n start: mov r0, #{operation}\n \
             ldr r1, ={argument}\n bkpt #0xab\n b .\n .align 2\n \
             block: .word 0x20026, 7\n"
        )
    };
    let a64 = |status: u32| {
        format!(
            ".global _start\n _start: mov x0, #0x18\n adr x1, block\n hlt #0xf000\n b .\n \
             .align 3\n block: .quad 0x20026, {status}\n"
        )
    };
    let images = [
        ("mps2-an386", m(0x20, "block"), 7),
        ("mps2-an386", m(0x18, "0x20026"), 0),
        // ADP_Stopped_RunTimeErrorUnknown.
        ("mps2-an386", m(0x18, "0x20023"), 1),
        ("virt", a64(0), 0),
        ("virt", a64(9), 9),
        ("virt", a64(256 + 4), 4),
    ];
    for (machine, source, status) in images {
        std::fs::write(at("image.s"), &source).unwrap();
        let (tools, flags, text) = match machine {
            "virt" => ("aarch64-linux-gnu", &[][..], "-Ttext=0x40100000"),
            _ => ("arm-none-eabi", &["-mthumb"][..], "-Ttext=0"),
        };
        let mut assemble = Command::new(format!("{tools}-as"));
        assemble
            .args(flags)
            .arg(at("image.s"))
            .arg("-o")
            .arg(at("image.o"));
        assert!(assemble.status().unwrap().success(), "{source}");
        let mut link = Command::new(format!("{tools}-ld"));
        link.arg(text)
            .arg(at("image.o"))
            .arg("-o")
            .arg(at("image.elf"));
        assert!(link.status().unwrap().success(), "{source}");
        let rest = ["--force", "-o", "out", "--system", machine, "image.elf"];
        check(directory.path(), &rest, status, "about to exit");
        let zero = [&["--exit-zero"], &rest[..]].concat();
        check(directory.path(), &zero, 0, "about to exit");
    }
}
