//! The index of a long trace, read from a file: whatever is in it, the history is that of the trace.
#![no_main]

use armsnap::cache::{Cache, Limits, Name};
use armsnap::element::Context;
use armsnap::encode::{CodeAddress, Tracer};
use armsnap::etmv4::{TraceUnit, TraceUnitOptions};
use armsnap::flow::Pieces;
use armsnap::quantity::{Address, ExceptionLevel, Isa, Security};
use armsnap::snapshot::OpenSnapshot;
use armsnap::snapshot::files::InMemory;
use armsnap::snapshot::memory::CoreMemory;
use armsnap::timeline::{
    AddressSet, Direction, Entry, Event, Found, Gaps, Options, Timeline, TracedCore,
};
use libfuzzer_sys::fuzz_target;
use std::fs;
use std::sync::{Arc, OnceLock};

/// Bytes of trace: enough for an index.
const BYTES: usize = 24 << 10;
const LINES: [u64; 2] = [0x40_0000, 0x1_2340_0000];

/// A long trace with one synchronisation point, its index and its history.
struct Known {
    loaded: OpenSnapshot,
    cache: Arc<Cache>,
    name: Name,
    index: Vec<u8>,
    events: Vec<Event>,
}

fn loaded() -> OpenSnapshot {
    // nop; br x0
    let code: Vec<u8> = [0xd503_201f_u32, 0xd61f_0000]
        .iter()
        .flat_map(|word| word.to_le_bytes())
        .collect();
    let mut pieces = Pieces::default();
    for line in LINES {
        pieces.add(Address(line), code.clone());
    }
    let unit = TraceUnitOptions::default();
    let mut tracer = Tracer::new(TraceUnit::new(unit), pieces, 0);
    tracer.context(Context {
        isa: Isa::A64,
        el: Some(ExceptionLevel(1)),
        security: Some(Security::NonSecure),
        is_64bit: Some(true),
        ..Context::default()
    });
    let place = |line: u64| CodeAddress {
        address: Address(line),
        isa: Isa::A64,
    };
    let (mut trace, mut here) = (Vec::new(), 0);
    while trace.len() < BYTES {
        tracer.run(place(LINES[here]), Address(LINES[here] + 8));
        here = 1 - here;
        tracer.take(&mut trace);
    }
    tracer.finish(Some(place(LINES[here])));
    tracer.take(&mut trace);
    let cpu = format!(
        "[device]\nname=cpu\nclass=core\ntype=Cortex-A57\n[regs]\nPC(size:64)={:#x}\n\
         [dump1]\nfile=code.bin\naddress={:#x}\n[dump2]\nfile=code.bin\naddress={:#x}\n",
        LINES[here], LINES[0], LINES[1]
    );
    let mut etm = "[device]\nname=etm\nclass=trace_source\ntype=ETM4.2\n[regs]\n".to_owned();
    for (name, value) in unit.registers() {
        etm += &format!("{name}={value:#x}\n");
    }
    let texts = [
        (
            "snapshot.ini",
            "[snapshot]\nversion=1.0\n[device_list]\na=cpu.ini\nb=etm.ini\n[trace]\n\
             metadata=trace.ini\n"
                .to_owned(),
        ),
        ("cpu.ini", cpu),
        ("etm.ini", etm),
        (
            "trace.ini",
            "[trace_buffers]\nbuffers=b\n[b]\nname=b\nfile=trace.bin\nformat=source_data\n\
             [core_trace_sources]\ncpu=etm\n[source_buffers]\netm=b\n"
                .to_owned(),
        ),
    ];
    let mut files = InMemory::default();
    for (name, text) in texts {
        files.0.insert(name.to_owned(), text.into_bytes().into());
    }
    files.0.insert("code.bin".to_owned(), code.into());
    files.0.insert("trace.bin".to_owned(), trace.into());
    OpenSnapshot::from_files(Arc::new(files), "snapshot.ini").unwrap()
}

/// The history, and whether a search through all of it ends at its start.
fn seen(loaded: &OpenSnapshot, cache: &Arc<Cache>) -> (Vec<Event>, bool) {
    let memory = CoreMemory::new(loaded, &loaded.snapshot.devices[0]);
    let core = TracedCore {
        device: 0,
        memory: Arc::new(memory),
    };
    let options = Options {
        chunk_bytes: 512,
        part_bytes: 512,
        ..Options::default()
    };
    let mut timeline = Timeline::cached(loaded, &[core], &options, cache);
    let history = timeline.history(0).unwrap();
    let begin = history.begin();
    let events: Vec<Event> = history.entries(begin, Direction::Forward).collect();
    assert_eq!(events.last().map(|event| event.entry), Some(Entry::Halted));
    let never: AddressSet = [Address(4)].into_iter().collect();
    let end = history.end();
    let found = history.search(end, Direction::Backward, &never, Gaps::Pass);
    (events, found == Found::End(begin))
}

fn known() -> &'static Known {
    static KNOWN: OnceLock<Known> = OnceLock::new();
    KNOWN.get_or_init(|| {
        let name = format!("armsnap-fuzz-index-{}", std::process::id());
        let directory = std::env::temp_dir().join(name);
        let _ = fs::remove_dir_all(&directory);
        let cache = Arc::new(Cache::at(directory, Limits::default()));
        let loaded = loaded();
        let (events, whole) = seen(&loaded, &cache);
        assert!(whole);
        let name = cache.names()[0];
        Known {
            index: cache.get(name).unwrap(),
            loaded,
            cache,
            name,
            events,
        }
    })
}

fuzz_target!(|bytes: &[u8]| {
    let Some((&mode, bytes)) = bytes.split_first() else {
        return;
    };
    let known = known();
    match mode % 3 {
        // Any file.
        0 => fs::write(known.cache.path(known.name), bytes).unwrap(),
        // Any contents, as if they were written here.
        1 => known.cache.put(known.name, bytes),
        // A few bytes of the right contents changed.
        _ => {
            let mut index = known.index.clone();
            for &[a, b, c, value] in bytes.as_chunks().0.iter().take(8) {
                let at = usize::from(a) << 16 | usize::from(b) << 8 | usize::from(c);
                let length = index.len();
                index[at % length] = value;
            }
            known.cache.put(known.name, &index);
        }
    }
    let (events, whole) = seen(&known.loaded, &known.cache);
    assert!(whole && events == known.events);
});
