//! GDB sessions on small generated systems: several architectures, address spaces, programs,
//! moves, several clients, and the command line.

use rustix::process::Signal;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::support::gdb::{
    Server, armsnap, attach, ends_of_history, run, send_signal, session, session_output, testdata,
    text, write_snapshot,
};

const A57: &str = "class=core\ntype=Cortex-A57\n[regs]\nX0(size:64)=0x57\nPC(size:64)=0x1000\n\
                   SP(size:64)=0x2000\nCPSR=0x3c5\n";
const A15: &str =
    "class=core\ntype=Cortex-A15\n[regs]\nR0=0x15\nPC=0x1000\nSP=0x2000\nCPSR=0x1d3\n";
const M4: &str =
    "class=core\ntype=Cortex-M4\n[regs]\nR0=0x4\nPC=0x1000\nSP=0x2000\nXPSR=0x1000000\n";

fn mixed() -> tempfile::TempDir {
    let snapshot = write_snapshot(
        &[
            ("big_0", A57),
            ("old_0", A15),
            ("micro_0", M4),
            ("big_1", A57),
        ],
        &[],
    );
    let path = snapshot.path().join("snapshot.ini");
    let mut list = std::fs::read_to_string(&path).unwrap();
    list += "[clusters]\nBig=big_0,big_1\nLittle=micro_0\n";
    std::fs::write(path, list).unwrap();
    snapshot
}

#[test]
fn a_core_without_a_device_file_is_reported() {
    let snapshot = mixed();
    std::fs::remove_file(snapshot.path().join("big_1.ini")).unwrap();
    let server = Server::start(snapshot.path(), &[], 3);
    assert!(server.lines[0].starts_with("AArch64: big_0 ("));
    for address in &server.addresses {
        let text = attach(address, &["monitor info"]);
        assert!(text.contains("\"big_1.ini\": no such file"), "{text}");
    }
}

#[test]
fn each_architecture_has_an_endpoint() {
    let snapshot = mixed();
    let server = Server::start(snapshot.path(), &[], 3);
    for (index, (name, cores, register)) in [
        ("AArch64: big_0, big_1 ", 2, "p/x $x0 = 0x57"),
        ("AArch32: old_0 ", 1, "p/x $r0 = 0x15"),
        ("M-profile: micro_0 ", 1, "p/x $r0 = 0x4"),
    ]
    .into_iter()
    .enumerate()
    {
        let line = &server.lines[index];
        assert!(line.starts_with(name), "{line}");
        assert!(
            line.contains("gdb-multiarch -ex 'target remote 127.0.0.1:"),
            "{line}"
        );
        let (command, value) = register.split_once(" = ").unwrap();
        let text = attach(&server.addresses[index], &["info threads", command]);
        assert!(text.contains(&format!("$1 = {value}\n")), "{text}");
        assert_eq!(text.matches("    Thread ").count(), cores, "{text}");
    }
}

#[test]
fn one_endpoint_serves_one_architecture() {
    let snapshot = mixed();
    let output = run(armsnap().arg("serve").arg(snapshot.path()).arg("--stdio"));
    assert_eq!(output.status.code(), Some(2));
    let error = String::from_utf8_lossy(&output.stderr);
    for choice in [
        "AArch64: --core big_0 --core big_1",
        "AArch32: --core old_0",
        "M-profile: --core micro_0",
    ] {
        assert!(error.contains(choice), "{error}");
    }
    for (options, register) in [
        (&["--core", "OLD_0"][..], "p/x $r0"),
        (&["--cluster", "Little"], "p/x $r0"),
        (&["--cluster", "big", "--core", "big_1"], "p/x $x0"),
    ] {
        let text = session(snapshot.path(), options, &["info threads", register]);
        assert_eq!(text.matches("* 1    Thread 1").count(), 1, "{text}");
        assert!(text.contains("$1 = 0x"), "{text}");
    }
    for (option, known) in [
        ("--core=none", "big_0, old_0"),
        ("--cluster=none", "Big, Little"),
    ] {
        let output = run(armsnap()
            .arg("serve")
            .arg(snapshot.path())
            .args([option, "--stdio"]));
        assert_eq!(output.status.code(), Some(2), "{option}");
        assert!(text(&output).contains(known), "{}", text(&output));
    }
}

/// Thread mode on the process stack (CONTROL.SPSEL): SP is PSP, and MSP is another register.
#[test]
fn both_stack_pointers_of_an_m_profile_core() {
    let core = "class=core\ntype=ARMv7-M\n[regs]\nR0=0x4\nPC=0x1000\nXPSR=0x1000000\nMSP=0x2000\n\
                PSP=0x3000\nCONTROL=2\nPRIMASK=1\n";
    let snapshot = write_snapshot(&[("micro_0", core)], &[]);
    let commands = [
        "p/x $sp",
        "p/x $msp",
        "p/x $psp",
        "p/x $CONTROL",
        "p/x $PRIMASK",
        "info registers r1",
        "monitor info",
    ];
    let text = session(snapshot.path(), &[], &commands);
    for line in [
        "$1 = 0x3000\n",
        "$2 = 0x2000\n",
        "$3 = 0x3000\n",
        "$4 = 0x2\n",
        "$5 = 0x1\n",
        "r1             <unavailable>\n",
        "note: micro_0: sp",
    ] {
        assert!(text.contains(line), "{line:?} is not in {text}");
    }
}

#[test]
fn memory_is_read_in_the_current_space() {
    let dumps = "[dump1]\nfile=n\nspace=N\naddress=0x1000\n[dump2]\nfile=s\nspace=S\naddress=0x1000\n\
                 [dump3]\nfile=h\nspace=H\naddress=0x1000\n[dump4]\nfile=s\nspace=S\naddress=0x8000\n";
    let bus = "class=memory_space\ntype=AXI\n[dump]\nfile=bus\naddress=0x1000\n";
    let files: [(&str, &[u8]); 4] = [
        ("n", &[0x11; 64]),
        ("s", &[0x22; 64]),
        ("h", &[0x33; 64]),
        ("bus", &[0x44; 64]),
    ];
    for (state, space, byte) in [
        ("CPSR=0x1d3\nSCR=1\n", "N", "0x11"),
        ("CPSR=0x1d3\n", "N", "0x11"),
        ("CPSR=0x1d3\nSCR=0\n", "S", "0x22"),
        ("CPSR=0x1d6\nSCR=1\n", "S", "0x22"),
        ("CPSR=0x1da\nSCR=1\n", "H", "0x33"),
    ] {
        let core = format!(
            "class=core\ntype=Cortex-A15\n[regs]\nR0=0\nPC=0x1000\nSP=0x2000\n{state}{dumps}"
        );
        let snapshot = write_snapshot(&[("cpu", &core), ("AXI", bus)], &files);
        let text = session(
            snapshot.path(),
            &[],
            &[
                "monitor space",
                "x/1xb 0x1000",
                "monitor space S",
                "x/1xb 0x1004",
                "x/1xb 0x8000",
                "monitor space axi",
                "x/1xb 0x1008",
                "monitor space current",
                "x/1xb 0x100c",
                "monitor space none",
            ],
        );
        assert!(
            text.contains(&format!("in {space}, the current space of cpu")),
            "{text}"
        );
        assert!(text.contains(&format!("0x1000:\t{byte}")), "{state} {text}");
        assert!(text.contains("0x1004:\t0x22"), "{text}");
        assert!(text.contains("0x8000:\t0x22"), "{text}");
        assert!(text.contains("0x1008:\t0x44"), "{text}");
        assert!(text.contains(&format!("0x100c:\t{byte}")), "{text}");
        assert!(text.contains("EL1N, EL1S, EL2, EL3, P, SP, NP"), "{text}");
        let text = session(snapshot.path(), &[], &["x/1xb 0x8000"]);
        assert_eq!(
            text.contains("Cannot access memory"),
            space != "S",
            "{text}"
        );
    }
}

/// A copy of a snapshot in testdata without some of its files.
fn copy_without(name: &str, missing: &[&str]) -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    for entry in std::fs::read_dir(testdata(name)).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap();
        if path.is_file() && !missing.iter().any(|missing| *missing == name) {
            std::fs::copy(&path, directory.path().join(name)).unwrap();
        }
    }
    directory
}

#[test]
fn gdb_loads_the_program_from_the_server() {
    let server = Server::start(&testdata("virt-a57"), &[], 1);
    let text = attach(
        &server.addresses[0],
        &["info symbol $pc", "info line", "frame"],
    );
    assert!(text.contains("Reading /"), "{text}");
    assert!(text.contains("program.elf from remote target"), "{text}");
    assert!(text.contains("receipt + "), "{text}");
    assert!(text.contains("main.c:36"), "{text}");
}

#[test]
fn the_user_can_name_a_program() {
    let snapshot = copy_without("virt-a57", &["program.elf"]);
    let without = session(snapshot.path(), &[], &["info symbol $pc"]);
    assert!(without.contains("No symbol"), "{without}");
    let elf = testdata("virt-a57").join("program.elf");
    let option = format!("--elf={}", elf.display());
    let with = session(
        snapshot.path(),
        &[&option],
        &["info symbol $pc", "monitor info"],
    );
    assert!(with.contains("receipt + "), "{with}");
    assert!(with.contains("(named)"), "{with}");
    let bad = format!("--elf={}", snapshot.path().join("code.bin").display());
    let output = run(armsnap()
        .arg("serve")
        .arg(snapshot.path())
        .args(["--stdio", &bad]));
    assert_eq!(output.status.code(), Some(1));
    assert!(
        text(&output).contains("expected an ELF file"),
        "{}",
        text(&output)
    );
}

#[test]
fn further_programs_are_loaded_without_a_note_on_them() {
    let snapshot = copy_without("virt-a57", &["program.elf"]);
    let elf = testdata("virt-a57").join("program.elf");
    let second = snapshot.path().join("second.elf");
    std::fs::copy(&elf, &second).unwrap();
    let options = [&elf, &second].map(|elf| format!("--elf={}", elf.display()));
    let options = [&*options[0], &*options[1]];
    let text = session(snapshot.path(), &options, &["monitor info"]);
    assert!(text.contains("add symbol table from file"), "{text}");
    assert!(text.contains("second.elf"), "{text}");
    assert!(!text.contains("only one program"), "{text}");
    // Nothing is known about a client that was not started by armsnap.
    let server = Server::start(snapshot.path(), &options, 1);
    let text = attach(&server.addresses[0], &["monitor info"]);
    assert!(text.contains("only one program is reported"), "{text}");
}

#[test]
fn memory_without_a_dump_is_read_from_the_program() {
    let snapshot = copy_without("virt-a57", &["code.bin"]);
    let elf = testdata("virt-a57").join("program.elf");
    let option = format!("--elf={}", elf.display());
    // Without a program file, GDB reads from the server.
    let server = Server::start(snapshot.path(), &[&option], 1);
    let text = attach(
        &server.addresses[0],
        &[
            "set trust-readonly-sections off",
            "x/1xw $pc",
            "monitor info",
        ],
    );
    assert!(text.contains("0xd503201f"), "the nop of halt_here: {text}");
    assert!(text.contains("no dump has 0x40100000-0x4010084f"), "{text}");
    let server = Server::start(snapshot.path(), &[&option, "--no-elf-memory"], 1);
    let text = attach(&server.addresses[0], &["x/1xw $pc"]);
    assert!(text.contains("Cannot access memory"), "{text}");
}

#[test]
fn a_dump_has_priority_over_the_program_and_info_lists_differences() {
    let snapshot = copy_without("virt-a57", &[]);
    let code = snapshot.path().join("code.bin");
    let mut bytes = std::fs::read(&code).unwrap();
    // Sixteen bytes from 0x40100010 on.
    bytes[0x10..0x20].iter_mut().for_each(|byte| *byte = !*byte);
    std::fs::write(&code, &bytes).unwrap();
    let shown = session(snapshot.path(), &[], &["x/1xb 0x40100010", "monitor info"]);
    assert!(
        shown.contains(&format!(":\t{:#04x}", bytes[0x10])),
        "{shown}"
    );
    let differ = "dump and program differ at 0x40100010-0x4010001f: the dump is shown";
    assert!(shown.contains(differ), "{shown}");
    let info = text(&run(armsnap().arg("info").arg(snapshot.path())));
    assert!(
        info.contains("differ at 0x40100010-0x4010001f: the dump is shown"),
        "{info}"
    );
}

#[test]
fn an_elf_file_named_as_a_dump_is_read_as_the_program() {
    let snapshot = copy_without("virt-a57", &["code.bin"]);
    // The code segment as part of the ELF file itself.
    let elf = std::fs::read(snapshot.path().join("program.elf")).unwrap();
    let code = std::fs::read(testdata("virt-a57").join("code.bin")).unwrap();
    let offset = elf
        .windows(64)
        .position(|part| part == &code[..64])
        .unwrap();
    for core in ["cpu_0.ini", "cpu_1.ini"] {
        let path = snapshot.path().join(core);
        let device = std::fs::read_to_string(&path).unwrap();
        let device = device.replace(
            "file=code.bin",
            &format!("file=program.elf\noffset={offset:#x}"),
        );
        std::fs::write(path, device).unwrap();
    }
    let text = session(
        snapshot.path(),
        &["--no-elf-memory"],
        &["x/1xw $pc", "info symbol $pc"],
    );
    assert!(text.contains("0xd503201f"), "{text}");
    assert!(text.contains("receipt + "), "{text}");
}

#[test]
fn every_move_stops_at_the_end_of_history() {
    let moves = [
        "stepi",
        "continue",
        "reverse-stepi",
        "reverse-continue",
        "step",
        "next",
        "reverse-next",
        "finish",
    ];
    let mut commands = vec![
        "break main",
        "watch *(int*)0x40101000",
        "hbreak second_main",
    ];
    commands.extend(moves);
    commands.push("info symbol $pc");
    let text = session(&testdata("virt-a57"), &[], &commands);
    assert_eq!(ends_of_history(&text), moves.len(), "{text}");
    assert!(text.contains("receipt + "), "{text}");
    let text = session(
        &testdata("virt-a57"),
        &["--history=none"],
        &["continue", "reverse-stepi"],
    );
    assert_eq!(ends_of_history(&text), 1, "{text}");
    // The second message is that of GDB 18.
    let refused = [
        "does not support this command",
        "Reverse execution is not currently supported",
    ];
    assert!(refused.iter().any(|words| text.contains(words)), "{text}");
}

#[test]
fn writes_are_refused() {
    for (command, reason) in [
        (
            "set $x0 = 1",
            "a snapshot is read-only: its registers cannot be changed",
        ),
        (
            "set $SCTLR_EL1 = 1",
            "a snapshot is read-only: its registers cannot be changed",
        ),
        (
            "set *(int*)0x40101000 = 1",
            "Cannot access memory at address 0x40101000",
        ),
    ] {
        let text = session(&testdata("virt-a57"), &[], &[command]);
        assert!(text.contains(reason), "{text}");
    }
    let text = session(
        &testdata("virt-a57"),
        &[],
        &[
            "monitor help",
            "monitor registers ttbr?_el1",
            "monitor nonsense",
        ],
    );
    assert!(text.contains("monitor registers [PATTERN]"), "{text}");
    assert!(
        text.contains("TTBR0_EL1") && text.contains("TTBR1_EL1"),
        "{text}"
    );
    assert!(!text.contains("SCTLR_EL1 "), "{text}");
    assert!(text.contains("no command \"nonsense\""), "{text}");
}

fn sees_both_cores(address: &str, last: &str) {
    let text = attach(address, &["info threads", last]);
    assert!(
        text.contains("\"Cortex-A57_0\"") && text.contains("\"Cortex-A57_1\""),
        "{text}"
    );
}

#[test]
fn clients_connect_and_disconnect() {
    let mut server = Server::start(&testdata("virt-a57"), &[], 1);
    let address = server.addresses[0].clone();
    sees_both_cores(&address, "detach");
    sees_both_cores(&address, "kill");
    sees_both_cores(&address, "disconnect");
    // A connection lost inside a packet, and one that stays idle while others work.
    let mut lost = TcpStream::connect(&address).unwrap();
    lost.write_all(b"$m4010").unwrap();
    drop(lost);
    let mut stays = TcpStream::connect(&address).unwrap();
    sees_both_cores(&address, "monitor space EL2");
    stays.write_all(b"$qC#b4\x03").unwrap();
    let mut reply = [0; 8];
    stays.read_exact(&mut reply).unwrap();
    assert_eq!(&reply, b"+$QC1#c5");
    sees_both_cores(&address, "continue");
    assert!(server.lives());
}

#[test]
fn unix_sockets_are_removed() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("a socket");
    let option = format!("--unix={}", path.display());
    let mut server = Server::start(&testdata("virt-a57"), &[&option], 1);
    sees_both_cores(&path.display().to_string(), "detach");
    // A socket in use is not replaced; one without a listener is.
    let output = run(armsnap()
        .arg("serve")
        .arg(testdata("virt-a57"))
        .arg(&option));
    assert_eq!(output.status.code(), Some(1), "{}", text(&output));
    server.end_by(Signal::INT);
    assert!(!path.exists());
    let mut server = Server::start(&testdata("virt-a57"), &[&option], 1);
    server.end_by(Signal::KILL);
    assert!(path.exists());
    let mut server = Server::start(&testdata("virt-a57"), &[&option], 1);
    sees_both_cores(&path.display().to_string(), "detach");
    server.end_by(Signal::TERM);
    assert!(!path.exists());
}

/// `nohup` starts a program with SIGHUP ignored.
#[test]
fn an_ignored_signal_does_not_end_the_server() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("socket");
    let mut command = Command::new("sh");
    command
        .args(["-c", "trap '' HUP; exec \"$0\" \"$@\""])
        .arg(armsnap().get_program())
        .arg("serve")
        .arg(testdata("virt-a57"))
        .arg(format!("--unix={}", path.display()));
    let mut server = Server::of(&mut command, 1);
    sees_both_cores(&path.display().to_string(), "detach");
    send_signal(server.id(), Signal::HUP);
    sees_both_cores(&path.display().to_string(), "detach");
    assert!(server.lives());
    server.end_by(Signal::TERM);
    assert!(!path.exists());
}

#[test]
fn arguments_are_passed_to_gdb_and_its_exit_status_returned() {
    let output = session_output(&testdata("virt-a57"), &[], &["p $pc", "quit 7"]);
    assert_eq!(output.status.code(), Some(7), "{}", text(&output));
    let output = run(armsnap()
        .arg("gdb")
        .arg(testdata("virt-a57"))
        .args(["--gdb", "no-such-gdb"]));
    assert_eq!(output.status.code(), Some(1));
    assert!(
        text(&output).contains("install the package gdb-multiarch"),
        "{}",
        text(&output)
    );
}

#[test]
fn paths_with_spaces_and_quotes_work() {
    let directory = tempfile::tempdir().unwrap();
    let odd = directory.path().join("it's \"a\" $HOME `dir` \\ ü");
    std::fs::create_dir(&odd).unwrap();
    std::fs::write(
        odd.join("cpu.ini"),
        format!("[device]\nname=core <0> & \"1\"\n{A57}"),
    )
    .unwrap();
    std::fs::write(
        odd.join("snapshot.ini"),
        "[snapshot]\nversion=1.0\n[device_list]\na=cpu.ini\n",
    )
    .unwrap();
    std::fs::copy(
        testdata("virt-a57").join("program.elf"),
        odd.join("it's.elf"),
    )
    .unwrap();
    let option = format!("--elf={}", odd.join("it's.elf").display());
    let mut command = armsnap();
    command.arg("gdb").arg(&odd).arg(&option);
    command.args(["--core", "core <0> & \"1\"", "--", "-nx", "-batch"]);
    command.args(["-ex", "info threads", "-ex", "p/x $x0"]);
    // Without a locale, GDB's own character set is ASCII.
    let text = text(&run(command.env("LC_ALL", "C")));
    assert!(text.contains("core <0> & \"1\""), "{text}");
    assert!(text.contains("$1 = 0x57"), "{text}");
}

#[test]
fn standard_input_and_output() {
    let mut child = armsnap()
        .arg("serve")
        .arg(testdata("mps2-m4"))
        .arg("--stdio")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut input = child.stdin.take().unwrap();
    input.write_all(b"$qC#b4$D#44").unwrap();
    let mut reply = String::new();
    child
        .stdout
        .take()
        .unwrap()
        .read_to_string(&mut reply)
        .unwrap();
    assert_eq!(reply, "+$QC1#c5+$OK#9a");
    assert!(child.wait().unwrap().success());
    drop(input);
    let output = run(armsnap()
        .arg("serve")
        .arg(testdata("mps2-m4"))
        .arg("--stdio"));
    assert!(output.status.success(), "input that ends is the end");
}

#[test]
fn nothing_to_serve_is_an_error() {
    let trace = write_snapshot(&[("etm", "class=trace_source\ntype=ETM4\n")], &[]);
    let output = run(armsnap().arg("serve").arg(trace.path()));
    assert_eq!(output.status.code(), Some(1));
    assert!(
        text(&output).contains("no device of class core"),
        "{}",
        text(&output)
    );
    let output = run(armsnap().arg("serve").arg(Path::new("/no/such/snapshot")));
    assert_eq!(output.status.code(), Some(1));
}

#[test]
fn missing_parts_of_cpsr_and_missing_dumps() {
    let core = "class=core\ntype=Cortex-A57\n[regs]\nX0(size:64)=1\nPC(size:64)=0x1000\n\
                CurrentEL=0x8\nDAIF=0x3c0\nNZCV=0x20000000\nSPSel=1\nSP_EL2(size:64)=0x2000\n\
                Q1(size:128)=0x112233445566778899aabbccddeeff00\n\
                [dump]\nfile=missing.bin\naddress=0\n";
    let snapshot = write_snapshot(&[("cpu", core)], &[]);
    let text = session(
        snapshot.path(),
        &[],
        &[
            "p/x $cpsr",
            "p/x $sp",
            "p/x $q1.u",
            "p/x $d1.u",
            "monitor info",
        ],
    );
    assert!(text.contains("$1 = 0x200003c9"), "{text}");
    assert!(text.contains("$2 = 0x2000"), "{text}");
    assert!(
        text.contains("$3 = {0x112233445566778899aabbccddeeff00}")
            || text.contains("$3 = 0x112233445566778899aabbccddeeff00"),
        "{text}"
    );
    assert!(text.contains("$4 = 0x99aabbccddeeff00"), "{text}");
    assert!(
        text.contains("combined from CurrentEL, DAIF, NZCV and SPSel"),
        "{text}"
    );
    let fault = "cpu.ini:15: [dump] file \"missing.bin\": no such file";
    // Once from the server when GDB attaches, once from `monitor info`.
    assert_eq!(text.matches(fault).count(), 2, "{text}");
}

#[test]
fn the_core_that_ended_the_recording_is_selected_first() {
    let core = |pc: &str| format!("class=core\ntype=Cortex-A57\n[regs]\nPC(size:64)={pc}\n");
    let (first, second) = (core("0x1000"), core("0x2000"));
    let devices = [("cpu_0", &*first), ("cpu_1", &*second)];
    for (section, selected) in [
        ("", "* 1 "),
        ("[recording]\nstopped=cpu_1\n", "* 2 "),
        ("[recording]\nstopped=cpu_7\n", "* 1 "),
    ] {
        let snapshot = write_snapshot(&devices, &[]);
        let path = snapshot.path().join("snapshot.ini");
        let text = std::fs::read_to_string(&path).unwrap() + section;
        std::fs::write(&path, text).unwrap();
        let shown = session(snapshot.path(), &[], &["info threads"]);
        assert!(shown.contains(selected), "{section}: {shown}");
    }
}
