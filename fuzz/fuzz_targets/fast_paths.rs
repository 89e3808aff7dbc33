//! The fast paths, which decode nearly all of a trace, compared with decoding one packet and one
//! atom after another.
#![no_main]

use armsnap::capture::{Capture, Visitor};
use armsnap::decode::{Decoding, Image, Source, SourceSinks, decode_buffer};
use armsnap::element::{Atoms, Element, ElementSink, Exception, Mark};
use armsnap::flow::{Executed, Flow, FlowConfig, FlowSink, Gap, QRange, Range};
use armsnap::protocol::{ElementDecoder, PacketDecoder};
use armsnap::quantity::BufferOffset;
use armsnap::snapshot::memory::CoreMemory;
use armsnap_fuzz::TYPES;
use libfuzzer_sys::fuzz_target;

/// A decoder without its fast paths.
#[derive(Clone)]
struct Slowly<D>(D);

impl<D: PacketDecoder> PacketDecoder for Slowly<D> {
    type Packet = D::Packet;

    fn next(&mut self, bytes: &[u8]) -> Option<(Self::Packet, usize)> {
        self.0.next(bytes)
    }

    fn finish(&mut self, bytes: &[u8]) -> Self::Packet {
        self.0.finish(bytes)
    }

    fn lost(&mut self) {
        self.0.lost();
    }

    fn is_synchronised(&self) -> bool {
        self.0.is_synchronised()
    }
}

impl<E: ElementDecoder> ElementDecoder for Slowly<E> {
    type Packet = E::Packet;

    fn packet(&mut self, at: BufferOffset, packet: &Self::Packet, out: &mut impl ElementSink) {
        self.0.packet(at, packet, &mut OneByOne(out));
    }

    fn lost(&mut self, at: BufferOffset, out: &mut dyn ElementSink) {
        self.0.lost(at, &mut OneByOne(out));
    }

    fn passes_atoms(&self) -> bool {
        false
    }

    #[inline(always)]
    fn targets(
        &mut self,
        _: &[u8],
        _: impl FnMut(usize) -> BufferOffset,
        _: &mut impl ElementSink,
    ) -> (usize, usize) {
        (0, 0)
    }

    fn end(&mut self, at: BufferOffset, out: &mut dyn ElementSink) {
        self.0.end(at, &mut OneByOne(out));
    }
}

/// Passes atoms on one by one.
struct OneByOne<'a>(&'a mut dyn ElementSink);

impl ElementSink for OneByOne<'_> {
    fn element(&mut self, at: BufferOffset, element: Element) {
        let single = |atoms: Atoms, index: u8| Atoms {
            bits: u32::from(atoms.is_e(index)),
            count: 1,
        };
        match element {
            Element::WaypointAtoms(atoms) => (0..atoms.count).for_each(|index| {
                self.0
                    .element(at, Element::WaypointAtoms(single(atoms, index)));
            }),
            Element::InstructionAtoms(atoms) => (0..atoms.count).for_each(|index| {
                self.0
                    .element(at, Element::InstructionAtoms(single(atoms, index)));
            }),
            // Where execution is not known, cycles of several instructions are one mark.
            other => self.0.element(at, other),
        }
    }
}

/// What was executed.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Event {
    Range(Range, Option<u32>),
    Q(QRange),
    Exception(Exception),
    Gap(Gap),
    Mark(Mark),
    /// What a sink that counts receives.
    Executed(Executed),
}

/// Events with their offsets. If it `COUNTS`, what is executed may come as numbers.
#[derive(Default)]
struct Log<const COUNTS: bool>(Vec<(BufferOffset, Event)>);

impl<const COUNTS: bool> FlowSink for Log<COUNTS> {
    const COUNTS: bool = COUNTS;

    fn executed(&mut self, executed: Executed) {
        self.0.push((BufferOffset(0), Event::Executed(executed)));
    }

    fn range(&mut self, at: BufferOffset, range: &Range, cycles: Option<u32>) {
        self.0.push((at, Event::Range(*range, cycles)));
    }

    fn q_range(&mut self, at: BufferOffset, range: &QRange) {
        self.0.push((at, Event::Q(*range)));
    }

    fn exception(&mut self, at: BufferOffset, exception: &Exception) {
        self.0.push((at, Event::Exception(*exception)));
    }

    fn gap(&mut self, at: BufferOffset, gap: Gap) {
        self.0.push((at, Event::Gap(gap)));
    }

    fn mark(&mut self, at: BufferOffset, mark: &Mark) {
        self.0.push((at, Event::Mark(*mark)));
    }
}

type Events = Vec<(BufferOffset, Event)>;

impl<const COUNTS: bool> SourceSinks<Events> for Log<COUNTS> {
    fn end(&mut self, _: BufferOffset) {}

    fn output(&mut self) -> &mut Events {
        &mut self.0
    }
}

/// Returns the events; everything executed between two others is given as numbers.
fn counted(events: &Events) -> Events {
    let mut all = Events::new();
    let mut since = Executed::default();
    for (at, event) in events {
        match *event {
            Event::Range(range, _) => {
                since.blocks += 1;
                since.instructions += range.instructions as usize;
            }
            Event::Mark(Mark::Cycles(_)) => since.cycle_counts += 1,
            Event::Executed(executed) => {
                since.blocks += executed.blocks;
                since.instructions += executed.instructions;
                since.cycle_counts += executed.cycle_counts;
            }
            other => {
                let before = Event::Executed(std::mem::take(&mut since));
                all.extend([(BufferOffset(0), before), (*at, other)]);
            }
        }
    }
    all.push((BufferOffset(0), Event::Executed(since)));
    all
}

/// How a source is decoded.
#[derive(Clone, Copy, Debug)]
enum Path {
    Slow,
    Fast,
    Counted,
}

struct Make<'a>(Image<'a>, Path);

impl<'a> Visitor for Make<'a> {
    type Output = Option<Box<dyn Decoding<Events> + 'a>>;

    fn visit<D, E>(self, _: D, _: E) -> Self::Output {
        None
    }

    fn visit_flow<D, E>(self, packets: D, elements: E, flow: FlowConfig) -> Self::Output
    where
        D: PacketDecoder + 'static,
        E: ElementDecoder<Packet = D::Packet> + 'static,
    {
        let flow = Flow::new(flow, self.0);
        Some(match self.1 {
            Path::Slow => {
                let (packets, elements) = (Slowly(packets), Slowly(elements));
                Box::new(Source::with_flow(
                    packets,
                    elements,
                    flow,
                    Log::<false>::default(),
                ))
            }
            Path::Fast => Box::new(Source::with_flow(
                packets,
                elements,
                flow,
                Log::<false>::default(),
            )),
            Path::Counted => Box::new(Source::with_flow(
                packets,
                elements,
                flow,
                Log::<true>::default(),
            )),
        })
    }
}

fuzz_target!(|bytes: &[u8]| {
    let Some(([kind, code_length, values @ ..], rest)) = armsnap_fuzz::registers::<10>(bytes)
    else {
        return;
    };
    let types = TYPES[kind as usize % TYPES.len()];
    let piece = 1 + (kind >> 16) as usize % 1024;
    let (code, trace) = rest.split_at(code_length as usize % (rest.len() + 1));
    let loaded = armsnap_fuzz::snapshot(types, values, ("b", kind >> 8), code, trace);
    let memory = CoreMemory::new(&loaded, &loaded.snapshot.devices[0]);
    let (capture, _) = Capture::open(&loaded);
    for buffer in &capture.buffers {
        let Some(source) = buffer.sources.first() else {
            continue;
        };
        let decoded = |path: Path| {
            let decoder = source.config.visit(Make(Image(Some(&memory)), path))?;
            let mut decoders = vec![(source.trace_id, decoder)];
            let mut all = Events::new();
            decode_buffer(buffer, &mut decoders, piece, |_, events| {
                all.append(events);
                Ok::<(), ()>(())
            })
            .unwrap();
            Some((all, decoders[0].1.packets()))
        };
        // Some registers are those of a source without a program flow.
        let (Some((slow, packets)), Some((fast, fast_packets)), Some((numbers, counted_packets))) = (
            decoded(Path::Slow),
            decoded(Path::Fast),
            decoded(Path::Counted),
        ) else {
            continue;
        };
        let differs = slow.iter().zip(&fast).find(|(slow, fast)| slow != fast);
        assert_eq!(
            (differs, slow.len(), packets),
            (None, fast.len(), fast_packets)
        );
        assert_eq!(
            (counted(&slow), packets),
            (counted(&numbers), counted_packets)
        );
    }
});
