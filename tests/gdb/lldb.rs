//! LLDB: threads, registers, memory, disassembly.

use std::process::{Command, Stdio};

use crate::support::gdb::{Server, run, shared, testdata, text};

/// The output of LLDB; `None` if it is not installed.
fn lldb(address: &str, commands: &[&str]) -> Option<String> {
    version()?;
    let mut command = Command::new("lldb");
    command.args(["--no-lldbinit", "--batch", "-o"]);
    command.arg(format!("gdb-remote {address}"));
    for lldb in commands {
        command.args(["-o", lldb]);
    }
    Some(text(&run(&mut command)))
}

/// The major version of LLDB; `None` if it is not installed.
fn version() -> Option<u32> {
    let mut command = Command::new("lldb");
    let Ok(output) = command.arg("--version").stdin(Stdio::null()).output() else {
        crate::support::skip::unavailable("lldb is not installed (package lldb)");
        return None;
    };
    let said = String::from_utf8_lossy(&output.stdout);
    let (_, version) = said.split_once("version ").expect("LLDB says its version");
    let digits = version.split('.').next().unwrap();
    Some(digits.parse().unwrap())
}

#[test]
fn an_aarch64_system() {
    let server = Server::start(&testdata("virt-a57"), &[], 1);
    let Some(text) = lldb(
        &server.addresses[0],
        &[
            "thread list",
            "register read x0 pc cpsr SCTLR_EL1",
            "memory read 0x40101008 --count 8",
            "memory region 0x40100000",
            "disassemble --start-address 0x401004fc --count 2",
            "thread select 2",
            "register read pc",
            "thread step-inst",
        ],
    ) else {
        return;
    };
    for wanted in [
        "thread #1: tid = 0x0001, 0x00000000401004fc, name = 'Cortex-A57_0'",
        "thread #2: tid = 0x0002, 0x000000004010025c, name = 'Cortex-A57_1'",
        "x0 = 0x00000000401017b0",
        "cpsr = 0x600003c5",
        "SCTLR_EL1 = 0x0000000000c50838",
        "6c 6f 67 3a 20 36 31 33",
        "[0x0000000040100000-0x0000000040100850) rwx",
        "add    sp, sp, #0x20",
        "pc = 0x000000004010025c",
        "stop reason = end of history",
    ] {
        assert!(text.contains(wanted), "{wanted}: {text}");
    }
    let text = lldb(&server.addresses[0], &["detach"]).unwrap_or_default();
    assert!(text.contains("Process 1 detached"), "{text}");
}

#[test]
fn an_m_profile_system() {
    let server = Server::start(&testdata("mps2-m4"), &[], 1);
    let Some(text) = lldb(
        &server.addresses[0],
        &[
            "thread list",
            "register read r0 sp xpsr",
            "memory read 0x20000fd0 --count 4",
        ],
    ) else {
        return;
    };
    for wanted in [
        "name = 'Cortex-M4_0'",
        "r0 = 0x20000fd0",
        "sp = 0x20000f48",
        "xpsr = 0x6100000b",
    ] {
        assert!(text.contains(wanted), "{wanted}: {text}");
    }
}

#[test]
fn real_captures() {
    let Some(snapshot) = shared("tc2-ptm-rstk-t32") else {
        return;
    };
    let server = Server::start(&snapshot, &[], 1);
    let commands = [
        "register read --format hex r0 sp cpsr d1 S_TTBR0",
        "disassemble --start-address 0x80000594 --count 1",
    ];
    let Some(text) = lldb(&server.addresses[0], &commands) else {
        return;
    };
    for wanted in [
        "name = 'Cortex-A15_0'",
        "cpsr = 0x600001d3",
        "S_TTBR0 = 0x80100048",
        "d1 = 0x000381c047224084",
        "0x80000594: mov    r1, #500",
    ] {
        assert!(text.contains(wanted), "{wanted}: {text}");
    }
    let Some(snapshot) = shared("a57_single_step") else {
        return;
    };
    let server = Server::start(&snapshot, &[], 1);
    // LLDB reads whole lines of 512 bytes into its cache, and this dump starts inside one.
    let commands = [
        "settings set target.process.disable-memory-cache true",
        "register read d1 TTBR0_EL2",
        "disassemble --start-address 0xfffeb44c --count 1",
        "register read v0",
    ];
    let text = lldb(&server.addresses[0], &commands).unwrap_or_default();
    for wanted in [
        "TTBR0_EL2 = 0x00000000ffffd000",
        "cmp    x0, #0x3",
        "error:",
    ] {
        assert!(text.contains(wanted), "{wanted}: {text}");
    }
}

/// LLDB 21 and later can continue backward; the values are those of that position, and unknown ones are not
/// shown.
#[test]
fn it_walks_back_to_a_call() {
    let Some(version) = version() else {
        return;
    };
    if version < 21 {
        return crate::support::skip::unavailable("LLDB 21");
    }
    let program = testdata("demo").join("demo.elf");
    let load = format!("target create {}", program.display());
    let server = Server::start(&testdata("demo"), &[], 1);
    let address = format!("gdb-remote {}", server.addresses[0]);
    let mut command = Command::new("lldb");
    command.args(["--no-lldbinit", "--batch", "-o", &load, "-o", &address]);
    for lldb in [
        "bt",
        "breakpoint set --name cancel",
        "process continue --reverse",
        "frame variable",
        "bt",
        "process plugin packet monitor where",
        "thread step-inst",
        "process plugin packet monitor recover off",
        "process continue --reverse",
        "register read pc x0",
        "breakpoint delete 1",
        "process continue --reverse",
    ] {
        command.args(["-o", lldb]);
    }
    let text = text(&run(&mut command));
    for wanted in [
        "frame #0: 0x000000000040013c demo.elf`price(order=0x0000000000401280) at demo.c:28",
        "stop reason = breakpoint 1.1",
        "(int) number = 2",
        "frame #1: 0x0000000000400208 demo.elf`shop at demo.c:44",
        "cpu_0 at 0+54",
        "stop reason = instruction step into",
        "pc = 0x0000000000400118",
        "error: ",
        "stop reason = beginning of history",
    ] {
        assert!(text.contains(wanted), "{wanted}: {text}");
    }
    assert!(!text.contains("0xcccccccc"), "{text}");
}

/// Registers that the snapshot does not hold have no value.
#[test]
fn unknown_registers_have_no_value() {
    let server = Server::start(&testdata("info/two-clusters"), &[], 1);
    let Some(text) = lldb(&server.addresses[0], &["register read"]) else {
        return;
    };
    assert!(text.contains("41 registers were unavailable."), "{text}");
    assert!(!text.contains("cccccccc"), "{text}");
}
