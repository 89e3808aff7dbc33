//! Registers and stack memory of trace frames, recovered with [`armsnap_history::recover`].

use super::Progress;
use super::executed::ExecutedInstruction;
use super::kept::KeptInstructions;
use super::note::NoValues;
use super::state::State;
use armsnap_arch::arch::RegisterFile;
use armsnap_arch::quantity::Address;
use armsnap_arch::semantics::Location;
use armsnap_history::recover::{
    FinalState, Known, Level, Limit, Options, Recovery, RegisterLocations, Registers,
    SnapshotMemory,
};
use armsnap_history::timeline::{History, Numbers, Position, Timeline, TracedCore};
use armsnap_snapshot::capture::core_memory;
use armsnap_snapshot::check;
use armsnap_snapshot::program::elf::Elf;
use armsnap_snapshot::snapshot::OpenSnapshot;
use armsnap_snapshot::snapshot::libraries;
use armsnap_snapshot::snapshot::memory::CoreMemory;
use armsnap_snapshot::stop::Cancel;
use std::sync::Arc;

/// The maximum number of frames with values, counted from the end.
pub const MOST: usize = 10_000;

/// The number of stack bytes in a frame.
const STACK: usize = 512;

/// The known values at a trace frame.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PastFrame {
    /// The registers of the description, in its order, up to the program counter.
    pub registers: Vec<Option<u64>>,
    /// Pieces of memory, starting at the stack pointer.
    pub stack: Vec<(u64, Vec<u8>)>,
}

impl PastFrame {
    /// Returns the register block up to the program counter, if all of it is known.
    pub fn block(&self, state: &State) -> Option<Vec<u8>> {
        let mut block = Vec::new();
        let mut values = self.registers.iter();
        for register in state.short_block() {
            let bytes = (*values.next()?)?.to_le_bytes();
            block.extend_from_slice(bytes.get(..register.bytes())?);
        }
        (!block.is_empty()).then_some(block)
    }
}

/// A core and its wanted frames.
#[derive(Clone, Copy, Debug)]
pub struct PastCore<'a> {
    /// Its index in the device list.
    pub core: usize,
    /// Its halted state.
    pub state: &'a State,
    /// The frames.
    pub kept: &'a KeptInstructions,
}

/// Returns the known values in the last frames, oldest first, at most [`MOST`]; and what limits
/// them.
///
/// # Errors
///
/// Returns the reason if the instructions cannot be found in the history.
pub fn frames(
    loaded: &OpenSnapshot,
    core: PastCore<'_>,
    code: CoreMemory,
    elfs: &[Elf],
    level: Level,
    progress: Progress<'_>,
) -> Result<(Vec<PastFrame>, Vec<Limit>), NoValues> {
    let PastCore { core, state, kept } = core;
    let mut timeline = Timeline::open(
        loaded,
        &[TracedCore {
            device: core,
            memory: Arc::new(code),
        }],
    );
    let history = timeline.history(core).ok_or(NoValues::NoHistory)?;
    let places = places(history, kept)?;
    let options = Options {
        level,
        ..Options::default()
    };
    let mut recovery = Recovery::new(facts(loaded, core, state, elfs), options);
    let total = places.len() as u64;
    let mut out = Vec::with_capacity(places.len());
    // Newest first: recovery starts from the end of the history.
    for (done, place) in (1..).zip(places.into_iter().rev()) {
        out.push(place.map_or_else(PastFrame::default, |(position, pc)| {
            at(&mut recovery, history, position, pc, state)
        }));
        progress(done, total);
    }
    out.reverse();
    let limits = recovery.limits(history);
    Ok((out, limits))
}

/// Finds the last kept instructions in the history.
fn places(
    history: &mut History,
    kept: &KeptInstructions,
) -> Result<Vec<Option<(Position, Address)>>, NoValues> {
    let numbers = Numbers::of(history, &Cancel::default()).unwrap_or_default();
    let instructions = kept.instructions();
    let first = instructions.len().saturating_sub(MOST);
    let place = |instruction: &ExecutedInstruction| {
        Some((numbers.position(instruction.number?)?, instruction.pc))
    };
    let out: Vec<_> = instructions.range(first..).map(place).collect();
    // Trace decoded from its start may differ from trace decoded from the middle.
    let same = numbers.count() == kept.executed()
        && out.iter().flatten().all(|(position, pc)| {
            let place = history.place(*position);
            place.and_then(|place| place.pc()) == Some(*pc)
        });
    if same {
        Ok(out)
    } else {
        Err(NoValues::OtherHistory)
    }
}

/// Returns the known values at a position.
fn at(
    recovery: &mut Recovery,
    history: &mut History,
    position: Position,
    pc: Address,
    state: &State,
) -> PastFrame {
    let never = Cancel::default();
    let architecture = state.description.architecture();
    let known = recovery
        .registers(history, position, &never)
        .unwrap_or_else(Registers::unknown);
    let value = |name: &str| {
        let known = RegisterLocations::of(architecture, name)?.value(&known)?;
        u64::try_from(known.value).ok()
    };
    let registers = state
        .short_block()
        .map(|register| match &*register.name {
            "pc" => Some(pc.0),
            name => value(name),
        })
        .collect();
    let mut stack = Vec::new();
    if let Some(from) = value("sp") {
        let mut bytes = [None; STACK];
        let read = recovery.memory(history, position, from, &mut bytes, &never);
        if read.is_some() {
            stack = Known::pieces(from, &bytes);
        }
    }
    PastFrame { registers, stack }
}

/// Collects what is known about a core besides its trace and code.
fn facts(loaded: &OpenSnapshot, core: usize, state: &State, elfs: &[Elf]) -> FinalState {
    let device = &loaded.snapshot.devices[core];
    let file = RegisterFile::read(device, state.description.architecture());
    let memory = core_memory(loaded, core);
    let seen = (&memory, state.space.space);
    let libraries = elfs
        .iter()
        .flat_map(|elf| libraries::of_program(loaded, elf, seen));
    let libraries: Vec<Elf> = libraries.collect();
    let code: Vec<&Elf> = elfs.iter().chain(&libraries).collect();
    let memory = SnapshotMemory::new(Arc::new(memory), state.space.space, elfs);
    let facts = FinalState::of(loaded, &device.name, &file, memory, code);
    let stateless = state.pc.is_none() || check::placeholder(loaded, core).is_some();
    if stateless {
        FinalState {
            status: None,
            registers: [None; Location::KEPT],
            ..facts
        }
    } else {
        facts
    }
}
