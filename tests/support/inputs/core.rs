//! Core files of programs.

use super::perf_builder::words;
use crate::support::gdb::testdata;
use std::fs;
use std::path::{Path, PathBuf};

pub const NT_PRSTATUS: u32 = 1;
pub const NT_FPREGSET: u32 = 2;
pub const NT_PRPSINFO: u32 = 3;
pub const NT_AUXV: u32 = 6;
pub const NT_FILE: u32 = 0x4649_4C45;
/// Where the program of testdata/recorded/etmv4 has its data: what is before is in its file.
pub const DATA: u64 = 0x4010_1000;
pub const CODE: u64 = 0x4010_0000;

pub fn note(kind: u32, contents: &[u8]) -> Vec<u8> {
    let mut out: Vec<u8> = [5, contents.len() as u32, kind]
        .iter()
        .flat_map(|n| n.to_le_bytes())
        .collect();
    out.extend(b"CORE\0\0\0\0");
    out.extend(contents);
    out.resize(out.len().next_multiple_of(4), 0);
    out
}

/// The value of a register in a device file, as the bytes of a word.
fn value(ini: &str, name: &str) -> u128 {
    let line = ini
        .lines()
        .find(|line| line.split(['(', '=']).next() == Some(name));
    let value = line
        .and_then(|line| line.split("=0x").nth(1))
        .unwrap_or_else(|| panic!("{name}"));
    u128::from_str_radix(value, 16).unwrap()
}

/// The core file that Linux would have written of a process in the state of the recorded system:
/// without the code, which the file of the program has.
pub fn core_file(directory: &Path) -> PathBuf {
    let recorded = testdata("recorded/etmv4");
    let mut notes = Vec::new();
    for (cpu, tid) in [("cpu_0.ini", 500_u32), ("cpu_1.ini", 501)] {
        let ini = fs::read_to_string(recorded.join(cpu)).unwrap();
        let mut status = vec![0; 32];
        status[12] = 11;
        status.extend(tid.to_le_bytes());
        status.resize(112, 0);
        for name in (0..31)
            .map(|n| format!("X{n}"))
            .chain(["SP", "PC", "CPSR"].map(str::to_owned))
        {
            status.extend((value(&ini, &name) as u64).to_le_bytes());
        }
        status.resize(392, 0);
        notes.extend(note(NT_PRSTATUS, &status));
        if tid == 500 {
            let mut process = vec![0; 136];
            process[40..44].copy_from_slice(b"prog");
            notes.extend(note(NT_PRPSINFO, &process));
            notes.extend(note(NT_AUXV, &words(&[9, CODE, 0, 0])));
            let mut files = words(&[1, 4096, CODE, CODE + 0x1000, 1]);
            files.extend(b"/opt/program.elf\0");
            notes.extend(note(NT_FILE, &files));
        }
        let mut state = Vec::new();
        for number in 0..32 {
            state.extend(value(&ini, &format!("V{number}")).to_le_bytes());
        }
        state.resize(528, 0);
        notes.extend(note(NT_FPREGSET, &state));
    }
    let memory = fs::read(recorded.join("memory_40100000.bin")).unwrap();
    let memory = &memory[(DATA - CODE) as usize..];
    let mut out = b"\x7fELF\x02\x01\x01".to_vec();
    out.resize(16, 0);
    out.extend([4, 0, 183, 0, 1, 0, 0, 0]);
    out.extend(words(&[0, 64, 0]));
    out.extend([0, 0, 0, 0, 64, 0, 56, 0, 3, 0, 0, 0, 0, 0, 0, 0]);
    let begin = 64 + 3 * 56;
    let (noted, length) = (notes.len() as u64, memory.len() as u64);
    for (kind, flags, at, address, in_file, size) in [
        (4_u32, 4_u32, begin, 0, noted, 0),
        (1, 5, begin + noted, CODE, 0, 0x1000),
        (1, 6, begin + noted, DATA, length, length),
    ] {
        out.extend(kind.to_le_bytes());
        out.extend(flags.to_le_bytes());
        out.extend(words(&[at, address, 0, in_file, size, 1]));
    }
    out.extend(notes);
    out.extend(memory);
    let path = directory.join("core.500");
    fs::write(&path, out).unwrap();
    path
}
