//! The contexts in a piece of trace: which threads ran while it was traced.

use super::bytes::Bytes;
use super::etm_info::Unit;
use super::pieces::Piece;
use crate::capture::{CaptureBuffer, Config, OnlyContext, Protocol, Visitor};
use crate::decode::{Source, SourceSinks, decode_buffer};
use crate::element::{Element, ElementSink, Mark};
use crate::flow::FlowConfig;
use crate::formatter::FrameKind;
use crate::protocol::{Core, ElementDecoder, PacketDecoder};
use crate::quantity::{BufferOffset, TraceId};
use crate::snapshot::model::Device;
use std::collections::BTreeSet;
use std::convert::Infallible;

/// The bytes that are decoded at once.
const DECODED: usize = 1 << 20;
/// The bytes of a piece in which a first context is looked for.
const FIRST: u64 = 64 << 10;
/// The most contexts of a piece: more than threads run in the time of a buffer.
const MOST: usize = 1 << 16;

/// TRCCONFIGR: context IDs are traced (CID); virtual contexts are traced (VMID); these are
/// CONTEXTIDR_EL2 (VMIDOPT) (IHI 0064, TRCCONFIGR).
const CID: u64 = 1 << 6;
const VMID: u64 = 1 << 7;
const VMIDOPT: u64 = 1 << 15;

/// The register in which the kernel keeps the number of the thread.
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

    /// The context of a thread.
    pub const fn only(self, tid: u32) -> OnlyContext {
        match self {
            Self::ContextId => OnlyContext::ContextId(tid),
            Self::Virtual => OnlyContext::Vmid(tid),
        }
    }
}

/// Whether nothing was executed in a piece of a unit's trace: a short one in which no context is
/// traced, though the unit traces them before all that is executed.
pub fn is_idle(unit: (&Unit, &Device), id: u8, piece: &Piece, file: &Bytes) -> bool {
    ThreadRegister::of(unit.0).is_some()
        && piece.bytes() <= FIRST
        && threads(unit, id, piece, file, true).is_empty()
}

/// The threads whose contexts are in a piece of a unit's trace; the first one only if `first`.
pub fn threads(
    (unit, device): (&Unit, &Device),
    id: u8,
    piece: &Piece,
    file: &Bytes,
    first: bool,
) -> BTreeSet<u32> {
    let (Some(register), Some(protocol)) = (ThreadRegister::of(unit), Protocol::of(device)) else {
        return BTreeSet::new();
    };
    let mut left = if first { FIRST } else { u64::MAX };
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
        register,
        most: if first { 1 } else { MOST },
    });
    // Many pieces are looked into.
    for part in &buffer.parts {
        part.release(0..part.len());
    }
    found
}

struct Collect<'a> {
    buffer: &'a CaptureBuffer,
    id: TraceId,
    register: ThreadRegister,
    most: usize,
}

impl Visitor for Collect<'_> {
    type Output = BTreeSet<u32>;

    fn visit<D, E>(self, packets: D, elements: E, _: Option<FlowConfig>) -> Self::Output
    where
        D: PacketDecoder + Clone + Send + Sync + 'static,
        E: ElementDecoder<Packet = D::Packet> + Clone + Send + Sync + 'static,
    {
        let mut found = BTreeSet::new();
        let threads = Threads {
            register: self.register,
            most: self.most,
            found: BTreeSet::new(),
        };
        let source = Source::with_elements(packets, elements, threads);
        let mut decoders = [(self.id, Box::new(source) as Box<_>)];
        let collected = decode_buffer(
            self.buffer,
            &mut decoders,
            DECODED,
            |_, out: &mut Threads| {
                found.append(&mut out.found);
                found = std::mem::take(&mut found)
                    .into_iter()
                    .take(self.most)
                    .collect();
                Ok::<(), Infallible>(())
            },
        );
        match collected {
            Ok(_) => found,
        }
    }
}

/// The threads so far.
struct Threads {
    register: ThreadRegister,
    most: usize,
    found: BTreeSet<u32>,
}

impl ElementSink for Threads {
    fn element(&mut self, _: BufferOffset, element: Element) {
        let Element::Mark(Mark::Context(context)) = element else {
            return;
        };
        let value = match self.register {
            ThreadRegister::ContextId => context.context_id,
            ThreadRegister::Virtual => context.vmid,
        };
        if self.found.len() < self.most {
            self.found.extend(value);
        }
    }
}

impl SourceSinks<Threads> for Threads {
    fn end(&mut self, _: BufferOffset) {}

    fn output(&mut self) -> &mut Threads {
        self
    }
}
