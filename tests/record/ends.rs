//! `armsnap record` stops where its options say: at an address, or after a number of instructions.

use crate::linux_programs::{A64, told};
use crate::support::record::{assemble, build, decoded, logged, record};
use std::path::Path;
use std::process::Command;

/// Faults whose handler continues after them, within the first and the last instructions that are
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
