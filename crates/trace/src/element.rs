//! The meaning of packets: the elements that all protocols share.
//!
//! Elements do not depend on memory. [`crate::flow`] consumes elements that steer program flow
//! ([`Element::WaypointAtoms`], [`Element::Address`]…); every other one is a [`Mark`], which passes
//! through the flow in order.

use armsnap_arch::quantity::{Address, BufferOffset, ExceptionLevel, Isa, Security};

/// A sequence of up to 32 atoms; bit 0 is the oldest, 1 is E, 0 is N.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Atoms {
    /// The atoms; bits beyond `count` are zero.
    pub bits: u32,
    /// Their number, 1 to 32.
    pub count: u8,
}

impl Atoms {
    /// Returns whether the atom with this index is an E; the oldest has index 0.
    #[inline]
    #[must_use]
    pub const fn is_e(self, index: u8) -> bool {
        index < self.count && index < 32 && self.bits >> index & 1 == 1
    }

    /// Returns the atoms after the oldest `count`.
    #[inline]
    #[must_use]
    pub const fn skip(self, count: u8) -> Self {
        match self.bits.checked_shr(count as u32) {
            Some(bits) => Self {
                bits,
                count: self.count.saturating_sub(count),
            },
            None => Self { bits: 0, count: 0 },
        }
    }
}

/// One element of a trace source that follows a core.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub enum Element {
    /// PTM, ETMv4, ETE: each atom stands for execution up to the next waypoint (P0 instruction),
    /// taken or not.
    WaypointAtoms(Atoms),
    /// ETMv3: each atom is one instruction that passed (E) or failed (N) its condition.
    InstructionAtoms(Atoms),
    /// One waypoint atom of a cycle-accurate trace, with the cycles that belong to its range.
    TimedAtom {
        /// E or N.
        taken: bool,
        /// Cycles up to and including this waypoint.
        cycles: u32,
    },
    /// ETMv3, cycle-accurate: each atom is one instruction that passed (E) or failed (N) its
    /// condition, with the cycles since the previous one.
    TimedInstructions {
        /// The atoms, at least one.
        atoms: Atoms,
        /// Cycles of the first one.
        first: u8,
        /// Cycles of each later one.
        each: u8,
    },
    /// Execution continues here: the target of the indirect branch before it, or, after a
    /// discontinuity, where the trace starts.
    Address {
        /// First instruction.
        address: Address,
        /// Instruction set at that address.
        isa: Isa,
    },
    /// Instructions in a straight line were executed up to `end`, without a waypoint atom
    /// (before an exception, or a PTM waypoint update).
    RunTo {
        /// The first address not executed, or the last one executed if `inclusive`.
        end: Address,
        /// Whether the instruction at `end` was executed.
        inclusive: bool,
    },
    /// ETE source address: a straight line was executed up to and including this instruction, as
    /// with an E atom. If the current address is unknown or beyond it, only this instruction was.
    SourceAddress {
        /// The instruction.
        address: Address,
        /// Its instruction set.
        isa: Isa,
    },
    /// ETMv4 Q element: `instructions` were executed from the current address on an unknown path.
    Q {
        /// Their number, if the trace contains it.
        instructions: Option<u32>,
    },
    /// An exception was taken. Before it, execution ran in a straight line to `return_address`,
    /// if that is known and ahead of the current address.
    Exception(Exception),
    /// PTM: an exception was taken whose preferred return address is the current address.
    /// (`return_address` is not set.)
    ExceptionHere(Exception),
    /// The last traced instruction was not executed after all (ETMv3 "cancel").
    CancelInstruction,
    /// Everything that does not steer the flow.
    Mark(Mark),
}

/// The name of an exception. (An alias, because serde treats a field of type `&str` as borrowed
/// from its input.)
type ExceptionName = &'static str;

/// An exception, with the contents of its packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Exception {
    /// The number in the trace protocol.
    pub number: u16,
    /// Its name by architecture and profile (`IRQ`, `SVC`…).
    #[serde(deserialize_with = "names::read")]
    pub name: ExceptionName,
    /// The preferred exception return address.
    pub return_address: Option<Address>,
}

/// The names of exceptions in saved traces.
mod names {
    use serde::de::{Deserialize, Deserializer, Error};
    use std::collections::BTreeSet;
    use std::sync::{Mutex, PoisonError};

    /// Limits on the number of names and on their length, above those of all architectures
    /// together.
    const MOST: (usize, usize) = (1024, 64);

    /// Reads a name. Names are few, and stay in memory.
    pub(super) fn read<'d, D: Deserializer<'d>>(from: D) -> Result<&'static str, D::Error> {
        static KNOWN: Mutex<BTreeSet<&'static str>> = Mutex::new(BTreeSet::new());
        let name = String::deserialize(from)?;
        let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(same) = known.get(&*name) {
            return Ok(same);
        }
        if known.len() >= MOST.0 || name.len() > MOST.1 {
            return Err(D::Error::custom("not the name of an exception"));
        }
        let name: &'static str = name.leak();
        known.insert(name);
        Ok(name)
    }
}

/// The state of the core as traced.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Context {
    /// Instruction set.
    pub isa: Isa,
    /// Exception level.
    pub el: Option<ExceptionLevel>,
    /// Security state.
    pub security: Option<Security>,
    /// AArch64 (true) or AArch32.
    pub is_64bit: Option<bool>,
    /// Virtual machine identifier.
    pub vmid: Option<u32>,
    /// Context identifier.
    pub context_id: Option<u32>,
}

impl Context {
    /// Returns the context with missing identifiers taken from `before`: they are traced only when
    /// they change.
    #[must_use]
    pub fn completed(mut self, before: Option<&Self>) -> Self {
        if let Some(before) = before {
            self.vmid = self.vmid.or(before.vmid);
            self.context_id = self.context_id.or(before.context_id);
        }
        self
    }
}

/// Why tracing was turned on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub enum TraceOnReason {
    /// The start of trace, or the end of a filtered region.
    BeginOrFilter,
    /// After a FIFO overflow.
    Overflow,
    /// After leaving debug state.
    DebugRestart,
}

impl TraceOnReason {
    /// The name in the element stream.
    pub const fn name(self) -> &'static str {
        match self {
            Self::BeginOrFilter => "begin_or_filter",
            Self::Overflow => "overflow",
            Self::DebugRestart => "debug_restart",
        }
    }
}

/// Why nothing is known until the next synchronisation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub enum NoSyncReason {
    /// The start of the buffer.
    Start,
    /// A FIFO overflow that lost trace.
    Overflow,
    /// A discard packet.
    Discard,
    /// A packet that no encoder writes.
    BadPacket,
    /// The code image contradicts the trace.
    BadImage,
}

impl NoSyncReason {
    /// The name in the element stream.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Start => "start",
            Self::Overflow => "overflow",
            Self::Discard => "discard",
            Self::BadPacket => "bad_packet",
            Self::BadImage => "bad_image",
        }
    }
}

/// The state of a memory transaction (ETE, Transactional Memory Extension).
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub enum Transaction {
    /// The trace starts inside one.
    Init,
    /// It starts.
    Start,
    /// It was committed.
    Commit,
    /// It failed.
    Fail,
}

impl Transaction {
    /// The name in the element stream.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Init => "init",
            Self::Start => "start",
            Self::Commit => "commit",
            Self::Fail => "fail",
        }
    }
}

/// How a local timestamp of an ITM relates to the previous packet (Armv7-M ARM DDI 0403, appendix
/// D4, "Local timestamp packets").
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub enum TimestampRelation {
    /// Both are on time.
    Sync,
    /// The timestamp is late.
    TimestampDelayed,
    /// The data were late.
    DataDelayed,
    /// Both are late.
    BothDelayed,
}

impl TimestampRelation {
    /// The name in the element stream.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Sync => "sync",
            Self::TimestampDelayed => "timestamp_delayed",
            Self::DataDelayed => "data_delayed",
            Self::BothDelayed => "both_delayed",
        }
    }
}

/// An ITM element.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub enum Itm {
    /// Software wrote to a stimulus port.
    Stimulus {
        /// Port, with its page.
        port: u8,
        /// Size of the write: 1, 2 or 4.
        bytes: u8,
        /// The value written.
        value: u32,
    },
    /// The DWT reported an event, a sample or a data access.
    Hardware {
        /// Discriminator.
        port: u8,
        /// Size: 1, 2 or 4.
        bytes: u8,
        /// Payload.
        value: u32,
    },
    /// Packets were lost.
    Overflow,
    /// Value of the system counter.
    GlobalTimestamp(u64),
    /// Time since the last local timestamp.
    LocalTimestamp {
        /// Ticks since the last one.
        delta: u32,
        /// Whether the timestamp and the data before it were on time.
        relation: TimestampRelation,
        /// Clock cycles (ticks times the prescaler) since the start, the last overflow, or the last loss of
        /// synchronisation.
        total: u64,
    },
}

/// An STM element: one STPv2 data or event packet in its master and channel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Stm {
    /// Master, if known.
    pub master: Option<u16>,
    /// Channel, if known.
    pub channel: Option<u16>,
    /// Size of the payload in bits: 0, 4, 8, 16, 32, 64.
    pub bits: u8,
    /// Payload.
    pub value: u64,
    /// A marked packet.
    pub marker: bool,
    /// A trigger packet.
    pub trigger: bool,
    /// `value` is a frequency in Hz.
    pub frequency: bool,
    /// The master reported an error.
    pub master_error: bool,
    /// A global error.
    pub global_error: bool,
    /// Timestamp.
    pub timestamp: Option<u64>,
}

/// An element that does not steer the flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub enum Mark {
    /// Nothing is known from here to the next synchronisation point.
    NoSync(NoSyncReason),
    /// Tracing was turned on: execution before and after it is not connected.
    TraceOn(TraceOnReason),
    /// The core's state from here.
    Context(Context),
    /// An exception return was executed.
    ExceptionReturn,
    /// Cycles since the last count.
    Cycles(u32),
    /// Value of the system counter.
    Timestamp(u64),
    /// Numbered event.
    Event(u8),
    /// The trigger event.
    Trigger,
    /// The point that a later timestamp refers to.
    Marker(u32),
    /// Memory transaction.
    Transaction(Transaction),
    /// ETE instrumentation (ITE).
    Instrumentation {
        /// Exception level of the instruction.
        el: ExceptionLevel,
        /// Value of the register.
        value: u64,
    },
    /// A data access (ETMv3 data trace).
    Data {
        /// Address, if traced.
        address: Option<Address>,
        /// Value, if traced.
        value: Option<u64>,
        /// Size of the value in bytes, 0 if no value is traced.
        bytes: u8,
        /// Whether it was a write, if known from the code.
        write: Option<bool>,
    },
    /// STM.
    Stm(Stm),
    /// ITM, DWT.
    Itm(Itm),
    /// The end of this source's trace.
    End,
}

/// A packet of one byte that consists of atoms.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AtomPacket {
    /// [`Element::WaypointAtoms`].
    Waypoints(Atoms),
    /// [`Element::InstructionAtoms`], or [`Element::TimedInstructions`] if cycles are given: those
    /// of the first atom and of each later one. Without atoms, the first number is
    /// [`Mark::Cycles`].
    Instructions(Atoms, Option<[u8; 2]>),
}

#[cfg(test)]
impl AtomPacket {
    /// Returns the element that it stands for.
    pub(crate) fn element(self) -> Element {
        match self {
            Self::Waypoints(atoms) => Element::WaypointAtoms(atoms),
            Self::Instructions(atoms, None) => Element::InstructionAtoms(atoms),
            Self::Instructions(Atoms { count: 0, .. }, Some([first, _])) => {
                Element::Mark(Mark::Cycles(first.into()))
            }
            Self::Instructions(atoms, Some([first, each])) => {
                Element::TimedInstructions { atoms, first, each }
            }
        }
    }
}

/// Receives elements. `at` is the offset of the packet that caused the element.
pub trait ElementSink {
    /// Receives the next element.
    fn element(&mut self, at: BufferOffset, element: Element);

    /// Receives an element that does not steer the flow.
    #[inline]
    fn mark(&mut self, at: BufferOffset, mark: Mark) {
        self.element(at, Element::Mark(mark));
    }
}

/// The sink of a source's elements, which may receive atoms before they are made elements.
pub trait AtomSink: ElementSink {
    /// Whether the sink uses the offsets of elements: if not, arbitrary offsets are passed, because
    /// locating packets takes time.
    const LOCATES: bool = true;

    /// Whether the sink ignores [`Element::WaypointAtoms`].
    const IGNORES_WAYPOINT_ATOMS: bool = false;

    /// Receives packets of atoms at the start of `bytes`, one byte each, as long as this is faster
    /// than [`element`](ElementSink::element), and returns their number. `atoms` decodes a byte;
    /// `locate` returns its offset, in ascending order.
    #[inline(always)]
    fn atoms(
        &mut self,
        bytes: &[u8],
        atoms: impl Fn(u8) -> Option<AtomPacket>,
        locate: impl FnMut(usize) -> BufferOffset,
    ) -> usize {
        let _ = (bytes, atoms, locate);
        0
    }
}

/// Collects elements; for tests.
impl ElementSink for Vec<(BufferOffset, Element)> {
    fn element(&mut self, at: BufferOffset, element: Element) {
        self.push((at, element));
    }
}
