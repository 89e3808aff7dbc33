//! Physical memory in GDB, at the virtual addresses of a core.

use std::fmt::Write as _;

use armsnap::arch::Space;
use armsnap::decode::Image;
use armsnap::flow::{CodeImage, ContextKey};
use armsnap::quantity::{Address, ExceptionLevel, Security};
use armsnap::snapshot::memory::CoreMemory;
use armsnap::snapshot::model::Snapshot;
use armsnap::snapshot::{MemoryNote, OpenOptions};
use tempfile::TempDir;

use crate::support::gdb::{session, write_snapshot};

/// Where the RAM of the snapshot is.
const RAM: u64 = 0x4000_0000;
/// The kernel, and its physical address.
const KERNEL: u64 = 0xffff_8000_0800_0000;
const KERNEL_PAGE: u64 = 0x4001_0000;
/// A process, and the physical addresses of two.
const PROCESS: u64 = 0x40_0000;
const PROCESS_PAGES: [u64; 2] = [0x4001_1000, 0x4001_2000];
/// The tables of the kernel and of the two processes.
const KERNEL_TABLE: u64 = 0x4000_1000;
const PROCESS_TABLES: [u64; 2] = [0x4000_5000, 0x4000_9000];

/// RAM with tables of 4 KiB pages (DDI 0487, D8.2.6, D8.3), and words that tell pages apart.
fn ram() -> Vec<u8> {
    let mut ram = vec![0; 0x1_4000];
    let mut put = |address: u64, value: u64| {
        let at = (address - RAM) as usize;
        ram[at..at + 8].copy_from_slice(&value.to_le_bytes());
    };
    let mut map = |root: u64, virtually: u64, physically: u64, attributes: u64| {
        for (level, shift) in [(0, 39), (1, 30), (2, 21)] {
            let table = root + 0x1000 * level;
            put(
                table + 8 * (virtually >> shift & 0x1ff),
                (table + 0x1000) | 3,
            );
        }
        let last = root + 0x3000;
        put(
            last + 8 * (virtually >> 12 & 0x1ff),
            physically | attributes,
        );
    };
    // AF, inner shareable; read-only and executed at EL1 only.
    map(KERNEL_TABLE, KERNEL, KERNEL_PAGE, 1 << 54 | 0x783);
    map(
        KERNEL_TABLE,
        KERNEL + 0x1000,
        KERNEL_PAGE + 0x3000,
        1 << 54 | 1 << 53 | 0x703,
    );
    for (root, page) in PROCESS_TABLES.into_iter().zip(PROCESS_PAGES) {
        map(root, PROCESS, page, 1 << 53 | 0xf43);
    }
    put(KERNEL_PAGE, 0xd503_201f_aaaa_0001);
    put(KERNEL_PAGE + 0xff8, 0xaaaa_0002_aaaa_0002);
    put(KERNEL_PAGE + 0x3000, 0xaaaa_0003_aaaa_0003);
    put(PROCESS_PAGES[0], 0xbbbb_0001);
    put(PROCESS_PAGES[1], 0xcccc_0001);
    ram
}

const REGISTERS: &str = "PC(size:64)=0xffff800008000004\nSP(size:64)=0xffff800008001010\nCPSR=0x3c5\n\
    SCTLR_EL1(size:64)=0x34d5d91d\nTCR_EL1(size:64)=0x5b5103510\n\
    TTBR1_EL1(size:64)=0x40001000\n";

/// Two cores that run a process each, with the RAM in a dump of `ram`.
fn snapshot(ram_device: &str, of_core: &str) -> TempDir {
    let mut cores = [String::new(), String::new()];
    for (number, (core, table)) in cores.iter_mut().zip(PROCESS_TABLES).enumerate() {
        let process = number + 7;
        let _ = write!(
            core,
            "class=core\ntype=Cortex-A57\n[regs]\n{REGISTERS}\
             TTBR0_EL1(size:64)=0x{process:x}{table:012x}\nCONTEXTIDR_EL1={process}\n"
        );
    }
    cores[0] += of_core;
    let devices = [
        ("cpu_0", &*cores[0]),
        ("cpu_1", &*cores[1]),
        ("RAM", ram_device),
    ];
    let devices = &devices[..if ram_device.is_empty() { 2 } else { 3 }];
    write_snapshot(devices, &[("ram.bin", &ram()), ("dump.bin", &[0xdd; 16])])
}

const IN_DEVICE: &str = "class=memory_space\ntype=AXI\n[dump]\nfile=ram.bin\naddress=0x40000000\n";
const IN_CORE: &str = "[dump]\nfile=ram.bin\naddress=0x40000000\nspace=P\n";

/// The words at addresses, in GDB.
fn words(snapshot: &TempDir, before: &[&str], addresses: &[u64]) -> Vec<String> {
    let mut commands: Vec<String> = before.iter().map(|&line| line.to_owned()).collect();
    commands.extend(
        addresses
            .iter()
            .map(|address| format!("x/1wx {address:#x}")),
    );
    let commands: Vec<&str> = commands.iter().map(String::as_str).collect();
    let text = session(snapshot.path(), &[], &commands);
    let word = |address: &u64| {
        let start = format!("{address:#x}");
        let lines: Vec<&str> = text.lines().filter(|line| line.contains(&start)).collect();
        let last = lines.last().unwrap_or_else(|| panic!("{start}: {text}"));
        match last.rsplit_once(":\t") {
            Some((_, word)) => word.trim().to_owned(),
            None => "-".to_owned(),
        }
    };
    addresses.iter().map(word).collect()
}

#[test]
fn memory_is_seen_through_the_tables_of_each_core() {
    let addresses = [
        KERNEL,
        KERNEL + 0xffc,
        KERNEL + 0x1000,
        KERNEL + 0x2000,
        PROCESS,
        0x4001_0000,
    ];
    let seen = ["0xaaaa0001", "0xaaaa0002", "0xaaaa0003", "-"];
    // The registers of the second core are those of the first one, but for its process.
    for (device, core) in [(IN_DEVICE, ""), ("", IN_CORE)] {
        let snapshot = snapshot(device, core);
        let first = words(&snapshot, &[], &addresses);
        assert_eq!(first, [&seen[..], &["0xbbbb0001", "-"]].concat());
        let second = words(&snapshot, &["thread 2"], &addresses);
        assert_eq!(second, [&seen[..], &["0xcccc0001", "-"]].concat());
        let physical = words(&snapshot, &["monitor space P"], &[0x4001_0000]);
        assert_eq!(physical, ["0xaaaa0001"]);
    }
}

#[test]
fn dumps_for_virtual_addresses_come_first() {
    let dump = "[dump1]\nfile=dump.bin\naddress=0xffff800008000008\nspace=EL1N\n";
    let snapshot = snapshot(IN_DEVICE, dump);
    let addresses = [KERNEL, KERNEL + 4, KERNEL + 8, KERNEL + 0x14, KERNEL + 0x18];
    let seen = words(&snapshot, &[], &addresses);
    assert_eq!(
        seen,
        [
            "0xaaaa0001",
            "0xd503201f",
            "0xdddddddd",
            "0xdddddddd",
            "0x00000000"
        ]
    );
    let across = session(snapshot.path(), &[], &["x/8wx 0xffff800008000000"]);
    assert!(
        across.contains("0xaaaa0001\t0xd503201f\t0xdddddddd\t0xdddddddd"),
        "{across}"
    );
}

#[test]
fn another_process_by_its_table() {
    let snapshot = snapshot(IN_DEVICE, "");
    for choice in ["ttbr0=0x40009000", "asid=8"] {
        let choose = format!("monitor space {choice}");
        let seen = words(&snapshot, &[&choose], &[PROCESS, KERNEL]);
        assert_eq!(seen, ["0xcccc0001", "0xaaaa0001"], "{choice}");
    }
    let text = session(
        snapshot.path(),
        &[],
        &[
            "monitor space asid=9",
            "monitor space ttbr0=x",
            "monitor space",
        ],
    );
    assert!(
        text.contains("no core runs a process with ASID 9 (7 on cpu_0, 8 on cpu_1)"),
        "{text}"
    );
    assert!(
        text.contains("expected ttbr0=0xTABLE, ttbr1=0xTABLE or asid=N"),
        "{text}"
    );
    assert!(
        text.contains("Physical memory is seen at virtual addresses: regime EL1&0"),
        "{text}"
    );
}

#[test]
fn walks_are_explained() {
    let snapshot = snapshot(IN_DEVICE, "");
    let text = session(
        snapshot.path(),
        &[],
        &[
            "monitor translate 0xffff800008000123",
            "monitor translate 0xffff800008002000",
            "monitor translate 0x123",
            "monitor translate x",
            "monitor maps",
        ],
    );
    for line in [
        "0xffff800008000123 in regime EL1&0 of cpu_0",
        "TTBR1_EL1 is 0x40001000: 48 bits, 4 KiB pages",
        "stage 1 level 0: 0x40001800 holds 0x40002003: table at 0x40002000",
        "stage 1 level 3: 0x40004000 holds 0x40000040010783: 4 KiB at 0x40010000",
        "physical address 0x40010123 (non-secure), r-x user ---, in 4 KiB",
        "no translation: the descriptor of stage 1, level 3 at 0x40004010 is not valid",
        "expected an address: monitor translate 0xADDRESS",
        "0x0000000000400000-0x0000000000400fff -> 0x40011000  4 KiB, in 4 KiB, rw- user rwx",
        "0xffff800008000000-0xffff800008000fff -> 0x40010000  4 KiB, in 4 KiB, r-x user ---",
        "0xffff800008001000-0xffff800008001fff -> 0x40013000  4 KiB, in 4 KiB, rw- user ---",
    ] {
        assert!(text.contains(line), "{line}\n{text}");
    }
    let without = write_snapshot(
        &[("cpu", "class=core\ntype=Cortex-A57\n[regs]\nPC=0\n")],
        &[],
    );
    let text = session(
        without.path(),
        &[],
        &["monitor translate 0", "monitor maps"],
    );
    let count = text
        .matches("no translation: the snapshot has no physical memory")
        .count();
    assert_eq!(count, 2, "{text}");
}

/// What a trace unit reports selects the tables of a process.
#[test]
fn code_of_processes_is_that_of_their_context() {
    let snapshot = snapshot(IN_DEVICE, "");
    let loaded = Snapshot::open(snapshot.path(), &OpenOptions::default()).unwrap();
    let mut memory = CoreMemory::new(&loaded, &loaded.snapshot.devices[0]);
    memory.translate(&loaded, 0);
    let image = Image(Some(&memory));
    let word = |level: Option<u8>, context_id, address| {
        let key = ContextKey {
            el: level.map(ExceptionLevel),
            security: Some(Security::NonSecure),
            is_64bit: Some(true),
            context_id,
            ..ContextKey::default()
        };
        let bytes = image.slice(image.view(&key), Address(address));
        bytes.first_chunk().map(|bytes| u32::from_le_bytes(*bytes))
    };
    for level in [None, Some(0)] {
        assert_eq!(word(level, Some(7), PROCESS), Some(0xbbbb_0001));
        assert_eq!(word(level, Some(8), PROCESS), Some(0xcccc_0001));
        assert_eq!(word(level, None, PROCESS), Some(0xbbbb_0001));
        assert_eq!(memory.translated().unwrap().missing_processes(), None);
    }
    for level in [None, Some(0), Some(1)] {
        assert_eq!(word(level, Some(8), KERNEL), Some(0xaaaa_0001));
        assert_eq!(word(level, Some(9), KERNEL), Some(0xaaaa_0001));
    }
    assert_eq!(word(Some(0), Some(9), PROCESS), None);
    assert_eq!(word(None, Some(9), PROCESS), None);
    assert_eq!(word(Some(1), Some(9), PROCESS), Some(0xbbbb_0001));
    let note = memory.translated().unwrap().missing_processes().unwrap();
    let context_ids = vec![9];
    assert_eq!(note, MemoryNote::UnknownProcesses { context_ids });
    assert!(
        note.to_string()
            .contains("processes with context ID 9 are not known"),
        "{note}"
    );
    let mut bytes = [0; 8];
    let known = memory.read(Address(KERNEL + 0xffc), Space::El1N, &mut bytes);
    assert_eq!((known, bytes), (8, [2, 0, 0xaa, 0xaa, 3, 0, 0xaa, 0xaa]));
}
