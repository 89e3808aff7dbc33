//! One program: recorded, run again for its true states, and compared.

use super::holes::Holes;
use super::memory::Memory;
use super::table::{DISTANCES, Row};
use super::truth::{self, Guest, State};
use armsnap::arch::{Architecture, RegisterFile, state};
use armsnap::data_addresses::Accessed;
use armsnap::program::elf::Elf;
use armsnap::program::go::GoCode;
use armsnap::program::landing_pads::LandingPads;
use armsnap::quantity::Address;
use armsnap::recover::{
    FinalState, Known, Options as RecoveryOptions, Others, RecordedAddresses, Recovery,
    SnapshotMemory,
};
use armsnap::semantics::{Location, Operand, Semantics};
use armsnap::snapshot::memory::CoreMemory;
use armsnap::snapshot::model::Snapshot;
use armsnap::snapshot::program::Program;
use armsnap::snapshot::recorded::Recorded as InSnapshot;
use armsnap::snapshot::{OpenOptions, OpenSnapshot, libraries};
use armsnap::stop::Cancel;
use armsnap::timeline::{Direction, History, Position, Timeline, TracedCore};
use std::cell::{Cell, RefCell};
use std::collections::{HashMap, HashSet};
use std::error::Error;
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;

/// How many positions are examined for each distance.
const SAMPLES: usize = 400;
/// How many bytes of the stack are examined.
const STACK: u64 = 128;
/// The maximum number of frames of a back trace.
const FRAMES: usize = 64;

/// Recorded addresses, if they are used.
type Addressed = Option<Box<dyn RecordedAddresses>>;

/// How programs are compared.
#[derive(Clone, Copy)]
pub struct Options {
    /// Remarks name what is not known.
    pub shows_holes: bool,
    /// All of history is solved first.
    pub solves_whole: bool,
}

/// The outcome for a program.
pub struct Compared {
    pub plain: Row,
    pub helped: Row,
    pub remarks: String,
}

/// A program's recording, and its true states: `states[i]` is before the instruction at
/// `positions[i]`; the last one is the final state.
struct Recorded {
    guest: Guest,
    loaded: OpenSnapshot,
    memory: Arc<CoreMemory>,
    registers: RegisterFile,
    positions: Vec<Position>,
    states: Vec<State>,
    /// Instructions are indices of `states`.
    accesses: Vec<Accessed>,
    entries: HashSet<u64>,
    /// What the run of the true states left in registers, and the recorded run: the kernel gives each
    /// run random bytes of its own.
    random: Vec<(u64, u64)>,
    /// The number of the first thread in the run of the true states, and the one in the recorded
    /// run, once it was seen: the kernel gives each run numbers of its own.
    thread: (u64, Cell<Option<u64>>),
    decoded: RefCell<HashMap<(u64, u64), Rc<Semantics>>>,
}

/// Recordings until one leaves the same registers as the run of the true states.
const TRIES: usize = 8;

/// Whether a value may be random bytes: those of a small number or an address are not.
const fn is_random(value: u64) -> bool {
    value >> 48 != 0 && value >> 48 != 0xffff
}

/// Records a program, and opens the snapshot.
fn record(program: &Path, snapshot: &Path) -> Result<OpenSnapshot, Box<dyn Error>> {
    let mut record = truth::command(env!("CARGO_BIN_EXE_armsnap"));
    record
        .args(["record", "--exit-zero", "--data-addresses", "-o"])
        .arg(snapshot);
    let run = record.arg("--").arg(program).output()?;
    if !run.status.success() {
        return Err(String::from_utf8_lossy(&run.stderr).into());
    }
    Ok(Snapshot::open(snapshot, &OpenOptions::default())?)
}

/// Compares a program.
pub fn program(program: &Path, options: Options) -> Result<Compared, Box<dyn Error>> {
    let guest = Guest::of(program)?;
    let most = DISTANCES[DISTANCES.len() - 1] + 1;
    let (process, mut states) = truth::states(program, most + 30_000)?;
    let last = states.last().ok_or("no state")?.registers;
    // Threads may have run in another order, which the registers that they left show.
    let mut tries = 0;
    let (_directory, loaded, random) = loop {
        let directory = tempfile::tempdir()?;
        let loaded = record(program, &directory.path().join("snapshot"))?;
        let core = loaded.snapshot.devices.first().ok_or("no core")?;
        let registers = RegisterFile::read(core, guest.architecture());
        let ends = last.into_iter().zip(FinalState::locations(&registers));
        let differing: Vec<(u64, u64)> = ends
            .take(guest.general().len())
            .filter_map(|(own, recorded)| Some((own, recorded?)))
            .filter(|(own, recorded)| own != recorded)
            .collect();
        tries += 1;
        let of_run = |(own, recorded): &(u64, u64)| is_random(*own) && is_random(*recorded);
        let is_same = |pair: &(u64, u64)| of_run(pair) || pair.0 == u64::from(process);
        if tries == TRIES || differing.iter().all(is_same) {
            let random = differing.into_iter().filter(of_run).collect();
            break (directory, loaded, random);
        }
    };
    let core = loaded.snapshot.devices.first().ok_or("no core")?.clone();
    let memory = Arc::new(CoreMemory::new(&loaded, &core));
    let registers = RegisterFile::read(&core, guest.architecture());
    let traced = TracedCore {
        device: 0,
        memory: Arc::clone(&memory),
    };
    let mut timeline = Timeline::open(&loaded, &[traced]);
    let history = timeline.history(0).ok_or("no history")?;
    let positions = aligned(history, &mut states);
    states.drain(..states.len() - positions.len());
    let addresses = loaded.data_addresses(&core.name).ok_or("no addresses")??;
    let end = addresses.instructions();
    let first = (end + 1).saturating_sub(states.len() as u64);
    let accesses: Result<Vec<Accessed>, _> = addresses.accesses(first..end).collect();
    let mut accesses = accesses?;
    accesses
        .iter_mut()
        .for_each(|accessed| accessed.instruction -= first);
    let offset = InSnapshot::of(&loaded.snapshot).map_or(0, |recorded| recorded.offset);
    let entries = entries(program, offset)?;
    let recorded = Recorded {
        guest,
        loaded,
        memory,
        registers,
        positions,
        states,
        accesses,
        entries,
        random,
        thread: (process.into(), Cell::new(None)),
        decoded: RefCell::default(),
    };
    let mut remarks = format!("{end} instructions");
    let (plain, said) = recorded.compare(history, None, options);
    remarks += &said;
    let addresses = recorded
        .loaded
        .data_addresses(&core.name)
        .ok_or("no addresses")??;
    let (helped, said) = recorded.compare(history, Some(Box::new(addresses)), options);
    remarks += &format!("; with addresses{said}");
    Ok(Compared {
        plain,
        helped,
        remarks,
    })
}

/// The positions of the last states, in whose order instructions that faulted are left out, as far back as
/// history is the same.
fn aligned(history: &mut History, states: &mut Vec<State>) -> Vec<Position> {
    /// Signals whose handlers returned.
    const MAX_FAULTS: usize = 8;
    let mut here = history.end();
    let mut positions = vec![here];
    let mut faulted = Vec::new();
    let mut at = states.len() - 1;
    let mut matched = at;
    'places: while let Some(before) = history.step(here, Direction::Backward) {
        here = before;
        let pc = history.place(here).and_then(|place| place.pc());
        loop {
            if at == 0 {
                break 'places;
            }
            at -= 1;
            let state = states[at];
            if pc == Some(Address(state.pc)) {
                break;
            }
            // The log has instructions that were begun, the history those that were executed.
            faulted.push(at);
            if faulted.len() > MAX_FAULTS {
                // Before this, the two runs took different paths, because their threads met at
                // different times.
                eprintln!(
                    "compared to {} back: before, the second run differs",
                    positions.len() - 1
                );
                faulted.retain(|&fault| fault > matched);
                faulted.iter().for_each(|&fault| {
                    states.remove(fault);
                });
                states.drain(..matched);
                positions.reverse();
                return positions;
            }
        }
        matched = at;
        positions.push(here);
    }
    for at in faulted {
        states.remove(at);
    }
    positions.reverse();
    positions
}

impl Guest {
    fn architecture(self) -> Architecture {
        match self {
            Self::A64 => Architecture::AArch64,
            Self::Arm => Architecture::AArch32,
        }
    }
}

/// The addresses of the functions of a program.
fn entries(program: &Path, offset: u64) -> Result<HashSet<u64>, Box<dyn Error>> {
    use object::{Object, ObjectSymbol, SymbolKind};
    let bytes = std::fs::read(program)?;
    let file = object::File::parse(&*bytes)?;
    let functions = file
        .symbols()
        .filter(|symbol| symbol.kind() == SymbolKind::Text);
    Ok(functions
        .map(|symbol| (symbol.address() & !1) + offset)
        .collect())
}

/// The general registers and the stack pointer that an instruction reads.
fn reads(semantics: &Semantics) -> Vec<Location> {
    let (mut read, mut written) = (Vec::new(), Vec::new());
    for relation in &semantics.relations {
        for operand in [relation.a, relation.b, relation.c] {
            if let Operand::Location(location) = operand
                && location.index() <= Location::SP.index()
                && !written.contains(&location)
                && !read.contains(&location)
            {
                read.push(location);
            }
        }
        written.push(relation.destination);
    }
    read
}

impl Recorded {
    fn semantics(&self, state: &State) -> Rc<Semantics> {
        // Bits T and IT of CPSR select what is decoded.
        let key = (state.pc, state.status & 0x0600_fc20);
        let mut decoded = self.decoded.borrow_mut();
        let semantics = decoded
            .entry(key)
            .or_insert_with(|| Rc::new(self.decode(state)));
        Rc::clone(semantics)
    }

    fn decode(&self, state: &State) -> Semantics {
        let mut bytes = [0; 4];
        let space = state::current_space(&self.registers).space;
        self.memory.read(Address(state.pc), space, &mut bytes);
        let [a, b, c, d] = bytes;
        let code = [[a, b], [c, d]].map(u16::from_le_bytes);
        state.semantics(self.guest, code)
    }

    fn last_byte(&self, address: u64) -> Option<u8> {
        let mut byte = [0];
        let space = state::current_space(&self.registers).space;
        (self.memory.read(Address(address), space, &mut byte) == 1).then_some(byte[0])
    }

    fn facts(&self, addresses: Addressed) -> FinalState {
        let space = state::current_space(&self.registers).space;
        let seen = (&*self.memory, space);
        let program = Program::of_snapshot(&self.loaded, self.guest.architecture(), &[seen]);
        let libraries = program
            .iter()
            .flat_map(|program| libraries::of_program(&self.loaded, &program.elf, seen));
        let libraries: Vec<Elf> = libraries.collect();
        let elves = program.iter().map(|program| &program.elf).chain(&libraries);
        let landing_pads = LandingPads::new(elves.clone());
        let go = GoCode::new(elves.clone());
        FinalState {
            architecture: self.guest.architecture(),
            microcontroller: None,
            status: self.registers.value("cpsr"),
            registers: FinalState::locations(&self.registers),
            memory: Arc::new(SnapshotMemory::new(Arc::clone(&self.memory), space, elves)),
            others: Others::of(&self.loaded.snapshot, &self.loaded.snapshot.devices[0].name),
            without_kernel: true,
            addresses,
            replay: None,
            landing_pads,
            go,
        }
    }

    /// The samples of each distance: indices of states.
    fn samples(&self) -> Vec<(usize, Vec<usize>)> {
        let last = self.states.len() - 1;
        let samples = DISTANCES
            .iter()
            .enumerate()
            .filter(|(_, most)| **most <= last);
        let samples = samples.map(|(index, most)| {
            let count = SAMPLES.min(*most);
            // The samples are spread evenly, at distances that do not match those of a loop.
            let backs = (0..count).map(|sample| 1 + sample * most / count);
            (index, backs.map(|back| last - back).collect())
        });
        samples.collect()
    }

    fn compare(
        &self,
        history: &mut History,
        addresses: Addressed,
        options: Options,
    ) -> (Row, String) {
        let began = Instant::now();
        let mut recovery = Recovery::new(self.facts(addresses), RecoveryOptions::default());
        let mut row = Row::default();
        let mut wanted: Vec<(usize, usize)> = Vec::new();
        for (distance, states) in self.samples() {
            wanted.extend(states.into_iter().map(|state| (state, distance)));
        }
        wanted.sort_unstable();
        let mut memory = Memory::new(&self.states, &self.accesses, |state| self.semantics(state));
        let (mut at, mut access) = (0, 0);
        let (mut asked, mut first) = (0.0, None);
        if options.solves_whole {
            let begin = history.begin();
            recovery.registers(history, begin, &Cancel::default());
        }
        // From the end back, as a user asks: the answers may depend on it, the truth does not.
        for (state, _) in wanted.iter().rev() {
            let began = Instant::now();
            recovery.registers(history, self.positions[*state], &Cancel::default());
            asked += began.elapsed().as_secs_f64();
            first.get_or_insert(asked);
        }
        for (state, distance) in wanted {
            while at < state {
                let own = self.accesses[access..].iter();
                let own = own
                    .take_while(|accessed| accessed.instruction == at as u64)
                    .count();
                let semantics = self.semantics(&self.states[at]);
                let accesses = &self.accesses[access..access + own];
                memory.execute(&self.states[at], &semantics, accesses);
                (at, access) = (at + 1, access + own);
            }
            self.at(history, &mut recovery, (state, distance), &memory, &mut row);
        }
        let remarks = format!(
            ": {:.2} s ({:.2} s the first, {asked:.2} s all registers)",
            began.elapsed().as_secs_f64(),
            first.unwrap_or(0.0),
        );
        let remarks = match options.shows_holes {
            true => remarks + "\n" + &self.holes(history, &mut recovery).text(),
            false => remarks,
        };
        let disagreeing = memory.disagreeing(|address| self.last_byte(address));
        let remarks = match disagreeing {
            0 => remarks,
            count => format!("{remarks}, {count} bytes of the truth changed by others"),
        };
        (row, remarks)
    }

    /// What is not known at the samples of the largest distance.
    fn holes(&self, history: &mut History, recovery: &mut Recovery) -> Holes {
        let mut holes = Holes::default();
        let (_, samples) = self.samples().pop().unwrap_or_default();
        for state in samples {
            let (pc, position) = (self.states[state].pc, self.positions[state]);
            let known = recovery.registers(history, position, &Cancel::default());
            for location in reads(&self.semantics(&self.states[state])) {
                if known
                    .as_ref()
                    .is_some_and(|known| known.get(location).is_none())
                {
                    holes.add(history, recovery, (pc, position), location);
                }
            }
        }
        let most = DISTANCES[DISTANCES.len() - 1];
        let states = self.states.iter().zip(&self.positions).rev().take(most);
        let positions = states.map(|(state, position)| (state.pc, *position));
        holes.stack(history, recovery, self.guest.stack(), positions);
        holes
    }

    fn at(
        &self,
        history: &mut History,
        recovery: &mut Recovery,
        (index, distance): (usize, usize),
        memory: &Memory,
        row: &mut Row,
    ) {
        let state = &self.states[index];
        let position = self.positions[index];
        let always = &Cancel::default();
        let Some(known) = recovery.registers(history, position, always) else {
            return;
        };
        let truth = |location: Location| {
            let value = state.registers[location.index()];
            let random = self.random.iter().find(|(own, _)| *own == value);
            random.map_or(value, |(_, recorded)| *recorded)
        };
        let row = &mut row.0;
        for location in reads(&self.semantics(state)) {
            row[0][distance].add(known.get(location), truth(location));
        }
        for location in self.guest.general() {
            let (known, mut truth) = (known.get(location), truth(location));
            if let Some(known) = known
                && known.value != truth
            {
                let back = self.states.len() - 1 - index;
                let (value, status) = (known.value, known.status);
                let (own, recorded) = &self.thread;
                let what = match truth == *own && recorded.get().is_none_or(|all| all == value) {
                    true => "the thread's number",
                    false => "wrong",
                };
                eprintln!(
                    "{what}: {location:?} before {:#x}, {back} back: {value:#x} ({status}), true {truth:#x}",
                    state.pc
                );
                if what != "wrong" {
                    recorded.set(Some(value));
                    truth = value;
                }
            }
            row[1][distance].add(known, truth);
        }
        let stack = self.guest.stack();
        row[2][distance].add(known.get(stack), truth(stack));
        let mut bytes = vec![None; STACK as usize];
        let sp = truth(stack);
        recovery.memory(history, position, sp, &mut bytes, always);
        for (address, byte) in (sp..).zip(&bytes) {
            let true_byte = memory.byte(index, address, |at| self.last_byte(at));
            if let Some(true_byte) = true_byte {
                row[3][distance].add(*byte, true_byte);
            }
        }
        // Of AArch32 without frame records no back trace is compared.
        if self.guest == Guest::A64 {
            self.returns(history, recovery, (index, distance), memory, row);
        }
        if self.entries.contains(&state.pc) {
            for number in 0..2 {
                let location = Location::general(number);
                row[5][distance].add(known.get(location), truth(location));
            }
        }
    }

    /// The whole back trace by frame records: right if each record is.
    fn returns(
        &self,
        history: &mut History,
        recovery: &mut Recovery,
        (index, distance): (usize, usize),
        memory: &Memory,
        row: &mut [[super::table::Answers; DISTANCES.len()]],
    ) {
        let position = self.positions[index];
        let Some(known) = recovery.registers(history, position, &Cancel::default()) else {
            return;
        };
        let true_word = |address: u64| {
            let bytes = (0..8).map(|at| memory.byte(index, address + at, |a| self.last_byte(a)));
            let bytes: Option<Vec<u8>> = bytes.collect();
            bytes.map(|bytes| {
                bytes
                    .iter()
                    .rev()
                    .fold(0, |word, byte| word << 8 | u64::from(*byte))
            })
        };
        let frame = Location::general(29);
        let mut true_frame = self.states[index].registers[29];
        let mut own = known.get(frame);
        let mut whole = Some(Known {
            value: true,
            status: armsnap::recover::Status::Proved,
        });
        for _ in 0..FRAMES {
            if true_frame == 0 {
                break;
            }
            let (Some(next), Some(link)) = (true_word(true_frame), true_word(true_frame + 8))
            else {
                // The true value is not known either, so nothing is compared.
                return;
            };
            let Some(at) = own else {
                whole = None;
                break;
            };
            let mut bytes = vec![None; 16];
            recovery.memory(history, position, at.value, &mut bytes, &Cancel::default());
            let half = |half: usize| -> Option<Known<u64>> {
                let part: Option<Vec<Known<u8>>> =
                    bytes[8 * half..8 * half + 8].iter().copied().collect();
                let part = part?;
                Some(Known {
                    value: part
                        .iter()
                        .rev()
                        .fold(0, |word, byte| word << 8 | u64::from(byte.value)),
                    status: part.iter().map(|byte| byte.status).max()?.max(at.status),
                })
            };
            own = half(0);
            let (Some(before), Some(caller)) = (own, half(1)) else {
                whole = None;
                break;
            };
            if let Some(whole) = &mut whole {
                whole.value &=
                    at.value == true_frame && before.value == next && caller.value == link;
                whole.status = whole.status.max(before.status).max(caller.status);
            }
            true_frame = next;
        }
        row[4][distance].add(whole, true);
    }
}
