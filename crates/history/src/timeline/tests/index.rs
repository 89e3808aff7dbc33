//! Histories with an index are the same as without one, whatever its file contains.

use super::*;
use armsnap_snapshot::cache::{Limits, Name};
use tempfile::TempDir;

/// A cache in a new directory.
fn cache() -> (TempDir, Arc<Cache>) {
    let directory = tempfile::tempdir().unwrap();
    let cache = Cache::at(directory.path().join("armsnap"), Limits::default());
    (directory, Arc::new(cache))
}

fn open_cached(loaded: &OpenSnapshot, options: &Options, cache: &Arc<Cache>) -> Timeline {
    let memory = CoreMemory::new(loaded, &loaded.snapshot.devices[0]);
    let core = TracedCore {
        device: 0,
        memory: Arc::new(memory),
    };
    Timeline::cached(loaded, &[core], options, cache)
}

/// Everything visible in a history.
#[derive(Debug, PartialEq)]
struct Seen {
    events: Vec<Event>,
    backward: Vec<Event>,
    searches: Vec<Found>,
    cycles: Option<u64>,
    end: EndAgrees,
}

impl Seen {
    fn of(history: &mut History) -> Self {
        let events = events(history);
        let (begin, end) = (history.begin(), history.end());
        let places = places(history);
        let step = 1 + places.len() / 2;
        let mut searches = Vec::new();
        let targets = places.iter().step_by(step).map(|place| place.1);
        for target in targets.chain([Some(Address(4)), None]) {
            let set: AddressSet = target.into_iter().collect();
            for gaps in [Gaps::Stop, Gaps::Pass] {
                for from in places
                    .iter()
                    .step_by(step)
                    .map(|place| place.0)
                    .chain([end])
                {
                    searches.push(history.search(from, Direction::Forward, &set, gaps));
                    searches.push(history.search(from, Direction::Backward, &set, gaps));
                }
            }
        }
        assert!(history.contains(begin));
        Self {
            events,
            backward: history.entries(end, Direction::Backward).collect(),
            searches,
            cycles: history.cycles(end),
            end: history.end_agrees(),
        }
    }
}

/// What is visible without an index.
fn plainly(loaded: &OpenSnapshot, options: &Options) -> Seen {
    Seen::of(open(loaded, options).history(0).unwrap())
}

/// What is visible with a cache, and whether the end was known without decoding.
fn seen(loaded: &OpenSnapshot, options: &Options, cache: &Arc<Cache>) -> (Seen, bool) {
    let mut timeline = open_cached(loaded, options, cache);
    let history = timeline.history(0).unwrap();
    let at_once = history.reach_end(&Cancel::default().limited_to(0));
    (Seen::of(history), at_once)
}

/// A trace with one synchronisation point, at its start.
fn program(seed: u64, length: usize) -> (Program, Source) {
    let program = Program::random(seed, Mix::all(Sets::Both), length);
    let unit = TraceUnitOptions {
        timestamps: true,
        cycles: Some(4),
        return_stack: true,
        context_ids: true,
        ..TraceUnitOptions::default()
    };
    let source = etmv4(&program, unit, 0);
    (program, source)
}

fn small() -> Options {
    options(400, 5000)
}

fn only(cache: &Cache) -> Name {
    let names = cache.names();
    assert_eq!(names.len(), 1, "{names:?}");
    names[0]
}

#[test]
fn a_history_is_the_same_with_an_index_and_opens_without_decoding() {
    for (seed, layout) in (0..).zip(LAYOUTS) {
        let (program, source) = program(seed, 8_000);
        let loaded = snapshot(&program, &source, layout, 1 + seed as usize % 2);
        let (_directory, cache) = cache();
        let wanted = plainly(&loaded, &small());
        assert_eq!(cache.names(), []);
        let (cold, at_once) = seen(&loaded, &small(), &cache);
        assert!(cold == wanted && !at_once, "{layout:?}");
        // Each buffer of the core has an index.
        assert_eq!(cache.names().len(), 1 + seed as usize % 2);
        for jobs in [1, 3] {
            let options = Options { jobs, ..small() };
            let (warm, at_once) = seen(&loaded, &options, &cache);
            assert!(warm == wanted, "{layout:?}");
            assert!(at_once, "{layout:?}: it was decoded again");
        }
    }
}

#[test]
fn older_protocols_have_an_index_too() {
    let program = Program::random(7, Mix::all(Sets::AArch32), 8_000);
    let registers = etm::Registers {
        etmcr: 0x2000_c000,
        etmccer: 0x34c0_1ac2,
        etmidr: 0x411c_f312,
        etmtraceidr: 2,
    };
    let unit = ptm::TraceUnit::new(ptm::Config::read(&registers, Core::default()));
    let ptm = legacy(&program, ("Cortex-A15", "PFT1.1"), registers, unit, 0);
    let registers = etm::Registers {
        etmcr: 0xc000,
        etmccer: 0x3440_08f2,
        etmidr: 0x410c_f250,
        etmtraceidr: 2,
    };
    let unit = etmv3::TraceUnit::new(etmv3::Config::read(&registers, Core::default()));
    let etmv3 = legacy(&program, ("Cortex-A7", "ETM3.5"), registers, unit, 0);
    for source in [ptm, etmv3] {
        let loaded = snapshot(&program, &source, Layout::Alone, 1);
        let (_directory, cache) = cache();
        let wanted = plainly(&loaded, &small());
        assert!(seen(&loaded, &small(), &cache).0 == wanted);
        let (warm, at_once) = seen(&loaded, &small(), &cache);
        assert!(warm == wanted && at_once, "{}", source.kind);
    }
}

#[test]
fn a_damaged_index_is_made_again() {
    let (program, source) = program(11, 8_000);
    let loaded = snapshot(&program, &source, Layout::Raw, 1);
    let (_directory, cache) = cache();
    let wanted = plainly(&loaded, &small());
    assert!(seen(&loaded, &small(), &cache).0 == wanted);
    let path = cache.path(only(&cache));
    let bytes = std::fs::read(&path).unwrap();
    for at in [0, 20, 60, bytes.len() / 2, bytes.len() - 1] {
        let mut damaged = bytes.clone();
        damaged[at] ^= 4;
        std::fs::write(&path, damaged).unwrap();
        let (have, at_once) = seen(&loaded, &small(), &cache);
        assert!(have == wanted && !at_once, "byte {at}");
        assert_eq!(std::fs::read(&path).unwrap(), bytes);
    }
    std::fs::write(&path, &bytes[..bytes.len() / 2]).unwrap();
    let (have, at_once) = seen(&loaded, &small(), &cache);
    assert!(have == wanted && !at_once);
}

#[test]
fn an_index_of_other_input_is_not_used() {
    let (program, mut source) = program(12, 8_000);
    let loaded = snapshot(&program, &source, Layout::Raw, 1);
    let (_directory, cache) = cache();
    seen(&loaded, &small(), &cache);
    let first = only(&cache);
    // Another byte of trace: another index, even if the size is the same.
    let middle = source.bytes.len() / 2;
    source.bytes[middle] ^= 1;
    let other = snapshot(&program, &source, Layout::Raw, 1);
    let (have, at_once) = seen(&other, &small(), &cache);
    assert!(have == plainly(&other, &small()) && !at_once);
    assert_eq!(cache.names().len(), 2);
    cache
        .names()
        .into_iter()
        .filter(|&name| name != first)
        .for_each(|name| cache.remove(name));
    // The same bytes in another format.
    let framed = snapshot(&program, &source, Layout::Alone, 1);
    let unframed = Source {
        bytes: buffer(&source, Layout::Alone),
        ..source.clone()
    };
    let unframed = snapshot(&program, &unframed, Layout::Raw, 1);
    seen(&framed, &small(), &cache);
    let (have, at_once) = seen(&unframed, &small(), &cache);
    assert!(have == plainly(&unframed, &small()) && !at_once);
    // Other registers of the trace source.
    source.bytes[middle] ^= 1;
    source.registers.retain(|(name, _)| *name != "TRCIDR0");
    let other = snapshot(&program, &source, Layout::Raw, 1);
    let (have, at_once) = seen(&other, &small(), &cache);
    assert!(have == plainly(&other, &small()) && !at_once);
    // Other code, under the same name.
    let (mut changed, source) = self::program(12, 8_000);
    let executed = changed.executed[changed.executed.len() / 2].address;
    for (address, bytes) in &mut changed.regions {
        let at = executed.0.wrapping_sub(*address) as usize;
        if let Some(byte) = bytes.get_mut(at..at + 4) {
            byte.fill(0);
        }
    }
    let other = snapshot(&changed, &source, Layout::Raw, 1);
    cache
        .names()
        .into_iter()
        .filter(|&name| name != first)
        .for_each(|name| cache.remove(name));
    let (have, at_once) = seen(&other, &small(), &cache);
    assert!(have == plainly(&other, &small()) && !at_once);
    assert_eq!(only(&cache), first);
    // It was replaced.
    let (have, at_once) = seen(&loaded, &small(), &cache);
    assert!(have == plainly(&loaded, &small()) && !at_once);
}

/// Changes digits in the segments of an index.
fn mutate(text: &mut [u8], seed: u64, changes: usize) {
    let mut random = seed;
    let segments = text.windows(10).position(|text| text == b"\"segments\"");
    let digits = segments.unwrap()..text.len();
    let digits: Vec<usize> = digits.filter(|&at| text[at].is_ascii_digit()).collect();
    for _ in 0..changes {
        random = random
            .wrapping_mul(6364136223846793005)
            .wrapping_add(1442695040888963407);
        let at = digits[(random >> 33) as usize % digits.len()];
        // No leading zero.
        text[at] = b'1' + (random >> 20) as u8 % 9;
    }
}

#[test]
fn an_index_that_contradicts_the_trace_is_not_believed() {
    let (program, source) = program(13, 8_000);
    for layout in [Layout::Raw, Layout::Synchronised] {
        let loaded = snapshot(&program, &source, layout, 1);
        let (_directory, cache) = cache();
        seen(&loaded, &small(), &cache);
        let name = only(&cache);
        let content = cache.get(name).unwrap();
        let wanted = events(open(&loaded, &small()).history(0).unwrap());
        let never: AddressSet = [Address(4)].into_iter().collect();
        let mut used = 0;
        for seed in 0..30 {
            let mut other = content.clone();
            mutate(&mut other, seed, 1 + seed as usize % 3);
            cache.put(name, &other);
            let mut timeline = open_cached(&loaded, &small(), &cache);
            let history = timeline.history(0).unwrap();
            used += usize::from(history.reach_end(&Cancel::default().limited_to(0)));
            if seed % 2 == 0 {
                let end = history.end();
                let found = history.search(end, Direction::Backward, &never, Gaps::Pass);
                assert_eq!(found, Found::End(history.begin()), "seed {seed}");
            }
            assert!(events(history) == wanted, "seed {seed}");
        }
        assert!(used > 4, "{used} were read");
    }
}

#[test]
fn histories_do_not_need_a_cache_that_works() {
    let (program, source) = program(14, 8_000);
    let loaded = snapshot(&program, &source, Layout::Alone, 1);
    let wanted = plainly(&loaded, &small());
    let file = tempfile::NamedTempFile::new().unwrap();
    let nowhere = Arc::new(Cache::at(file.path().join("armsnap"), Limits::default()));
    let (directory, _) = cache();
    let few = Limits {
        file: 3000,
        ..Limits::default()
    };
    let too_small = Arc::new(Cache::at(directory.path().join("few"), few));
    for cache in [nowhere, too_small] {
        for _ in 0..2 {
            assert!(seen(&loaded, &small(), &cache).0 == wanted);
        }
    }
    // With fewer parts, it fits.
    let (_directory, all) = cache();
    seen(&loaded, &small(), &all);
    let size = all.get(only(&all)).unwrap().len() as u64;
    let half = Limits {
        file: size * 2 / 3,
        ..Limits::default()
    };
    let half = Arc::new(Cache::at(directory.path().join("half"), half));
    assert!(seen(&loaded, &small(), &half).0 == wanted);
    let (have, at_once) = seen(&loaded, &small(), &half);
    assert!(have == wanted && at_once);
}
