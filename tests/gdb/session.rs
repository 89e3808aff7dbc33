//! GDB sessions on real captures, and on machines whose live state was recorded with GDB: every register,
//! every dump, every core, backtraces.

use std::collections::BTreeMap;
use std::path::Path;

use crate::support::gdb::{evaluate, session, shared, testdata};

/// Sections of an .ini file, read independently of the reader under test: names, and keys with values.
fn ini(path: &Path) -> Vec<(String, Vec<(String, String)>)> {
    let text = std::fs::read_to_string(path).unwrap();
    let mut sections = Vec::new();
    for line in text.lines().map(str::trim) {
        if let Some(name) = line.strip_prefix('[') {
            sections.push((name.trim_end_matches(']').to_owned(), Vec::new()));
        } else if let Some((key, value)) = line.rsplit_once('=')
            && let Some((_, entries)) = sections.last_mut()
        {
            entries.push((key.trim().to_owned(), value.trim().to_owned()));
        }
    }
    sections
}

fn entries(path: &Path, wanted: &str) -> Vec<(String, String)> {
    let sections = ini(path).into_iter();
    let found = sections.filter(|(name, _)| name == wanted);
    found.flat_map(|(_, entries)| entries).collect()
}

fn number(text: &str) -> u128 {
    match text.strip_prefix("0x") {
        Some(digits) => u128::from_str_radix(digits, 16),
        None => text.parse(),
    }
    .unwrap_or_else(|_| panic!("no number: {text:?}"))
}

/// The GDB expression for a register of a snapshot.
fn expression(aarch64: bool, name: &str) -> String {
    let lower = name.to_ascii_lowercase();
    let (letter, digits) = lower.split_at(1);
    let indexed = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    match (lower.as_str(), aarch64) {
        ("lr", true) => "$x30".to_owned(),
        // In GDB 10 these are other names of the whole registers.
        _ if aarch64 && indexed && letter == "w" => format!("(unsigned)${lower}"),
        ("sp" | "pc" | "cpsr" | "lr" | "fpscr" | "fpsr" | "fpcr", _) => format!("${lower}"),
        // Parts of partly known vector registers.
        _ if aarch64 && indexed && "dshb".contains(letter) => format!("${lower}.u"),
        _ if indexed && "xrds".contains(letter) => format!("${lower}"),
        _ => format!("${name}"),
    }
}

fn registers_equal_the_file(name: &str, device: &str, aarch64: bool, at_least: usize) {
    let Some(snapshot) = shared(name) else { return };
    let registers: Vec<(String, u128)> = entries(&snapshot.join(device), "regs")
        .into_iter()
        .map(|(key, value)| {
            let name = key.split('(').next().unwrap_or_default().to_owned();
            (name, number(&value))
        })
        .collect();
    assert!(registers.len() >= at_least, "{} registers", registers.len());
    let expressions: Vec<String> = registers
        .iter()
        .map(|(name, _)| expression(aarch64, name))
        .collect();
    let values = evaluate(&snapshot, &[], &expressions);
    for ((name, wanted), value) in registers.iter().zip(values) {
        assert_eq!(value, *wanted, "{name}");
    }
}

#[test]
fn every_register_of_a57_single_step_equals_the_file() {
    registers_equal_the_file("a57_single_step", "device1.ini", true, 400);
}

#[test]
fn every_register_of_a55_test_tpiu_equals_the_file() {
    registers_equal_the_file("a55-test-tpiu", "device1.ini", true, 400);
}

#[test]
fn every_register_of_tc2_ptm_rstk_t32_equals_the_file() {
    registers_equal_the_file("tc2-ptm-rstk-t32", "device1.ini", false, 280);
}

#[test]
fn every_register_of_trace_cov_a15_equals_the_file() {
    registers_equal_the_file("trace_cov_a15", "device1.ini", false, 280);
}

#[test]
fn missing_registers_are_unavailable_not_zero() {
    let Some(snapshot) = shared("a57_single_step") else {
        return;
    };
    // Only the lower halves of the vector registers are known.
    let text = session(&snapshot, &[], &["p $v0", "p $q7", "p $v31"]);
    assert_eq!(text.matches("<unavailable>").count(), 3, "{text}");
    let Some(snapshot) = shared("juno_r1_1") else {
        return;
    };
    let text = session(&snapshot, &[], &["p $x0", "p $lr", "p $v1", "p/x $pc"]);
    assert_eq!(text.matches("<unavailable>").count(), 3, "{text}");
    // The PC in the file is a placeholder: the end of the trace is shown.
    assert!(text.contains("there is no halted state"), "{text}");
    assert!(!text.contains("0xffffffc000081000"), "{text}");
}

#[test]
fn groups_contain_the_matching_registers() {
    let Some(snapshot) = shared("tc2-ptm-rstk-t32") else {
        return;
    };
    for (group, inside, outside) in [
        ("system", "S_TTBR0", "SP_SVC"),
        ("banked", "R8_FIQ", "SCTLR"),
        ("timers", "CNTPCT", "SCTLR"),
        ("pmu", "PMCR", "CNTPCT"),
    ] {
        let text = session(&snapshot, &[], &[&format!("info registers {group}")]);
        let has = |name: &str| {
            text.lines()
                .any(|line| line.starts_with(&format!("{name} ")))
        };
        assert!(has(inside), "{group}: {text}");
        assert!(!has(outside), "{group}: {text}");
    }
}

fn memory_equals_the_dumps(name: &str, device: &str, wanted: usize) {
    let Some(snapshot) = shared(name) else { return };
    let directory = tempfile::tempdir().unwrap();
    let mut commands = Vec::new();
    let mut files = Vec::new();
    for (section, entries) in ini(&snapshot.join(device)) {
        if !section.starts_with("dump") {
            continue;
        }
        let entries: BTreeMap<String, String> = entries.into_iter().collect();
        let bytes = std::fs::read(snapshot.join(&entries["file"])).unwrap();
        let start = number(&entries["address"]);
        let end = start + bytes.len() as u128;
        let file = directory.path().join(&section);
        commands.push(format!(
            "dump binary memory {} {start:#x} {end:#x}",
            file.display()
        ));
        files.push((file, bytes));
    }
    assert_eq!(files.len(), wanted);
    let commands: Vec<&str> = commands.iter().map(String::as_str).collect();
    let text = session(&snapshot, &[], &commands);
    for (file, bytes) in files {
        let read = std::fs::read(&file).unwrap_or_else(|_| panic!("{text}"));
        assert!(read == bytes, "{} differs", file.display());
    }
}

#[test]
fn memory_of_a57_single_step_equals_the_dumps() {
    memory_equals_the_dumps("a57_single_step", "device1.ini", 1);
}

#[test]
fn memory_of_tc2_ptm_rstk_t32_equals_the_dumps() {
    memory_equals_the_dumps("tc2-ptm-rstk-t32", "device1.ini", 9);
}

#[test]
fn memory_of_trace_cov_a15_equals_the_dumps() {
    memory_equals_the_dumps("trace_cov_a15", "device1.ini", 9);
}

#[test]
fn unmapped_memory_is_an_error_and_partial_reads_are_short() {
    let Some(snapshot) = shared("a57_single_step") else {
        return;
    };
    let text = session(&snapshot, &[], &["x/1xw 0x1000"]);
    assert!(
        text.contains("Cannot access memory at address 0x1000"),
        "{text}"
    );
    // The dump ends at 0xfffe_c448.
    let text = session(&snapshot, &[], &["x/4xw 0xfffec440"]);
    assert!(text.contains("0xfffec440:\t0x"), "{text}");
    assert!(
        text.contains("Cannot access memory at address 0xfffec448"),
        "{text}"
    );
}

#[test]
fn every_core_is_a_thread_with_its_name() {
    for (name, cores) in [
        ("juno_r1_1", 6),
        ("TC2", 5),
        ("a57_single_step", 1),
        ("trace_cov_a15", 1),
    ] {
        let Some(snapshot) = shared(name) else { return };
        let text = session(&snapshot, &[], &["info threads"]);
        let devices = entries(&snapshot.join("snapshot.ini"), "device_list");
        let mut found = 0;
        for (_, file) in devices {
            let device: BTreeMap<String, String> = entries(&snapshot.join(file), "device")
                .into_iter()
                .collect();
            if device["class"] == "core" {
                found += 1;
                let quoted = format!("\"{}\" ({}", device["name"], device["type"]);
                assert!(text.contains(&quoted), "{quoted}: {text}");
            }
        }
        assert_eq!(found, cores);
        assert_eq!(
            text.matches("  Thread ").count() + text.matches(" Thread 1 ").count(),
            cores + 1,
            "{text}"
        );
    }
}

/// Compares GDB's output for the live machine with that for the snapshot.
fn sessions_equal_the_live_machine(name: &str) {
    let snapshot = testdata(name);
    let expected = snapshot.join("expected");
    let threads = std::fs::read_to_string(expected.join("threads.txt")).unwrap();
    assert!(!threads.is_empty());
    for line in threads.lines() {
        let mut words = line.split_whitespace();
        let thread = words.next().unwrap();
        let directory = expected.join(words.next().unwrap());
        let select = format!("thread {thread}");
        for (file, command) in [
            ("bt.txt", "bt"),
            ("bt-full.txt", "bt full"),
            ("args.txt", "info args"),
            ("locals.txt", "info locals"),
        ] {
            let wanted = std::fs::read_to_string(directory.join(file)).unwrap();
            let text = session(
                &snapshot,
                &[],
                &[&select, "echo <<<\\n", command, "echo >>>\\n"],
            );
            let (_, shown) = text.split_once("<<<\n").expect(&text);
            let (shown, _) = shown.split_once(">>>\n").expect(&text);
            assert_eq!(shown.trim_end(), wanted.trim_end(), "{line}: {command}");
        }
        registers_equal_the_live_machine(&snapshot, thread, &directory.join("registers.txt"));
    }
}

fn registers_equal_the_live_machine(snapshot: &Path, thread: &str, file: &Path) {
    let text = std::fs::read_to_string(file).unwrap();
    let registers: Vec<(&str, u128)> = text
        .lines()
        .filter_map(|line| line.split_once(' '))
        .filter(|(_, value)| value.starts_with("0x"))
        .map(|(name, value)| (name, number(value)))
        .collect();
    assert!(registers.len() > 16, "{text}");
    let vector = |name: &str| {
        let digits = name.strip_prefix('v').unwrap_or_default();
        !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit())
    };
    let expressions: Vec<String> = registers
        .iter()
        .map(|(name, _)| match vector(name) {
            true => format!("${name}.q.u[0]"),
            false => format!("${name}"),
        })
        .collect();
    let select = format!("thread {thread}");
    let values = evaluate(snapshot, &[&select], &expressions);
    let wanted: Vec<u128> = registers.iter().map(|(_, value)| *value).collect();
    assert_eq!(values, wanted);
}

#[test]
fn virt_a57_equals_the_live_machine() {
    sessions_equal_the_live_machine("virt-a57");
}

#[test]
fn mps2_m4_equals_the_live_machine() {
    sessions_equal_the_live_machine("mps2-m4");
}

#[test]
fn memory_dumped_with_another_core_is_shown_with_a_note() {
    let directory = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| {
        std::fs::write(directory.path().join(name), text).unwrap();
    };
    let core = |name: &str| {
        format!(
            "[device]\nname={name}\nclass=core\ntype=Cortex-A57\n[regs]\nPC(size:64)=0x1000\n\
                 SP(size:64)=0x2000\nCPSR=0x3c5\nX0(size:64)=1\n"
        )
    };
    write(
        "snapshot.ini",
        "[snapshot]\nversion=1.0\n[device_list]\na=a.ini\nb=b.ini\n",
    );
    write("a.ini", &core("bare"));
    write(
        "b.ini",
        &(core("dumped") + "[dump]\nfile=code\naddress=0x1000\n"),
    );
    write("code", "\x1f\x20\x03\x55\x1f\x20\x03\x55");
    let look = ["x/1xw 0x1004", "thread 2", "x/1xw 0x1000"];
    let shown = session(directory.path(), &[], &look);
    assert!(shown.contains("0x1004:\t0x5503201f"), "{shown}");
    let note = "bare: it has no dump or program with 0x1000: memory of dumped is shown where it \
                has none";
    assert_eq!(shown.matches(note).count(), 1, "{shown}");
    let alone = session(directory.path(), &["--no-shared-memory"], &look);
    assert!(
        alone.contains("Cannot access memory at address 0x1004"),
        "{alone}"
    );
    assert!(alone.contains("0x1000:\t0x5503201f"), "{alone}");
    assert!(!alone.contains("memory of dumped"), "{alone}");
}

/// GDB takes the byte order of the program, and expects registers in it.
#[test]
fn registers_have_the_byte_order_of_the_program() {
    const SOURCE: &str = "int value = 0x11223344;\nint get(int n) { return value + n; }\nvoid _start(void) { for (;;) value += get(1); }\n";
    for (compiler, options, kind, registers, wanted) in [
        (
            "arm-none-eabi-gcc",
            &["-marm", "-march=armv7-a", "-Wl,--be8"][..],
            "Cortex-A15",
            "R0=0x1\nR13=0x10000\nPC=0x8000\nCPSR=0x3d3\nD0(size:64)=0x3ff8000000000000\n",
            &["r0 0x1 1", "sp 0x10000 0x10000", "cpsr 0x3d3 979"][..],
        ),
        (
            "aarch64-linux-gnu-gcc",
            &["-fno-pic", "-no-pie", "-Wl,--build-id=none"],
            "Cortex-A57",
            "X0(size:64)=0x1\nSP(size:64)=0x10000\nPC(size:64)=0x8000\nCPSR=0x3c5\n\
             V0(size:128)=0x0102030405060708\n",
            &["x0 0x1 1", "sp 0x10000 0x10000", "cpsr 0x3c5 "],
        ),
    ] {
        if std::process::Command::new(compiler)
            .arg("--version")
            .output()
            .is_err()
        {
            crate::support::skip::missing(compiler);
            continue;
        }
        let directory = tempfile::tempdir().unwrap();
        let file = |name: &str| directory.path().join(name);
        std::fs::write(file("p.c"), SOURCE).unwrap();
        let built = std::process::Command::new(compiler)
            .args(["-g", "-O1", "-mbig-endian", "-nostdlib", "-static"])
            .args(["-Wl,-Ttext=0x8000", "-Wl,-Tdata=0x19000", "-o"])
            .args([file("p.elf"), file("p.c")])
            .args(options)
            .output()
            .unwrap();
        assert!(built.status.success(), "{built:?}");
        let core = format!("[device]\nname=c\nclass=core\ntype={kind}\n[regs]\n{registers}");
        std::fs::write(file("c.ini"), core).unwrap();
        let list = "[snapshot]\nversion=1.0\n[device_list]\nd=c.ini\n";
        std::fs::write(file("snapshot.ini"), list).unwrap();
        let (vector, value) = match kind {
            "Cortex-A57" => ("print/x $v0.q.u", "0x102030405060708"),
            _ => ("print $d0", "= 1.5"),
        };
        let elf = file("p.elf");
        let shown = session(
            directory.path(),
            &["--elf", elf.to_str().unwrap()],
            &[
                "show endian",
                "info registers",
                "print/x value",
                "info symbol $pc",
                vector,
            ],
        );
        let words: Vec<&str> = shown.split_whitespace().collect();
        let shown = words.join(" ");
        assert!(shown.contains("currently big endian"), "{shown}");
        for wanted in wanted
            .iter()
            .chain(&["= 0x11223344", "get in section .text", value])
        {
            assert!(shown.contains(wanted), "{wanted}: {shown}");
        }
    }
}
