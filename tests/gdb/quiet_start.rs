//! The start of a session of `armsnap gdb` shows only the current place; breakpoints and trace frames
//! do not interfere.

use crate::support::gdb::{Server, attach, session, session_output, testdata, write_snapshot};

/// The output before the first command of the user, without empty lines.
fn begin(text: &str) -> Vec<&str> {
    let begin = text.split("<<<").next().unwrap();
    begin.lines().filter(|line| !line.is_empty()).collect()
}

#[test]
fn a_session_starts_with_the_current_place_only() {
    for (name, place) in [
        ("virt-a57", "0x00000000401004fc in receipt (price="),
        ("recorded/etmv4", "0x00000000401004fc in receipt (price="),
        ("mps2-m4", "grant (request=0x20000fd0, "),
        ("recorded/etmv3", "grant (request=0x20000fd0, "),
    ] {
        let text = session(&testdata(name), &[], &["echo <<<\\n"]);
        let [first, line] = begin(&text)[..] else {
            panic!("{text}");
        };
        assert!(first.starts_with(place), "{text}");
        let number = line.split_whitespace().next().unwrap();
        assert!(number.parse::<u32>().is_ok(), "{text}");
        // The server prints notes on standard error.
        assert!(!text.contains("note:"), "{text}");
        assert!(!text.contains("warning"), "{text}");
    }
}

/// Without a program, GDB's warning of two lines is suppressed; important notes are shown, one line each.
#[test]
fn a_snapshot_without_a_program_gives_no_warning() {
    let core = "class=core\ntype=Cortex-A53\n[regs]\nPC(size:64)=0x1000\nX0(size:64)=0x7\n\
                CPSR=0x3c5\n[dump1]\nfile=code.bin\naddress=0x1000\n";
    let snapshot = write_snapshot(&[("cpu", core)], &[("code.bin", &[0; 64])]);
    let text = session(snapshot.path(), &[], &["echo <<<\\n"]);
    assert_eq!(begin(&text), ["0x0000000000001000 in ?? ()"], "{text}");

    let elf = testdata("virt-a57/program.elf");
    let options = ["--elf", elf.to_str().unwrap()];
    let text = session(snapshot.path(), &options, &["echo <<<\\n"]);
    let notes: Vec<&str> = text.lines().filter(|l| l.starts_with("note: ")).collect();
    assert!(
        notes.iter().any(|note| note.contains("of 0 bytes")),
        "{text}"
    );
}

#[test]
fn a_trace_file_starts_with_the_current_place_only() {
    let file = testdata("tsave-aarch64/saved.tf");
    let text = session(&file, &[], &["echo <<<\\n", "tfind 1", "tdump"]);
    let rest = "note: trace file: where no trace frame is selected, registers and memory are those of \
                trace frame 0";
    let mut lines = begin(&text);
    lines.retain(|line| *line != rest);
    assert_eq!(lines, ["0x0000000000400120 in ?? ()"], "{text}");
    for wanted in [
        "Found trace frame 1, tracepoint 1",
        "Data collected at tracepoint 1, trace frame 1:",
        "\nx19            0x401fe8",
    ] {
        assert!(text.contains(wanted), "{wanted}: {text}");
    }
    assert!(!text.contains("racepoint 1 at"), "{text}");
}

/// Breakpoint numbers start at 1; deleting breakpoints does not affect trace frames.
#[test]
fn breakpoints_count_from_1_and_tdump_needs_none() {
    let snapshot = testdata("recorded/etmv4");
    let commands = [
        "break price_order",
        "info breakpoints",
        "reverse-continue",
        "delete",
        "tdump",
        "tfind 0",
        "tdump",
        "tfind 5",
        "tdump",
        "tfind tracepoint 1",
        "tfind none",
        "break receipt",
        "tdump",
    ];
    let text = session(&snapshot, &[], &commands);
    for wanted in [
        "Breakpoint 1 at 0x",
        "1       breakpoint     keep y",
        "hit Breakpoint 1, price_order",
        "Data collected at tracepoint 1, trace frame 0:\nx0             0x",
        "\npc             0x401004fc",
        "memory 0x40100000-0x4010",
        "Data collected at tracepoint 2, trace frame 5:\nx0             0x",
        "\npc             0x40100768",
        "$offset = ",
        "$vmid = void",
        "Breakpoint 2 at 0x",
    ] {
        assert!(text.contains(wanted), "{wanted}: {text}");
    }
    assert_eq!(text.matches("No current trace frame.").count(), 2, "{text}");
    assert!(!text.contains("Tracepoint "), "{text}");

    // Otherwise GDB gets the tracepoints, for its own `tdump`.
    let server = Server::start(&snapshot, &[], 1);
    let text = attach(
        &server.addresses[0],
        &["info tracepoints", "tfind 5", "tdump"],
    );
    assert!(text.contains("2       tracepoint     keep y"), "{text}");
    assert!(text.contains("trace frame 5"), "{text}");
}

/// The texts of a trace file run no command.
#[test]
fn texts_of_a_trace_file_run_no_commands() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("evil.tf");
    let hex = |text: &str| text.bytes().map(|b| format!("{b:02x}")).collect::<String>();
    let proof = directory.path().join("proof");
    let shell = format!("$_shell(\"touch {}\")", proof.display());
    let mut file = b"\x7fTRACE0\nR 8\n".to_vec();
    let lines = [
        "tdesc <target><architecture>aarch64</architecture></target>".to_owned(),
        "status 0;tstop::0;tframes:1".to_owned(),
        "tp T1:400120:E:0:0".to_owned(),
        format!(
            "tp Z1:400120:at:0:{:x}:{}",
            shell.len() + 1,
            hex(&format!("*{shell}"))
        ),
        format!(
            "tp Z1:400120:cmd:0:{:x}:{}",
            shell.len() + 8,
            hex(&format!("collect {shell}"))
        ),
        "tp Z1:400120:cmd:0:12:".to_owned() + &hex("collect $_ret, $pc"),
    ];
    for line in lines {
        file.extend(line.bytes());
        file.push(b'\n');
    }
    file.extend(b"\n\x01\0\x0b\0\0\0M");
    file.extend(0x40_0120_u64.to_le_bytes());
    file.extend([0; 6]);
    std::fs::write(&path, file).unwrap();
    let server = Server::start(&path, &[], 1);
    let text = attach(
        &server.addresses[0],
        &[
            "info tracepoints",
            "tfind 0",
            "tdump",
            "maintenance packet qTfP",
        ],
    );
    assert!(text.contains("collect $_ret, $pc"), "{text}");
    assert!(!text.contains("_shell"), "{text}");
    assert!(!proof.exists());
    let output = session_output(&path, &[], &["tfind 0", "tdump"]);
    assert!(output.status.success());
    assert!(!proof.exists());
}

#[test]
fn threads_show_what_the_core_was_doing() {
    let core =
        |kind: &str, registers: &str| format!("class=core\ntype={kind}\n[regs]\n{registers}");
    for (kind, registers, wanted) in [
        (
            "Cortex-A53",
            "PC(size:64)=0x1000\nX0(size:64)=0x7\nCPSR=0x60000000\n",
            "(Cortex-A53 EL0)",
        ),
        (
            "Cortex-A15",
            "PC=0x1000\nR0=1\nCPSR=0x60000010\n",
            "(Cortex-A15 EL0)",
        ),
        (
            "Cortex-A15",
            "PC=0x1000\nR0=1\nCPSR=0x600001d3\n",
            "(Cortex-A15 N)",
        ),
        (
            "Cortex-M4",
            "PC=0x1000\nR0=1\nxPSR=0x01000000\n",
            "(Cortex-M4 Thread mode)",
        ),
        (
            "Cortex-M4",
            "PC=0x1000\nR0=1\nxPSR=0x0100000b\n",
            "(Cortex-M4 Handler mode)",
        ),
        ("Cortex-M4", "PC=0x1000\nR0=1\n", "(Cortex-M4)"),
    ] {
        let core = core(kind, registers);
        let snapshot = write_snapshot(&[("cpu", &core)], &[]);
        let text = session(snapshot.path(), &[], &["info threads"]);
        assert!(text.contains(wanted), "{wanted}: {text}");
    }
}

/// A GDB without Python connects, and uses its own `tdump`.
#[test]
fn a_gdb_without_python_connects() {
    use std::os::unix::fs::PermissionsExt;
    crate::support::gdb::need_gdb();
    let directory = tempfile::tempdir().unwrap();
    let wrapper = directory.path().join("gdb");
    let script = "#!/bin/sh\nfor word; do shift; case $word in python*) word='echo none\\n';; esac\n\
                  set -- \"$@\" \"$word\"; done\nexec gdb-multiarch \"$@\"\n";
    std::fs::write(&wrapper, script).unwrap();
    std::fs::set_permissions(&wrapper, std::fs::Permissions::from_mode(0o755)).unwrap();
    let options = ["--gdb", wrapper.to_str().unwrap()];
    let commands = ["tfind 5", "tdump", "help armsnap"];
    let text = session(&testdata("recorded/etmv4"), &options, &commands);
    assert!(text.contains("Undefined command: \"armsnap\""), "{text}");
    assert!(
        text.contains("Data collected at tracepoint 2, trace frame 5"),
        "{text}"
    );
    assert!(text.contains("$offset = "), "{text}");
}
