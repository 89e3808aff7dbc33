//! Measures the time and memory of walks in a history.
//!
//! ```text
//! cargo bench --bench timeline -- make DIRECTORY MIB        # makes a snapshot with MIB of trace
//! cargo bench --bench timeline -- make-one DIRECTORY MIB    # the same, with one A-sync
//! cargo bench --bench timeline -- measure DIRECTORY JOBS    # measures these or any snapshot
//! cargo bench --bench timeline -- cached DIRECTORY JOBS     # the same, with the user's cache
//! ```

use armsnap::cache::Cache;
use armsnap::element::Context;
use armsnap::encode::{CodeAddress, Tracer};
use armsnap::etmv4::{TraceUnit, TraceUnitOptions};
use armsnap::flow::Pieces;
use armsnap::formatter::encode::Encoder;
use armsnap::quantity::{Address, ExceptionLevel, Isa, Security, TraceId};
use armsnap::snapshot::OpenOptions;
use armsnap::snapshot::memory::CoreMemory;
use armsnap::snapshot::model::{DeviceClass, Snapshot};
use armsnap::timeline::{AddressSet, Direction, Gaps, Options, Timeline, TracedCore};
use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

const BASE: u64 = 0x40_0000;
/// Bytes of trace after which it repeats.
const REPEAT: usize = 64 << 20;
/// Bytes of trace between two A-syncs.
const SYNC: usize = 4 << 10;

/// Pseudo-random numbers (xorshift64*, Vigna).
struct Dice(u64);

impl Dice {
    fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 16) % end
    }
}

#[derive(Clone, Copy)]
enum End {
    Conditional { target: usize, taken: u64 },
    Branch { target: usize },
    Call { target: usize },
    Return,
}

struct Block {
    start: u64,
    last: u64,
    end: End,
}

/// A program of blocks that branch to each other.
fn program(dice: &mut Dice) -> (Vec<Block>, Vec<u8>) {
    const BLOCKS: usize = 30_000;
    let mut blocks = Vec::new();
    let mut at = BASE;
    for number in 0..BLOCKS {
        let last = at + 4 * (1 + dice.below(9));
        let near = (number as u64 + dice.below(30)).saturating_sub(15) as usize % BLOCKS;
        let far = dice.below(BLOCKS as u64) as usize;
        let end = match dice.below(10) {
            0 => End::Branch { target: near },
            1 | 2 => End::Call { target: far },
            3 | 4 => End::Return,
            _ => End::Conditional {
                target: near,
                taken: [5, 20, 80, 95][dice.below(4) as usize],
            },
        };
        blocks.push(Block {
            start: at,
            last,
            end,
        });
        at = last + 4;
    }
    let mut code = Vec::new();
    for block in &blocks {
        let offset = |target: usize| (blocks[target].start.wrapping_sub(block.last) >> 2) as u32;
        for _ in (block.start..block.last).step_by(4) {
            code.extend(0xd503_201f_u32.to_le_bytes());
        }
        let word = match block.end {
            End::Conditional { target, .. } => 0x5400_0000 | (offset(target) & 0x7_ffff) << 5,
            End::Branch { target } => 0x1400_0000 | offset(target) & 0x3ff_ffff,
            End::Call { target } => 0x9400_0000 | offset(target) & 0x3ff_ffff,
            End::Return => 0xd65f_03c0,
        };
        code.extend(word.to_le_bytes());
    }
    (blocks, code)
}

fn make(directory: &Path, mib: usize, (repeat, sync): (usize, usize)) {
    let mut dice = Dice(0x1234_5678_9abc_def1);
    let (blocks, code) = program(&mut dice);
    let mut pieces = Pieces::default();
    pieces.add(Address(BASE), code.clone());
    let options = TraceUnitOptions {
        return_stack: true,
        ..TraceUnitOptions::default()
    };
    let mut tracer = Tracer::new(TraceUnit::new(options), pieces, sync);
    tracer.context(Context {
        isa: Isa::A64,
        el: Some(ExceptionLevel(1)),
        security: Some(Security::NonSecure),
        is_64bit: Some(true),
        ..Context::default()
    });
    let place = |address| CodeAddress {
        address: Address(address),
        isa: Isa::A64,
    };
    let (mut here, mut calls, mut bytes) = (0, Vec::new(), Vec::new());
    let mut instructions = 0;
    while bytes.len() < repeat.min(mib << 20) {
        let block = &blocks[here];
        tracer.run(place(block.start), Address(block.last + 4));
        instructions += (block.last - block.start) / 4 + 1;
        here = match block.end {
            End::Conditional { target, taken } if dice.below(100) < taken => target,
            End::Branch { target } => target,
            End::Call { target } if target != here + 1 => {
                if calls.len() == 12 {
                    calls.remove(0);
                }
                calls.push(here + 1);
                target
            }
            End::Return => calls
                .pop()
                .unwrap_or_else(|| dice.below(blocks.len() as u64) as usize),
            End::Conditional { .. } | End::Call { .. } => here + 1,
        } % blocks.len();
        tracer.take(&mut bytes);
    }
    tracer.finish(Some(place(blocks[here].start)));
    tracer.take(&mut bytes);
    let copies = (mib << 20).div_ceil(bytes.len());
    println!("{copies} times {instructions} instructions");
    let mut frames = Vec::new();
    let mut encoder = Encoder::new();
    for _ in 0..copies {
        encoder.write(TraceId(options.trace_id), &bytes, &mut frames);
    }
    encoder.finish(&mut frames);
    fs::create_dir_all(directory).unwrap();
    let write = |name: &str, bytes: &[u8]| fs::write(directory.join(name), bytes).unwrap();
    write("trace.bin", &frames);
    write("code.bin", &code);
    write(
        "snapshot.ini",
        b"[snapshot]\nversion=1.0\n[device_list]\na=cpu.ini\nb=etm.ini\n[trace]\n\
          metadata=trace.ini\n",
    );
    let cpu = format!(
        "[device]\nname=cpu\nclass=core\ntype=Cortex-A57\n[regs]\nPC(size:64)={:#x}\n[dump]\n\
         file=code.bin\naddress={BASE:#x}\n",
        blocks[here].start
    );
    write("cpu.ini", cpu.as_bytes());
    let mut etm = "[device]\nname=etm\nclass=trace_source\ntype=ETM4.2\n[regs]\n".to_owned();
    for (name, value) in options.registers() {
        etm += &format!("{name}={value:#x}\n");
    }
    write("etm.ini", etm.as_bytes());
    write(
        "trace.ini",
        b"[trace_buffers]\nbuffers=b\n[b]\nname=b\nfile=trace.bin\nformat=coresight\n\
          [core_trace_sources]\ncpu=etm\n[source_buffers]\netm=b\n",
    );
}

/// The processor time of the process so far.
fn cpu_seconds() -> f64 {
    let stat = fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let fields = stat.rsplit(')').next().unwrap_or_default();
    let ticks = fields.split_whitespace().skip(11).take(2);
    ticks
        .filter_map(|field| field.parse::<f64>().ok())
        .sum::<f64>()
        / 100.0
}

/// The peak memory use of the process in MiB.
fn peak() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find(|line| line.starts_with("VmHWM:"));
    let kib = line.and_then(|line| line.split_whitespace().nth(1)?.parse::<u64>().ok());
    kib.unwrap_or(0) / 1024
}

fn measure(directory: &Path, jobs: usize, cache: Option<Arc<Cache>>) {
    let begun = Instant::now();
    let loaded = Snapshot::open(directory, &OpenOptions::default()).unwrap();
    let devices = loaded.snapshot.devices.iter().enumerate();
    let cores: Vec<TracedCore> = devices
        .filter(|(_, device)| device.class == DeviceClass::Core)
        .map(|(index, device)| TracedCore {
            device: index,
            memory: Arc::new(CoreMemory::new(&loaded, device)),
        })
        .collect();
    let options = Options {
        jobs,
        ..Options::default()
    };
    let mut timeline = match &cache {
        Some(cache) => Timeline::cached(&loaded, &cores, &options, cache),
        None => Timeline::with(&loaded, &cores, &options),
    };
    let said = |what: &str, begun: Instant| {
        println!(
            "{what:44} {:9.3} s, peak {} MiB",
            begun.elapsed().as_secs_f64(),
            peak()
        );
    };
    for core in &cores {
        let Some(history) = timeline.history(core.device) else {
            continue;
        };
        let end = history.end();
        let place = history.place(end);
        said("first place", begun);
        println!("    {:.3} s of processor time", cpu_seconds());
        println!("    {end}: {:?}", place.map(|place| place.kind));
        let never: AddressSet = [Address(0x1234_5670)].into_iter().collect();
        let from = Instant::now();
        let mut here = end;
        for number in 0..10_000 {
            let Some(before) = history.step(here, Direction::Backward) else {
                break;
            };
            history.place(before);
            here = before;
            if number == 9 {
                println!(
                    "    10 steps: {:.3} s of processor time in all",
                    cpu_seconds()
                );
            }
        }
        said("10000 steps back", from);
        let from = Instant::now();
        let found = history.search(end, Direction::Backward, &never, Gaps::Pass);
        said("search backward to the start", from);
        println!("    {found:?}");
        let begin = history.begin();
        let from = Instant::now();
        let found = history.search(begin, Direction::Forward, &never, Gaps::Pass);
        said("search forward to the end", from);
        println!("    {found:?}");
        let from = Instant::now();
        let entries = history.entries(begin, Direction::Forward).take(10_000_000);
        let places: u64 = entries.map(|event| event.entry.places()).sum();
        said("10 million entries from the start", from);
        println!("    {places} places");
    }
}

fn main() {
    let arguments: Vec<String> = std::env::args()
        .filter(|argument| argument != "--bench")
        .collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[1..] {
        ["make", directory, mib] => {
            make(Path::new(directory), mib.parse().unwrap(), (REPEAT, SYNC))
        }
        ["make-one", directory, mib] => {
            make(Path::new(directory), mib.parse().unwrap(), (usize::MAX, 0))
        }
        ["measure", directory, jobs] => measure(Path::new(directory), jobs.parse().unwrap(), None),
        ["cached", directory, jobs] => {
            let cache = Cache::of_user().map(Arc::new);
            measure(Path::new(directory), jobs.parse().unwrap(), cache);
        }
        _ => println!(
            "usage: make DIRECTORY MIB | make-one DIRECTORY MIB | measure DIRECTORY JOBS | \
             cached DIRECTORY JOBS"
        ),
    }
}
