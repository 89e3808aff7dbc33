//! The finished trace runs of an endpoint and their trace frames.
//!
//! A core's trace is decoded when a client first requests its frames, once for all clients.
//! Independent of packets; [`crate::convert::trace_run`] creates the frames.

use std::collections::HashMap;
use std::io;
use std::sync::OnceLock;

use super::cores::{Core, Cores};
use super::trace_file::{FileFrames, FileRun};
use super::trace_frames::{FramePlace, PieceWriter, TraceFrames, Wanted};
use crate::convert;
use crate::convert::state::{fitting, seen};
use crate::convert::trace_run::{self, TraceRun};
use crate::tfile::{ByteOrder, SourceString, Status, Tracepoint, Variable, Writer};
use armsnap_arch::arch::Architecture;
use armsnap_arch::arch::registers::Bytes;
use armsnap_arch::quantity::{Address, Isa};
use armsnap_snapshot::capture::{Capture, CaptureBuffer};
use armsnap_snapshot::program::elf::Elf;
use armsnap_snapshot::snapshot::OpenSnapshot;
use armsnap_snapshot::stop::Unwind;

/// Trace up to this size in bytes is decoded within the two seconds that GDB waits for a reply.
const SMALL: u64 = 4 << 20;

/// The tracepoint of the halted state.
pub(super) const HALTED: u16 = 1;

/// The tracepoint of all frames of the trace.
const TRACED: u16 = 2;

/// Hint for large traces: GDB waits for these commands without timeout.
pub(super) const FIRST: &str = "the trace is large: tfind decodes it, or monitor trace";

/// A core with decodable trace.
#[derive(Debug)]
pub(super) struct TracedCore {
    /// Its index in the device list.
    device: usize,
    /// Its index in the endpoint's cores.
    core: usize,
    run: OnceLock<Decoded>,
}

#[derive(Debug)]
struct Decoded {
    run: Result<TraceRun, String>,
    notes: Vec<convert::Note>,
    /// Number of trace frames by address.
    hits: HashMap<u64, u64>,
}

/// The trace runs of an endpoint.
#[derive(Debug)]
pub(super) enum Traces {
    /// Trace runs of cores of a snapshot.
    Cores(Box<CoreRuns>),
    /// The trace run of a trace file.
    File(Box<FileRun>),
}

impl Traces {
    /// Creates the trace runs of the cores at indices `places` in the device list; `None` if no core
    /// has decodable trace. Decodes nothing.
    pub(super) fn of(loaded: &OpenSnapshot, places: &[usize], programs: Vec<Elf>) -> Option<Self> {
        CoreRuns::of(loaded, places, programs).map(|runs| Self::Cores(Box::new(runs)))
    }

    /// Returns their cores as indices in the endpoint's cores.
    pub(super) fn cores(&self) -> Vec<usize> {
        match self {
            Self::Cores(runs) => runs.cores.iter().map(|core| core.core).collect(),
            Self::File(_) => vec![0],
        }
    }

    /// Returns the frames of a run; decodes them the first time.
    ///
    /// # Errors
    ///
    /// Returns a message if the trace cannot be decoded.
    pub(super) fn frames<'a>(
        &'a self,
        cores: Cores<'a>,
        chosen: usize,
        unwind: &'a Unwind,
    ) -> Result<Box<dyn TraceFrames + 'a>, String> {
        match self {
            Self::Cores(runs) => Ok(Box::new(runs.frames(cores, chosen, unwind)?)),
            Self::File(run) => Ok(Box::new(FileFrames::of(run, unwind))),
        }
    }

    /// Returns whether frames are available before a client times out.
    pub(super) fn at_hand(&self, chosen: usize) -> bool {
        match self {
            Self::Cores(runs) => runs.at_hand(chosen),
            Self::File(_) => true,
        }
    }

    /// Returns the notes on a run as texts; decodes it the first time.
    pub(super) fn notes(&self, chosen: usize, unwind: &Unwind) -> Vec<String> {
        match self {
            Self::Cores(runs) => runs
                .notes(chosen, unwind)
                .iter()
                .map(ToString::to_string)
                .collect(),
            Self::File(run) => run.notes().iter().map(ToString::to_string).collect(),
        }
    }

    /// Returns the status before decoding.
    pub(super) fn standing(&self) -> Status {
        match self {
            Self::Cores(runs) => runs.standing(),
            Self::File(run) => run.status(),
        }
    }

    /// Returns the tracepoints reported to clients before decoding.
    pub(super) fn list(&self, cores: &[Core], chosen: usize) -> Vec<Tracepoint> {
        match self {
            Self::Cores(runs) => runs.list(cores, chosen),
            Self::File(run) => run.list(),
        }
    }

    /// Returns the trace state variables.
    pub(super) fn variables(&self) -> Vec<Variable> {
        match self {
            Self::Cores(_) => trace_run::variables(),
            Self::File(run) => run.variables(),
        }
    }

    /// Returns the frame shown as the state while no frame is selected, if any.
    pub(super) fn resting(&self) -> Option<usize> {
        match self {
            Self::Cores(_) => None,
            Self::File(run) => Some(run.rest()),
        }
    }
}

/// The trace runs of an endpoint's cores: at least one.
#[derive(Debug)]
pub(super) struct CoreRuns {
    loaded: OpenSnapshot,
    /// Code for addresses without dump.
    programs: Vec<Elf>,
    cores: Vec<TracedCore>,
    small: bool,
}

impl CoreRuns {
    /// Creates the trace runs of the cores at indices `places` in the device list; `None` if no core
    /// has decodable trace. Decodes nothing.
    fn of(loaded: &OpenSnapshot, places: &[usize], programs: Vec<Elf>) -> Option<Self> {
        loaded.snapshot.trace.as_ref()?;
        let (capture, _) = Capture::open(loaded);
        let followed = |place: usize| {
            let mut sources = capture.buffers.iter().flat_map(|buffer| &buffer.sources);
            sources.any(|source| source.follows(place))
        };
        let cores: Vec<TracedCore> = places
            .iter()
            .enumerate()
            .filter(|(_, place)| followed(**place))
            .map(|(core, &device)| TracedCore {
                device,
                core,
                run: OnceLock::new(),
            })
            .collect();
        let bytes: u64 = capture.buffers.iter().map(CaptureBuffer::bytes).sum();
        (!cores.is_empty()).then(|| Self {
            loaded: loaded.clone(),
            programs,
            cores,
            small: bytes <= SMALL,
        })
    }

    fn decoded(&self, chosen: usize, unwind: &Unwind) -> Option<&Decoded> {
        let core = self.cores.get(chosen)?;
        Some(core.run.get_or_init(|| {
            let options = trace_run::Options {
                elfs: self.programs.clone(),
                ..trace_run::Options::default()
            };
            let mut notes = Vec::new();
            let place = core.device;
            let progress = &mut |_, _| unwind.check();
            let run = TraceRun::of(&self.loaded, place, false, &options, &mut notes, progress);
            let mut hits = HashMap::new();
            for instruction in run.iter().flat_map(TraceRun::instructions) {
                *hits.entry(instruction.pc.0).or_default() += 1;
            }
            Decoded {
                hits,
                run: run.map_err(|error| error.to_string()),
                notes,
            }
        }))
    }

    /// Returns the frames of a core; decodes them the first time.
    ///
    /// # Errors
    ///
    /// Returns a message if the trace cannot be decoded.
    fn frames<'a>(
        &'a self,
        cores: Cores<'a>,
        chosen: usize,
        unwind: &Unwind,
    ) -> Result<CoreFrames<'a>, String> {
        let gone = || "no core with trace".to_owned();
        let index = self.cores.get(chosen).map(|core| core.core);
        let core = index.and_then(|core| cores.all.get(core));
        let decoded = self.decoded(chosen, unwind).ok_or_else(gone)?;
        Ok(CoreFrames {
            cores,
            index: index.ok_or_else(gone)?,
            core: core.ok_or_else(gone)?,
            run: decoded.run.as_ref().map_err(Clone::clone)?,
            hits: &decoded.hits,
        })
    }

    /// Returns whether frames are available before a client times out.
    fn at_hand(&self, chosen: usize) -> bool {
        let core = self.cores.get(chosen);
        self.small || core.is_some_and(|core| core.run.get().is_some())
    }

    /// Returns the notes from decoding a core's trace; decodes it the first time.
    fn notes(&self, chosen: usize, unwind: &Unwind) -> &[convert::Note] {
        self.decoded(chosen, unwind)
            .map_or(&[], |decoded| &decoded.notes)
    }

    /// Returns the status before decoding.
    fn standing(&self) -> Status {
        let notes = if self.small {
            "tfind decodes the trace"
        } else {
            FIRST
        };
        let notes = notes.to_owned();
        Status {
            frames: None,
            created: None,
            ..trace_run::status(0, 0, notes)
        }
    }

    /// Returns the tracepoints reported to clients before decoding: one for the halted state, and one
    /// that was stepping from there. A tracepoint for every address of the trace, as trace files
    /// require, would fill a client's list of breakpoints.
    fn list(&self, cores: &[Core], chosen: usize) -> Vec<Tracepoint> {
        let core = self.cores.get(chosen).map(|core| core.core);
        let core = core.and_then(|core| cores.get(core));
        let pc = core.and_then(|core| core.registers.pc()).unwrap_or(0);
        let halted = trace_run::tracepoint(HALTED, Address(pc), "collect $regs");
        let names: String = trace_run::variables()
            .iter()
            .rev()
            .map(|variable| format!(", ${}", variable.name))
            .collect();
        let registers = match core.map(|core| core.registers.architecture()) {
            // Only the program counter is known at its past positions.
            Some(Architecture::MProfile) => "$pc",
            _ => "$regs",
        };
        let collect = format!("collect {registers}{names}");
        let mut traced = trace_run::tracepoint(TRACED, Address(pc), &collect);
        traced.steps = 1;
        for line in ["while-stepping 1", &collect, "end"] {
            traced.sources.push(SourceString {
                kind: "cmd".to_owned(),
                text: line.to_owned(),
            });
        }
        // GDB numbers them starting with the last: in this order its numbers equal ours.
        vec![traced, halted]
    }
}

/// The trace frames of a core of a snapshot.
pub(super) struct CoreFrames<'a> {
    cores: Cores<'a>,
    /// The index of the core.
    index: usize,
    core: &'a Core,
    run: &'a TraceRun,
    hits: &'a HashMap<u64, u64>,
}

impl CoreFrames<'_> {
    fn pc(&self, frame: usize) -> Option<u64> {
        self.run.pc(frame).map(|pc| pc.0)
    }

    fn value(&self, frame: usize, register: &armsnap_arch::arch::RegisterDescription) -> Bytes {
        if frame == 0 {
            return self.core.register(register);
        }
        let pc = self.pc(frame).filter(|_| register.name == "pc");
        let bytes = pc.map_or([None; 8], |pc| pc.to_le_bytes().map(Some));
        let beyond = pc.map(|_| 0);
        let bytes = bytes.into_iter().chain(std::iter::repeat(beyond));
        bytes.take(register.bytes()).collect()
    }
}

impl TraceFrames for CoreFrames<'_> {
    fn count(&self) -> usize {
        self.run.frames()
    }

    fn tracepoint(&self, frame: usize) -> u16 {
        if frame == 0 { HALTED } else { TRACED }
    }

    fn find(&self, from: usize, wanted: Wanted) -> Option<usize> {
        let is = |frame: &usize| wanted.is(self.tracepoint(*frame), self.pc(*frame));
        (from..self.count()).find(is)
    }

    fn values(&self, frame: usize) -> Vec<(i32, i64)> {
        self.run.values(frame).collect()
    }

    fn isa(&self, frame: usize) -> Option<Isa> {
        if frame == 0 {
            return self.core.isa();
        }
        self.run
            .instruction(frame)
            .map(|instruction| instruction.isa)
    }

    fn place(&self, frame: usize) -> Option<FramePlace> {
        let instruction = self.run.instruction(frame)?;
        Some(FramePlace {
            core: self.index,
            number: instruction.number?,
            executed: self.run.executed(),
            pc: instruction.pc,
        })
    }

    fn memory(&self, frame: usize) -> Vec<(u64, &[u8])> {
        match self.run.instruction(frame) {
            None => seen(&self.core.memory, self.core.space.space),
            Some(instruction) if instruction.code().is_empty() => Vec::new(),
            Some(instruction) => vec![(instruction.pc.0, instruction.code())],
        }
    }

    fn registers(&self, frame: usize) -> Bytes {
        let block = self.cores.block();
        block.flat_map(|r| self.value(frame, r)).collect()
    }

    fn register(&self, frame: usize, number: u32) -> Option<Bytes> {
        let register = self.cores.description.register(number)?;
        Some(self.value(frame, register))
    }

    fn write(&self, frame: usize, out: PieceWriter) -> io::Result<PieceWriter> {
        let block = self.cores.block();
        let size = block
            .map(armsnap_arch::arch::RegisterDescription::bytes)
            .sum();
        let mut writer = Writer::bare(out, size, ByteOrder::Little);
        if frame == 0 {
            // Clients assume that a register block is as long as a reply to `g`, and a block cannot
            // mark unknown registers: without a block, the tracepoint determines the program
            // counter.
            let block: Option<Vec<u8>> = self.registers(0).into_iter().collect();
            let block = block.unwrap_or_default();
            let memory = fitting(&self.memory(0), trace_run::room(block.len()));
            self.run.write(0, &block, &memory, &mut writer)?;
        } else {
            self.run.write(frame, &[], &[], &mut writer)?;
        }
        Ok(writer.into_inner())
    }

    fn status(&self) -> Status {
        self.run.status()
    }

    fn tracepoints(&self) -> Vec<Tracepoint> {
        self.run.description().tracepoints
    }

    fn hits(&self, tracepoint: u64, address: u64) -> u64 {
        let halted = self.pc(0).unwrap_or(0) == address;
        match u16::try_from(tracepoint) {
            Ok(HALTED) => 1,
            Ok(TRACED) if halted => self.run.instructions().len() as u64,
            _ => self.hits.get(&address).copied().unwrap_or(0),
        }
    }
}
