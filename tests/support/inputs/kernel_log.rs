//! Logs of Linux kernels, as they would print the state of a recorded system.

use crate::support::gdb::testdata;
use std::fmt::Write as _;
use std::fs;

/// The value of a register in the device file of the first core.
fn value(recorded: &str, name: &str) -> u64 {
    let ini = fs::read_to_string(testdata(recorded).join("cpu_0.ini")).unwrap();
    let mut lines = ini.lines();
    let line = lines
        .find(|line| line.split(['(', '=']).next() == Some(name))
        .unwrap();
    let value = line.split("=0x").nth(1).unwrap();
    u64::from_str_radix(value, 16).unwrap()
}

/// Words of the memory file that begins at `base`.
fn words(recorded: &str, base: u64, at: u64, count: usize) -> Vec<u32> {
    let bytes = fs::read(testdata(recorded).join(format!("memory_{base:x}.bin"))).unwrap();
    let bytes = &bytes[(at - base) as usize..];
    let words = bytes.chunks_exact(4).take(count);
    words
        .map(|word| u32::from_le_bytes(word.try_into().unwrap()))
        .collect()
}

/// The stack, in lines of 32 bytes, with what is before it left empty.
fn stack(recorded: &str, base: u64, from: u64, count: usize) -> String {
    let mut out = format!("Stack: ({from:#x} to {:#x})\n", from + 4 * count as u64);
    let mut words = words(recorded, base, from, count).into_iter();
    let mut at = from & !31;
    while words.len() > 0 {
        let _ = write!(out, "{:04x}:", at & 0xffff);
        for column in (at..at + 32).step_by(4) {
            match column < from {
                true => out.push_str("         "),
                false => words.next().into_iter().for_each(|word| {
                    let _ = write!(out, " {word:08x}");
                }),
            }
        }
        out.push('\n');
        at += 32;
    }
    out
}

/// The code, four words before the PC and the one there.
fn code(recorded: &str, base: u64, pc: u64) -> String {
    let words = words(recorded, base, pc - 16, 5);
    let words: Vec<String> = words.iter().map(|word| format!("{word:08x}")).collect();
    format!("Code: {} ({})\n", words[..4].join(" "), words[4])
}

fn stamped(text: &str) -> String {
    let lines = text.lines().map(|line| format!("[   12.345678] {line}\n"));
    format!(
        "[    0.000000] Booting Linux on physical CPU 0x0\n{}",
        lines.collect::<String>()
    )
}

/// The registers of the recorded system of ARM64, with `pc` and `lr` as given.
fn arm64(pc: &str, lr: &str, rest: &str) -> String {
    let value = |name: &str| value("recorded/etmv4", name);
    let mut out =
        "Unable to handle kernel NULL pointer dereference at virtual address 0000000000000008\n\
                   Mem abort info:\n  ESR = 0x0000000096000004\n\
                   Internal error: Oops: 0000000096000004 [#1] SMP\n\
                   CPU: 0 PID: 1 Comm: swapper/0 Not tainted 6.1.0 #1\n"
            .to_owned();
    let _ = writeln!(out, "pstate: {:08x} (nZCv DAIF)", value("CPSR"));
    let _ = writeln!(out, "pc : {pc}\nlr : {lr}\nsp : {:016x}", value("SP"));
    for number in (0..30).rev() {
        let _ = write!(out, "x{number:<2}: {:016x} ", value(&format!("X{number}")));
        if number % 3 == 0 {
            out.push('\n');
        }
    }
    stamped(&(out + rest))
}

/// As kernels from 4.17 on print it: with the places of the PC and the LR.
pub fn of_arm64() -> String {
    let code = code("recorded/etmv4", 0x4010_0000, value("recorded/etmv4", "PC"));
    arm64(
        "receipt+0x40/0x50",
        "discount+0x84/0x90",
        &format!("Call trace:\n receipt+0x40/0x50\n{code}Kernel Offset: disabled\n"),
    )
}

/// As older kernels print it: with addresses, and the stack.
pub fn of_old_arm64() -> String {
    let value = |name: &str| value("recorded/etmv4", name);
    let address = |name: &str| format!("[<{:016x}>]", value(name));
    let stack = stack("recorded/etmv4", 0x4010_0000, value("SP"), 120);
    arm64(&address("PC"), &address("X30"), &stack)
}

/// The recorded system of ARM.
pub fn of_arm() -> String {
    let value = |name: &str| value("recorded/ptm", name);
    let mut out = format!(
        "Internal error: Oops: 5 [#1] SMP ARM\npc : [<{:08x}>]    lr : [<{:08x}>]    psr: {:08x}\n\
         sp : {:08x}  ip : {:08x}  fp : {:08x}\n",
        value("PC"),
        value("LR"),
        value("CPSR"),
        value("SP"),
        value("R12"),
        value("R11")
    );
    for number in (0..=10).rev() {
        let _ = write!(out, "r{number:<2}: {:08x}  ", value(&format!("R{number}")));
        if number % 4 == 0 {
            out.push('\n');
        }
    }
    out.push_str(&stack("recorded/ptm", 0x4008_0000, value("SP"), 64));
    out.push_str(&code("recorded/ptm", 0x4008_0000, value("PC")));
    stamped(&out)
}
