//! The fast paths for what makes up nearly all of a trace against one packet and one atom after another.
#![no_main]

use armsnap::capture::{Capture, Visitor};
use armsnap::decode::{Decoding, Image, Source, SourceSinks, decode_buffer};
use armsnap::element::{Atoms, Element, ElementSink, Exception, Mark};
use armsnap::flow::{
    Blocks, Flow, FlowConfig, FlowSink, Gap, InstructionRun, QRange, Range, instructions_one_by_one,
};
use armsnap::protocol::{ElementDecoder, PacketDecoder};
use armsnap::quantity::BufferOffset;
use armsnap::snapshot::memory::CoreMemory;
use armsnap_fuzz::TYPES;
use libfuzzer_sys::fuzz_target;

/// A decoder without its fast paths.
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

    fn lost(&mut self, at: BufferOffset, out: &mut impl ElementSink) {
        self.0.lost(at, &mut OneByOne(out));
    }

    fn passes_atoms(&self) -> bool {
        false
    }

    fn end(&mut self, at: BufferOffset, out: &mut impl ElementSink) {
        self.0.end(at, &mut OneByOne(out));
    }
}

/// Passes atoms on one by one.
struct OneByOne<'a, S>(&'a mut S);

impl<S: ElementSink> ElementSink for OneByOne<'_, S> {
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
    /// Instructions and cycle counts, of a sink that takes no steps.
    Counted(u64, u64),
}

/// Events with their offsets. Unless `LOCATES`, those of blocks may be any. Unless `STEPS`, instructions
/// that each have an atom are counted.
#[derive(Default)]
struct Log<const LOCATES: bool, const STEPS: bool>(Vec<(BufferOffset, Event)>);

impl<const LOCATES: bool, const STEPS: bool> FlowSink for Log<LOCATES, STEPS> {
    const LOCATES_BLOCKS: bool = LOCATES;
    const TAKES_STEPS: bool = STEPS;

    fn instructions(
        &mut self,
        blocks: &Blocks,
        run: &InstructionRun<'_>,
        locate: impl FnMut(usize) -> BufferOffset,
    ) {
        if STEPS {
            instructions_one_by_one(self, blocks, run, locate);
        } else {
            let (executed, cycle_counts) = (run.executed() as u64, run.cycle_counts() as u64);
            self.0
                .push((BufferOffset(0), Event::Counted(executed, cycle_counts)));
        }
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

impl<const LOCATES: bool, const STEPS: bool> SourceSinks<Events> for Log<LOCATES, STEPS> {
    fn end(&mut self, _: BufferOffset) {}

    fn output(&mut self) -> &mut Events {
        &mut self.0
    }
}

/// Returns the events with instructions and cycle counts between two others summed.
fn counted(events: &Events) -> Events {
    let mut all = Events::new();
    let mut since = (0, 0);
    for (at, event) in events {
        match *event {
            Event::Range(range, _) => since.0 += u64::from(range.instructions),
            Event::Mark(Mark::Cycles(_)) => since.1 += 1,
            Event::Counted(executed, cycle_counts) => {
                since.0 += executed;
                since.1 += cycle_counts;
            }
            other => {
                let (executed, cycle_counts) = std::mem::take(&mut since);
                all.push((BufferOffset(0), Event::Counted(executed, cycle_counts)));
                all.push((*at, other));
            }
        }
    }
    all.push((BufferOffset(0), Event::Counted(since.0, since.1)));
    all
}

/// How a source is decoded.
#[derive(Clone, Copy, Debug)]
enum Path {
    Slow,
    Fast,
    FastWithoutOffsets,
    FastWithoutSteps,
}

struct Make<'a>(Image<'a>, Path);

impl<'a> Visitor for Make<'a> {
    type Output = Option<Box<dyn Decoding<Events> + 'a>>;

    fn visit<D, E>(self, packets: D, elements: E, flow: Option<FlowConfig>) -> Self::Output
    where
        D: PacketDecoder + 'static,
        E: ElementDecoder<Packet = D::Packet> + 'static,
    {
        let flow = Flow::new(flow?, self.0);
        Some(match self.1 {
            Path::Slow => {
                let (packets, elements) = (Slowly(packets), Slowly(elements));
                Box::new(Source::with_flow(
                    packets,
                    elements,
                    flow,
                    Log::<true, true>::default(),
                ))
            }
            Path::Fast => Box::new(Source::with_flow(
                packets,
                elements,
                flow,
                Log::<true, true>::default(),
            )),
            Path::FastWithoutOffsets => Box::new(Source::with_flow(
                packets,
                elements,
                flow,
                Log::<false, true>::default(),
            )),
            Path::FastWithoutSteps => Box::new(Source::with_flow(
                packets,
                elements,
                flow,
                Log::<false, false>::default(),
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
        let source = &buffer.sources[0];
        let decoded = |path: Path| {
            let decoder = source.config.visit(Make(Image(Some(&memory)), path));
            let mut decoders = vec![(source.trace_id, decoder.unwrap())];
            let mut all = Events::new();
            decode_buffer(buffer, &mut decoders, piece, |_, events| {
                all.append(events);
                Ok::<(), ()>(())
            })
            .unwrap();
            (all, decoders[0].1.packets())
        };
        let (slow, packets) = decoded(Path::Slow);
        let (fast, fast_packets) = decoded(Path::Fast);
        let differs = slow.iter().zip(&fast).find(|(slow, fast)| slow != fast);
        assert_eq!(
            (differs, slow.len(), packets),
            (None, fast.len(), fast_packets)
        );
        let (silent, silent_packets) = decoded(Path::FastWithoutOffsets);
        let same = |(slow, silent): (&(BufferOffset, Event), &(BufferOffset, Event))| {
            slow.1 == silent.1 && (slow.0 == silent.0 || matches!(slow.1, Event::Range(..)))
        };
        let differs = slow.iter().zip(&silent).find(|(a, b)| !same((a, b)));
        assert_eq!(
            (differs, slow.len(), packets),
            (None, silent.len(), silent_packets)
        );
        let (without_steps, packets_without_steps) = decoded(Path::FastWithoutSteps);
        assert_eq!(
            (counted(&slow), packets),
            (counted(&without_steps), packets_without_steps)
        );
    }
});
