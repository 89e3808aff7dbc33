//! Past values, compared with those in the emulator at the same place.

use crate::random_program;
use crate::support::record::{Guest, build, record};
use armsnap::arch::{Architecture, RegisterFile, Space};
use armsnap::program::elf::Elf;
use armsnap::quantity::Address;
use armsnap::record::register_log::Reader;
use armsnap::recover::{
    Cause, End, FinalState, Level, Options, Recovery, SnapshotMemory, Status, Wanted, What,
};
use armsnap::semantics::Location;
use armsnap::snapshot::memory::CoreMemory;
use armsnap::snapshot::model::Snapshot;
use armsnap::snapshot::{OpenOptions, OpenSnapshot};
use armsnap::stop::Cancel;
use armsnap::timeline::{Direction, History, Position, Timeline, TracedCore};
use std::collections::HashMap;
use std::fs::File;
use std::io::BufReader;
use std::path::Path;
use std::sync::Arc;

/// Lists, a table, recursion, copies of bytes and strings, and pointers through memory; then a
/// store through a pointer that was overwritten long before.
const PROGRAM: &str = r#"
typedef unsigned long word;
struct node { struct node *next; word key; char name[8]; };
static struct node pool[64];
static struct node *head;
static word table[64], total;
static word *victim = &total;
static int used;

static struct node *take(word key) {
  struct node *n = &pool[used++ % 64];
  n->next = head; n->key = key;
  for (int i = 0; i < 8; i++) n->name[i] = (char)(key + i);
  return n;
}
static word sum(struct node *n) { word s = 0; for (; n; n = n->next) s += n->key; return s; }
static void turn(void) {
  struct node *r = 0;
  for (struct node *n = head; n;) { struct node *next = n->next; n->next = r; r = n; n = next; }
  head = r;
}
static word fib(word n) { return n < 2 ? n : fib(n - 1) + fib(n - 2); }
static word mix(word x) { x ^= x >> 7; x *= 0x9e3779b97f4a7c15ul; return x ^ x >> 31; }
__attribute__((noinline)) static void clobber(word **p) { *p = (word *)8; }
void work(void) {
  for (int i = 0; i < 24; i++) head = take(mix(i) & 1023);
  clobber(&victim);
  for (int round = 0; round < 2; round++) {
    total += sum(head);
    turn();
    for (int i = 0; i < 64; i++) table[i] = table[(i * 7 + round) & 63] + mix(total + i);
    total += fib(5);
  }
  char copy[32];
  for (int i = 0; i < 32; i++) copy[i] = ((volatile char *)table)[i];
  total += copy[total & 31];
  *victim = total;
}
#ifdef __aarch64__
__asm__(".global _start\n_start: mov x29, #0\n mov x30, #0\n bl work\n b .");
#else
__attribute__((naked)) void _start(void) { __asm__("mov r11, #0\n mov lr, #0\n bl work\n b ."); }
#endif
"#;

/// The values of x0 to x30, sp, pc and cpsr; of AArch32 r0 to r12, lr at 14, and sp at 31.
pub(super) type State = [u64; 34];

/// A state, and the addresses and bytes of the stores of its instruction.
pub(super) type Witnessed = (State, Vec<(u64, Vec<u8>)>);

/// The states before each instruction and at the end, and the stores of each instruction.
fn witness(path: &Path) -> Vec<Witnessed> {
    let mut reader = Reader::new(BufReader::new(File::open(path).unwrap())).unwrap();
    let slot = |name: &String| match name.as_str() {
        "sp" => Some(31),
        "pc" => Some(32),
        "cpsr" => Some(33),
        "lr" => Some(14),
        name => name.strip_prefix(['x', 'r'])?.parse::<usize>().ok(),
    };
    let slots: Vec<Option<usize>> = reader.names().iter().map(slot).collect();
    let mut all = Vec::new();
    while reader.step().unwrap() {
        let mut state = [0; 34];
        for (value, slot) in reader.values().iter().zip(&slots) {
            if let Some(slot) = slot {
                state[*slot] = *value;
            }
        }
        all.push((state, reader.stores().to_vec()));
    }
    all
}

pub(super) struct Recorded {
    guest: Guest,
    loaded: OpenSnapshot,
    memory: Arc<CoreMemory>,
    timeline: Timeline,
    pub(super) states: Vec<Witnessed>,
    /// The number of positions that are compared, in addition to those near the end.
    samples: usize,
}

impl Recorded {
    fn new(options: &[&str], compiler: &[&str]) -> Option<Self> {
        Self::of("aarch64", options, compiler)
    }

    fn of(architecture: &'static str, options: &[&str], compiler: &[&str]) -> Option<Self> {
        let mut flags = vec!["-nostdlib", "-ffreestanding", "-fno-builtin"];
        flags.extend(compiler);
        Self::built(architecture, PROGRAM, options, &flags)
    }

    pub(super) fn built(
        architecture: &'static str,
        source: &str,
        options: &[&str],
        compiler: &[&str],
    ) -> Option<Self> {
        let mut flags = vec!["-static"];
        flags.extend(compiler);
        let guest = build(architecture, "program.c", source, &flags)?;
        let file = guest.directory.path().join("registers");
        let mut all = vec!["--witness-registers", file.to_str().unwrap()];
        all.extend(options);
        let run = record(&guest, "snapshot", &all, &[]);
        assert!(run.status.success(), "{run:?}");
        Some(Self::open(guest, Some(&file)))
    }

    /// The program, and the directory of its recording.
    pub(super) fn into_guest(self) -> Guest {
        self.guest
    }

    /// Opens a recording, with the log of its states if there is one.
    pub(super) fn open(guest: Guest, file: Option<&Path>) -> Self {
        let directory = guest.directory.path().join("snapshot");
        let loaded = Snapshot::open(&directory, &OpenOptions::default()).unwrap();
        let memory = Arc::new(CoreMemory::new(&loaded, &loaded.snapshot.devices[0]));
        let core = TracedCore {
            device: 0,
            memory: Arc::clone(&memory),
        };
        let timeline = Timeline::open(&loaded, &[core]);
        Self {
            states: file.map_or_else(Vec::new, witness),
            samples: 300,
            guest,
            loaded,
            memory,
            timeline,
        }
    }

    pub(super) fn facts(&self) -> FinalState {
        let device = &self.loaded.snapshot.devices[0];
        let elf = Elf::open(&self.guest.program).unwrap();
        let registers = RegisterFile::read(device, self.architecture());
        let memory = SnapshotMemory::new(Arc::clone(&self.memory), Space::Any, [&elf]);
        let mut recorded = self.loaded.data_addresses(&device.name).into_iter();
        assert!(recorded.all(|read| read.is_ok()));
        FinalState::of(&self.loaded, &device.name, &registers, memory, [&elf])
    }

    fn architecture(&self) -> Architecture {
        match self.guest.architecture {
            "aarch64" => Architecture::AArch64,
            _ => Architecture::AArch32,
        }
    }

    /// The general registers without the stack pointer, which comes second.
    pub(super) fn locations(&self) -> (Vec<u8>, Location) {
        match self.architecture() {
            Architecture::AArch64 => ((0..31).collect(), Location::SP),
            _ => ((0..13).chain([14]).collect(), Location::general(13)),
        }
    }

    pub(super) fn recovery(&self) -> Recovery {
        Recovery::new(self.facts(), Options::default())
    }

    pub(super) fn history(&mut self) -> &mut History {
        self.timeline.history(0).unwrap()
    }

    /// All positions, the last first.
    pub(super) fn positions(&mut self) -> Vec<Position> {
        let history = self.history();
        let mut all = vec![history.end()];
        while let Some(before) = history.step(all[all.len() - 1], Direction::Backward) {
            all.push(before);
        }
        all
    }

    /// The number of the state before each instruction, counted from the end. The log has no state before
    /// the instruction after a system call, nor before the first one of a signal handler: the emulator
    /// executes them in one step with the call. An instruction that faulted has a state, but no position.
    pub(super) fn numbers(&mut self) -> Vec<Option<usize>> {
        const MAX_MISSING: usize = 20;
        let positions = self.positions();
        let mut left = self.states.len();
        let mut numbers = Vec::new();
        for position in positions {
            let history = self.history();
            let pc = history.place(position).and_then(|place| place.pc());
            let halted = (position == history.end()).then(|| history.halted());
            let pc = pc.or(halted.flatten());
            let same = |at: &usize| pc.is_none_or(|pc| pc == Address(self.states[*at].0[32]));
            let found = (left.saturating_sub(2)..left).rev().find(same);
            left = found.unwrap_or(left);
            numbers.push(found);
        }
        let missing = numbers.iter().filter(|number| number.is_none()).count();
        let unused = self.states.len() - (numbers.len() - missing);
        assert!(
            missing <= MAX_MISSING && unused <= MAX_MISSING,
            "{missing}, {unused}"
        );
        numbers
    }

    /// Samples positions, each with its number of instructions before the end: the last 60, and about
    /// 300 at regular intervals.
    pub(super) fn some(&mut self) -> Vec<(usize, Position)> {
        let all = self.positions();
        let every = all.len() / self.samples + 1;
        let some = all.into_iter().enumerate();
        some.filter(|(back, _)| *back < 60 || back % every == 0)
            .collect()
    }
}

/// The size of the kernel's frame of a signal: after it, the stack pointer is this much lower.
const SIGNAL_FRAME: u64 = 0x1260;

/// How many values were asked for, how many of them were right, and how many of these proved.
#[derive(Debug, Default)]
pub(super) struct Score {
    pub asked: u64,
    pub right: u64,
    pub proved: u64,
}

/// Compares registers, flags and written memory at some positions; all that is known must be true.
pub(super) fn compare(recorded: &mut Recorded, recovery: &mut Recovery) -> [Score; 3] {
    let (general, stack_pointer) = recorded.locations();
    let numbers = recorded.numbers();
    let mut scores: [Score; 3] = Default::default();
    // Memory as it was written until each instruction, from the first on.
    let mut written: HashMap<u64, u8> = HashMap::new();
    let mut until = 0;
    for (back, position) in recorded.some().into_iter().rev() {
        let Some(number) = numbers[back] else {
            continue;
        };
        for (_, stores) in &recorded.states[until..=number] {
            for (address, bytes) in stores {
                written.extend((*address..).zip(bytes.iter().copied()));
            }
        }
        for pair in recorded.states[until.saturating_sub(1)..=number].windows(2) {
            let [old, new] = [pair[0].0[31], pair[1].0[31]];
            if old.wrapping_sub(new) >= SIGNAL_FRAME && old > new {
                // The kernel wrote below the stack pointer; what the program wrote there since is lost here, too.
                written.retain(|address, _| !(new..old).contains(address));
            }
        }
        until = number + 1;
        let truth = recorded.states[number].0;
        let history = recorded.timeline.history(0).unwrap();
        if let Some(pc) = history.place(position).and_then(|place| place.pc()) {
            assert_eq!(pc, Address(truth[32]), "{back} back");
        }
        recovery
            .look_around(history, position, &Cancel::default())
            .unwrap();
        let found = recovery
            .registers(history, position, &Cancel::default())
            .unwrap();
        let general = general.iter();
        let general = general.map(|&x| (Location::general(x), truth[usize::from(x)]));
        let flags = [Location::N, Location::Z, Location::C, Location::V];
        let flags = flags.into_iter().zip([31, 30, 29, 28]);
        let flags = flags.map(|(flag, bit)| (flag, truth[33] >> bit & 1));
        for (location, value) in general.chain([(stack_pointer, truth[31])]).chain(flags) {
            let score = &mut scores[usize::from(location == stack_pointer)];
            score.asked += 1;
            if let Some(known) = found.get(location) {
                assert_eq!(
                    known.value, value,
                    "{location:?} at {position}, {back} back, {}",
                    known.status
                );
                score.right += 1;
                score.proved += u64::from(known.status == Status::Proved);
            }
        }
        for (&address, &value) in written.iter().filter(|(address, _)| *address % 5 == 0) {
            let mut byte = [None];
            recovery
                .memory(history, position, address, &mut byte, &Cancel::default())
                .unwrap();
            scores[2].asked += 1;
            if let Some(known) = byte[0] {
                assert_eq!(
                    known.value, value,
                    "{address:#x} at {position}, {back} back, {}",
                    known.status
                );
                scores[2].right += 1;
                scores[2].proved += u64::from(known.status == Status::Proved);
            }
        }
    }
    println!("{scores:?}");
    scores
}

#[test]
fn what_is_known_of_the_past_is_true() {
    for optimisation in ["-O0", "-O2"] {
        let Some(mut recorded) = Recorded::new(&[], &[optimisation]) else {
            return;
        };
        let mut recovery = recorded.recovery();
        let [registers, stack_pointer, memory] = compare(&mut recorded, &mut recovery);
        assert_eq!(stack_pointer.right, stack_pointer.asked);
        assert!(registers.right * 10 > registers.asked * 4, "{registers:?}");
        assert!(memory.right * 10 > memory.asked * 5, "{memory:?}");
        // At a lower level, only proved values are shown.
        recovery.set_level(Level::Proved);
        let [proved, ..] = compare(&mut recorded, &mut recovery);
        assert_eq!(proved.right, proved.proved);
        assert!(proved.proved > 0 && proved.proved <= registers.proved);
        recovery.set_level(Level::Off);
        let [off, _, memory] = compare(&mut recorded, &mut recovery);
        assert_eq!((off.right, memory.right), (0, 0));
    }
}

#[test]
fn what_is_known_of_random_programs_is_true() {
    for (architecture, options, seed) in [
        ("aarch64", "-O1", 3),
        ("arm", "-marm", 5),
        ("arm", "-mthumb", 7),
    ] {
        let source = random_program::source(seed);
        let options = [
            "-nostdlib",
            "-ffreestanding",
            "-fno-builtin",
            "-Os",
            options,
        ];
        let Some(mut recorded) = Recorded::built(architecture, &source, &[], &options) else {
            return;
        };
        recorded.samples = 60;
        let mut recovery = recorded.recovery();
        let [registers, stack_pointer, _] = compare(&mut recorded, &mut recovery);
        assert!(
            stack_pointer.right * 100 >= stack_pointer.asked * 99,
            "{options:?}"
        );
        assert!(registers.proved * 10 > registers.asked, "{registers:?}");
    }
}

/// A32, and T32 with its IT blocks.
#[test]
fn what_is_known_of_aarch32_is_true() {
    for options in [["-O0", "-marm"], ["-O2", "-mthumb"]] {
        let Some(mut recorded) = Recorded::of("arm", &[], &options) else {
            return;
        };
        let mut recovery = recorded.recovery();
        let [registers, stack_pointer, memory] = compare(&mut recorded, &mut recovery);
        assert_eq!(stack_pointer.right, stack_pointer.asked, "{options:?}");
        assert!(
            registers.right * 10 > registers.asked * 6,
            "{options:?}: {registers:?}"
        );
        assert!(
            registers.proved * 10 > registers.asked * 3,
            "{options:?}: {registers:?}"
        );
        assert!(
            memory.right * 10 > memory.asked * 5,
            "{options:?}: {memory:?}"
        );
    }
}

#[test]
fn with_recorded_addresses_most_is_proved() {
    for (architecture, options) in [("aarch64", ["-O0"]), ("arm", ["-mthumb"])] {
        let found = Recorded::of(architecture, &["--data-addresses"], &options);
        let Some(recorded) = found else {
            return;
        };
        proves_most(recorded);
    }
}

fn proves_most(mut recorded: Recorded) {
    let mut recovery = recorded.recovery();
    let [registers, stack_pointer, memory] = compare(&mut recorded, &mut recovery);
    assert_eq!(stack_pointer.proved, stack_pointer.asked);
    assert!(
        registers.proved * 100 > registers.asked * 80,
        "{registers:?}"
    );
    assert!(memory.proved * 100 > memory.asked * 60, "{memory:?}");
}

#[test]
fn without_the_final_state_the_trace_alone_counts() {
    let Some(mut recorded) = Recorded::new(&[], &["-O0"]) else {
        return;
    };
    let core = recorded.guest.directory.path().join("snapshot/cpu_0.ini");
    let text = std::fs::read_to_string(&core).unwrap();
    // Another pc, and other values: the state is from another time.
    let lines = text.lines().map(|line| match line.split_once("=0x") {
        Some((name, value)) if name.starts_with("PC") => {
            let value = u64::from_str_radix(value, 16).unwrap();
            format!("{name}={:#018x}\n", value - 64)
        }
        Some((name, _)) if name.starts_with('X') => format!("{name}=0x0000000000000abc\n"),
        _ => format!("{line}\n"),
    });
    std::fs::write(&core, lines.collect::<String>()).unwrap();
    let file = recorded.guest.directory.path().join("registers");
    recorded = Recorded::open(recorded.guest, Some(&file));
    let mut recovery = recorded.recovery();
    let [registers, ..] = compare(&mut recorded, &mut recovery);
    assert!(registers.proved > 0, "{registers:?}");
    let limits = recovery.limits(recorded.history());
    let limits: Vec<String> = limits.iter().map(ToString::to_string).collect();
    assert!(
        limits[0].contains("the final state is not used"),
        "{limits:?}"
    );
}

#[test]
fn nothing_is_solved_for_a_position_that_memory_does_not_reach() {
    let Some(mut recorded) = Recorded::new(&[], &["-O0"]) else {
        return;
    };
    let positions = recorded.positions();
    // A step takes some 100 bytes or more. Half is for what is solved apart.
    let options = Options {
        most_bytes: 40 * positions.len(),
        ..Options::default()
    };
    let facts = FinalState {
        replay: None,
        ..recorded.facts()
    };
    let mut recovery = Recovery::new(facts, options);
    let mut known = |position: Position| {
        let history = recorded.history();
        let found = recovery.registers(history, position, &Cancel::default());
        let known = found.unwrap().0.iter().flatten().count();
        (known, recovery.looked_at().0)
    };
    let (near, first) = (positions[10], positions[positions.len() - 1]);
    let (none, steps) = known(first);
    assert!(none == 0 && steps < 10, "{none} known, {steps} steps");
    let (some, steps) = known(near);
    assert!(some > 10 && steps > 1000, "{some} known, {steps} steps");
    assert_eq!(known(first), (0, steps));
}

#[test]
fn the_store_that_broke_a_pointer_is_found() {
    let Some(mut recorded) = Recorded::new(&[], &["-O0"]) else {
        return;
    };
    let victim = recorded.guest.symbol("victim");
    let clobber = recorded.guest.symbol("clobber");
    let stores: Vec<usize> = (0..recorded.states.len())
        .filter(|&step| {
            let mut stores = recorded.states[step].1.iter();
            stores.any(|(address, _)| *address == victim)
        })
        .collect();
    let mut recovery = recorded.recovery();
    let last = recorded.states.len() - 1;
    let positions = recorded.positions();
    let history = recorded.timeline.history(0).unwrap();
    let wanted = Wanted {
        reads: false,
        writes: true,
    };
    let cancel = Cancel::default();
    let range = victim..victim + 8;
    let (begin, end) = (history.begin(), history.end());
    let found = recovery
        .accesses(
            history,
            (end, begin),
            range.clone(),
            Direction::Backward,
            wanted,
            &cancel,
        )
        .unwrap();
    let hit = found.hit.unwrap_or_else(|| panic!("{found:?}"));
    // The number is that of the state after the store: the store is one before.
    assert_eq!(positions[last - (stores[0] - 1)], hit.position);
    let pc = history.place(hit.position).unwrap().pc().unwrap().0;
    assert!((clobber..clobber + 64).contains(&pc), "{pc:#x}");
    // A forward search from the store finds it again; after it, no store is known.
    let again = recovery
        .accesses(
            history,
            (hit.position, end),
            range.clone(),
            Direction::Forward,
            wanted,
            &cancel,
        )
        .unwrap();
    assert_eq!(again.hit, Some(hit));
    let after = history.step(hit.position, Direction::Forward).unwrap();
    let none = recovery
        .accesses(
            history,
            (after, end),
            range.clone(),
            Direction::Forward,
            wanted,
            &cancel,
        )
        .unwrap();
    assert_eq!(none.hit, None);
    // The first position belongs to a search forward, the last one to a search backward.
    let before = history.step(hit.position, Direction::Backward).unwrap();
    for (between, direction, is_hit) in [
        ((end, after), Direction::Backward, false),
        ((end, hit.position), Direction::Backward, true),
        ((before, hit.position), Direction::Forward, false),
        ((before, after), Direction::Forward, true),
    ] {
        let found = recovery
            .accesses(history, between, range.clone(), direction, wanted, &cancel)
            .unwrap();
        assert_eq!(found.hit.is_some(), is_hit, "{between:?}");
        assert!(found.complete);
        let is_inside = |position| match direction {
            Direction::Backward => (between.1..between.0).contains(&position),
            Direction::Forward => (between.0..between.1).contains(&position),
        };
        let outside = found
            .may_have
            .filter(|other| !is_inside(other.nearest) || !is_inside(other.farthest));
        assert_eq!(outside, None, "{between:?}");
    }
    // The byte in memory leads to the same store, and on to the constant that it stored.
    let way = recovery
        .origin(history, end, What::Byte(victim), 20, &cancel)
        .unwrap();
    assert_eq!(way.instructions[0].position, hit.position, "{way:?}");
    assert!(
        matches!(way.instructions[0].cause, Cause::Stored(Some(_))),
        "{way:?}"
    );
    let constant = way
        .instructions
        .iter()
        .find(|instruction| instruction.cause == Cause::Constant);
    assert_eq!(
        constant
            .and_then(|instruction| instruction.value)
            .map(|known| known.value),
        Some(8)
    );
    assert_eq!(way.end, End::Reached);
    // That constant was used by the store.
    let before = hit.position;
    let uses = recovery
        .uses(history, before, Location::general(1), 20, &cancel)
        .unwrap();
    assert!(
        uses.instructions
            .iter()
            .any(|instruction| instruction.position == hit.position),
        "{uses:?}"
    );
    let stopped = Cancel::default();
    stopped.request();
    let uses = recovery.uses(history, before, Location::general(1), 20, &stopped);
    assert_eq!(uses, None);
}
