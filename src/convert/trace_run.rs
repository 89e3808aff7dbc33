//! A core as a finished trace run: tracepoints, state variables, trace frames.
//!
//! Trace frame 0 is the halted state, the others are the decoded trace in chronological order. Both
//! trace files and the server take their frames from this module.

use super::definitions::{self, Defined, Definitions};
use super::executed::{ExecutedInstruction, FrameSelection};
use super::frame_values::{VARIABLES, Variable, Variables};
use super::kept::{Bound, KeptInstructions, Limits};
use super::note::{CoreNote, Note};
use super::past::{self, PastFrame};
use super::state::{State, fitting};
use super::{Error, Progress, history};
use armsnap_arch::arch::Architecture;

use crate::remote_protocol::hex;
use crate::tfile::{
    self, Description, SourceString, Status, StopReason, TRACEPOINT_LIMIT, Tracepoint, Writer,
};
use armsnap_arch::quantity::{Address, Isa};
use armsnap_history::recover::{Level, Limit};
use armsnap_snapshot::capture::{Capture, CaptureBuffer, CaptureSource, Protocol, core_memory};
use armsnap_snapshot::program::elf::Elf;
use armsnap_snapshot::program::symbols::Symbols;
use armsnap_snapshot::snapshot::OpenSnapshot;
use armsnap_snapshot::snapshot::memory::CoreMemory;
use armsnap_snapshot::snapshot::program::add_segments;
use std::collections::VecDeque;
use std::io::{self, Write};

/// The default maximum number of trace frames.
pub const FRAMES: usize = 1_000_000;

/// The default maximum number of distinct addresses: GDB's time to load tracepoints grows
/// quadratically, and this number takes seconds.
pub const ADDRESSES: usize = 5_000;

/// The maximum number of distinct addresses that a trace file can hold: the tracepoint numbers,
/// minus one for the halted state and one for "no tracepoint".
pub const MAX_ADDRESSES: usize = TRACEPOINT_LIMIT as usize - 2;

/// The maximum size of a trace frame in bytes: GDB counts them with 31 bits.
const FRAME_LIMIT: usize = i32::MAX as usize;

/// The tracepoint of the halted state, if its program counter is known.
const HALTED: u16 = 1;

/// The number for "no tracepoint": GDB shows the program counter of its frame as unavailable.
pub const NOWHERE: u16 = TRACEPOINT_LIMIT;

/// The field of the status that names the protocol of the trace, in hex: it determines the
/// numbering of exceptions.
pub const PROTOCOL: &str = "x-protocol";

/// The variable with the address of a frame's instruction, in files in which tracepoints do not
/// tell it.
pub const ADDRESS: &str = "address";

/// Selects the frames and the core.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Name of the core; `None` for all.
    pub core: Option<String>,
    /// Which executed instructions become trace frames.
    pub frames: FrameSelection,
    /// Which tracepoints are defined for them.
    pub tracepoints: Definitions,
    /// Where the window starts.
    pub from: Option<Bound>,
    /// Where the window ends.
    pub to: Option<Bound>,
    /// The maximum number of frames, counted from the end.
    pub last: Option<usize>,
    /// Whether to leave out the trace.
    pub state_only: bool,
    /// Whether to include the frames despite `state_only`.
    pub frames_nevertheless: bool,
    /// Which registers and stack memory the last frames of the trace contain; `None` for none.
    pub values: Option<Level>,
    /// Programs: they supply code that no dump contains, and names of functions.
    pub elfs: Vec<Elf>,
}

impl Options {
    pub(super) fn limits(&self) -> Limits {
        Limits {
            from: self.from,
            to: self.to,
            last: self.last.unwrap_or(FRAMES),
        }
    }

    fn window_chosen(&self) -> bool {
        self.from.is_some() || self.to.is_some() || self.last.is_some()
    }
}

/// The space in bytes for memory in trace frame 0, besides a register block of `registers` bytes.
pub fn room(registers: usize) -> usize {
    // Variables, and the block's type.
    FRAME_LIMIT.saturating_sub(registers + 13 * VARIABLES.len() + 1)
}

fn values(instruction: &ExecutedInstruction, core: usize) -> Variables {
    let mut values = instruction.values.variables();
    values[Variable::Core] = Some(core as i64);
    values[Variable::Offset] = Some(instruction.offset.0.cast_signed());
    values[Variable::Thumb] = match instruction.isa {
        Isa::A32 => Some(0),
        Isa::T32 => Some(1),
        Isa::A64 | Isa::ThumbEe | Isa::Jazelle => None,
    };
    values
}

/// The status of a run that ended when the snapshot was taken.
pub fn status(frames: u64, created: u64, notes: String) -> Status {
    Status {
        stop: Some(StopReason::Command(Some("snapshot".to_owned()))),
        frames: Some(frames),
        created: Some(created),
        notes: Some(notes),
        ..Status::default()
    }
}

/// The trace state variables. GDB lists them in reverse order.
pub fn variables() -> Vec<tfile::Variable> {
    let variables = (1..).zip(VARIABLES).map(|(number, name)| tfile::Variable {
        number,
        name: name.to_owned(),
        ..tfile::Variable::default()
    });
    let mut variables: Vec<tfile::Variable> = variables.collect();
    variables.reverse();
    variables
}

/// A trace run made from a core's state and trace.
#[derive(Debug)]
pub struct TraceRun {
    /// The core's name.
    name: String,
    /// The core's index in the device list.
    core: usize,
    state: State,
    kept: KeptInstructions,
    kind: FrameSelection,
    /// The protocol of its trace.
    protocol: Option<Protocol>,
    definitions: Definitions,
    /// The tracepoints of the frames of the trace.
    defined: Defined,
    /// The known values in the last frames.
    past: Vec<PastFrame>,
}

impl TraceRun {
    /// The run of the core at index `core` of the device list. With `alone`, the target description
    /// covers only this core instead of all cores of its architecture. Notes are
    /// added to `notes`; `progress` receives the progress of decoding.
    ///
    /// # Errors
    ///
    /// If the window that `options` select is empty, or has too many addresses.
    pub fn of(
        loaded: &OpenSnapshot,
        core: usize,
        alone: bool,
        options: &Options,
        notes: &mut Vec<Note>,
        progress: Progress<'_>,
    ) -> Result<Self, Error> {
        let state = State::of(loaded, core, alone);
        let name = &loaded.snapshot.devices[core].name;
        let about = state.notes.iter().cloned();
        let about = about.chain(register_note(&state));
        notes.extend(about.map(|note| Note::of_core(name, note)));
        let mut kept = KeptInstructions::new(options.limits());
        let (capture, assumed) = Capture::open(loaded);
        let (sources, left_out) = capture.following(&loaded.snapshot, core);
        let protocol = sources.first().map(|(_, source)| source.protocol);
        if !options.state_only || options.frames_nevertheless {
            if loaded.snapshot.trace.is_none() {
                notes.push(Note::NoTrace);
            } else {
                let about = assumed.into_iter().chain(left_out);
                notes.extend(about.map(Note::Snapshot));
                kept = decode(loaded, core, &sources, options, notes, progress)?;
            }
        }
        let mut run = Self {
            name: name.clone(),
            core,
            state,
            kept,
            kind: options.frames,
            protocol,
            definitions: options.tracepoints,
            defined: Defined::default(),
            past: Vec::new(),
        };
        let symbols = match options.tracepoints {
            Definitions::Functions => {
                let memory = code(loaded, core, &[]);
                definitions::functions(loaded, (core, &memory), &options.elfs)
            }
            Definitions::Addresses | Definitions::One => Symbols::default(),
        };
        run.choose(options, &symbols, notes)?;
        if let Some(level) = options.values.filter(|_| !run.instructions().is_empty()) {
            run.find_values(loaded, level, options, notes, progress);
        }
        Ok(run)
    }

    /// Finds the known values in the last frames.
    fn find_values(
        &mut self,
        loaded: &OpenSnapshot,
        level: Level,
        options: &Options,
        notes: &mut Vec<Note>,
        progress: Progress<'_>,
    ) {
        let code = code(loaded, self.core, &options.elfs);
        let core = past::PastCore {
            core: self.core,
            state: &self.state,
            kept: &self.kept,
        };
        let found = past::frames(loaded, core, code, &options.elfs, level, progress);
        let note = match found {
            Err(reason) => CoreNote::NoValues(reason),
            Ok((found, limits)) => {
                self.past = found;
                let faults = limits.iter();
                let faults = faults.filter(|limit| matches!(limit, Limit::Addresses(_)));
                notes.extend(faults.map(|fault| {
                    let fault = CoreNote::Limit(fault.clone());
                    Note::of_core(&self.name, fault)
                }));
                let with = self.past.iter().filter(|frame| frame.registers.len() > 1);
                let cut = self.past.len() < self.instructions().len();
                CoreNote::Values {
                    frames: with.count(),
                    last: cut.then_some(past::MOST),
                    inferred: level == Level::Inferred,
                }
            }
        };
        notes.push(Note::of_core(&self.name, note));
    }

    /// Enforces the limit of addresses and reports what is left out.
    fn choose(
        &mut self,
        options: &Options,
        symbols: &Symbols,
        notes: &mut Vec<Note>,
    ) -> Result<(), Error> {
        let name = self.name.clone();
        if let Some(missed) = self.kept.missed().filter(|_| self.kept.total() > 0) {
            let place = match missed {
                Bound::Address(address) => format!("at {address}"),
                Bound::Offset(offset) => format!("at or after offset {:#x}", offset.0),
            };
            return Err(Error::Usage(format!(
                "{name}: none of {} trace frames is {place}, where the window should {}",
                self.kept.total(),
                if Some(missed) == options.from {
                    "begin"
                } else {
                    "end"
                },
            )));
        }
        self.define(symbols);
        let addresses = self.defined.count();
        if options.window_chosen() {
            if addresses > MAX_ADDRESSES {
                return Err(Error::Usage(format!(
                    "{name}: {} trace frames at {addresses} addresses: a trace file has tracepoints for \
                     {MAX_ADDRESSES}: choose a smaller window with --last, --from, --to, or \
                     --frames functions",
                    self.kept.instructions().len()
                )));
            }
            if addresses > ADDRESSES {
                let note = CoreNote::ManyAddresses { addresses };
                notes.push(Note::of_core(&name, note));
            }
        } else if addresses > ADDRESSES {
            self.kept
                .keep_places(ADDRESSES, |pc| self.defined.place(pc));
            self.define(symbols);
        }
        let (kept, total) = (self.kept.instructions().len() as u64, self.kept.total());
        if kept < total && !options.window_chosen() {
            let note = CoreNote::LastFrames {
                kept,
                total,
                limit: FRAMES,
                addresses: (self.definitions == Definitions::Addresses).then_some(ADDRESSES),
            };
            notes.push(Note::of_core(&name, note));
        }
        if let Some(hint) = self.mode_hint() {
            notes.push(Note::of_core(&name, hint));
        }
        Ok(())
    }

    /// Numbers the tracepoints in order of first execution.
    fn define(&mut self, symbols: &Symbols) {
        let instructions = self.kept.instructions().iter();
        self.defined = Defined::of(
            self.definitions,
            instructions.map(|instruction| instruction.pc),
            symbols,
            self.kind == FrameSelection::Functions,
            (HALTED + 1, NOWHERE),
        );
    }

    /// In the A- and R-profiles GDB takes the instruction set from symbols, or else from CPSR,
    /// which trace frames do not contain.
    fn mode_hint(&self) -> Option<CoreNote> {
        let a_profile = self.state.description.architecture() == Architecture::AArch32;
        (a_profile && !self.kept.instructions().is_empty()).then_some(CoreNote::InstructionSet)
    }

    /// The core's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The core's index in the device list.
    pub fn core(&self) -> usize {
        self.core
    }

    /// The halted state: trace frame 0.
    pub fn state(&self) -> &State {
        &self.state
    }

    /// The memory of the halted state that fits into trace frame 0.
    pub fn memory(&self) -> Vec<(u64, &[u8])> {
        fitting(&self.state.memory(), room(self.state.block.len()))
    }

    /// The executed instructions: trace frames 1 and up, oldest first.
    pub fn instructions(&self) -> &VecDeque<ExecutedInstruction> {
        self.kept.instructions()
    }

    /// The executed instruction in trace frame `frame`; `None` for the halted state.
    pub fn instruction(&self, frame: usize) -> Option<&ExecutedInstruction> {
        self.instructions().get(frame.checked_sub(1)?)
    }

    /// The number of instructions that the core executed.
    pub fn executed(&self) -> u64 {
        self.kept.executed()
    }

    /// The number of trace frames.
    pub fn frames(&self) -> usize {
        self.instructions().len() + 1
    }

    /// The program counter in a trace frame.
    pub fn pc(&self, frame: usize) -> Option<Address> {
        match frame {
            0 => self.state.pc,
            _ => self.instruction(frame).map(|instruction| instruction.pc),
        }
    }

    /// The number of the tracepoint that a trace frame belongs to.
    pub fn tracepoint(&self, frame: usize) -> u16 {
        let known = match self.instruction(frame) {
            None => self.state.pc.map(|_| HALTED),
            Some(instruction) => self.defined.number(instruction.pc),
        };
        known.unwrap_or(NOWHERE)
    }

    /// The trace state variables that have a value in a trace frame.
    pub fn values(&self, frame: usize) -> impl Iterator<Item = (i32, i64)> + use<> {
        let values = match self.instruction(frame) {
            Some(instruction) => values(instruction, self.core),
            None => {
                let mut halted = Variables::default();
                halted[Variable::Core] = Some(self.core as i64);
                halted
            }
        };
        (1..)
            .zip(values.0)
            .filter_map(|(number, value)| Some((number, value?)))
    }

    /// The known values in a trace frame.
    fn past(&self, frame: usize) -> Option<&PastFrame> {
        let before = self.instructions().len() - self.past.len();
        self.past.get(frame.checked_sub(1 + before)?)
    }

    /// The register block of the halted state, limited to the size of blocks in the file.
    pub fn block(&self) -> &[u8] {
        let size = self.block_size().min(self.state.block.len());
        &self.state.block[..size]
    }

    /// The size of the register blocks in bytes, which is the same for the whole file; if there are
    /// blocks of past frames, they end with the program counter, because nothing after it is known.
    fn block_size(&self) -> usize {
        if self
            .past
            .iter()
            .any(|frame| frame.block(&self.state).is_some())
        {
            return self
                .state
                .short_block()
                .map(|register| register.bytes())
                .sum();
        }
        if self.state.block.is_empty() {
            self.state.block_bytes as usize
        } else {
            self.state.block.len()
        }
    }

    /// Writes a trace frame. `registers` and `memory` belong to the halted state.
    ///
    /// # Errors
    ///
    /// If writing fails.
    pub fn write<W: Write>(
        &self,
        frame: usize,
        registers: &[u8],
        memory: &[(u64, &[u8])],
        writer: &mut Writer<W>,
    ) -> io::Result<()> {
        let mut halted: &[(u64, &[u8])] = &[];
        match self.instruction(frame) {
            None => {
                if !registers.is_empty() {
                    writer.registers(registers)?;
                }
                halted = memory;
            }
            Some(instruction) => {
                let code = instruction.code();
                if let Some(block) = self.past(frame).and_then(|past| past.block(&self.state)) {
                    writer.registers(&block)?;
                }
                if !code.is_empty() {
                    writer.memory(instruction.pc.0, code);
                }
                for (address, bytes) in self.past(frame).iter().flat_map(|past| &past.stack) {
                    writer.memory(*address, bytes);
                }
            }
        }
        for (number, value) in self.values(frame) {
            writer.variable(number, value);
        }
        // A register block cannot mark unknown registers.
        for (number, value) in self.known(frame) {
            writer.variable(number, value);
        }
        if let (Some(number), Some(instruction)) =
            (self.address_variable(), self.instruction(frame))
        {
            writer.variable(number as i32, instruction.pc.0.cast_signed());
        }
        writer.end_frame_with(self.tracepoint(frame), halted)
    }

    /// The status that `tstatus` prints.
    pub fn status(&self) -> tfile::Status {
        let frames = self.kept.instructions().len() as u64 + 1;
        let created = self.kept.total() + 1;
        let mut run_status = status(frames, created, self.summary());
        if let Some(protocol) = self.protocol.filter(|_| frames > 1) {
            let name = hex::encode(protocol.name().as_bytes());
            run_status.other.push((PROTOCOL.to_owned(), name));
        }
        run_status
    }

    /// The description for a trace file.
    pub fn description(&self) -> Description {
        let mut tracepoints: Vec<Tracepoint> = Vec::with_capacity(self.defined.count() + 1);
        if let Some(pc) = self.state.pc {
            tracepoints.push(tracepoint(HALTED, pc, "collect $regs"));
        }
        let collected = self.collected();
        let visited = self.defined.tracepoints();
        tracepoints.extend(visited.map(|(number, place, steps)| {
            let mut tracepoint = tracepoint(number, place, &collected);
            if steps {
                definitions::stepping(&mut tracepoint);
            }
            tracepoint
        }));
        // GDB numbers them from the last to the first: this order makes its numbers match.
        tracepoints.sort_by_key(|tracepoint| std::cmp::Reverse(tracepoint.number));
        Description {
            register_bytes: self.block_size() as u32,
            status: Some(self.status()),
            variables: self.variables(),
            tracepoints,
            target: Some(self.state.description.xml()),
            unknown: Vec::new(),
        }
    }

    /// The variables of known registers in a frame that has no register block.
    fn known(&self, frame: usize) -> impl Iterator<Item = (i32, i64)> {
        let past = self
            .past(frame)
            .filter(|past| past.block(&self.state).is_none());
        let registers = past.map_or(&[][..], |past| &past.registers);
        (VARIABLES.len() as i32 + 1..)
            .zip(registers)
            .filter_map(|(number, value)| Some((number, value.as_ref()?.cast_signed())))
    }

    /// The names of these variables; GDB would take `$x0` for the register.
    fn known_names(&self) -> impl Iterator<Item = String> {
        let registers = self.state.short_block();
        registers.map(|register| format!("known_{}", register.name))
    }

    /// The trace state variables of a trace file.
    fn variables(&self) -> Vec<tfile::Variable> {
        let mut all = variables();
        if !self.past.is_empty() {
            let numbers = VARIABLES.len() as u32 + 1..;
            let known = numbers
                .zip(self.known_names())
                .map(|(number, name)| tfile::Variable {
                    number,
                    name,
                    ..tfile::Variable::default()
                });
            let mut known: Vec<_> = known.collect();
            known.reverse();
            known.append(&mut all);
            all = known;
        }
        if let Some(number) = self.address_variable() {
            let variable = tfile::Variable {
                number,
                name: ADDRESS.to_owned(),
                ..tfile::Variable::default()
            };
            all.insert(0, variable);
        }
        all
    }

    /// The number of the variable [`ADDRESS`], if the frames of the trace have it.
    fn address_variable(&self) -> Option<u32> {
        let others = VARIABLES.len() + self.known_names().count();
        let needed = self.definitions.need_variable();
        needed.then_some(others as u32 + 1)
    }

    /// The variables that `tdump` shows for a trace frame: all that any frame contains.
    pub fn collected(&self) -> String {
        let mut any = [false; VARIABLES.len()];
        for instruction in self.kept.instructions() {
            for (any, value) in any.iter_mut().zip(values(instruction, self.core).0) {
                *any |= value.is_some();
            }
        }
        let there = VARIABLES.iter().zip(any).filter(|(_, any)| *any);
        let mut names: String = there.map(|(name, _)| format!(", ${name}")).collect();
        if self.definitions.need_variable() {
            names += &format!(", ${ADDRESS}");
        }
        if self.past.is_empty() {
            return format!("collect $pc{names}");
        }
        // A list of all variables would exceed GDB's limit for a line.
        format!("collect $regs{names}")
    }

    /// For GDB's `tstatus`.
    fn summary(&self) -> String {
        let kept = self.kept.instructions().len();
        let mut text = format!("frame 0 is {} as saved", self.name);
        if kept > 0 {
            let what = match self.kind {
                FrameSelection::Waypoints => "waypoints",
                FrameSelection::Functions => "functions entered",
                FrameSelection::Instructions => "instructions",
                FrameSelection::Exceptions => "exceptions taken",
            };
            text += &format!("; frames 1 to {kept} are {what} of its trace, oldest first");
        }
        if (kept as u64) < self.kept.total() {
            text += &format!(" ({kept} of {})", self.kept.total());
        }
        if let Some(hint) = self.mode_hint() {
            text += &format!("; {hint}");
        }
        // Its hex form is in a line of limited length.
        let cut = (0..=300).rev().find(|&at| text.is_char_boundary(at));
        text.truncate(cut.unwrap_or(0));
        text
    }
}

/// A plain tracepoint; `collect` is what GDB shows as its action.
pub fn tracepoint(number: u16, pc: Address, collect: &str) -> Tracepoint {
    let source = |kind: &str, text: String| SourceString {
        kind: kind.to_owned(),
        text,
    };
    Tracepoint {
        // GDB warns about a tracepoint without a source location.
        sources: vec![
            source("at", format!("*{pc}")),
            source("cmd", collect.to_owned()),
        ],
        ..Tracepoint::at(u32::from(number), pc.0)
    }
}

/// Values that a register block cannot express.
fn register_note(state: &State) -> Option<CoreNote> {
    (!state.unknown.is_empty()).then(|| CoreNote::Unknown {
        unknown: state.unknown.clone(),
        left_out: state.left_out.clone(),
    })
}

fn decode(
    loaded: &OpenSnapshot,
    core: usize,
    sources: &[(&CaptureBuffer, &CaptureSource)],
    options: &Options,
    notes: &mut Vec<Note>,
    progress: Progress<'_>,
) -> Result<KeptInstructions, Error> {
    let memory = code(loaded, core, &options.elfs);
    let mut symbols = Symbols::default();
    for elf in &options.elfs {
        if let Err(error) = symbols.add(elf.bytes()) {
            let program = elf.path.clone();
            notes.push(Note::Symbols { program, error });
        }
    }
    let symbols = (!symbols.is_empty()).then_some(&symbols);
    let kept = history::decode(sources, &memory, symbols, options, progress);
    let name = &loaded.snapshot.devices[core].name;
    let taken = memory.taken_from_others();
    notes.extend(taken.map(|note| Note::of_core(name, CoreNote::Memory(note))));
    Ok(kept?)
}

/// The memory from which a core's code is taken.
fn code(loaded: &OpenSnapshot, core: usize, elfs: &[Elf]) -> CoreMemory {
    let mut memory = core_memory(loaded, core);
    for elf in elfs {
        add_segments(&mut memory, elf);
    }
    memory.share(loaded, core);
    memory
}

#[cfg(test)]
mod tests;
