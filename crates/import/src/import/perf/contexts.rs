//! The contexts in a piece of trace: the threads that ran while it was traced.

use super::aux_traces::AuxTrace;
use super::bytes::Bytes;
use super::etm_info::Unit;
use armsnap_arch::quantity::{BufferOffset, TraceId};
use armsnap_history::decode::{Source, SourceSinks, decode_buffer};
use armsnap_snapshot::capture::{CaptureBuffer, Config, OnlyContext, Protocol, Visitor};
use armsnap_snapshot::snapshot::model::Device;
use armsnap_trace::element::{AtomSink, Element, ElementSink, Mark};
use armsnap_trace::formatter::FrameKind;
use armsnap_trace::protocol::{Core, ElementDecoder, PacketDecoder};
use std::collections::BTreeSet;
use std::convert::Infallible;

/// The number of bytes that are decoded at once.
const DECODED: usize = 1 << 20;
/// The number of bytes of a piece that are searched for a first context.
const FIRST: u64 = 64 << 10;
/// The maximum number of contexts in a piece: more threads than can run in the time of a buffer.
const MOST: usize = 1 << 16;
/// The maximum number of timestamps in a piece: trace after them is not assigned to a thread.
const MAX_TIMESTAMPS: usize = 1 << 22;

/// TRCCONFIGR: context IDs are traced (CID); virtual context IDs are traced (VMID); the latter are
/// CONTEXTIDR_EL2 (VMIDOPT) (IHI 0064, TRCCONFIGR).
const CID: u64 = 1 << 6;
const VMID: u64 = 1 << 7;
const VMIDOPT: u64 = 1 << 15;

/// The register in which the kernel stores the thread number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ThreadRegister {
    /// CONTEXTIDR_EL1, or CONTEXTIDR of ARMv7-A.
    ContextId,
    /// CONTEXTIDR_EL2: the kernel runs at EL2.
    Virtual,
}

impl ThreadRegister {
    /// The register that a unit traces; `None` if it traces none.
    pub fn of(unit: &Unit) -> Option<Self> {
        let configuration = unit.register("TRCCONFIGR").unwrap_or(0);
        let has = |bits| configuration & bits == bits;
        if has(VMID | VMIDOPT) {
            Some(Self::Virtual)
        } else if has(CID)
            || unit
                .register("ETMCR")
                .is_some_and(|etmcr| etmcr & 3 << 14 != 0)
        {
            Some(Self::ContextId)
        } else {
            None
        }
    }

    /// The context that selects a thread.
    pub const fn only(self, tid: u32) -> OnlyContext {
        match self {
            Self::ContextId => OnlyContext::ContextId(tid),
            Self::Virtual => OnlyContext::Vmid(tid),
        }
    }
}

/// What to look for in a piece.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ContextQuery {
    /// The first thread, near its start.
    First,
    /// All threads.
    Threads,
    /// The timestamps.
    Timestamps,
}

impl ContextQuery {
    const fn most_threads(self) -> usize {
        match self {
            Self::First => 1,
            Self::Threads => MOST,
            Self::Timestamps => 0,
        }
    }

    const fn most_timestamps(self) -> usize {
        match self {
            Self::First | Self::Threads => 0,
            Self::Timestamps => MAX_TIMESTAMPS,
        }
    }
}

/// The contents of a piece of a unit's trace.
#[derive(Debug, Default)]
pub struct Contents {
    /// The threads whose contexts are traced.
    pub threads: BTreeSet<u32>,
    /// The timestamps in order; `None` where trace is missing.
    pub timestamps: Vec<Option<u64>>,
    /// Whether anything was executed.
    pub executed: bool,
}

/// Whether a piece of a unit's trace is short and nothing was executed in it.
pub fn is_idle(unit: (&Unit, &Device), id: u8, piece: &AuxTrace, file: &Bytes) -> bool {
    piece.bytes() <= FIRST && !contents(unit, id, piece, file, ContextQuery::First).executed
}

/// Finds the contents of a piece of a unit's trace.
pub fn contents(
    (unit, device): (&Unit, &Device),
    id: u8,
    piece: &AuxTrace,
    file: &Bytes,
    what: ContextQuery,
) -> Contents {
    let Some(protocol) = Protocol::of(device) else {
        // The trace of this unit cannot be decoded.
        return Contents {
            executed: true,
            ..Contents::default()
        };
    };
    let mut left = match what {
        ContextQuery::First => FIRST,
        ContextQuery::Threads | ContextQuery::Timestamps => u64::MAX,
    };
    let parts = piece.parts.iter().map(|part| {
        let length = usize::try_from(left).unwrap_or(usize::MAX).min(part.len());
        left -= length as u64;
        file.part(part.start..part.start + length)
    });
    let buffer = CaptureBuffer {
        index: 0,
        name: String::new(),
        parts: parts.collect(),
        frames: (!piece.raw).then_some(FrameKind::Memory),
        sources: Vec::new(),
        left_out: Vec::new(),
    };
    let config = Config::read(device, protocol, Core::default(), &mut Vec::new());
    let found = config.visit(Collect {
        buffer: &buffer,
        id: TraceId(id),
        register: ThreadRegister::of(unit),
        what,
    });
    // Releases memory, because many pieces are examined.
    for part in &buffer.parts {
        part.release(0..part.len());
    }
    found
}

struct Collect<'a> {
    buffer: &'a CaptureBuffer,
    id: TraceId,
    register: Option<ThreadRegister>,
    what: ContextQuery,
}

impl Visitor for Collect<'_> {
    type Output = Contents;

    fn visit<D, E>(self, packets: D, elements: E) -> Self::Output
    where
        D: PacketDecoder + Clone + Send + Sync + 'static,
        E: ElementDecoder<Packet = D::Packet> + Clone + Send + Sync + 'static,
    {
        let mut found = Contents::default();
        let collected = Collected {
            register: self.register,
            what: self.what,
            found: Contents::default(),
        };
        let source = Source::with_elements(packets, elements, collected);
        let mut decoders = [(self.id, Box::new(source) as Box<_>)];
        let collected = decode_buffer(
            self.buffer,
            &mut decoders,
            DECODED,
            |_, out: &mut Collected| {
                found.executed |= out.found.executed;
                found.threads.append(&mut out.found.threads);
                while found.threads.len() > self.what.most_threads() {
                    found.threads.pop_last();
                }
                let left = self.what.most_timestamps() - found.timestamps.len();
                out.found.timestamps.truncate(left);
                found.timestamps.append(&mut out.found.timestamps);
                Ok::<(), Infallible>(())
            },
        );
        match collected {
            Ok(_) => found,
        }
    }
}

/// The contents found so far.
struct Collected {
    register: Option<ThreadRegister>,
    what: ContextQuery,
    found: Contents,
}

impl ElementSink for Collected {
    fn element(&mut self, _: BufferOffset, element: Element) {
        let Element::Mark(mark) = element else {
            self.found.executed = true;
            return;
        };
        let Contents {
            threads,
            timestamps,
            ..
        } = &mut self.found;
        match mark {
            Mark::Context(context) if threads.len() < self.what.most_threads() => {
                threads.extend(match self.register {
                    Some(ThreadRegister::ContextId) => context.context_id,
                    Some(ThreadRegister::Virtual) => context.vmid,
                    None => None,
                });
            }
            Mark::Timestamp(_) | Mark::NoSync(_)
                if timestamps.len() < self.what.most_timestamps() =>
            {
                timestamps.push(match mark {
                    Mark::Timestamp(time) => Some(time),
                    _ => None,
                });
            }
            _ => {}
        }
    }
}

impl AtomSink for Collected {}

impl SourceSinks<Collected> for Collected {
    fn end(&mut self, _: BufferOffset) {}

    fn output(&mut self) -> &mut Collected {
        self
    }
}
