//! Random places of a recorded program, and how the emulator gets there.

use crate::support::program::record::executed_in_order;
use armsnap::program::elf::Elf;
use armsnap::program::symbols::Symbols;
use armsnap::snapshot::memory::CoreMemory;
use armsnap::snapshot::model::Snapshot;
use armsnap::snapshot::{OpenOptions, OpenSnapshot};
use armsnap::timeline::{Direction, Timeline, TracedCore};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::Path;
use std::sync::Arc;

/// An executed instruction: its core, its number among those of the core, and its address.
#[derive(Clone, Copy)]
struct Executed {
    core: u32,
    number: usize,
    address: u64,
}

/// A place of a program.
pub struct Place {
    /// The core and position in the snapshot.
    pub core: String,
    pub position: String,
    /// How to get there from the place before: addresses, and how often each is reached.
    pub way: Vec<(u64, usize)>,
}

/// Numbers that look random (xorshift64*, Vigna).
pub struct Dice(pub u64);

impl Dice {
    pub fn below(&mut self, end: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 16) as usize % end
    }
}

/// How often the emulator stops on the way to a place, at most.
const MOST: usize = 300;

/// All executed instructions in their order.
fn executed(witness: &Path) -> Vec<Executed> {
    let mut numbers: HashMap<u32, usize> = HashMap::new();
    let all = executed_in_order(witness).into_iter();
    all.map(|(core, address)| {
        let number = numbers.entry(core).or_default();
        *number += 1;
        Executed {
            core,
            number: *number - 1,
            address,
        }
    })
    .collect()
}

/// The positions of the executed instructions of each core, and the cores' names.
fn positions(snapshot: &Path) -> Vec<(String, Vec<(String, u64)>)> {
    let loaded: OpenSnapshot = Snapshot::open(snapshot, &OpenOptions::default()).unwrap();
    let devices = &loaded.snapshot.devices;
    let cores = devices
        .iter()
        .enumerate()
        .filter(|(_, device)| device.name.starts_with("cpu_"));
    let mut all = Vec::new();
    for (number, device) in cores {
        let memory = Arc::new(CoreMemory::new(&loaded, device));
        let mut timeline = Timeline::open(
            &loaded,
            &[TracedCore {
                device: number,
                memory,
            }],
        );
        let mut found = Vec::new();
        // A thread without an executed instruction has no history.
        let Some(history) = timeline.history(number) else {
            all.push((device.name.clone(), found));
            continue;
        };
        let mut at = Some(history.begin());
        while let Some(position) = at {
            if let Some(pc) = history.place(position).and_then(|place| place.pc()) {
                found.push((position.to_string(), pc.0));
            }
            at = history.step(position, Direction::Forward);
        }
        all.push((device.name.clone(), found));
    }
    all
}

/// Where QEMU loads a program that may be anywhere.
pub fn load_offset(elf: &[u8]) -> u64 {
    const DYN: u16 = 3;
    let class64 = elf[4] == 2;
    match (u16::from_le_bytes([elf[16], elf[17]]), class64) {
        (DYN, true) => 0x55_0000_0000,
        (DYN, false) => 0x4000_0000,
        _ => 0,
    }
}

/// Addresses with a line in a source file of this name.
fn of_source(program: &Path, source: &str, addresses: &HashSet<u64>) -> HashSet<u64> {
    let elf = Elf::open(program).unwrap();
    let offset = load_offset(elf.bytes());
    let mut symbols = Symbols::default();
    symbols.add_file(&elf).unwrap();
    let inside = |address: &u64| {
        let line = symbols.line(address.wrapping_sub(offset));
        line.is_some_and(|line| line.file.ends_with(source))
    };
    addresses.iter().copied().filter(inside).collect()
}

/// The shortest way to the instruction `to` from the one after `from`: to the last execution of
/// another instruction, then to `to` itself. Addresses that several cores executed are not used.
fn way(
    all: &[Executed],
    from: usize,
    to: usize,
    usable: &HashSet<u64>,
) -> Option<Vec<(u64, usize)>> {
    let wanted = all[to].address;
    let mut before: HashMap<u64, usize> = HashMap::new();
    let between: Vec<usize> = all[from + 1..=to]
        .iter()
        .map(|one| {
            let count = before.entry(one.address).or_default();
            *count += 1;
            *count
        })
        .collect();
    let mut best = (before[&wanted], vec![(wanted, before[&wanted])]);
    let mut after = 0;
    for at in (from + 1..=to).rev() {
        let (address, count) = (all[at].address, between[at - from - 1]);
        if address == wanted {
            after += 1;
        } else if usable.contains(&address) && count + after < best.0 {
            best = (count + after, vec![(address, count), (wanted, after)]);
        }
    }
    (best.0 <= MOST).then_some(best.1)
}

/// Chooses places in the source file, and with one thread also elsewhere.
pub fn choose(
    snapshot: &Path,
    witness: &Path,
    program: &Path,
    source: &str,
    count: usize,
    dice: &mut Dice,
) -> (bool, Vec<Place>) {
    let all = executed(witness);
    let mut cores_of: BTreeMap<u64, HashSet<u32>> = BTreeMap::new();
    for one in &all {
        cores_of.entry(one.address).or_default().insert(one.core);
    }
    let threads = all.iter().any(|one| one.core != 0);
    let addresses: HashSet<u64> = cores_of.keys().copied().collect();
    let own = of_source(program, source, &addresses);
    let can_stop = can_stop(program);
    let single = cores_of.iter().filter(|(_, cores)| cores.len() == 1);
    let usable: HashSet<u64> = single
        .map(|(address, _)| *address)
        .filter(|address| (!threads || own.contains(address)) && can_stop(address))
        .collect();
    let candidates = |inside: bool| -> Vec<usize> {
        (1..all.len())
            .filter(|&at| {
                let address = all[at].address;
                usable.contains(&address) && own.contains(&address) == inside
            })
            .collect()
    };
    let inside = candidates(true);
    // GDB does not find the callers of assembly of AArch32, which has no call frame information.
    let is_a64 = Elf::open(program).unwrap().bytes()[4] == 2;
    let outside = if is_a64 {
        candidates(false)
    } else {
        Vec::new()
    };
    assert!(
        !inside.is_empty(),
        "{source}: no code of its own in {} instructions",
        all.len()
    );
    let mut chosen: Vec<usize> = (0..count)
        .map(|number| {
            let from = if number % 4 == 3 && !outside.is_empty() {
                &outside
            } else {
                &inside
            };
            from[dice.below(from.len())]
        })
        .collect();
    chosen.sort_unstable();
    chosen.dedup();
    let positions = positions(snapshot);
    let mut aligned: HashMap<u32, Vec<Option<usize>>> = HashMap::new();
    for (core, (name, places)) in positions.iter().enumerate() {
        let of_core = all.iter().filter(|one| one.core as usize == core);
        let mut at = 0;
        let found: Vec<Option<usize>> = of_core
            .map(|one| {
                let ahead = places[at..]
                    .iter()
                    .take(8)
                    .position(|place| place.1 == one.address)?;
                at += ahead + 1;
                Some(at - 1)
            })
            .collect();
        let missing = found.iter().filter(|found| found.is_none()).count();
        assert!(
            missing * 20 <= found.len(),
            "{name}: {missing} of {} have no position",
            found.len()
        );
        aligned.insert(core as u32, found);
    }
    let (mut out, mut from) = (Vec::new(), 0);
    for to in chosen.into_iter().filter(|to| *to > 0) {
        let one = all[to];
        let position = aligned.get(&one.core).and_then(|found| found[one.number]);
        // The order of different cores is not exact.
        let way = match threads {
            true => all[..=to]
                .iter()
                .filter(|before| before.address == one.address)
                .count(),
            false => 0,
        };
        let way = match way {
            0 => self::way(&all, from, to, &usable),
            count => (count <= MOST).then(|| vec![(one.address, count)]),
        };
        let (Some(position), Some(way)) = (position, way) else {
            continue;
        };
        let (name, places) = &positions[one.core as usize];
        out.push(Place {
            core: name.clone(),
            position: places[position].0.clone(),
            way,
        });
        from = to;
    }
    (threads, out)
}

/// Whether the emulator stops exactly at an address of a program: not at system calls, which it executes
/// together with what follows them; nor in an IT block of T32, where GDB moves breakpoints to its start.
fn can_stop(program: &Path) -> impl Fn(&u64) -> bool {
    /// The bytes of an IT instruction and its block, at most.
    const BLOCK: u64 = 18;
    let elf = Elf::open(program).unwrap();
    let offset = load_offset(elf.bytes());
    let is_a64 = elf.bytes()[4] == 2;
    let mut not = HashSet::new();
    for segment in &elf.segments {
        let bytes = elf.segment_bytes(segment);
        let step = if is_a64 { 4 } else { 2 };
        for at in (0..bytes.len().saturating_sub(3)).step_by(step) {
            let address = offset + segment.address + at as u64;
            match (
                is_a64,
                [bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]],
            ) {
                (true, [0x01, 0, 0, 0xd4]) | (false, [0, 0, 0, 0xef] | [0, 0xdf, ..]) => {
                    not.insert(address);
                }
                (false, [it, 0xbf, ..]) if it & 15 != 0 => {
                    not.extend((address + 2..address + BLOCK).step_by(2));
                }
                _ => {}
            }
        }
    }
    // The code of AArch32 libraries is not available here.
    let segments: Vec<_> = elf
        .segments
        .iter()
        .map(|s| offset + s.address..offset + s.end())
        .collect();
    let is_inside =
        move |address: u64| is_a64 || segments.iter().any(|segment| segment.contains(&address));
    move |address: &u64| !not.contains(address) && is_inside(*address)
}
