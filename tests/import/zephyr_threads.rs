//! Core dumps of Zephyr with the kernel's list of threads: each has its registers, and GDB unwinds it; from the
//! log of the console, too.

use crate::support::gdb::{armsnap, need_gdb, run, session, text};
use crate::support::record::installed;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Places in the structures, as in a small configuration of Zephyr: the version, `current` and `threads` of
/// `_kernel`, then of a thread: entry, next, state, options, priority, stack, name, arch, two of the FPU,
/// EXC_RETURN.
fn offsets(wide: bool, stack: u64) -> String {
    let (next, name, arch) = if wide {
        (0x80, 0xa0, 0xc0)
    } else {
        (0x60, 0x70, 0x90)
    };
    let (current, threads) = if wide { (8, 0x20) } else { (8, 0x18) };
    let none = 0xffff_ffff_u64;
    let all = [
        1, current, threads, 0, next, 0, 0, 0, stack, name, arch, none, none, 0,
    ];
    let all: Vec<String> = all.iter().map(ToString::to_string).collect();
    all.join(", ")
}

/// A program with functions that the threads are in.
fn build(directory: &Path, wide: bool, stack: u64) -> Option<PathBuf> {
    let compiler = if wide {
        "aarch64-linux-gnu-gcc"
    } else {
        "arm-none-eabi-gcc"
    };
    if !installed(&[compiler]) {
        return None;
    }
    let source = format!(
        "typedef __SIZE_TYPE__ size_t;\n\
         const size_t _kernel_thread_info_offsets[] = {{ {} }};\n\
         const size_t _kernel_thread_info_num_offsets = 14;\n\
         __attribute__((section(\"code_a\"))) void failing(void) {{ __asm__ volatile(\"nop\"); }}\n\
         __attribute__((section(\"code_b\"))) void sleeping(void) {{ __asm__ volatile(\"nop\"); }}\n",
        offsets(wide, stack)
    );
    let path = directory.join("program.c");
    fs::write(&path, source).unwrap();
    let program = directory.join("program.elf");
    let mut command = Command::new(compiler);
    command
        .current_dir(directory)
        .args(["-O1", "-g", "-ffreestanding", "-nostdlib", "-static"]);
    if !wide {
        command.args(["-mcpu=cortex-m4", "-mthumb"]);
    }
    command.args([
        "-Wl,--section-start=code_a=0x8000",
        "-Wl,--section-start=code_b=0x8100",
        "-Wl,-Ttext=0x7000",
        "-Wl,-e,failing",
        "-o",
    ]);
    let output = run(command.arg(&program).arg(&path));
    assert!(output.status.success(), "{}", text(&output));
    Some(program)
}

const KERNEL_RAM: u64 = 0x2000_0000;

/// Memory with threads `main`, `sleeper` and one whose stack is not in the dump.
struct Ram {
    bytes: Vec<u8>,
    wide: bool,
}

impl Ram {
    fn set(&mut self, address: u64, value: u64) {
        let at = (address - KERNEL_RAM) as usize;
        let bytes = value.to_le_bytes();
        let size = if self.wide { 8 } else { 4 };
        self.bytes[at..at + size].copy_from_slice(&bytes[..size]);
    }

    fn thread(&mut self, address: u64, next: u64, name: &str) {
        let (next_at, name_at) = if self.wide {
            (0x80, 0xa0)
        } else {
            (0x60, 0x70)
        };
        self.set(address + next_at, next);
        let at = (address + name_at - KERNEL_RAM) as usize;
        self.bytes[at..at + name.len()].copy_from_slice(name.as_bytes());
    }
}

/// The blocks after that of the registers.
fn blocks(ram: &Ram, current: u64, first: u64) -> Vec<u8> {
    let size = if ram.wide { 8 } else { 4 };
    let mut kernel = vec![0; 0x40];
    let threads = if ram.wide { 0x20 } else { 0x18 };
    kernel[8..8 + size].copy_from_slice(&current.to_le_bytes()[..size]);
    kernel[threads..threads + size].copy_from_slice(&first.to_le_bytes()[..size]);
    let mut out = b"T\x01\x00\x40\x00".to_vec();
    out.extend(kernel);
    out.extend(b"M\x01\x00");
    for address in [KERNEL_RAM, KERNEL_RAM + ram.bytes.len() as u64] {
        out.extend(&address.to_le_bytes()[..size]);
    }
    out.extend(&ram.bytes);
    out
}

/// The console of the system.
fn log(dump: &[u8]) -> String {
    let mut out = "*** Booting Zephyr OS ***\nE: #CD:BEGIN#\n".to_owned();
    for line in dump.chunks(32) {
        out += "E: #CD:";
        for byte in line {
            let _ = write!(out, "{byte:02x}");
        }
        out += "\n";
    }
    out + "E: #CD:END#\n"
}

const COMMANDS: [&str; 6] = [
    "info threads",
    "thread 1",
    "bt",
    "thread 2",
    "bt",
    "info registers",
];

fn check(directory: &Path, dump: &[u8], program: &Path, wanted: &[&str]) {
    need_gdb();
    let raw = directory.join("zephyr.bin");
    fs::write(&raw, dump).unwrap();
    let console = directory.join("console.log");
    fs::write(&console, log(dump)).unwrap();
    let options = ["--elf", program.to_str().unwrap()];
    let snapshot = directory.join("snapshot");
    let mut import = armsnap();
    import
        .arg("import")
        .arg(&console)
        .arg(&snapshot)
        .args(options);
    let output = run(&mut import);
    let said = text(&output);
    assert!(said.contains("2 cores (main, sleeper)"), "{said}");
    assert!(said.contains("1 thread did not run"), "{said}");
    assert!(said.contains("1 thread more without known ones"), "{said}");
    for (path, options) in [(&raw, &options[..]), (&console, &options), (&snapshot, &[])] {
        let said = session(path, options, &COMMANDS);
        for wanted in wanted {
            assert!(said.contains(wanted), "{wanted}: {said}");
        }
    }
    let said = text(&run(armsnap().arg("info").arg(&console)));
    assert!(said.contains("other threads are not read: --elf"), "{said}");
}

#[test]
fn threads_of_a_cortex_m() {
    let scratch = tempfile::tempdir().unwrap();
    // `callee_saved.psp`, after R4 to R11.
    let Some(program) = build(scratch.path(), false, 0x28 + 32) else {
        return;
    };
    let mut ram = Ram {
        bytes: vec![0; 0x1000],
        wide: false,
    };
    let [main, sleeper, lost] = [0, 0x100, 0x200].map(|offset| KERNEL_RAM + offset);
    ram.thread(sleeper, lost, "sleeper");
    ram.thread(lost, main, "lost");
    ram.thread(main, 0, "main");
    for register in 4..12 {
        ram.set(sleeper + 0x28 + 4 * (register - 4), 0x40 + register);
    }
    // With registers of the FPU, and a word that aligns the frame.
    let stack = KERNEL_RAM + 0x800;
    ram.set(sleeper + 0x48, stack);
    ram.set(sleeper + 0x90, 0xed);
    for (place, value) in [1, 2, 3, 4, 12, 0x8003, 0x8100, 0x0100_0200]
        .into_iter()
        .enumerate()
    {
        ram.set(stack + 4 * place as u64, value);
    }
    let mut dump = b"ZE\x02\x00\x03\x00\x05\x00\x00\x00\x00\x00A\x03\x00\x4c\x00".to_vec();
    let registers: Vec<u32> = vec![
        0,
        1,
        2,
        3,
        12,
        0x8101,
        0x8000,
        0x0100_0000,
        0x2000_0f00,
        4,
        5,
        6,
        7,
        8,
        9,
        10,
        11,
        1,
        0x28,
    ];
    dump.extend(registers.iter().flat_map(|value| value.to_le_bytes()));
    dump.extend(blocks(&ram, main, sleeper));
    check(
        scratch.path(),
        &dump,
        &program,
        &[
            "#0  failing ()",
            "#0  sleeping ()",
            "in failing ()",
            // 32 bytes, 72 of the FPU, and 4.
            "sp             0x2000086c",
            "r11            0x4b",
        ],
    );
}

#[test]
fn threads_of_arm64() {
    let scratch = tempfile::tempdir().unwrap();
    // `callee_saved.sp_elx`, after X19 to X29 and SP_EL0.
    let Some(program) = build(scratch.path(), true, 96) else {
        return;
    };
    let mut ram = Ram {
        bytes: vec![0; 0x1000],
        wide: true,
    };
    let [main, sleeper, lost] = [0, 0x100, 0x200].map(|offset| KERNEL_RAM + offset);
    ram.thread(sleeper, lost, "sleeper");
    ram.thread(lost, main, "lost");
    ram.thread(main, 0, "main");
    for number in 19..30 {
        ram.set(sleeper + 8 * (number - 19), 0x100 + number);
    }
    ram.set(sleeper + 96, KERNEL_RAM + 0x800);
    ram.set(sleeper + 104, 0x8100);
    let mut dump = b"ZE\x02\x00\x06\x00\x06\x00\x00\x00\x00\x00A\x02\x00\xc0\x00".to_vec();
    let mut registers: Vec<u64> = (0..19).collect();
    registers.extend([0x8100, 0x6000_03c5, 0x8000, 0x2000_0f00, 0x2000_0f00]);
    dump.extend(registers.iter().flat_map(|value| value.to_le_bytes()));
    dump.extend(blocks(&ram, main, sleeper));
    check(
        scratch.path(),
        &dump,
        &program,
        &[
            "#0  failing ()",
            "#0  sleeping ()",
            "x19            0x113",
            "sp             0x20000800",
            "pc             0x8100",
        ],
    );
}
