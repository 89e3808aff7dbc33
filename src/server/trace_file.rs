//! The trace run in a trace file, whose trace frames supply registers and memory.

use std::collections::HashMap;

use super::trace_frames::{TraceFrames, Wanted};
use crate::tfile::{
    Block, ByteOrder, File, Note, SourceString, Status, TraceFrame, Tracepoint, Variable,
};
use armsnap_arch::arch::registers::Bytes;
use armsnap_arch::arch::target::Target;
use armsnap_snapshot::stop::Unwind;

/// Maximum number of tracepoints reported to a client: the time that GDB takes to load them is
/// quadratic.
const REPORTED: usize = 1000;

/// A register in a register block.
#[derive(Debug)]
struct Register {
    number: u32,
    offset: usize,
    bytes: usize,
    is_pc: bool,
}

/// No frame of a trace file can be shown as the state while no frame is selected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("none of its first trace frames has a program counter, without which GDB cannot connect")]
pub struct NoProgramCounter;

/// The trace run in a trace file.
#[derive(Debug)]
pub(super) struct FileRun {
    file: File<'static>,
    /// By number, in the order of the register block.
    registers: Vec<Register>,
    /// Index of the program counter among them.
    pc: Option<usize>,
    /// The address of each tracepoint that determines the program counter of its frames.
    addresses: HashMap<u32, Option<u64>>,
    /// Size of a reply to `g` in bytes.
    block: usize,
    /// The frame shown as the state while no frame is selected.
    rest: usize,
}

/// Budget of the search for a frame with registers, in blocks of a few bytes: files may have
/// gigabytes.
const SEARCHED: usize = 1 << 16;

impl FileRun {
    pub(super) fn new(file: File<'static>, target: &Target) -> Result<Self, NoProgramCounter> {
        let mut offset = 0;
        let mut registers = Vec::with_capacity(target.registers.len());
        let collected = match file.description().register_bytes {
            0 => usize::MAX,
            bytes => bytes as usize,
        };
        let mut block = 0;
        for ((name, bytes), &number) in target.registers.iter().zip(&target.numbers) {
            if !name.is_empty() {
                block += collected.saturating_sub(offset).min(*bytes);
                registers.push(Register {
                    number,
                    offset,
                    bytes: *bytes,
                    is_pc: name == "pc",
                });
            }
            offset += bytes;
        }
        let mut run = Self {
            rest: 0,
            pc: registers.iter().position(|register| register.is_pc),
            // GDB refuses a reply longer than the registers of the description.
            block,
            registers,
            addresses: file.description().addresses(),
            file,
        };
        run.rest = run.resting().ok_or(NoProgramCounter)?;
        Ok(run)
    }

    /// Returns the first frame with registers; otherwise the first with a program counter.
    fn resting(&self) -> Option<usize> {
        let mut left = SEARCHED;
        let mut standing = None;
        for frame in self.file.frames().map_while(Result::ok) {
            let full = frame.blocks().any(|block| {
                // Another page of the file costs as much as many blocks in the same page.
                let page = match block {
                    Block::Memory { bytes, .. } => bytes.len().min(4096) / 64,
                    _ => 0,
                };
                left = left.saturating_sub(1 + page);
                left == 0 || matches!(block, Block::Registers(_))
            });
            if left == 0 {
                break;
            }
            if self.pc(&frame).is_some() {
                standing.get_or_insert(frame.number);
                if full {
                    return Some(frame.number);
                }
            }
            left -= 1;
        }
        standing
    }

    /// Returns the frame shown as the state while no frame is selected, which GDB requires.
    pub(super) fn rest(&self) -> usize {
        self.rest
    }

    fn frame(&self, frame: usize) -> Option<TraceFrame<'static>> {
        self.file.frame(frame)?.ok()
    }

    /// Returns the program counter: the collected one; otherwise the address of the tracepoint,
    /// unless it was stepping.
    fn pc(&self, frame: &TraceFrame<'_>) -> Option<u64> {
        let Some(block) = registers(frame) else {
            return *self.addresses.get(&frame.tracepoint.into())?;
        };
        let register = &self.registers[self.pc?];
        let bytes = block.get(register.offset..)?.get(..register.bytes)?;
        let order = self.file.order();
        match bytes.len() {
            4 => Some(u64::from(order.u32(bytes))),
            8 => Some(order.u64(bytes)),
            _ => None,
        }
    }

    /// Returns the number of a tracepoint as reported to clients.
    fn reported(&self, number: u16) -> u16 {
        let tracepoints = &self.file.description().tracepoints;
        match tracepoints.last() {
            Some(last) if tracepoints.len() > REPORTED => {
                u16::try_from(last.number).unwrap_or(number)
            }
            _ => number,
        }
    }

    fn value(&self, frame: &TraceFrame<'_>, register: &Register) -> Bytes {
        let collected = registers(frame).and_then(|block| {
            let rest = block.get(register.offset..)?;
            Some(rest.get(..register.bytes)?.to_vec())
        });
        let is_pc = || {
            let pc = self.pc.map(|pc| self.registers[pc].number);
            pc == Some(register.number)
        };
        let value = collected.or_else(|| {
            let pc = is_pc().then(|| self.pc(frame))??;
            let bytes = match self.file.order() {
                ByteOrder::Little => pc.to_le_bytes().get(..register.bytes)?.to_vec(),
                ByteOrder::Big => {
                    let skip = 8_usize.checked_sub(register.bytes)?;
                    pc.to_be_bytes()[skip..].to_vec()
                }
            };
            Some(bytes)
        });
        match value {
            Some(bytes) => bytes.into_iter().map(Some).collect(),
            None => vec![None; register.bytes],
        }
    }

    fn register_numbered(&self, number: u32) -> Option<&Register> {
        let found = self.registers.binary_search_by_key(&number, |r| r.number);
        self.registers.get(found.ok()?)
    }

    pub(super) fn notes(&self) -> &[Note] {
        self.file.notes()
    }

    /// Returns how its run ended.
    pub(super) fn status(&self) -> Status {
        let status = self.file.description().status.clone();
        Status {
            // GDB refuses to select frames of a running experiment.
            running: false,
            other: Vec::new(),
            ..status.unwrap_or_default()
        }
    }

    /// Returns the tracepoints reported to clients. Too many are replaced by a single one that was
    /// stepping.
    pub(super) fn list(&self) -> Vec<Tracepoint> {
        let tracepoints = &self.file.description().tracepoints;
        match tracepoints.last() {
            Some(last) if tracepoints.len() > REPORTED => {
                let mut one = last.clone();
                one.steps = one.steps.max(1);
                // For tdump: the collected expressions of the others.
                let others = tracepoints.iter().flat_map(|other| &other.sources);
                let collects = others.filter(|source| source.kind == "cmd").take(1);
                let line = |text: &str| SourceString {
                    kind: "cmd".to_owned(),
                    text: text.to_owned(),
                };
                one.sources.push(line("while-stepping 1"));
                one.sources.extend(collects.cloned());
                one.sources.push(line("end"));
                vec![one]
            }
            _ => tracepoints.clone(),
        }
    }

    /// Returns the trace state variables.
    pub(super) fn variables(&self) -> Vec<Variable> {
        self.file.description().variables.clone()
    }
}

/// Returns the register block of a frame.
fn registers<'a>(frame: &TraceFrame<'a>) -> Option<&'a [u8]> {
    frame.blocks().find_map(|block| match block {
        Block::Registers(bytes) => Some(bytes),
        _ => None,
    })
}

/// The trace frames of a trace file, for one client.
pub(super) struct FileFrames<'a> {
    run: &'a FileRun,
    unwind: &'a Unwind,
}

impl<'a> FileFrames<'a> {
    /// `unwind` ends walks through the file.
    pub(super) fn of(run: &'a FileRun, unwind: &'a Unwind) -> Self {
        Self { run, unwind }
    }

    /// Walks to a frame.
    fn reach(&self, frame: usize) {
        self.run.file.reach(frame, || self.unwind.check());
    }

    fn frame(&self, frame: usize) -> Option<TraceFrame<'static>> {
        self.reach(frame);
        self.run.frame(frame)
    }
}

impl TraceFrames for FileFrames<'_> {
    fn count(&self) -> usize {
        self.reach(usize::MAX);
        self.run.file.count()
    }

    fn has(&self, frame: usize) -> bool {
        self.frame(frame).is_some()
    }

    fn buffer(&self) -> Option<&[u8]> {
        self.reach(usize::MAX);
        Some(self.run.file.buffer())
    }

    fn tracepoint(&self, frame: usize) -> u16 {
        let number = self.frame(frame).map_or(0, |frame| frame.tracepoint);
        self.run.reported(number)
    }

    fn find(&self, from: usize, wanted: Wanted) -> Option<usize> {
        self.reach(from);
        let frames = self.run.file.frames_from(from).map_while(Result::ok);
        let mut frames = frames.map(|frame| {
            self.unwind.check();
            let is = wanted.is(self.run.reported(frame.tracepoint), self.run.pc(&frame));
            (frame.number, is)
        });
        frames.find(|(_, is)| *is).map(|(number, _)| number)
    }

    fn values(&self, frame: usize) -> Vec<(i32, i64)> {
        let blocks = self.frame(frame).into_iter().flat_map(|f| f.blocks());
        let values = blocks.filter_map(|block| match block {
            Block::Variable { number, value } => Some((number, value)),
            _ => None,
        });
        values.collect()
    }

    fn memory(&self, frame: usize) -> Vec<(u64, &[u8])> {
        let blocks = self.frame(frame).into_iter().flat_map(|f| f.blocks());
        let memory = blocks.filter_map(|block| match block {
            Block::Memory { address, bytes } => Some((address, bytes)),
            _ => None,
        });
        memory.collect()
    }

    fn registers(&self, frame: usize) -> Bytes {
        let Some(frame) = self.frame(frame) else {
            return vec![None; self.run.block];
        };
        let each = self
            .run
            .registers
            .iter()
            .flat_map(|r| self.run.value(&frame, r));
        each.take(self.run.block).collect()
    }

    fn register(&self, frame: usize, number: u32) -> Option<Bytes> {
        let register = self.run.register_numbered(number)?;
        Some(match self.frame(frame) {
            Some(frame) => self.run.value(&frame, register),
            None => vec![None; register.bytes],
        })
    }

    fn status(&self) -> Status {
        self.run.status()
    }

    fn tracepoints(&self) -> Vec<Tracepoint> {
        self.run.file.description().tracepoints.clone()
    }

    fn hits(&self, tracepoint: u64, address: u64) -> u64 {
        let mut all = self.run.file.description().tracepoints.iter();
        let same = all.find(|t| u64::from(t.number) == tracepoint && t.address == address);
        same.and_then(|tracepoint| tracepoint.hits)
            .map_or(0, |(hits, _)| hits)
    }
}
