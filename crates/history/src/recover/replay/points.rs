//! The places of a recording from which execution can begin: its start and its checkpoints.

use super::Stopped;
use super::calls::{self, Kernel};
use super::clones;
use super::machine::Processor;
use super::memory::Memory;
use super::thread::Thread;
use super::threads::Threads;
use super::turns::Moment;
use crate::recover::facts::final_state::FinalState;
use crate::timeline::{History, Position};
use armsnap_arch::arch::{Architecture, RegisterFile};
use armsnap_arch::semantics::{Location, Values};
use armsnap_snapshot::snapshot::model::{Device, Register};
use armsnap_snapshot::snapshot::replay::{
    Call, Checkpoint, Cursor, Error, Input, Inputs, Piece, Start,
};
use armsnap_snapshot::stop::Cancel;
use std::cell::OnceCell;
use std::ops::Range;
use std::sync::Arc;

/// The most states of memory that are kept.
const MOST_KEPT: usize = 16;

/// The most checkpoints, and ranges of shared memory at one of them, that are used.
const MOST_POINTS: usize = 1 << 16;
const MOST_FOREIGN: usize = 64;

/// A place of the recording.
#[derive(Clone, Debug)]
struct Point {
    /// Its record.
    record: Cursor,
    /// The offset in the trace, and the address of the next instruction; `None` for the start.
    checkpoint: Option<(u64, u64)>,
    /// What the calls before it did to the mappings.
    kernel: Kernel,
    foreign: Arc<[Range<u64>]>,
    /// The argument of the last set_tid_address(2) before it.
    clears: Option<u64>,
    /// Its position in the history, if the trace shows one, once it is known.
    position: OnceCell<Option<Position>>,
}

/// The places from which execution can begin, in order.
#[derive(Default)]
pub(super) struct Points {
    all: Vec<Point>,
    /// The memory at some of them, in order.
    memory: Vec<(usize, Memory)>,
    /// Every how many places the memory is kept.
    every: usize,
}

impl Points {
    /// Finds the places in a file of inputs, up to the first damaged record, or to a call after which it
    /// is not known what memory is shared with others. `None` if it was cancelled.
    ///
    /// `begin` is the first position of the history of the first thread.
    pub fn read(
        begin: Position,
        facts: &FinalState,
        inputs: &Inputs,
        cancel: &Cancel,
    ) -> Option<Self> {
        let mut kernel = Kernel::default();
        let mut mappings = Memory::default();
        let mut all = vec![Point {
            record: inputs.calls(),
            checkpoint: None,
            kernel,
            foreign: Arc::default(),
            clears: None,
            position: OnceCell::from(Some(begin)),
        }];
        let mut at = inputs.calls();
        let mut foreign = Arc::default();
        let (mut last, mut clears) = (0, None);
        while let Ok(Some((input, next))) = inputs.input(at) {
            if cancel.is_requested() {
                return None;
            }
            match input {
                Input::Call(call) => {
                    clears = clones::clears(&call, facts.architecture).or(clears);
                    let call = Call {
                        memory: Vec::new(),
                        ..call
                    };
                    let mut values = [None; Location::KEPT];
                    let (architecture, saved) = (facts.architecture, &*facts.memory);
                    let done = kernel.call(&call, architecture, &mut values, &mut mappings, saved);
                    mappings.forget_contents();
                    // The next checkpoint has what other calls wrote.
                    if done.is_err() && calls::may_share(architecture, call.number)
                        || mappings.foreign().len() > MOST_FOREIGN
                    {
                        break;
                    }
                    if *foreign != *mappings.foreign() {
                        foreign = mappings.foreign().into();
                    }
                }
                // There are no checkpoints of several threads.
                Input::Turn(_) => break,
                Input::Checkpoint(Checkpoint { offset, pc, .. }) => {
                    if offset <= last || all.len() > MOST_POINTS {
                        break;
                    }
                    last = offset;
                    all.push(Point {
                        record: at,
                        checkpoint: Some((offset, pc)),
                        kernel,
                        foreign: Arc::clone(&foreign),
                        clears,
                        position: OnceCell::new(),
                    });
                }
            }
            at = next;
        }
        Some(Self {
            all,
            memory: Vec::new(),
            every: 1,
        })
    }

    /// The position of a place.
    pub fn position(&self, history: &mut History, index: usize) -> Option<Position> {
        let point = self.all.get(index)?;
        *point.position.get_or_init(|| {
            let (offset, pc) = point.checkpoint?;
            let position = history.at_offset(offset)?;
            let there = history.place(position)?.pc()?;
            (there.0 == pc).then_some(position)
        })
    }

    /// The last place at or before a position.
    pub fn before(&self, history: &mut History, position: Position) -> usize {
        let offset = history.place(position).map_or(0, |place| place.offset.0);
        let is_before = |point: &Point| point.checkpoint.is_none_or(|(at, _)| at <= offset);
        let mut index = self.all.partition_point(is_before);
        while index > 0 {
            let found = self.position(history, index);
            if found.is_some_and(|found| found <= position) {
                break;
            }
            index -= 1;
        }
        index
    }

    /// The last place that has a position, and this position.
    pub fn last(&self, history: &mut History) -> (usize, Position) {
        let mut all = (0..self.all.len()).rev();
        let found = all.find_map(|index| Some((index, self.position(history, index)?)));
        found.unwrap_or((0, history.begin()))
    }

    /// The next place that has a position, and this position.
    pub fn after(&self, history: &mut History, index: usize) -> Option<(usize, Position)> {
        let mut all = index + 1..self.all.len();
        all.find_map(|index| Some((index, self.position(history, index)?)))
    }

    /// The program at a place, where the first thread executes. The positions of the thread with this number
    /// will be executed.
    pub fn moment(
        &mut self,
        index: usize,
        facts: &FinalState,
        thread: usize,
    ) -> Result<Moment, Stopped> {
        let recorded = facts.replay.as_ref().ok_or(Stopped::CallMissing)?;
        let inputs = &recorded.inputs;
        let mut memory = self.memory(index, facts, inputs)?;
        let point = &self.all[index];
        for range in point.foreign.iter() {
            memory.forget(range.clone());
            memory.set_foreign(range.clone(), true);
        }
        let (registers, record) = match point.checkpoint {
            None => (start(inputs)?.registers, inputs.calls()),
            Some(_) => {
                let (checkpoint, next) = checkpoint(inputs, point.record)?;
                (checkpoint.registers, next)
            }
        };
        let (values, pc) = values(registers, facts);
        Ok(Moment {
            thread: Thread {
                clears: point.clears,
                ..Thread::new(
                    Processor::new(values, memory),
                    point.checkpoint.map(|(_, pc)| pc).or(pc),
                )
            },
            kernel: point.kernel,
            record,
            threads: Threads::new(thread),
        })
    }

    /// The memory at a place, without regard to what others may write.
    fn memory(
        &mut self,
        index: usize,
        facts: &FinalState,
        inputs: &Inputs,
    ) -> Result<Memory, Stopped> {
        let before = self.memory.partition_point(|(at, _)| *at <= index);
        let kept = before.checked_sub(1).map(|before| &self.memory[before]);
        let (mut at, mut memory) = match kept {
            Some((at, memory)) => (*at, memory.clone()),
            None => {
                let mut memory = Memory::default();
                add(&mut memory, &start(inputs)?.memory, facts)?;
                self.memory.insert(0, (0, memory.clone()));
                (0, memory)
            }
        };
        while at < index {
            at += 1;
            let (checkpoint, _) = checkpoint(inputs, self.all[at].record)?;
            add(&mut memory, &checkpoint.memory, facts)?;
            if at.is_multiple_of(self.every) {
                self.keep(at, &memory);
            }
        }
        Ok(memory)
    }

    fn keep(&mut self, index: usize, memory: &Memory) {
        let place = self.memory.partition_point(|(at, _)| *at < index);
        if self.memory.get(place).is_none_or(|(at, _)| *at != index) {
            self.memory.insert(place, (index, memory.clone()));
        }
        if self.memory.len() > MOST_KEPT {
            self.every *= 2;
            self.memory.retain(|(at, _)| at.is_multiple_of(self.every));
        }
    }
}

fn add(memory: &mut Memory, pieces: &[Piece<'_>], facts: &FinalState) -> Result<(), Stopped> {
    for piece in pieces {
        calls::add(memory, piece, &*facts.memory);
        if memory.is_full() {
            return Err(Stopped::Full);
        }
    }
    Ok(())
}

fn start(inputs: &Inputs) -> Result<Start<'_>, Stopped> {
    inputs.start().map_err(Stopped::Damaged)
}

/// The checkpoint at a place, and the place after it.
fn checkpoint(inputs: &Inputs, at: Cursor) -> Result<(Checkpoint<'_>, Cursor), Stopped> {
    match inputs.input(at).map_err(Stopped::Damaged)? {
        Some((Input::Checkpoint(checkpoint), next)) => Ok((checkpoint, next)),
        _ => Err(Stopped::Damaged(Error::Head)),
    }
}

/// The values of registers, and that of the pc.
fn values(registers: Vec<Register>, facts: &FinalState) -> (Values, Option<u64>) {
    let device = Device {
        registers,
        ..Device::default()
    };
    let file = RegisterFile::read(&device, facts.architecture);
    let mut values = FinalState::locations(&file);
    if facts.architecture == Architecture::AArch32 {
        // Only here is every change of it known.
        values[Location::THREAD_POINTER.index()] = file.value("tpidruro");
    }
    (values, file.value("pc"))
}
