//! One source's trace in one buffer, decoded in parts.

use super::code::Code;
use super::entry::EndAgrees;
use super::part::{Known, Part, Recorder};
use crate::decode::{Sources, Visitor};
use crate::element::{Element, ElementSink, Mark};
use crate::flow::{Flow, FlowConfig, FlowSink, Range};
use crate::formatter::{Deformatter, Demux};
use crate::protocol::{ElementDecoder, PacketDecoder, PacketSink};
use crate::quantity::{Address, BufferOffset, TraceId};
use std::sync::Arc;

/// Bytes of a buffer that are decoded at once.
const PIECE: usize = 256 << 10;

/// A part of a track. Parts of one track are ordered as they were passed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct PartKey {
    /// Where in the buffer decoding begins.
    pub segment: u64,
    /// Which part of that segment.
    pub number: u32,
}

/// Where execution was when the trace ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct TraceEnd {
    /// The straight line to come.
    pub ahead: Option<Range>,
    /// The preferred return address of an exception that is the last thing traced.
    pub returns_to: Option<Address>,
}

impl TraceEnd {
    /// Whether it leads to the halted pc.
    pub fn agrees(&self, halted: Option<Address>) -> EndAgrees {
        let Some(halted) = halted else {
            return EndAgrees::Unknown;
        };
        let (begin, end) = match (self.returns_to, self.ahead) {
            (Some(address), _) => (address, address),
            (None, Some(range)) => (range.start, range.end),
            (None, None) => return EndAgrees::Unknown,
        };
        if begin == halted || (begin < halted && halted < end) {
            EndAgrees::Yes
        } else {
            EndAgrees::No {
                trace_end: begin,
                halted,
            }
        }
    }
}

/// A decoded part and where it lies.
#[derive(Clone, Debug)]
pub(super) struct Placed {
    pub key: PartKey,
    /// Places of its segment before it.
    pub first: u64,
    pub part: Arc<Part>,
}

/// One source's trace in one buffer.
pub(super) trait Track: Send {
    /// The first part.
    fn first(&mut self) -> Placed;
    /// The last part.
    fn last(&mut self) -> Placed;
    /// The part before another one.
    fn previous(&mut self, key: PartKey) -> Option<Placed>;
    /// The part after another one.
    fn next(&mut self, key: PartKey) -> Option<Placed>;
    /// The part with a place of a segment.
    fn at(&mut self, segment: u64, index: u64) -> Option<Placed>;
    /// Where the trace ends.
    fn end(&mut self) -> TraceEnd;
}

/// What a track is made of.
pub(super) struct Make {
    pub sources: Sources,
    pub id: TraceId,
    pub code: Code,
    /// The first buffer of the core.
    pub begins: bool,
}

impl Visitor for Make {
    type Output = Option<Box<dyn Track>>;

    fn visit<D, E>(self, packets: D, elements: E, flow: Option<FlowConfig>) -> Self::Output
    where
        D: PacketDecoder + Clone + Send + Sync + 'static,
        E: ElementDecoder<Packet = D::Packet> + Clone + Send + Sync + 'static,
    {
        let flow = flow?;
        Some(Box::new(Whole {
            make: self,
            packets,
            elements,
            flow,
            decoded: None,
        }))
    }
}

/// A track that is decoded at once.
struct Whole<D, E> {
    make: Make,
    packets: D,
    elements: E,
    flow: FlowConfig,
    decoded: Option<(Arc<Part>, TraceEnd)>,
}

/// Elements → flow → sink.
struct Joint<'a, S> {
    flow: &'a mut Flow<Code>,
    sink: &'a mut S,
    returns_to: &'a mut Option<Address>,
}

impl<S: FlowSink> ElementSink for Joint<'_, S> {
    #[inline(always)]
    fn element(&mut self, at: BufferOffset, element: Element) {
        match &element {
            Element::Exception(exception) | Element::ExceptionHere(exception) => {
                *self.returns_to = exception.return_address;
            }
            Element::Mark(Mark::Cycles(_) | Mark::Timestamp(_) | Mark::Event(_) | Mark::End) => {}
            _ => *self.returns_to = None,
        }
        if let Element::Mark(Mark::End) = element {
            return;
        }
        self.flow.element(at, element, self.sink);
    }
}

struct Stage<'a, E, S> {
    elements: &'a mut E,
    joint: Joint<'a, S>,
}

impl<E: ElementDecoder, S: FlowSink> PacketSink<E::Packet> for Stage<'_, E, S> {
    #[inline(always)]
    fn packet(&mut self, at: BufferOffset, packet: &E::Packet, _: &[u8]) {
        self.elements.packet(at, packet, &mut self.joint);
    }

    fn lost(&mut self, at: BufferOffset) {
        self.elements.lost(at, &mut self.joint);
    }
}

impl<D, E> Whole<D, E>
where
    D: PacketDecoder + Clone,
    E: ElementDecoder<Packet = D::Packet> + Clone,
{
    fn decode(&mut self) -> &(Arc<Part>, TraceEnd) {
        let decoded = match self.decoded.take() {
            Some(decoded) => decoded,
            None => self.decode_whole(),
        };
        self.decoded.insert(decoded)
    }

    fn decode_whole(&self) -> (Arc<Part>, TraceEnd) {
        let id = self.make.id;
        let sources = &self.make.sources;
        let mut packets = self.packets.clone();
        let mut elements = self.elements.clone();
        let mut flow = Flow::new(self.flow, self.make.code.clone());
        let mut recorder = Recorder::new(Known {
            open: true,
            ..Known::default()
        });
        if !self.make.begins {
            recorder.begin_buffer(BufferOffset(0));
        }
        let mut returns_to = None;
        let mut demux = Demux::only(&[id]);
        let mut deformatter = sources.frames.map(Deformatter::new);
        let mut stage = Stage {
            elements: &mut elements,
            joint: Joint {
                flow: &mut flow,
                sink: &mut recorder,
                returns_to: &mut returns_to,
            },
        };
        let (mut offset, total) = (0, sources.bytes());
        for bytes in sources.parts.iter().flat_map(|part| part.chunks(PIECE)) {
            let last = offset + bytes.len() as u64 == total;
            match &mut deformatter {
                Some(d) => d.feed(BufferOffset(offset), bytes, last, &mut demux),
                None => demux.unformatted(id, BufferOffset(offset), bytes),
            }
            offset += bytes.len() as u64;
            demux.stream_mut(id).decode(&mut packets, last, &mut stage);
        }
        elements.end(
            BufferOffset(total),
            &mut Joint {
                flow: &mut flow,
                sink: &mut recorder,
                returns_to: &mut returns_to,
            },
        );
        let ahead = flow.ahead();
        let end = Element::Mark(Mark::End);
        flow.element(BufferOffset(total), end, &mut recorder);
        let end = TraceEnd { ahead, returns_to };
        (Arc::new(recorder.finish().0), end)
    }

    fn placed(&mut self) -> Placed {
        Placed {
            key: PartKey {
                segment: 0,
                number: 0,
            },
            first: 0,
            part: Arc::clone(&self.decode().0),
        }
    }
}

impl<D, E> Track for Whole<D, E>
where
    D: PacketDecoder + Clone + Send + Sync,
    E: ElementDecoder<Packet = D::Packet> + Clone + Send + Sync,
{
    fn first(&mut self) -> Placed {
        self.placed()
    }

    fn last(&mut self) -> Placed {
        self.placed()
    }

    fn previous(&mut self, _: PartKey) -> Option<Placed> {
        None
    }

    fn next(&mut self, _: PartKey) -> Option<Placed> {
        None
    }

    fn at(&mut self, segment: u64, index: u64) -> Option<Placed> {
        let placed = self.placed();
        (segment == 0 && index <= placed.part.places()).then_some(placed)
    }

    fn end(&mut self) -> TraceEnd {
        self.decode().1
    }
}
