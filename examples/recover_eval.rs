//! Development only: compares recovered values with a log of true states.
use armsnap::arch::{Architecture, RegisterFile, Space};
use armsnap::record::register_log::Reader;
use armsnap::recover::{FinalState, Known, Options, Recovery, SnapshotMemory, Status};
use armsnap::semantics::Location;
use armsnap::snapshot::memory::CoreMemory;
use armsnap::snapshot::recording::Recording;
use armsnap::snapshot::{OpenOptions, model::Snapshot};
use armsnap::timeline::{Direction, Entry, PointKind, Timeline, TracedCore};
use std::sync::Arc;

fn states(path: &str) -> Vec<[u64; 34]> {
    let file = std::io::BufReader::new(std::fs::File::open(path).unwrap());
    if path.ends_with(".raw") {
        use std::io::Read;
        let mut all = Vec::new();
        let mut f = file;
        let mut buf = [0_u8; 34 * 8];
        while f.read_exact(&mut buf).is_ok() {
            let mut s = [0; 34];
            for (slot, b) in s.iter_mut().zip(buf.chunks(8)) {
                *slot = u64::from_le_bytes(b.try_into().unwrap());
            }
            all.push(s);
        }
        return all;
    }
    let mut reader = Reader::new(file).unwrap();
    let names = reader.names().to_vec();
    let slot = |name: &str| match name {
        "sp" => Some(31),
        "pc" => Some(32),
        "cpsr" => Some(33),
        n => n.strip_prefix('x').and_then(|n| n.parse::<usize>().ok()),
    };
    let slots: Vec<Option<usize>> = names.iter().map(|n| slot(n)).collect();
    let mut all = Vec::new();
    while reader.step().unwrap() {
        let mut s = [0; 34];
        for (v, to) in reader.values().iter().zip(&slots) {
            if let Some(to) = to {
                s[*to] = *v;
            }
        }
        all.push(s);
    }
    all
}

fn main() {
    let args: Vec<String> = std::env::args().collect();
    let loaded = Snapshot::open(std::path::Path::new(&args[1]), &OpenOptions::default()).unwrap();
    let states = states(&args[2]);
    let samples: usize = args.get(3).map_or(300, |s| s.parse().unwrap());
    let verbose: usize = args.get(4).map_or(0, |s| s.parse().unwrap());
    let device = &loaded.snapshot.devices[0];
    let mut memory = CoreMemory::new(&loaded, device);
    let mut elfs = Vec::new();
    for p in std::fs::read_dir(&args[1]).unwrap().flatten() {
        if let Ok(elf) = armsnap::program::elf::Elf::open(&p.path()) {
            if elfs.is_empty() {
                elfs.push(elf);
            }
        }
    }
    let _ = &mut memory;
    let memory = Arc::new(memory);
    let mut timeline = Timeline::open(
        &loaded,
        &[TracedCore {
            device: 0,
            memory: Arc::clone(&memory),
        }],
    );
    let history = timeline.history(0).unwrap();
    println!(
        "end agrees {:?}, states {}",
        history.end_agrees(),
        states.len()
    );
    let file = RegisterFile::read(device, Architecture::AArch64);
    let facts = FinalState {
        registers: FinalState::locations(&file),
        memory: Box::new(SnapshotMemory::new(Arc::clone(&memory), Space::Any, &elfs)),
        other_writers: false,
        without_kernel: Recording::of(&loaded.snapshot).linux_program,
        addresses: if std::env::var_os("ADDRESSES").is_some() {
            armsnap::snapshot::data_addresses::open(&loaded, &device.name)
                .map(|a| Box::new(a.unwrap()) as _)
        } else {
            None
        },
    };
    let mut recovery = Recovery::new(facts, Options::default());
    if std::env::var_os("PROVED").is_some() {
        recovery.set_level(armsnap::recover::Level::Proved);
    }
    // all positions
    let end = history.end();
    let mut positions = vec![end];
    let last = history.step(end, Direction::Backward).unwrap();
    let mut total = 0;
    let mut runs = Vec::new();
    for e in history.entries(last, Direction::Backward) {
        match e.entry {
            Entry::Run { range, .. } => {
                runs.push((e.position, range.instructions));
                total += range.instructions;
            }
            Entry::Gap(g) => {
                println!("gap {g:?} at {}", e.position);
                runs.push((e.position, 1));
            }
            _ => {}
        }
        if total > 1_200_000 {
            break;
        }
    }
    for (p, n) in runs {
        for i in (0..n).rev() {
            positions.push(p.after(i.into()));
        }
    }
    println!("positions {}", positions.len());
    let t = std::time::Instant::now();
    let far = positions
        [(positions.len() - 1).min(std::env::var("FAR").map_or(100_000, |s| s.parse().unwrap()))];
    let _ = recovery.registers(history, far, &armsnap::stop::Cancel::default());
    println!(
        "solved in {:?}; peak {}",
        t.elapsed(),
        std::fs::read_to_string("/proc/self/status")
            .unwrap()
            .lines()
            .find(|l| l.starts_with("VmHWM"))
            .unwrap()
    );
    let n = states.len() - 1;
    // check alignment
    for back in [1_usize, 2, 50, 1000, 10000] {
        if back >= positions.len() || back > n {
            break;
        }
        let pc = history.place(positions[back]).unwrap().pc().unwrap().0;
        assert_eq!(pc, states[n - back][32], "at {back} back");
    }
    if let Ok(step) = std::env::var("SPSCAN") {
        let step: usize = step.parse().unwrap();
        let mut before = true;
        let from: usize = std::env::var("FROM").map_or(1, |s| s.parse().unwrap());
        for back in (from..positions.len().min(from + 400 * step)).step_by(step) {
            let found = recovery
                .registers(history, positions[back], &armsnap::stop::Cancel::default())
                .unwrap();
            let known = found.get(Location::SP).is_some();
            if known != before {
                println!(
                    "sp known {known} at {back} back {} pc {:x?}",
                    positions[back],
                    history.place(positions[back]).unwrap().pc()
                );
                before = known;
            }
        }
    }
    let mut seed = 12345_u64;
    let mut rand = move || {
        seed = seed
            .wrapping_mul(6364136223846793005)
            .wrapping_add(1442695040888963407);
        (seed >> 33) as usize
    };
    for (lo, hi) in [
        (1, 100),
        (100, 1000),
        (1000, 10_000),
        (10_000, 100_000),
        (100_000, 1_000_000),
    ] {
        if hi > positions.len() * 3 / 2 || lo > n {
            break;
        }
        let hi = hi.min(positions.len() - 1).min(n);
        let (mut read, mut right, mut wrong, mut proved, mut pwrong) = (0_u64, 0, 0, 0, 0);
        let (mut all, mut all_right, mut sp, mut sp_right, mut lr, mut lr_right) =
            (0_u64, 0, 0_u64, 0, 0_u64, 0);
        let mut mem = [0_u64; 5];
        for _ in 0..samples.min(2 * (hi - lo)) {
            let back = lo + rand() % (hi - lo);
            let position = positions[back];
            let Some(place) = history.place(position) else {
                continue;
            };
            let PointKind::Instruction { pc, .. } = place.kind else {
                continue;
            };
            let truth = &states[n - back];
            let found = recovery
                .registers(history, position, &armsnap::stop::Cancel::default())
                .unwrap();
            let mut bytes = [0; 4];
            memory.read(pc, Space::Any, &mut bytes);
            let semantics = armsnap::semantics::a64::decode(u32::from_le_bytes(bytes), pc.0);
            let mut reads = [false; 32];
            let mut written = [false; 256];
            for r in &semantics.relations {
                for o in [r.a, r.b, r.c] {
                    if let armsnap::semantics::Operand::Location(l) = o {
                        if l.index() < 32 && !written[l.index()] {
                            reads[l.index()] = true;
                        }
                    }
                }
                written[r.destination.index()] = true;
            }
            for l in 0..32 {
                let loc = if l == 31 {
                    Location::SP
                } else {
                    Location::general(l as u8)
                };
                let k = found.get(loc);
                let ok = k.is_some_and(|k| k.value == truth[l]);
                all += 1;
                all_right += u64::from(ok);
                if l == 31 {
                    sp += 1;
                    sp_right += u64::from(ok);
                }
                if l == 30 {
                    lr += 1;
                    lr_right += u64::from(ok);
                }
                if let Some(Known { value, status }) = k
                    && value != truth[l]
                {
                    if status == Status::Proved {
                        pwrong += 1;
                    }
                    if verbose > 0 {
                        println!(
                            "WRONG {status} {loc:?} at {back} back {position} pc {pc:?}: {value:#x} is {:#x}",
                            truth[l]
                        );
                    }
                    if reads[l] {
                        wrong += 1;
                    }
                }
                if reads[l] {
                    read += 1;
                    right += u64::from(ok);
                    if ok && k.unwrap().status == Status::Proved {
                        proved += 1;
                    }
                    if k.is_none() && verbose > 1 {
                        println!("unknown {loc:?} at {back} back {position} pc {pc:?}");
                    }
                }
            }
            // flags
            for (loc, bit) in [
                (Location::N, 31),
                (Location::Z, 30),
                (Location::C, 29),
                (Location::V, 28),
            ] {
                if let Some(k) = found.get(loc) {
                    if k.value != truth[33] >> bit & 1 {
                        println!(
                            "WRONG FLAG {loc:?} {} at {back} {position} pc {pc:?}",
                            k.status
                        );
                    }
                }
            }
            // stack memory: 16 words above sp against nothing (no truth for memory here)
            let mut out = [None; 64];
            recovery
                .memory(
                    history,
                    position,
                    truth[31],
                    &mut out,
                    &armsnap::stop::Cancel::default(),
                )
                .unwrap();
            mem[0] += 64;
            mem[1] += out.iter().flatten().count() as u64;
            mem[2] += out
                .iter()
                .flatten()
                .filter(|k| k.status == Status::Proved)
                .count() as u64;
        }
        let p = |a: u64, b: u64| 100.0 * a as f64 / b.max(1) as f64;
        println!(
            "{lo:>7}..{hi:<7} read: proved {:.1} right {:.2} wrong {:.3} ({wrong}) | all {:.1} sp {:.2} lr {:.1} | proved wrong {pwrong} | stack {:.1} proved {:.1}",
            p(proved, read),
            p(right, read),
            p(wrong, right + wrong),
            p(all_right, all),
            p(sp_right, sp),
            p(lr_right, lr),
            p(mem[1], mem[0]),
            p(mem[2], mem[0])
        );
    }
    println!("limits {:?}", recovery.limits(history));
}
