//! The plugin's stream → trace of each core, and the witness.
//!
//! The trace units hold everything that differs between the protocols.

mod cores;
mod straight;

use self::cores::{CoreTrace, CoreTraces, Taken};
use super::address_files::AddressFiles;
use super::blocks::{BlockTable, Sets};
use super::flow::Flow;
use super::lines::Lines;
use super::protocol::{self, Protocol, Timestamps};
use super::replay_file::{self, SharedCalls, locked};
use super::settings::{Exceptions, Settings, core_of};
use super::stream::{Definition, Event, Events, Exit, Sink, Stopped, SystemCall, Written};
use super::system::join::Join;
use super::trace_store::TraceStore;
use super::versions::Versions;
use super::witness;
use armsnap_arch::quantity::TraceId;
use armsnap_snapshot::snapshot::changed::Carrier;
use armsnap_snapshot::snapshot::replay::Turn;
use armsnap_trace::encode::{CodeAddress, TraceUnit, Tracer};
use armsnap_trace::flow::Pieces;
use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::Sender;

/// Events reported to the controller of the emulator while the program runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TraceEvent {
    /// The program is stopped, and everything executed up to the last block is traced.
    Stopped {
        /// Its cores.
        stopped: Stopped,
        /// The number of instructions started so far.
        instructions: u64,
    },
    /// The return address of an exception is unknown until its handler returns.
    ReturnPending,
    /// The return addresses of all exceptions are known, after [`TraceEvent::ReturnPending`].
    ReturnsKnown,
    /// The requested number of instructions was started: a core of a system waits to be resumed, a
    /// thread of a program receives SIGINT.
    Limit,
    /// The only thread receives SIGINT for a checkpoint.
    Checkpoint,
    /// The program set a signal's handler.
    Handler {
        /// The signal's Linux number.
        signal: u32,
        /// The handler's address, 0 (default), or 1 (ignored).
        address: u64,
        /// Flags of sigaction(2).
        flags: u64,
    },
    /// An instruction stored to memory; reported only with `stores=on`.
    Store {
        /// The address.
        address: u64,
        /// The number of bytes.
        bytes: u32,
    },
    /// The thread changed its signal mask.
    Mask(u32),
    /// A Linux program started its second thread.
    Threads,
    /// A Linux program is about to exit; its thread waits for [`Command::Leave`].
    ///
    /// [`Command::Leave`]: super::stream::Command::Leave
    Exit(Exit),
    /// A Linux program has forked.
    Child,
    /// The code named by the plugin's argument `place` is at this address, and a core is about to
    /// execute it; the core waits to be resumed.
    Place(u64),
}

/// A recording that consumes the plugin's stream.
pub trait Recording: Sink + Send {
    /// Ends the recording after the stream was read. `next` holds each core's next instruction.
    fn finish(self: Box<Self>, next: &BTreeMap<u32, CodeAddress>) -> io::Result<Summary>;

    /// Tells the observer that the stream cannot be read any further.
    fn abandon(&mut self);
}

/// A summary of what was recorded.
#[derive(Debug, Default)]
pub struct Summary {
    /// The number of instructions executed by all cores.
    pub instructions: u64,
    /// The traced cores: number and trace ID.
    pub cores: Vec<(u32, TraceId)>,
    /// Cores that ended, or whose next instruction is not known (these come first): the last instruction
    /// of each, and when it was executed, by the clock of timestamps.
    pub ended: Vec<(u32, CodeAddress, Option<u64>)>,
    /// The number of cores without a trace ID.
    pub untraced: u64,
    /// The number of gaps in the flow that no event explains.
    pub gaps: u64,
    /// The executed code and its versions.
    pub versions: Versions,
    /// Whether the trace contains timestamps.
    pub timestamps: bool,
    /// Whether the trace contains the cores' own context IDs.
    pub context_ids: bool,
    /// What in the trace identifies the version of changed code.
    pub carrier: Carrier,
    /// The offset in the trace buffer that belongs to each checkpoint, if it is known.
    pub checkpoints: Vec<Option<u64>>,
    /// The turns of threads, in order.
    pub turns: Vec<Turn>,
    /// The number of the turn in which each recorded call returned.
    pub turns_of_calls: Vec<u64>,
    /// Why a file of the recording is incomplete, if one is.
    pub cut: Option<String>,
}

struct Tracing<U, F> {
    blocks: BlockTable,
    /// How blocks have led to each other so far.
    lines: Lines,
    flow: Flow,
    /// Cores that ended: the last instruction of each, and when it was executed.
    ended: Vec<(u32, CodeAddress, Option<u64>)>,
    /// The emulator's log of a system, joined with the flow.
    join: Option<Join>,
    /// Whether the controller was told that a return address is unknown, and not yet that all are known.
    return_pending: bool,
    /// The core that executed last.
    last: u32,
    traces: CoreTraces<U>,
    make: F,
    observer: Sender<TraceEvent>,
    /// The number of instructions so far, for progress reports.
    progress: Arc<AtomicU64>,
    /// The system calls of a program.
    calls: Option<SharedCalls>,
    /// Whether the program stops for a checkpoint next.
    checkpoint: bool,
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
            self.traces.threads = Some(self.traces.instructions + pending);
        }
        if core == 1 {
            // The receiver is gone once the recording is abandoned.
            let _ = self.observer.send(TraceEvent::Threads);
        }
        let trace = protocol::trace_id(core).map(|id| {
            let settings = &self.traces.settings;
            let sync = settings.trace.sync;
            let mut tracer = Tracer::new((self.make)(id), Pieces::default(), sync);
            tracer.context(settings.context);
            tracer.cycles_each(settings.trace.cycles.then_some(1));
            CoreTrace {
                id,
                tracer,
                executed: 0,
                until_timestamp: 0,
                context: settings.context,
                line: Vec::new(),
            }
        });
        if let (Some(files), Some(_)) = (&mut self.traces.addresses, &trace) {
            files.begin(core)?;
        }
        self.traces.untraced += u64::from(trace.is_none());
        let count = self.traces.cores.len().max(core as usize + 1);
        self.traces.cores.resize_with(count, || None);
        self.traces.cores[core as usize] = trace;
        Ok(())
    }

    fn block(&mut self, definition: &Definition<'_>) -> io::Result<()> {
        self.blocks.add(definition)?;
        if let Some(block) = self.blocks.get(definition.id) {
            self.lines.add(block);
            if self.traces.settings.late {
                self.traces.undefined.resize(definition.id as usize, false);
                self.traces.undefined.push(true);
            } else {
                self.traces.versions.define(block);
            }
        }
        Ok(())
    }

    fn events(&mut self, core: u32, _: u32, events: Events<'_>) -> io::Result<()> {
        let (flow, blocks, traces) = (&mut self.flow, &self.blocks, &mut self.traces);
        match &mut self.join {
            None => {
                let (lines, mut events) = (&mut self.lines, events);
                loop {
                    let before = flow.entered(core);
                    let Some(event) = events.next() else {
                        break;
                    };
                    let event = event?;
                    flow.event(core, event, blocks, traces)?;
                    let (Some(before), Event::Block(here)) = (before, event) else {
                        continue;
                    };
                    if let Some(course) = lines.learn(before, here, blocks) {
                        let here = traces.follow(core, course, &mut events, blocks, lines)?;
                        flow.continue_at(core, here);
                    }
                }
            }
            Some(join) => {
                if std::mem::replace(&mut self.last, core) != core {
                    // This orders the cores' histories.
                    traces.timestamp_soon(core);
                }
                join.executes(Some(core), flow, blocks, traces)?;
                for event in events {
                    join.event(core, event?, flow, blocks, traces)?;
                }
                if self.return_pending && !join.waits() {
                    self.return_pending = false;
                    let _ = self.observer.send(TraceEvent::ReturnsKnown);
                }
            }
        }
        // This keeps the traces of several cores in order in the buffer.
        self.traces.take(core, 1)?;
        if let (Some(offset), Some(calls)) = (self.traces.taken.synchronised.take(), &self.calls) {
            locked(calls).synchronised(offset);
        }
        self.progress
            .store(self.traces.instructions, Ordering::Relaxed);
        Ok(())
    }

    fn stopped(&mut self, stopped: Stopped) {
        if let Some(join) = &mut self.join {
            let (flow, blocks, traces) = (&mut self.flow, &self.blocks, &mut self.traces);
            // Processes the log after the last block. An error is reported again at the end.
            let _ = join.executes(None, flow, blocks, traces);
            if traces.muted {
                // What was executed up to here is not traced.
                for core in 0..traces.cores.len() as u32 {
                    let _ = join.end(core, None, flow, blocks, traces);
                }
                traces.muted = false;
            } else {
                join.close();
            }
            self.return_pending = join.waits();
            if self.return_pending {
                let _ = self.observer.send(TraceEvent::ReturnPending);
            }
        }
        self.synchronise();
        let instructions = self.traces.instructions + self.flow.pending(&self.blocks);
        // The receiver is gone once the recording is abandoned.
        let _ = self.observer.send(TraceEvent::Stopped {
            stopped,
            instructions,
        });
    }

    fn handler(&mut self, signal: u32, address: u64, flags: u64) {
        let _ = self.observer.send(TraceEvent::Handler {
            signal,
            address,
            flags,
        });
    }

    fn mask(&mut self, thread: u32) {
        let _ = self.observer.send(TraceEvent::Mask(thread));
    }

    fn log(&mut self, text: &[u8]) -> io::Result<()> {
        if let Some(join) = &mut self.join {
            join.log(text);
        }
        Ok(())
    }

    fn store(&mut self, address: u64, bytes: u32) {
        let _ = self.observer.send(TraceEvent::Store { address, bytes });
    }

    fn written(&mut self, address: u64, written: Written<'_>) {
        if let Some(calls) = &self.calls {
            locked(calls).written(address, written);
        }
    }

    fn call(&mut self, call: SystemCall) {
        if let Some(calls) = &self.calls {
            locked(calls).call(call);
        }
    }

    fn checkpoint(&mut self) {
        self.checkpoint = true;
        let _ = self.observer.send(TraceEvent::Checkpoint);
    }

    fn exit(&mut self, exit: Exit) {
        let _ = self.observer.send(TraceEvent::Exit(exit));
    }

    fn child(&mut self) {
        let _ = self.observer.send(TraceEvent::Child);
    }

    fn place(&mut self, address: u64) {
        let _ = self.observer.send(TraceEvent::Place(address));
    }

    fn limit(&mut self) {
        let _ = self.observer.send(TraceEvent::Limit);
    }

    fn end(&mut self, core: u32, time: Option<u64>) -> io::Result<()> {
        let last = self.flow.last(core, &self.blocks);
        self.flow_ends(core, None)?;
        if let Some(trace) = self.traces.core(core) {
            trace.tracer.finish(last.map(|(_, after)| after));
        }
        let time = self.traces.threads.zip(time);
        let time = time.map(|(begin, time)| begin.saturating_add(time));
        self.ended.extend(last.map(|(last, _)| (core, last, time)));
        self.traces.take(core, 1)
    }
}

impl<U: TraceUnit, F> Tracing<U, F> {
    /// Asks for a synchronisation point where the only thread is stopped, if everything before it is known. The
    /// controller waits meanwhile.
    fn synchronise(&mut self) {
        let asked = std::mem::take(&mut self.checkpoint);
        let calls = self.calls.as_ref();
        let place = calls.and_then(|calls| locked(calls).take_wanted());
        let Some(place) = place.filter(|_| asked) else {
            return;
        };
        if !self.flow.branched_to(0, place, &self.blocks) || self.flow_ends(0, Some(place)).is_err()
        {
            return;
        }
        let trace = self.traces.core(0);
        if trace.is_some_and(|trace| trace.tracer.synchronise_at(place))
            && let Some(calls) = &self.calls
        {
            locked(calls).accept();
        }
    }

    fn flow_ends(&mut self, core: u32, next: Option<CodeAddress>) -> io::Result<()> {
        let (flow, blocks, traces) = (&mut self.flow, &self.blocks, &mut self.traces);
        match &mut self.join {
            None => flow.end(core, next, blocks, traces),
            Some(join) => {
                join.executes(None, flow, blocks, traces)?;
                join.end(core, next, flow, blocks, traces)
            }
        }
    }
}

impl<U, F> Recording for Tracing<U, F>
where
    U: TraceUnit + Send,
    F: Fn(TraceId) -> U + Send,
{
    fn finish(mut self: Box<Self>, next: &BTreeMap<u32, CodeAddress>) -> io::Result<Summary> {
        let calls = self.calls.take();
        let mut summary = Summary {
            untraced: self.traces.untraced,
            ended: std::mem::take(&mut self.ended),
            ..Summary::default()
        };
        let mut unfinished = Vec::new();
        for core in 0..self.traces.cores.len() as u32 {
            let place = next.get(&core).copied();
            let last = self.flow.last(core, &self.blocks);
            let last = last.filter(|_| place.is_none());
            unfinished.extend(last.map(|(last, _)| (core, last, None)));
            self.flow_ends(core, place)?;
            if let Some(trace) = self.traces.core(core) {
                trace.tracer.finish(place.or(last.map(|(_, after)| after)));
                let (id, gaps) = (trace.id, trace.tracer.gaps());
                summary.gaps += gaps;
                summary.cores.push((core, id));
            }
            self.traces.take(core, 1)?;
        }
        if let Some(calls) = calls {
            let mut calls = locked(&calls);
            if let Some(offset) = self.traces.taken.synchronised.take() {
                calls.synchronised(offset);
            }
            (summary.checkpoints, summary.turns_of_calls) = calls.finish();
            let cores = self.traces.cores.iter();
            let executed = cores.map(|core| core.as_ref().map_or(0, |trace| trace.executed));
            let begins = std::mem::take(&mut self.traces.turns);
            summary.turns = replay_file::turns(begins, executed.collect());
        }
        summary.ended.splice(0..0, unfinished);
        summary.instructions = self.traces.instructions;
        // If the data addresses do not fit, their files are removed first, which leaves the space
        // to the trace.
        let addresses = self.traces.addresses.map_or(Ok(()), AddressFiles::finish);
        let mut whole = self.traces.store.finish().and(addresses);
        if let Some(witness) = self.traces.witness {
            whole = whole.and(witness.finish());
        }
        summary.cut = whole.err().map(|error| error.to_string());
        let trace = &self.traces.settings.trace;
        let threads = self.traces.threads.is_some() && trace.has_timestamps();
        summary.timestamps = trace.timestamps == Timestamps::Always || threads;
        summary.carrier = self.traces.settings.carrier;
        summary.context_ids = self.traces.context_ids;
        summary.versions = self.traces.versions;
        Ok(summary)
    }

    fn abandon(&mut self) {
        // Dropping the last sender closes the observer's channel.
        self.observer = std::sync::mpsc::channel().0;
    }
}

/// Creates a recording that writes trace to `store` and reports events to `observer`.
pub fn recording(
    settings: Settings,
    store: TraceStore,
    witness: Option<witness::Writer>,
    observer: Sender<TraceEvent>,
    progress: Arc<AtomicU64>,
) -> Box<dyn Recording> {
    let trace = settings.trace;
    let core = match settings.exceptions {
        Exceptions::Signals => core_of(settings.sets),
        Exceptions::System(system) => system.core,
    };
    let parts = (settings, store, witness, observer, progress);
    match trace.protocol {
        Protocol::Etmv4 => tracing(parts, move |id| trace.etmv4_unit(id, core)),
        Protocol::Ptm => tracing(parts, move |id| trace.ptm_unit(id)),
        Protocol::Etmv3 => tracing(parts, move |id| trace.etmv3_unit(id, core)),
    }
}

type Parts = (
    Settings,
    TraceStore,
    Option<witness::Writer>,
    Sender<TraceEvent>,
    Arc<AtomicU64>,
);

fn tracing<U, F>(parts: Parts, make: F) -> Box<dyn Recording>
where
    U: TraceUnit + Send + 'static,
    F: Fn(TraceId) -> U + Send + 'static,
{
    let (mut settings, store, witness, observer, progress) = parts;
    let muted = settings.late;
    let addresses = settings.data_addresses.take().map(AddressFiles::new);
    let calls = settings.calls.take();
    // Only ETMv4 trace carries context IDs in a recording.
    let versions = Versions::new(settings.trace.protocol == Protocol::Etmv4);
    Box::new(Tracing {
        blocks: BlockTable::new(settings.sets),
        lines: Lines::new(make(TraceId(1)).options()),
        flow: Flow::default(),
        ended: Vec::new(),
        join: match settings.exceptions {
            Exceptions::Signals => None,
            Exceptions::System(system) => {
                let has_security = system.numbers.microcontroller && system.core.version >= 8;
                let security = settings.context.security.filter(|_| has_security);
                let is_64bit = settings.sets == Sets::A64;
                Some(Join::new(system.numbers, is_64bit, security))
            }
        },
        return_pending: false,
        last: u32::MAX,
        traces: CoreTraces {
            cores: Vec::new(),
            settings,
            store,
            witness,
            addresses,
            instructions: 0,
            untraced: 0,
            taken: Taken::default(),
            versions,
            muted,
            undefined: Vec::new(),
            context_ids: false,
            threads: None,
            turns: Vec::new(),
        },
        make,
        observer,
        progress,
        calls,
        checkpoint: false,
    })
}

#[cfg(test)]
mod tests;
