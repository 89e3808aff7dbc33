//! The traces of all cores, and the version of changing code that each of them runs.

use crate::record::address_files::AddressFiles;
use crate::record::blocks::{Block, NOT_IN_STREAM};
use crate::record::flow::FlowSink;
use crate::record::protocol::{Protocol, Timestamps};
use crate::record::replay_file::TurnBegins;
use crate::record::settings::{Exceptions, Settings};
use crate::record::trace_store::TraceStore;
use crate::record::versions::Versions;
use crate::record::witness;
use armsnap_arch::arch::branch::Kind;
use armsnap_arch::quantity::{ExceptionLevel, Isa, Security, TraceId};
use armsnap_snapshot::snapshot::changed::Carrier;
use armsnap_trace::data_addresses::Access;
use armsnap_trace::element::{Context, Mark, TraceOnReason};
use armsnap_trace::encode::{CodeAddress, TAIL_CHAIN, TraceUnit, Tracer};
use armsnap_trace::flow::Pieces;
use std::io;

/// The number of instructions between two timestamps.
const TIMESTAMP_EVERY: u64 = 4096;

/// The number of bytes of a core's trace at which they are moved to the store.
pub(super) const STORE_SIZE: usize = 1 << 13;

#[derive(Debug)]
pub(super) struct CoreTrace<U> {
    pub(super) id: TraceId,
    pub(super) tracer: Tracer<U, Pieces>,
    /// The number of instructions executed by this core.
    pub(super) executed: u64,
    /// Instructions until the next timestamp.
    pub(super) until_timestamp: u64,
    /// The core's context; the context ID is the version of the code it runs.
    pub(super) context: Context,
    /// The blocks executed since the last branch; used while code versions differ.
    pub(super) line: Vec<Block>,
}

/// Trace on its way to the store, and the offsets at which decoding can start.
#[derive(Debug, Default)]
pub(super) struct Taken {
    pub(super) bytes: Vec<u8>,
    pub(super) start_points: Vec<usize>,
    /// The offset in the trace buffer of the synchronisation point that was asked for last.
    pub(super) synchronised: Option<u64>,
}

impl Taken {
    /// Moves a core's trace to the store, if it has this many bytes.
    pub(super) fn take<U: TraceUnit>(
        &mut self,
        trace: &mut CoreTrace<U>,
        at_least: usize,
        store: &mut TraceStore,
    ) -> io::Result<()> {
        if trace.tracer.pending_bytes() < at_least {
            return Ok(());
        }
        self.bytes.clear();
        self.start_points.clear();
        let synchronised = trace.tracer.synchronised();
        let start_points = &mut self.start_points;
        trace
            .tracer
            .take_with(&mut self.bytes, |place| start_points.push(place));
        let Some(place) = synchronised else {
            return store.write(trace.id, &self.bytes, &self.start_points);
        };
        let (before, from) = self.bytes.split_at(place);
        let middle = self.start_points.partition_point(|&start| start < place);
        let (early, late) = self.start_points.split_at_mut(middle);
        store.write(trace.id, before, early)?;
        self.synchronised = store.offset(trace.id);
        for start in &mut *late {
            *start -= place;
        }
        store.write(trace.id, from, late)
    }
}

/// The trace of all cores.
#[derive(Debug)]
pub(super) struct CoreTraces<U> {
    pub(super) cores: Vec<Option<CoreTrace<U>>>,
    pub(super) settings: Settings,
    pub(super) store: TraceStore,
    pub(super) witness: Option<witness::Writer>,
    pub(super) addresses: Option<AddressFiles>,
    /// The number of instructions executed.
    pub(super) instructions: u64,
    /// The number of cores without a trace ID.
    pub(super) untraced: u64,
    pub(super) taken: Taken,
    pub(super) versions: Versions,
    /// Whether nothing is traced yet, see [`Settings::late`].
    pub(super) muted: bool,
    /// Blocks whose code is added to the versions when they are first traced, by ID.
    pub(super) undefined: Vec<bool>,
    /// Whether a core changed its context ID.
    pub(super) context_ids: bool,
    /// The number of instructions executed when a Linux program started its second thread. From
    /// then on the stream carries times.
    pub(super) threads: Option<u64>,
    /// The turns of threads, in the order in which they became known.
    pub(super) turns: Vec<TurnBegins>,
}

/// The most turns that are kept.
const MOST_TURNS: usize = 1 << 22;

/// Maximum number of blocks of a straight line that are kept in one version of changing code.
const LINE: usize = 64;

impl<U: TraceUnit> CoreTraces<U> {
    pub(super) fn core(&mut self, core: u32) -> Option<&mut CoreTrace<U>> {
        self.cores.get_mut(core as usize)?.as_mut()
    }

    /// Requests a timestamp after the core's next block.
    pub(super) fn timestamp_soon(&mut self, core: u32) {
        if let Some(trace) = self.core(core) {
            trace.until_timestamp = 0;
        }
    }

    pub(super) fn take(&mut self, core: u32, at_least: usize) -> io::Result<()> {
        match self.cores.get_mut(core as usize).and_then(Option::as_mut) {
            Some(trace) => self.taken.take(trace, at_least, &mut self.store),
            None => Ok(()),
        }
    }

    /// Selects the version of code that a block belongs to, before the block is traced.
    #[cold]
    pub(super) fn select_version(&mut self, core: u32, block: &Block, count: usize) {
        let Some(trace) = self.cores.get_mut(core as usize).and_then(Option::as_mut) else {
            return;
        };
        let carrier = self.settings.carrier;
        let carried = match carrier {
            Carrier::ContextId => &mut trace.context.context_id,
            Carrier::Vmid => &mut trace.context.vmid,
        };
        let before = *carried;
        let now = before.unwrap_or(0);
        let version = self.versions.of(now, block, trace.line.iter());
        if before.is_none() || version != now {
            *carried = Some(version);
            // The context cannot change within a line of A32 or T32 code.
            let is_split = block.start.isa != Isa::A64 || trace.line.len() >= LINE;
            if !trace.line.is_empty() && is_split {
                trace.tracer.gap(TraceOnReason::BeginOrFilter);
                trace.line.clear();
            }
            trace.tracer.context(trace.context);
        }
        let falls_through = block
            .instructions
            .get(count.wrapping_sub(1))
            .is_some_and(|last| last.kind == Kind::Other);
        if !falls_through {
            trace.line.clear();
        } else if trace.line.len() < LINE {
            trace.line.push(block.clone());
        }
    }

    /// Ends the straight line: the next block does not follow the last one.
    pub(super) fn line_ends(&mut self, core: u32) {
        if let Some(trace) = self.core(core) {
            trace.line.clear();
        }
    }

    pub(super) fn signal_number(&self, signal: u32) -> u16 {
        let (illegal, debug, alignment, data, interrupt) = match self.settings.trace.protocol {
            // IHI 0064H, "Exception packet", TYPE.
            Protocol::Etmv4 => (3, 6, 10, 12, 14),
            // IHI 0035B 4.5.4 and IHI 0014Q 7.3.5, exception information byte.
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

    pub(super) fn call_number(&self) -> u16 {
        match self.settings.trace.protocol {
            Protocol::Etmv4 => 2,
            Protocol::Ptm | Protocol::Etmv3 => 10,
        }
    }
}

impl<U: TraceUnit> FlowSink for CoreTraces<U> {
    fn ran(
        &mut self,
        core: u32,
        block: &Block,
        count: usize,
        accesses: &[(u32, Access)],
    ) -> io::Result<()> {
        if self.muted {
            return Ok(());
        }
        if let Some(undefined) = self.undefined.get_mut(block.id as usize)
            && std::mem::take(undefined)
        {
            self.versions.define(block);
        }
        if block.id == NOT_IN_STREAM {
            self.versions.define(block);
        }
        if let Some(files) = &mut self.addresses {
            files.ran(core, block, count, accesses)?;
        }
        self.instructions += count as u64;
        if self.versions.matter() {
            self.select_version(core, block, count);
        }
        let timestamps =
            self.settings.trace.timestamps == Timestamps::Always && self.threads.is_none();
        let now = self.instructions;
        if let Some(trace) = self.core(core) {
            trace.executed += count as u64;
            let executed = &block.instructions[..count.min(block.instructions.len())];
            trace.tracer.run_decoded(block.start, executed);
            if timestamps {
                trace.until_timestamp = trace.until_timestamp.saturating_sub(count as u64);
                if trace.until_timestamp == 0 {
                    trace.until_timestamp = TIMESTAMP_EVERY;
                    trace.tracer.mark(Mark::Timestamp(now));
                }
            }
            if trace.tracer.pending_bytes() >= STORE_SIZE {
                self.take(core, STORE_SIZE)?;
            }
        }
        match &mut self.witness {
            Some(witness) => witness.ran(core, block, count),
            None => Ok(()),
        }
    }

    fn exception(&mut self, core: u32, number: u32, return_to: CodeAddress) -> io::Result<()> {
        let signals = self.settings.exceptions == Exceptions::Signals;
        let taken = if signals {
            self.signal_number(number)
        } else {
            number as u16
        };
        self.line_ends(core);
        if self.muted {
            return Ok(());
        }
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
        if self.muted {
            return;
        }
        if let Some(trace) = self.core(core) {
            trace.tracer.exception_return();
        }
    }

    fn tail_chain(&mut self, core: u32, number: u32) -> io::Result<()> {
        if self.muted {
            return Ok(());
        }
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

    fn turn(&mut self, core: u32, number: u64) {
        let executed = self.core(core).map_or(0, |trace| trace.executed);
        // Without the later ones, it is not known where the turns before end.
        if self.turns.len() > MOST_TURNS {
            self.turns.truncate(1);
            self.turns[0].number = u64::MAX;
        } else if self
            .turns
            .first()
            .is_none_or(|first| first.number != u64::MAX)
        {
            self.turns.push(TurnBegins {
                number,
                core,
                executed,
            });
        }
    }

    fn level(&mut self, core: u32, level: ExceptionLevel) {
        if let Some(trace) = self.core(core) {
            trace.context.el = Some(level);
            trace.tracer.context(trace.context);
        }
    }

    fn security(&mut self, core: u32, security: Security) {
        if let Some(trace) = self.core(core) {
            trace.context.security = Some(security);
            trace.tracer.context(trace.context);
        }
    }

    fn context_id(&mut self, core: u32, id: u32) {
        if self.settings.carrier == Carrier::ContextId {
            // In this case the context ID identifies the version of the code.
            return;
        }
        self.context_ids = true;
        if let Some(trace) = self.core(core) {
            trace.context.context_id = Some(id);
            trace.tracer.context(trace.context);
        }
    }

    fn broken(&mut self, core: u32, instead: Option<CodeAddress>) -> io::Result<()> {
        let signals = self.settings.exceptions == Exceptions::Signals;
        let call = self.call_number();
        self.line_ends(core);
        if self.muted {
            return Ok(());
        }
        if let Some(trace) = self.core(core) {
            if let Some(place) = instead.filter(|_| signals) {
                trace.tracer.exception(call, place);
            }
            trace.tracer.gap(TraceOnReason::BeginOrFilter);
        }
        Ok(())
    }
}
