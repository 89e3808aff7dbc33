//! ETMv4 and ETE packets → elements.
//!
//! Addresses, timestamps, cycle counts and speculation are resolved here: elements are emitted only
//! once it is certain that they were executed. No memory is read: the flow follows the code.

use super::address::AddressHistory;
use super::config::Config;
use super::packet::{
    AddressBits, ContextInfo, ExceptionAddress, InstructionSet, Packet, TraceInfo,
};
use super::speculation::{Entry, Held, Queue};
use crate::element::{Atoms, Context, Element, ElementSink, Mark, NoSyncReason, Transaction};
use crate::protocol::ElementDecoder;
use armsnap_arch::quantity::BufferOffset;

/// The maximum number of entries held. A real trace unit stays far below it; beyond it, the oldest
/// are committed.
const MAX_HELD: usize = 1 << 16;

/// The trace contradicts itself: nothing is known until the next synchronisation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Contradiction;

#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
enum State {
    /// Waiting for an alignment synchronisation.
    Async,
    /// Waiting for a Trace Info packet.
    TraceInfo,
    /// Decoding.
    Decoding,
}

/// Turns the packets of one ETMv4 or ETE source into elements.
///
/// Elements are emitted when they are committed. Elements other than P0 elements wait for the next
/// P0 element. Elements still held at a discontinuity or at the end are dropped, except events,
/// timestamps and others that are never speculative.
#[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct Elements {
    config: Config,
    state: State,
    /// Synchronisation was lost, and the next packet reports it: at the start, and after a bad
    /// packet.
    no_sync: Option<(NoSyncReason, Option<BufferOffset>)>,
    /// A buffer overflowed before the next Trace On.
    overflow: bool,

    history: AddressHistory,
    /// The instruction set of the last target address.
    is: InstructionSet,
    /// The last Context packet reported AArch64.
    sent_64bit: bool,
    timestamp: u64,
    cycle_threshold: u32,
    marker_seen: bool,

    queue: Queue,
    /// The number of speculative P0 elements. An exception or Q element counts only once its
    /// address has been traced.
    speculation: i64,
    /// An exception or Q element waits for its address.
    awaits_address: bool,
    /// A cycle count was emitted at once since the last P0 element: addresses after it are held, as
    /// if the count were.
    counted: bool,

    /// No context was emitted since synchronisation: atoms have no meaning.
    needs_context: bool,
    /// The last context emitted.
    context: Context,
}

impl Elements {
    /// Creates a decoder for the start of a trace.
    pub fn new(config: &Config) -> Self {
        Self {
            config: *config,
            state: State::Async,
            no_sync: Some((NoSyncReason::Start, None)),
            overflow: false,
            history: AddressHistory::default(),
            is: InstructionSet::Is0,
            sent_64bit: false,
            timestamp: 0,
            cycle_threshold: 0,
            marker_seen: false,
            queue: Queue::default(),
            speculation: 0,
            awaits_address: false,
            counted: false,
            needs_context: true,
            context: Context::default(),
        }
    }

    /// Returns the size of the elements held, in bytes.
    pub fn held_bytes(&self) -> usize {
        self.queue.len() * size_of::<Entry>()
    }

    /// Returns whether nothing is held, and nothing could be cancelled.
    #[inline(always)]
    fn emits_at_once(&self) -> bool {
        self.state == State::Decoding && self.config.max_speculation == 0 && self.queue.is_empty()
    }

    /// Returns the cycles of a count. An unknown one adds nothing to the running count.
    #[inline(always)]
    fn cycles(&self, count: Option<u32>) -> u32 {
        count.map_or(0, |n| n.saturating_add(self.cycle_threshold))
    }

    /// Forgets everything until the next synchronisation.
    fn lose(&mut self) {
        self.state = State::Async;
        self.queue.clear();
        self.speculation = 0;
        self.awaits_address = false;
        self.counted = false;
        self.needs_context = true;
    }

    /// Handles a packet that contradicts the trace before it, or bytes that are not a packet. First emits
    /// the held elements that can no longer be cancelled.
    #[cold]
    #[inline(never)]
    fn bad(&mut self, at: BufferOffset, out: &mut dyn ElementSink) {
        self.emit_certain(out);
        self.lose();
        self.no_sync = self.no_sync.or(Some((NoSyncReason::BadPacket, Some(at))));
        self.overflow = false;
        self.marker_seen = false;
        self.is = InstructionSet::Is0;
        self.context.is_64bit = None;
    }

    /// Handles a packet before synchronisation.
    fn wait(&mut self, at: BufferOffset, packet: &Packet, out: &mut dyn ElementSink) {
        if let Some((reason, place)) = self.no_sync.take() {
            out.mark(place.unwrap_or(at), Mark::NoSync(reason));
        }
        match (self.state, *packet) {
            (State::Async, Packet::Async) => self.state = State::TraceInfo,
            (State::TraceInfo, Packet::TraceInfo(info)) => {
                self.synchronise(&info);
                self.state = State::Decoding;
                self.speculation = info.speculation.into();
                if info.speculation > 0 {
                    self.queue.push(at, Held::Unseen(info.speculation));
                }
                if info.in_transaction() {
                    self.queue.push(at, Held::TransactionInit);
                }
            }
            // ETE may trace events before a Trace Info packet.
            (State::TraceInfo, Packet::Event(events)) if self.config.is_ete() => {
                self.hold(at, Held::Event(events), out);
            }
            _ => {}
        }
    }

    /// Resets the state that packets are compressed against (IHI 0064, Trace Info packet).
    fn synchronise(&mut self, info: &TraceInfo) {
        self.history = AddressHistory::default();
        self.timestamp = 0;
        self.cycle_threshold = info.cycle_threshold;
    }

    fn hold(&mut self, at: BufferOffset, held: Held, out: &mut dyn ElementSink) {
        if self.queue.len() >= MAX_HELD {
            let oldest = self.queue.oldest_p0();
            let emitted = if oldest == 0 {
                self.emit_all(out)
            } else {
                self.commit(oldest, out)
            };
            if emitted.is_err() {
                return self.bad(at, out);
            }
        }
        self.queue.push(at, held);
    }

    /// Holds a complete P0 element.
    fn hold_p0(&mut self, at: BufferOffset, held: Held, out: &mut dyn ElementSink) {
        self.hold(at, held, out);
        self.speculation += i64::from(held.p0());
    }

    fn hold_atoms(&mut self, at: BufferOffset, atoms: Option<Atoms>, out: &mut dyn ElementSink) {
        if let Some(atoms) = atoms {
            self.hold_p0(at, Held::Atoms(atoms), out);
        }
    }

    /// Handles a target address: of a branch, of the exception or Q element waiting for it, or of the
    /// start of trace. A context in the same packet precedes it.
    fn target(
        &mut self,
        at: BufferOffset,
        bits: AddressBits,
        context: Option<ContextInfo>,
        out: &mut dyn ElementSink,
    ) {
        let (address, is) = self.history.resolve(bits, self.sent_64bit);
        self.is = is;
        if let Some(info) = context {
            self.hold_context(at, info, out);
        }
        self.hold(at, Held::Address { address, is }, out);
        if std::mem::take(&mut self.awaits_address) {
            self.speculation += 1;
        }
    }

    fn hold_context(&mut self, at: BufferOffset, info: ContextInfo, out: &mut dyn ElementSink) {
        self.sent_64bit = info.is_64bit();
        self.hold(at, Held::Context { info, is: self.is }, out);
    }

    /// Handles any packet outside the fast path.
    #[inline(never)]
    fn other(&mut self, at: BufferOffset, packet: &Packet, out: &mut dyn ElementSink) {
        if self.state != State::Decoding {
            return self.wait(at, packet, out);
        }
        // P0 elements to commit and to cancel, and whether the newest atom is wrong.
        let (mut commit, mut cancel, mut mispredict) = (0, 0, false);
        match *packet {
            // Conditional instructions and data synchronisation markers do not steer the flow.
            Packet::Async
            | Packet::Ignore
            | Packet::ConditionalInstruction(_)
            | Packet::ConditionalFlush
            | Packet::ConditionalResult(_)
            | Packet::NumberedDataSyncMarker(_)
            | Packet::UnnumberedDataSyncMarker(_) => {}
            // The trace ends here, or a loss of bytes follows.
            Packet::Incomplete => {}
            Packet::NotSync | Packet::Reserved { .. } | Packet::Bad { .. } => {
                return self.bad(at, out);
            }
            Packet::Discard => return self.discard(at, NoSyncReason::Discard, out),
            Packet::Overflow => {
                self.overflow = true;
                return self.discard(at, NoSyncReason::Overflow, out);
            }
            Packet::TraceInfo(info) => self.synchronise(&info),
            Packet::TraceOn => self.hold(at, Held::TraceOn, out),
            Packet::Atoms { atoms, .. } => self.hold_atoms(at, Some(atoms), out),
            Packet::Address(bits) => self.target(at, bits, None, out),
            Packet::AddressWithContext {
                value,
                bits,
                is,
                context,
            } => {
                let bits = AddressBits::Low { value, bits, is };
                self.target(at, bits, Some(context), out);
            }
            Packet::Context(Some(info)) => self.hold_context(at, info, out),
            Packet::Context(None) => self.hold(at, Held::SameContext { is: self.is }, out),
            Packet::SourceAddress(bits) => {
                let (address, is) = self.history.resolve(bits, self.sent_64bit);
                self.hold_p0(at, Held::Source { address, is }, out);
            }
            Packet::Exception {
                number, address, ..
            } => {
                let target = address == ExceptionAddress::ReturnAndTarget;
                self.hold(at, Held::Exception { number, target }, out);
                self.awaits_address = true;
            }
            Packet::PeReset => {
                self.history.push((0, InstructionSet::Is0));
                self.hold_p0(at, Held::PeReset, out);
            }
            Packet::ExceptionReturn => {
                let p0 = self.config.exception_returns_are_p0();
                self.hold_p0(at, Held::ExceptionReturn { p0 }, out);
            }
            Packet::FunctionReturn => self.hold_p0(at, Held::FunctionReturn, out),
            Packet::Q { count, address, .. } => {
                self.hold(at, Held::Q { count }, out);
                if let Some(bits) = address {
                    let (address, is) = self.history.resolve(bits, self.sent_64bit);
                    self.hold(at, Held::Address { address, is }, out);
                    self.speculation += 1;
                } else {
                    self.awaits_address = true;
                }
            }
            Packet::TransactionStart => {
                let p0 = self.config.transactions_are_p0;
                self.hold_p0(at, Held::TransactionStart { p0 }, out);
            }
            Packet::TransactionCommit => self.hold(at, Held::TransactionCommit, out),
            Packet::TransactionFailure => {
                self.history.push((0, InstructionSet::Is0));
                self.hold(at, Held::TransactionFailure, out);
            }
            Packet::Event(events) => self.hold(at, Held::Event(events), out),
            Packet::CycleCount {
                commit: n, count, ..
            } => {
                self.hold(at, Held::Cycles(self.cycles(count)), out);
                commit = n.unwrap_or(0);
            }
            Packet::Timestamp {
                value,
                bits,
                cycles,
            } => {
                let above = u64::MAX.checked_shl(bits.into()).unwrap_or(0);
                self.timestamp = self.timestamp & above | value;
                let value = self.timestamp;
                let cycles = cycles.unwrap_or(0);
                self.hold(at, Held::Timestamp { value, cycles }, out);
            }
            Packet::TimestampMarker => self.hold(at, Held::TimestampMarker, out),
            Packet::Instrumentation { el, value } => {
                self.hold(at, Held::Instrumentation { el, value }, out);
            }
            Packet::Commit(count) => commit = count,
            Packet::Cancel {
                atoms,
                count,
                mispredict: wrong,
                ..
            } => {
                self.hold_atoms(at, atoms, out);
                (cancel, mispredict) = (count, wrong);
            }
            Packet::Mispredict { atoms } => {
                self.hold_atoms(at, atoms, out);
                mispredict = true;
            }
        }
        // Speculation deeper than the trace unit's maximum commits implicitly.
        let beyond = self.speculation - i64::from(self.config.max_speculation);
        if beyond > 0 {
            commit = u32::try_from(beyond).unwrap_or(u32::MAX);
        }
        if commit > 0 || cancel > 0 || mispredict {
            let resolved = self.resolve(commit, cancel, mispredict, out);
            if resolved.is_err() {
                self.bad(at, out);
            }
        }
    }

    fn resolve(
        &mut self,
        commit: u32,
        cancel: u32,
        mispredict: bool,
        out: &mut dyn ElementSink,
    ) -> Result<(), Contradiction> {
        if commit > 0 {
            self.commit(commit, out)?;
        }
        if cancel > 0 {
            if !self.queue.cancel(cancel) {
                return Err(Contradiction);
            }
            self.speculation -= i64::from(cancel);
        }
        if mispredict && !self.queue.mispredict() {
            return Err(Contradiction);
        }
        Ok(())
    }

    /// Emits the oldest `count` P0 elements and everything before them.
    fn commit(&mut self, count: u32, out: &mut dyn ElementSink) -> Result<(), Contradiction> {
        if u64::from(count) > self.queue.p0() {
            // It is unknown which P0 elements are missing: only the other entries are emitted.
            while let Some(entry) = self.queue.pop() {
                if entry.held.p0() == 0 {
                    self.emit(entry, out)?;
                }
            }
            return Err(Contradiction);
        }
        self.counted = false;
        let mut left = count;
        while left > 0
            && let Some(entry) = self.queue.split(left)
        {
            left -= entry.held.p0();
            self.emit(entry, out)?;
        }
        self.speculation -= i64::from(count);
        Ok(())
    }

    /// Emits everything.
    fn emit_all(&mut self, out: &mut dyn ElementSink) -> Result<(), Contradiction> {
        self.speculation = 0;
        self.counted = false;
        while let Some(entry) = self.queue.pop() {
            self.emit(entry, out)?;
        }
        Ok(())
    }

    /// Handles missing trace: speculative elements will not be resolved.
    fn discard(&mut self, at: BufferOffset, reason: NoSyncReason, out: &mut dyn ElementSink) {
        while let Some(entry) = self.queue.pop() {
            self.emit_mark(entry, out);
        }
        self.lose();
        out.mark(at, Mark::NoSync(reason));
    }

    /// Emits everything that cannot be cancelled: everything before the oldest P0 element, and the
    /// marks after it that are never speculative.
    fn emit_certain(&mut self, out: &mut dyn ElementSink) {
        let mut speculative = false;
        while let Some(entry) = self.queue.pop() {
            speculative |= entry.held.p0() > 0;
            if speculative {
                self.emit_mark(entry, out);
            } else {
                // Only a P0 element can lack its address.
                let _ = self.emit(entry, out);
            }
        }
    }

    /// At the end of the trace, emits what does not depend on speculative elements.
    fn emit_rest(&mut self, out: &mut dyn ElementSink) {
        let certain = self.config.max_speculation == 0 || self.speculation == 0;
        while let Some(entry) = self.queue.pop() {
            match entry.held {
                Held::TransactionCommit if certain => {
                    out.mark(entry.at, Mark::Transaction(Transaction::Commit));
                }
                Held::TransactionFailure if certain => {
                    out.mark(entry.at, Mark::Transaction(Transaction::Fail));
                }
                Held::TraceOn | Held::ExceptionReturn { .. } => break,
                held if held.p0() > 0 => break,
                _ => self.emit_mark(entry, out),
            }
        }
        self.queue.clear();
    }
}

impl ElementDecoder for Elements {
    type Packet = Packet;

    #[inline(always)]
    fn packet(&mut self, at: BufferOffset, packet: &Packet, out: &mut impl ElementSink) {
        if let Packet::Atoms { atoms, format } = *packet {
            if self.state != State::Decoding || self.config.max_speculation > 0 {
                return self.other(at, &Packet::Atoms { atoms, format }, out);
            }
            self.counted = false;
            // Nothing held can be cancelled any more.
            if !self.queue.is_empty() && self.emit_all(out).is_err() {
                return self.bad(at, out);
            }
            if !self.needs_context {
                out.element(at, Element::WaypointAtoms(atoms));
            }
            return;
        }
        if self.emits_at_once() {
            // Nothing before it is held or could be cancelled.
            match *packet {
                Packet::Address(bits) if !self.counted => {
                    let (address, is) = self.history.resolve(bits, self.sent_64bit);
                    self.is = is;
                    return out.element(at, self.address(address, is));
                }
                Packet::CycleCount { commit, count, .. } if commit.unwrap_or(0) == 0 => {
                    self.counted = true;
                    return out.mark(at, Mark::Cycles(self.cycles(count)));
                }
                _ => {}
            }
        }
        self.other(at, packet, out);
    }

    fn lost(&mut self, at: BufferOffset, out: &mut dyn ElementSink) {
        if self.state != State::Async {
            self.bad(at, out);
        }
    }

    fn is_settled(&self) -> bool {
        self.state == State::Decoding
            && !self.needs_context
            && self.context.is_64bit.is_some()
            && !self.queue.has_unseen()
            && (self.marker_seen || !self.config.timestamp_markers)
    }

    #[inline(always)]
    fn passes_atoms(&self) -> bool {
        self.emits_at_once() && !self.counted && !self.needs_context
    }

    #[inline(always)]
    fn targets(
        &mut self,
        bytes: &[u8],
        locate: impl FnMut(usize) -> BufferOffset,
        out: &mut impl ElementSink,
    ) -> (usize, usize) {
        self.targets_of(bytes, locate, out)
    }

    fn end(&mut self, at: BufferOffset, out: &mut dyn ElementSink) {
        self.emit_rest(out);
        out.mark(at, Mark::End);
    }
}

mod emit;
mod targets;

#[cfg(test)]
mod tests;
