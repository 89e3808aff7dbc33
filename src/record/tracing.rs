//! What the emulator's plugin tells → trace of each core, and the witness.
//!
//! Everything that differs between the protocols is in the trace unit.

use super::blocks::{Block, BlockTable, Sets};
use super::flow::{Flow, Steps};
use super::protocol::{self, Protocol, Timestamps, TraceOptions};
use super::store::Store;
use super::stream::{Definition, Events, Exit, Sink, Stopped};
use super::system::System;
use super::system::join::Join;
use super::versions::Versions;
use super::witness;
use crate::arch::branch::Kind;
use crate::element::{Context, Mark, TraceOnReason};
use crate::encode::{Place, TAIL_CHAIN, TraceUnit, Tracer};
use crate::flow::Pieces;
use crate::protocol::{Core, Profile};
use crate::quantity::{ExceptionLevel, Isa, TraceId};
use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::Sender;

/// What is told to who controls the emulator, while it runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Told {
    /// The program is stopped, and everything executed is traced up to the last block.
    Stopped {
        /// Its cores.
        stopped: Stopped,
        /// Instructions that began so far.
        instructions: u64,
    },
    /// An exception of a system has not returned, and the return would tell where it was taken.
    Waits,
    /// It is known of all.
    Settled,
    /// As many instructions were executed as were asked for; a core waits to be resumed.
    Limit,
    /// What handles a signal from now on.
    Handler {
        /// Linux' number.
        signal: u32,
        /// An address, 0 (default), or 1 (ignored).
        address: u64,
        /// Flags of sigaction(2).
        flags: u64,
    },
    /// An instruction stored so many bytes; only where that was asked for.
    Store {
        /// Where.
        address: u64,
        /// How many.
        bytes: u32,
    },
    /// The thread changed which signals it takes.
    Mask(u32),
    /// A Linux program has a second thread.
    Threads,
    /// A Linux program is about to exit; its thread waits for [`Command::Leave`].
    ///
    /// [`Command::Leave`]: super::stream::Command::Leave
    Exit(Exit),
    /// A Linux program has forked.
    Child,
}

/// How exceptions are told in the protocol that is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exceptions {
    /// A Linux program: exceptions that were noted are signals (Linux' numbers), those that were
    /// not are system calls. The trace covers EL0 only: it ends with each and begins anew.
    Signals,
    /// A system: the emulator's log tells exceptions, and the trace goes on in the handler.
    System(System),
}

/// A recording.
#[derive(Debug)]
pub struct Settings {
    /// Which instruction sets the cores execute.
    pub sets: Sets,
    /// The state of the cores at their begin.
    pub context: Context,
    /// How exceptions are told.
    pub exceptions: Exceptions,
    /// What is traced.
    pub trace: TraceOptions,
}

/// Instructions between two timestamps.
const TIMESTAMP_EVERY: u64 = 4096;

/// Bytes of trace that are worth storing.
const WORTH: usize = 1 << 13;

#[derive(Debug)]
struct CoreTrace<U> {
    id: TraceId,
    tracer: Tracer<U, Pieces>,
    /// Instructions until the next timestamp.
    until_timestamp: u64,
    /// Its state, with the version of the code that it runs.
    context: Context,
    /// The blocks that ran since the last branch, while code differs between versions.
    line: Vec<Block>,
}

/// The trace of all cores.
#[derive(Debug)]
struct Lines<U> {
    cores: Vec<Option<CoreTrace<U>>>,
    settings: Settings,
    store: Store,
    witness: Option<witness::Writer>,
    /// Instructions executed.
    instructions: u64,
    /// Cores beyond the trace IDs.
    untraced: u64,
    /// Trace on its way to the store, and where in it a decoder can begin.
    bytes: Vec<u8>,
    beginnings: Vec<usize>,
    versions: Versions,
    /// When a Linux program had a second thread: instructions executed so far. From there on the
    /// threads tell the time.
    threads: Option<u64>,
}

/// Blocks of one straight line, beyond which it is not kept together where code changes.
const LINE: usize = 64;

impl<U: TraceUnit> Lines<U> {
    fn core(&mut self, core: u32) -> Option<&mut CoreTrace<U>> {
        self.cores.get_mut(core as usize)?.as_mut()
    }

    /// A timestamp as soon as the core has executed something.
    fn timestamp_soon(&mut self, core: u32) {
        if let Some(trace) = self.core(core) {
            trace.until_timestamp = 0;
        }
    }

    fn take(&mut self, core: u32, worth: usize) -> io::Result<()> {
        let Some(trace) = self.cores.get_mut(core as usize).and_then(Option::as_mut) else {
            return Ok(());
        };
        if trace.tracer.made() < worth {
            return Ok(());
        }
        self.bytes.clear();
        self.beginnings.clear();
        let beginnings = &mut self.beginnings;
        trace
            .tracer
            .take_with(&mut self.bytes, |place| beginnings.push(place));
        self.store.write(trace.id, &self.bytes, &self.beginnings)
    }

    /// The version of code that a block belongs to, before it is traced.
    #[cold]
    fn choose(&mut self, core: u32, block: &Block, count: usize) {
        let Some(trace) = self.cores.get_mut(core as usize).and_then(Option::as_mut) else {
            return;
        };
        let before = trace.context.context_id;
        let now = before.unwrap_or(0);
        let version = self.versions.of(now, block, trace.line.iter());
        if before.is_none() || version != now {
            trace.context.context_id = Some(version);
            // What was traced of an A32 or T32 line does not let the context change within it.
            let is_split = block.start.isa != Isa::A64 || trace.line.len() >= LINE;
            if !trace.line.is_empty() && is_split {
                trace.tracer.gap(TraceOnReason::BeginOrFilter);
                trace.line.clear();
            }
            trace.tracer.context(trace.context);
        }
        let goes_on = block
            .instructions
            .get(count.wrapping_sub(1))
            .is_some_and(|last| last.kind == Kind::Other);
        if !goes_on {
            trace.line.clear();
        } else if trace.line.len() < LINE {
            trace.line.push(block.clone());
        }
    }

    /// What follows is no straight line from what ran before.
    fn line_ends(&mut self, core: u32) {
        if let Some(trace) = self.core(core) {
            trace.line.clear();
        }
    }

    fn number(&self, signal: u32) -> u16 {
        let (illegal, debug, alignment, data, interrupt) = match self.settings.trace.protocol {
            // IHI 0064H, "Exception packet", TYPE.
            Protocol::Etmv4 => (3, 6, 10, 12, 14),
            // IHI 0035B 4.5.4; IHI 0014Q 7.3.5.
            Protocol::Ptm | Protocol::Etmv3 => (9, 11, 12, 12, 14),
        };
        match signal {
            4 | 8 => illegal,
            5 => debug,
            7 => alignment,
            11 => data,
            _ => interrupt,
        }
    }

    fn call(&self) -> u16 {
        match self.settings.trace.protocol {
            Protocol::Etmv4 => 2,
            Protocol::Ptm | Protocol::Etmv3 => 10,
        }
    }
}

impl<U: TraceUnit> Steps for Lines<U> {
    fn ran(&mut self, core: u32, block: &Block, count: usize) -> io::Result<()> {
        self.instructions += count as u64;
        if self.versions.matter() {
            self.choose(core, block, count);
        }
        let timestamps =
            self.settings.trace.timestamps == Timestamps::Always && self.threads.is_none();
        let now = self.instructions;
        if let Some(trace) = self.core(core) {
            let executed = &block.instructions[..count.min(block.instructions.len())];
            trace.tracer.run_decoded(block.start, executed);
            if timestamps {
                trace.until_timestamp = trace.until_timestamp.saturating_sub(count as u64);
                if trace.until_timestamp == 0 {
                    trace.until_timestamp = TIMESTAMP_EVERY;
                    trace.tracer.mark(Mark::Timestamp(now));
                }
            }
            if trace.tracer.made() >= WORTH {
                self.take(core, WORTH)?;
            }
        }
        match &mut self.witness {
            Some(witness) => witness.ran(core, block, count),
            None => Ok(()),
        }
    }

    fn exception(&mut self, core: u32, number: u32, return_to: Place) -> io::Result<()> {
        let signals = self.settings.exceptions == Exceptions::Signals;
        let taken = if signals {
            self.number(number)
        } else {
            number as u16
        };
        self.line_ends(core);
        if let Some(trace) = self.core(core) {
            trace.tracer.exception(taken, return_to);
            if signals {
                trace.tracer.gap(TraceOnReason::BeginOrFilter);
            }
        }
        match &mut self.witness {
            Some(witness) => witness.exception(core, number, return_to),
            None => Ok(()),
        }
    }

    fn exception_return(&mut self, core: u32) {
        if let Some(trace) = self.core(core) {
            trace.tracer.exception_return();
        }
    }

    fn tail_chain(&mut self, core: u32, number: u32) -> io::Result<()> {
        if let Some(trace) = self.core(core) {
            trace.tracer.tail_chain(number as u16);
        }
        match &mut self.witness {
            Some(witness) => witness.exception(core, number, TAIL_CHAIN),
            None => Ok(()),
        }
    }

    fn time(&mut self, core: u32, time: u64) {
        if let Some(begin) = self.threads
            && self.settings.trace.has_timestamps()
            && let Some(trace) = self.core(core)
        {
            let now = Mark::Timestamp(begin.saturating_add(time));
            trace.tracer.mark(now);
        }
    }

    fn level(&mut self, core: u32, level: ExceptionLevel) {
        if let Some(trace) = self.core(core) {
            trace.context.el = Some(level);
            trace.tracer.context(trace.context);
        }
    }

    fn broken(&mut self, core: u32, instead: Option<Place>) -> io::Result<()> {
        let signals = self.settings.exceptions == Exceptions::Signals;
        let call = self.call();
        self.line_ends(core);
        if let Some(trace) = self.core(core) {
            if let Some(place) = instead.filter(|_| signals) {
                trace.tracer.exception(call, place);
            }
            trace.tracer.gap(TraceOnReason::BeginOrFilter);
        }
        Ok(())
    }
}

/// Takes the stream of a recording to its end.
pub trait Recording: Sink + Send {
    /// The stream has ended: `next` has the instructions that the cores were about to execute.
    fn finish(self: Box<Self>, next: &BTreeMap<u32, Place>) -> io::Result<Summary>;
}

/// What was recorded.
#[derive(Debug, Default)]
pub struct Summary {
    /// Instructions executed by all cores.
    pub instructions: u64,
    /// Cores that were traced: their numbers and trace IDs.
    pub cores: Vec<(u32, TraceId)>,
    /// Cores that ended, and the last instruction of each.
    pub ended: Vec<(u32, Place)>,
    /// Cores for which there was no trace ID.
    pub untraced: u64,
    /// How often the flow was not connected although nothing said so.
    pub gaps: u64,
    /// What was executed where, and in which versions.
    pub versions: Versions,
    /// There are timestamps in the trace.
    pub timestamps: bool,
}

struct Tracing<U, F> {
    blocks: BlockTable,
    flow: Flow,
    /// Cores that ended, and the last instruction of each.
    ended: Vec<(u32, Place)>,
    /// Of a system: the emulator's log.
    join: Option<Join>,
    /// The core that executed last.
    last: u32,
    lines: Lines<U>,
    make: F,
    told: Sender<Told>,
    /// Instructions so far, for whoever shows progress.
    progress: Arc<AtomicU64>,
}

impl<U, F> Sink for Tracing<U, F>
where
    U: TraceUnit,
    F: Fn(TraceId) -> U,
{
    fn begin(&mut self, core: u32, index: u32) -> io::Result<()> {
        self.flow.begin(core)?;
        if let Some(join) = &mut self.join {
            join.begin(core, index);
        }
        if core == 1 && self.join.is_none() {
            let pending = self.flow.pending(&self.blocks);
            self.lines.threads = Some(self.lines.instructions + pending);
        }
        if core == 1 {
            // Nobody waits for it after the recording was given up.
            let _ = self.told.send(Told::Threads);
        }
        let trace = protocol::trace_id(core).map(|id| {
            let settings = &self.lines.settings;
            let sync = settings.trace.sync;
            let mut tracer = Tracer::new((self.make)(id), Pieces::default(), sync);
            tracer.context(settings.context);
            tracer.cycles_each(settings.trace.cycles.then_some(1));
            CoreTrace {
                id,
                tracer,
                until_timestamp: 0,
                context: settings.context,
                line: Vec::new(),
            }
        });
        self.lines.untraced += u64::from(trace.is_none());
        let count = self.lines.cores.len().max(core as usize + 1);
        self.lines.cores.resize_with(count, || None);
        self.lines.cores[core as usize] = trace;
        Ok(())
    }

    fn block(&mut self, definition: &Definition<'_>) -> io::Result<()> {
        self.blocks.add(definition)?;
        if let Some(block) = self.blocks.get(definition.id) {
            self.lines.versions.define(block);
        }
        Ok(())
    }

    fn events(&mut self, core: u32, _: u32, events: Events<'_>) -> io::Result<()> {
        let (flow, blocks, lines) = (&mut self.flow, &self.blocks, &mut self.lines);
        match &mut self.join {
            None => {
                for event in events {
                    flow.event(core, event?, blocks, lines)?;
                }
            }
            Some(join) => {
                if std::mem::replace(&mut self.last, core) != core {
                    // So that the cores' histories can be put in order.
                    lines.timestamp_soon(core);
                }
                let waited = join.waits();
                join.executes(Some(core), flow, blocks, lines)?;
                for event in events {
                    join.event(core, event?, flow, blocks, lines)?;
                }
                if waited && !join.waits() {
                    let _ = self.told.send(Told::Settled);
                }
            }
        }
        // So that the trace of several cores lies in the buffer as it came.
        self.lines.take(core, 1)?;
        self.progress
            .store(self.lines.instructions, Ordering::Relaxed);
        Ok(())
    }

    fn stopped(&mut self, stopped: Stopped) {
        if let Some(join) = &mut self.join {
            let (flow, blocks, lines) = (&mut self.flow, &self.blocks, &mut self.lines);
            // What was logged behind the last block. An error will come again at the end.
            let _ = join.executes(None, flow, blocks, lines);
            join.close();
            if join.waits() {
                let _ = self.told.send(Told::Waits);
            }
        }
        let instructions = self.lines.instructions + self.flow.pending(&self.blocks);
        // Nobody waits for it after the recording was given up.
        let _ = self.told.send(Told::Stopped {
            stopped,
            instructions,
        });
    }

    fn handler(&mut self, signal: u32, address: u64, flags: u64) {
        let _ = self.told.send(Told::Handler {
            signal,
            address,
            flags,
        });
    }

    fn mask(&mut self, thread: u32) {
        let _ = self.told.send(Told::Mask(thread));
    }

    fn log(&mut self, text: &[u8]) -> io::Result<()> {
        if let Some(join) = &mut self.join {
            join.log(text);
        }
        Ok(())
    }

    fn store(&mut self, address: u64, bytes: u32) {
        let _ = self.told.send(Told::Store { address, bytes });
    }

    fn exit(&mut self, exit: Exit) {
        let _ = self.told.send(Told::Exit(exit));
    }

    fn child(&mut self) {
        let _ = self.told.send(Told::Child);
    }

    fn limit(&mut self) {
        let _ = self.told.send(Told::Limit);
    }

    fn end(&mut self, core: u32) -> io::Result<()> {
        let last = self.flow.last(core, &self.blocks);
        self.flow_ends(core, None)?;
        if let Some(trace) = self.lines.core(core) {
            trace.tracer.finish(last.map(|(_, behind)| behind));
        }
        self.ended.extend(last.map(|(last, _)| (core, last)));
        self.lines.take(core, 1)
    }
}

impl<U: TraceUnit, F> Tracing<U, F> {
    fn flow_ends(&mut self, core: u32, next: Option<Place>) -> io::Result<()> {
        let (flow, blocks, lines) = (&mut self.flow, &self.blocks, &mut self.lines);
        match &mut self.join {
            None => flow.end(core, next, blocks, lines),
            Some(join) => {
                join.executes(None, flow, blocks, lines)?;
                join.end(core, next, flow, blocks, lines)
            }
        }
    }
}

impl<U, F> Recording for Tracing<U, F>
where
    U: TraceUnit + Send,
    F: Fn(TraceId) -> U + Send,
{
    fn finish(mut self: Box<Self>, next: &BTreeMap<u32, Place>) -> io::Result<Summary> {
        let mut summary = Summary {
            untraced: self.lines.untraced,
            ended: std::mem::take(&mut self.ended),
            ..Summary::default()
        };
        for core in 0..self.lines.cores.len() as u32 {
            let place = next.get(&core).copied();
            self.flow_ends(core, place)?;
            if let Some(trace) = self.lines.core(core) {
                trace.tracer.finish(place);
                let (id, gaps) = (trace.id, trace.tracer.gaps());
                summary.gaps += gaps;
                summary.cores.push((core, id));
            }
            self.lines.take(core, 1)?;
        }
        summary.instructions = self.lines.instructions;
        self.lines.store.finish()?;
        if let Some(witness) = self.lines.witness {
            witness.finish()?;
        }
        let trace = &self.lines.settings.trace;
        let threads = self.lines.threads.is_some() && trace.has_timestamps();
        summary.timestamps = trace.timestamps == Timestamps::Always || threads;
        summary.versions = self.lines.versions;
        Ok(summary)
    }
}

/// A recording that stores its trace.
pub fn recording(
    settings: Settings,
    store: Store,
    witness: Option<witness::Writer>,
    told: Sender<Told>,
    progress: Arc<AtomicU64>,
) -> Box<dyn Recording> {
    let trace = settings.trace;
    let core = match settings.exceptions {
        Exceptions::Signals => core_of(settings.sets),
        Exceptions::System(system) => system.core,
    };
    let parts = (settings, store, witness, told, progress);
    match trace.protocol {
        Protocol::Etmv4 => tracing(parts, move |id| trace.etmv4_unit(id, core)),
        Protocol::Ptm => tracing(parts, move |id| trace.ptm_unit(id)),
        Protocol::Etmv3 => tracing(parts, move |id| trace.etmv3_unit(id, core)),
    }
}

/// What an ETMv4 must know of its core.
pub fn core_of(sets: Sets) -> Core {
    Core {
        profile: match sets {
            Sets::T32 => Profile::M,
            Sets::A64 | Sets::A32AndT32 => Profile::A,
        },
        version: 8,
    }
}

type Parts = (
    Settings,
    Store,
    Option<witness::Writer>,
    Sender<Told>,
    Arc<AtomicU64>,
);

fn tracing<U, F>(parts: Parts, make: F) -> Box<dyn Recording>
where
    U: TraceUnit + Send + 'static,
    F: Fn(TraceId) -> U + Send + 'static,
{
    let (settings, store, witness, told, progress) = parts;
    // The others have no room for context IDs.
    let versions = Versions::new(settings.trace.protocol == Protocol::Etmv4);
    Box::new(Tracing {
        blocks: BlockTable::new(settings.sets),
        flow: Flow::default(),
        ended: Vec::new(),
        join: match settings.exceptions {
            Exceptions::Signals => None,
            Exceptions::System(system) => {
                Some(Join::new(system.numbers, settings.sets == Sets::A64))
            }
        },
        last: u32::MAX,
        lines: Lines {
            cores: Vec::new(),
            settings,
            store,
            witness,
            instructions: 0,
            untraced: 0,
            bytes: Vec::new(),
            beginnings: Vec::new(),
            versions,
            threads: None,
        },
        make,
        told,
        progress,
    })
}
