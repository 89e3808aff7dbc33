//! Past values of programs whose other threads have ended.

use crate::support::record::{build, forget_start, record};
use armsnap::arch::{Architecture, RegisterFile, Space};
use armsnap::program::elf::Elf;
use armsnap::quantity::Address;
use armsnap::recover::{FinalState, Options, Others, Recovery, SnapshotMemory, Status};
use armsnap::snapshot::memory::CoreMemory;
use armsnap::snapshot::model::Snapshot;
use armsnap::snapshot::{OpenOptions, OpenSnapshot};
use armsnap::stop::Cancel;
use armsnap::timeline::{Direction, History, Position, Timeline, TracedCore};
use object::{Object, ObjectSymbol};
use std::path::Path;
use std::sync::Arc;

/// Threads fill cells; when they have ended, these are copied and overwritten.
const SOURCE: &str = "
    #include <pthread.h>
    volatile unsigned long cells[8], copies[8];
    static void *work(void *argument) {
        unsigned long number = (unsigned long)argument;
        for (int i = 0; i < 3000; i++) cells[number] = 0x1111 * (number + 1);
        return 0;
    }
    __attribute__((noinline)) void joins(pthread_t *threads) {
        for (int i = 0; i < 8; i++) pthread_join(threads[i], 0);
    }
    /* Long enough for the time of the trace to be known. */
    __attribute__((noinline)) void waits(void) { for (volatile int i = 0; i < 2000; i++); }
    __attribute__((noinline)) void overwrites(void) {
        for (int i = 0; i < 8; i++) { copies[i] = cells[i]; cells[i] = ~copies[i] & 7; }
    }
    int main(void) {
        pthread_t threads[8];
        for (unsigned long i = 0; i < 8; i++) pthread_create(&threads[i], 0, work, (void *)i);
        joins(threads);
        waits();
        overwrites();
        __builtin_trap();
    }
";

/// The latest position at an address.
fn last_at(history: &mut History, address: u64) -> Position {
    let mut at = history.end();
    loop {
        at = history.step(at, Direction::Backward).unwrap();
        if history.place(at).and_then(|place| place.pc()) == Some(Address(address)) {
            return at;
        }
    }
}

/// What is known of bytes.
type Bytes = Vec<Option<(u8, Status)>>;

/// What is known of the cells where two functions were entered.
fn cells(directory: &Path, program: &Path) -> (Others, [Bytes; 2]) {
    let loaded: OpenSnapshot = Snapshot::open(directory, &OpenOptions::default()).unwrap();
    let device = &loaded.snapshot.devices[0];
    let memory = Arc::new(CoreMemory::new(&loaded, device));
    let traced = TracedCore {
        device: 0,
        memory: Arc::clone(&memory),
    };
    let mut timeline = Timeline::open(&loaded, &[traced]);
    let history = timeline.history(0).unwrap();
    let elf = Elf::open(program).unwrap();
    let registers = RegisterFile::read(device, Architecture::AArch64);
    let memory = SnapshotMemory::new(memory, Space::Any, [&elf]);
    let facts = FinalState {
        status: None,
        addresses: None,
        ..FinalState::of(&loaded, &device.name, &registers, memory, [&elf])
    };
    let others = facts.others;
    let file = object::File::parse(elf.bytes()).unwrap();
    let symbol = |name| {
        let mut symbols = file.symbols();
        let symbol = symbols.find(|symbol| symbol.name() == Ok(name));
        symbol.unwrap().address()
    };
    let mut recovery = Recovery::new(facts, Options::default());
    let found = ["joins", "overwrites"].map(|function| {
        let at = last_at(history, symbol(function));
        let mut bytes = [None; 64];
        let cells = symbol("cells");
        recovery
            .memory(history, at, cells, &mut bytes, &Cancel::default())
            .unwrap();
        let bytes = bytes.into_iter();
        bytes
            .map(|byte| byte.map(|known| (known.value, known.status)))
            .collect()
    });
    (others, found)
}

#[test]
fn memory_is_followed_from_where_all_other_threads_had_ended() {
    let Some(guest) = build(
        "aarch64",
        "threads.c",
        SOURCE,
        &["-O2", "-static", "-pthread"],
    ) else {
        return;
    };
    let run = record(&guest, "snapshot", &[], &[]);
    assert!(run.status.success(), "{run:?}");
    let directory = guest.directory.path().join("snapshot");
    // By the end alone.
    forget_start(&directory);
    let (others, [running, alone]) = cells(&directory, &guest.program);
    assert!(matches!(others, Others::EndedBy(_)), "{others:?}");
    // While others ran, nothing in memory is known.
    assert!(running.iter().all(Option::is_none), "{running:x?}");
    let written = (1..=8).flat_map(|number| (0x1111 * number as u64).to_le_bytes());
    let written: Vec<_> = written.map(|byte| Some((byte, Status::Inferred))).collect();
    assert_eq!(alone, written);

    // Without the times of the ends, it is not known that the other threads had ended there.
    let ini = directory.join("snapshot.ini");
    let text = std::fs::read_to_string(&ini).unwrap();
    let without: Vec<&str> = text
        .lines()
        .filter(|line| !line.starts_with("ended_at="))
        .collect();
    assert_ne!(without.len(), text.lines().count());
    std::fs::write(&ini, without.join("\n")).unwrap();
    let (others, [_, unknown]) = cells(&directory, &guest.program);
    assert_eq!(others, Others::Always);
    assert!(unknown.iter().all(Option::is_none), "{unknown:x?}");
}
