//! `armsnap record --data-addresses`: the addresses are those of the executed instructions, counted
//! as the history counts them.

use crate::support::program::{all, record::Recording};
use crate::support::record::{Guest, assemble, build, record};
use armsnap::data_addresses::{Access, Accessed, Addresses};
use armsnap::mapped::Mapped;
use armsnap::snapshot::memory::CoreMemory;
use armsnap::snapshot::model::Snapshot;
use armsnap::snapshot::{OpenOptions, core_files};
use armsnap::timeline::{Direction, Timeline, TracedCore};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

fn recorded(guest: &Guest, options: &[&str]) -> std::path::PathBuf {
    let options = [&["--data-addresses"], options].concat();
    let run = record(guest, "recorded", &options, &[]);
    assert!(run.status.success(), "{run:?}");
    guest.directory.path().join("recorded")
}

/// The accesses of each core, by name.
fn accesses(snapshot: &Path) -> BTreeMap<String, (u64, Vec<Accessed>)> {
    let loaded = Snapshot::open(snapshot, &OpenOptions::default()).unwrap();
    let files = core_files::files::<Addresses<Mapped>>(&loaded.snapshot);
    let read = files.map(|(_, core, _)| {
        let addresses = loaded.data_addresses(core).unwrap().unwrap();
        let all = addresses.accesses(0..u64::MAX);
        let all: Result<Vec<_>, _> = all.collect();
        (core.clone(), (addresses.instructions(), all.unwrap()))
    });
    read.collect()
}

/// Compares the instructions that made accesses with the history, from its end. Returns the number
/// of accesses of each core.
fn fits_history(snapshot: &Path) -> Vec<usize> {
    let loaded = Snapshot::open(snapshot, &OpenOptions::default()).unwrap();
    let all = accesses(snapshot);
    let mut counts = Vec::new();
    for (device, core) in loaded.snapshot.devices.iter().enumerate() {
        let Some((instructions, accesses)) = all.get(&core.name) else {
            continue;
        };
        let memory = Arc::new(CoreMemory::new(&loaded, core));
        let mut timeline = Timeline::open(&loaded, &[TracedCore { device, memory }]);
        let history = timeline.history(device).unwrap();
        let mut places = Vec::new();
        let mut here = history.end();
        while let Some(before) = history.step(here, Direction::Backward) {
            here = before;
            places.extend(history.place(here).unwrap().pc().map(|pc| pc.0));
        }
        assert_eq!(places.len() as u64, *instructions, "{}", core.name);
        places.reverse();
        for accessed in accesses {
            assert_eq!(places[accessed.instruction as usize], accessed.pc);
        }
        counts.push(accesses.len());
    }
    counts
}

/// Adjacent stores of an instruction as one.
fn joined(stores: &[(u64, Vec<u8>)]) -> Vec<(u64, u32)> {
    let mut out: Vec<(u64, u32)> = Vec::new();
    for (address, bytes) in stores {
        match out.last_mut() {
            Some((begin, length)) if *begin + u64::from(*length) == *address => {
                *length += bytes.len() as u32;
            }
            _ => out.push((*address, bytes.len() as u32)),
        }
    }
    out
}

/// Recursion, a sort, copies of structures, and atomic instructions, without libraries.
const PROGRAM: &str = r#"
struct text { char bytes[48]; } first, second;
static int numbers[10];
static int counter;
static int fib(int n) { return n < 2 ? n : fib(n - 1) + fib(n - 2); }
static void sort(int *from, int count)
{
    for (int i = 1; i < count; i++)
        for (int j = i; j > 0 && from[j - 1] > from[j]; j--) {
            int other = from[j];
            from[j] = from[j - 1];
            from[j - 1] = other;
        }
}
int main(void)
{
    for (int i = 0; i < 10; i++)
        numbers[i] = i * 7 % 11 + fib(i & 3);
    sort(numbers, 10);
    for (int i = 0; i < 48; i++)
        first.bytes[i] = (char)numbers[i % 10];
    second = first;
#ifdef __aarch64__
    for (int i = 0; i < 3; i++)
        __atomic_fetch_add(&counter, numbers[i], __ATOMIC_SEQ_CST);
#endif
    return second.bytes[5] == counter;
}
void _start(void)
{
    main();
    __asm__ volatile ("udf #0");
}
"#;

/// The stores among the accesses are those of the register log, instruction by instruction.
fn same_stores(guest: &Guest) {
    let file = guest.directory.path().join("registers");
    let snapshot = recorded(guest, &["--witness-registers", file.to_str().unwrap()]);
    let counts = fits_history(&snapshot);
    let all = accesses(&snapshot);
    let (instructions, accesses) = &all["cpu_0"];
    let reader = std::io::BufReader::new(std::fs::File::open(&file).unwrap());
    let mut reader = armsnap::record::register_log::Reader::new(reader).unwrap();
    assert!(reader.step().unwrap());
    let (mut next, mut stores) = (0, 0);
    for instruction in 0..*instructions {
        assert!(reader.step().unwrap(), "{instruction}");
        let own = accesses[next..].iter();
        let own: Vec<&Accessed> = own.take_while(|a| a.instruction == instruction).collect();
        next += own.len();
        let own = own.iter().filter(|accessed| accessed.access.store);
        let own: Vec<(u64, u32)> = own.map(|a| (a.access.address, a.access.bytes)).collect();
        assert_eq!(own, joined(reader.stores()), "instruction {instruction}");
        stores += own.len();
    }
    assert_eq!(next, counts[0]);
    assert!(stores > 100 && next - stores > 100, "{stores} of {next}");
}

#[test]
fn stores_equal_the_register_log() {
    for architecture in ["aarch64", "arm"] {
        let mut options = vec!["-O1", "-static", "-nostdlib"];
        options.push("-fno-tree-loop-distribute-patterns");
        if architecture == "aarch64" {
            // Exclusive accesses never succeed when single-stepped.
            options.push("-march=armv8.1-a");
        }
        if let Some(guest) = build(architecture, "program.c", PROGRAM, &options) {
            same_stores(&guest);
        }
    }
}

#[test]
fn the_first_half_of_a_store_that_faults_is_not_listed() {
    // The second register is stored on the page after the stack.
    let source = r#"
        .global _start
_start: mov x8, #222
        mov x0, #0
        mov x1, #4096
        mov x2, #3
        mov x3, #0x22
        mov x4, #-1
        mov x5, #0
        svc #0
        add x1, x0, #4088
        ldr x6, [x0, #16]!
        ldp q0, q1, [x0], #32
        strb w6, [x1, #3]
        cbz x0, _start
        stp x0, x1, [x1]
"#;
    let Some(guest) = assemble("aarch64", source) else {
        return;
    };
    let snapshot = recorded(&guest, &[]);
    let all = accesses(&snapshot);
    let (instructions, accesses) = &all["cpu_0"];
    assert_eq!(*instructions, 13);
    let page = accesses[0].access.address - 16;
    let access = |instruction, offset, bytes, store| Accessed {
        instruction,
        pc: guest.symbol("_start") + 4 * instruction,
        access: Access {
            address: page + offset,
            bytes,
            store,
        },
    };
    let expected = [
        access(9, 16, 8, false),
        access(10, 16, 32, false),
        access(11, 4091, 1, true),
    ];
    assert_eq!(page % 4096, 0);
    assert_eq!(*accesses, expected);
}

#[test]
fn addresses_of_threads_and_systems_fit_their_histories() {
    let mut cores = 0;
    for program in all() {
        let wanted = ["threads-", "irq-", "cores-", "exceptions-", "signals-"];
        if !wanted.iter().any(|name| program.name.starts_with(name)) {
            continue;
        }
        let recording = Recording::of(program, &["--data-addresses"]);
        let counts = fits_history(&recording.snapshot());
        assert!(counts[0] > 10, "{}: {counts:?}", program.name);
        cores += counts.len();
    }
    assert!(cores > 10 || all().is_empty());
}
