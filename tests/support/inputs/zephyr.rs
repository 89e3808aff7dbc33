//! Core dumps of Zephyr.

use crate::support::gdb::{run, testdata, text};
use crate::support::record::installed;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Where the kernel of a small configuration of Zephyr keeps things, and how it is built.
pub struct Layout {
    compiler: &'static [&'static str],
    /// The size of a word.
    word: usize,
    /// `threads` of `_kernel`.
    threads: u64,
    /// Next, name, arch, and the stack pointer, of a thread.
    next: u64,
    name: u64,
    arch: u64,
    stack: u64,
}

pub const CORTEX_M: Layout = Layout {
    compiler: &["arm-none-eabi-gcc", "-mcpu=cortex-m4", "-mthumb"],
    word: 4,
    threads: 0x18,
    next: 0x60,
    name: 0x70,
    arch: 0x90,
    // `callee_saved.psp`, after R4 to R11.
    stack: 0x28 + 32,
};

pub const ARM64: Layout = Layout {
    compiler: &["aarch64-linux-gnu-gcc"],
    word: 8,
    threads: 0x20,
    next: 0x80,
    name: 0xa0,
    arch: 0xc0,
    // `callee_saved.sp_elx`, after X19 to X29 and SP_EL0.
    stack: 96,
};

/// `current` of `_kernel`.
const CURRENT: u64 = 8;

/// A program with functions that the threads are in.
pub fn build(directory: &Path, layout: &Layout) -> Option<PathBuf> {
    if !installed(&layout.compiler[..1]) {
        return None;
    }
    let none = 0xffff_ffff_u64;
    // The version, `current` and `threads` of `_kernel`, then of a thread: entry, next, state, options, priority,
    // stack, name, arch, two of the FPU, EXC_RETURN.
    let offsets = [
        1,
        CURRENT,
        layout.threads,
        0,
        layout.next,
        0,
        0,
        0,
        layout.stack,
        layout.name,
        layout.arch,
        none,
        none,
        0,
    ];
    let offsets = offsets.map(|offset| offset.to_string()).join(", ");
    let source = format!(
        "typedef __SIZE_TYPE__ size_t;\n\
         const size_t _kernel_thread_info_offsets[] = {{ {offsets} }};\n\
         const size_t _kernel_thread_info_num_offsets = 14;\n\
         __attribute__((section(\"code_a\"))) void failing(void) {{ __asm__ volatile(\"nop\"); }}\n\
         __attribute__((section(\"code_b\"))) void sleeping(void) {{ __asm__ volatile(\"nop\"); }}\n"
    );
    let path = directory.join("program.c");
    fs::write(&path, source).unwrap();
    let program = directory.join("program.elf");
    let mut command = Command::new(layout.compiler[0]);
    command.current_dir(directory).args(&layout.compiler[1..]);
    command.args(["-O1", "-g", "-ffreestanding", "-nostdlib", "-static"]);
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

const MAIN: u64 = KERNEL_RAM;
const SLEEPER: u64 = KERNEL_RAM + 0x100;
/// Its stack is not in the dump.
const LOST: u64 = KERNEL_RAM + 0x200;

/// The kernel's memory with its threads, of which the first one runs.
struct Ram {
    bytes: Vec<u8>,
    layout: &'static Layout,
}

impl Ram {
    fn new(layout: &'static Layout) -> Self {
        let mut ram = Self {
            bytes: vec![0; 0x1000],
            layout,
        };
        for (thread, next, name) in [
            (SLEEPER, LOST, "sleeper"),
            (LOST, MAIN, "lost"),
            (MAIN, 0, "main"),
        ] {
            ram.set(thread + layout.next, next);
            let at = (thread + layout.name - KERNEL_RAM) as usize;
            ram.bytes[at..at + name.len()].copy_from_slice(name.as_bytes());
        }
        ram
    }

    fn set(&mut self, address: u64, value: u64) {
        let at = (address - KERNEL_RAM) as usize;
        let word = self.layout.word;
        self.bytes[at..at + word].copy_from_slice(&value.to_le_bytes()[..word]);
    }

    /// The dump: its header and the header of the block of registers, the registers, and the blocks after it.
    fn dump(&self, headers: &[u8], registers: &[u64]) -> Vec<u8> {
        let word = self.layout.word;
        let words = |values: &[u64]| -> Vec<u8> {
            let bytes = values.iter().map(|value| value.to_le_bytes());
            bytes
                .flat_map(|bytes| bytes.into_iter().take(word))
                .collect()
        };
        let mut kernel = vec![0; 0x40];
        for (at, value) in [(CURRENT, MAIN), (self.layout.threads, SLEEPER)] {
            kernel[at as usize..][..word].copy_from_slice(&words(&[value]));
        }
        let end = KERNEL_RAM + self.bytes.len() as u64;
        let parts: [&[u8]; 7] = [
            headers,
            &words(registers),
            b"T\x01\x00\x40\x00",
            &kernel,
            b"M\x01\x00",
            &words(&[KERNEL_RAM, end]),
            &self.bytes,
        ];
        parts.concat()
    }
}

/// The dump of a Cortex-M with the threads `main`, `sleeper` and `lost`.
pub fn threads_of_a_cortex_m() -> Vec<u8> {
    let mut ram = Ram::new(&CORTEX_M);
    for register in 4..12 {
        ram.set(SLEEPER + 0x28 + 4 * (register - 4), 0x40 + register);
    }
    // With registers of the FPU, and a word that aligns the frame.
    let stack = KERNEL_RAM + 0x800;
    ram.set(SLEEPER + CORTEX_M.stack, stack);
    ram.set(SLEEPER + CORTEX_M.arch, 0xed);
    let frame = [1, 2, 3, 4, 12, 0x8003, 0x8100, 0x0100_0200];
    for (place, value) in (stack..).step_by(4).zip(frame) {
        ram.set(place, value);
    }
    // R0 to R3, R12, LR, PC, xPSR, SP, R4 to R11, and two more.
    let mut registers = vec![0, 1, 2, 3, 12, 0x8101, 0x8000, 0x0100_0000, 0x2000_0f00];
    registers.extend(4..12);
    registers.extend([1, 0x28]);
    let headers = b"ZE\x02\x00\x03\x00\x05\x00\x00\x00\x00\x00A\x03\x00\x4c\x00";
    ram.dump(headers, &registers)
}

/// The dump of an ARM64 with these threads.
pub fn threads_of_an_arm64() -> Vec<u8> {
    let mut ram = Ram::new(&ARM64);
    for number in 19..30 {
        ram.set(SLEEPER + 8 * (number - 19), 0x100 + number);
    }
    ram.set(SLEEPER + ARM64.stack, KERNEL_RAM + 0x800);
    ram.set(SLEEPER + ARM64.stack + 8, 0x8100);
    let mut registers: Vec<u64> = (0..19).collect();
    registers.extend([0x8100, 0x6000_03c5, 0x8000, 0x2000_0f00, 0x2000_0f00]);
    let headers = b"ZE\x02\x00\x06\x00\x06\x00\x00\x00\x00\x00A\x02\x00\xc0\x00";
    ram.dump(headers, &registers)
}

/// The dump that Zephyr would have made of the saved Cortex-M4: version 2, with two parts of memory.
pub fn of_saved_system() -> Vec<u8> {
    let saved = testdata("mps2-m4");
    let ini = fs::read_to_string(saved.join("cpu_0.ini")).unwrap();
    let field = |name: &str| {
        let start = format!("{name}=0x");
        let value = ini.lines().find_map(|line| line.strip_prefix(&start));
        let value = value.unwrap_or_else(|| panic!("{name}"));
        u32::from_str_radix(value, 16).unwrap()
    };
    // Header and register block of version 2 (Zephyr, "Core Dump", file format).
    let mut dump = b"ZE\x02\x00\x03\x00\x05\x00\x19\x00\x00\x00A\x02\x00\x44\x00".to_vec();
    for name in [
        "R0", "R1", "R2", "R3", "R12", "LR", "PC", "xPSR", "SP", "R4", "R5", "R6", "R7", "R8",
        "R9", "R10", "R11",
    ] {
        dump.extend(field(name).to_le_bytes());
    }
    for (file, address) in [("ram.bin", 0x2000_0000_u32), ("scs.bin", 0xE000_E000)] {
        let bytes = fs::read(saved.join(file)).unwrap();
        dump.extend(b"M\x01\x00");
        dump.extend(address.to_le_bytes());
        dump.extend((address + bytes.len() as u32).to_le_bytes());
        dump.extend(bytes);
    }
    dump
}

/// A partition of flash with a dump of a system of 32 bits.
pub fn partition(dump: &[u8]) -> Vec<u8> {
    let sum = dump
        .iter()
        .fold(0_u16, |sum, byte| sum.wrapping_add((*byte).into()));
    let mut image = b"CD\x01\x00".to_vec();
    image.extend((dump.len() as u32).to_le_bytes());
    image.extend([0, 0]);
    image.extend(sum.to_le_bytes());
    image.extend([0; 4]);
    image.extend(dump);
    image.resize(image.len() + 1000, 0xff);
    image
}

/// The console of the system.
pub fn log(dump: &[u8]) -> String {
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
