//! Property tests: random programs are traced, and the trace decodes to the same instructions.

mod programs;

use super::*;
use crate::element::{Exception, Mark};
use crate::flow::{self, Flow, FlowConfig, FlowSink, Gap, Pieces, QRange, Range, View};
use crate::protocol::{Describe, ElementDecoder, PacketDecoder};
use armsnap_arch::quantity::BufferOffset;
pub(crate) use programs::{Mix, Program, Sets, same};

/// The instructions that were decoded.
struct Listing<'a> {
    code: &'a Pieces,
    executed: Vec<CodeAddress>,
    gaps: Vec<Gap>,
    marks: Vec<Mark>,
}

impl FlowSink for Listing<'_> {
    fn range(&mut self, _: BufferOffset, range: &Range, _: Option<u32>) {
        let mut here = range.start;
        while here < range.end {
            self.executed.push(CodeAddress {
                address: here,
                isa: range.isa,
            });
            here = flow::next(self.code, View::default(), range.isa, here);
        }
    }
    fn q_range(&mut self, _: BufferOffset, range: &QRange) {
        panic!("{range:?}");
    }
    fn exception(&mut self, _: BufferOffset, _: &Exception) {}
    fn gap(&mut self, _: BufferOffset, gap: Gap) {
        self.gaps.push(gap);
    }
    fn mark(&mut self, _: BufferOffset, mark: &Mark) {
        self.marks.push(*mark);
    }
}

/// Decodes `bytes` to instructions and marks, which must be without gaps.
pub(crate) fn decoded<D, E>(
    mut packets: D,
    mut elements: E,
    config: FlowConfig,
    code: &Pieces,
    bytes: &[u8],
) -> (Vec<CodeAddress>, Vec<Mark>)
where
    D: PacketDecoder,
    E: ElementDecoder<Packet = D::Packet>,
{
    let listing = Listing {
        code,
        executed: Vec::new(),
        gaps: Vec::new(),
        marks: Vec::new(),
    };
    let mut driver = flow::FlowDriver {
        flow: Flow::new(config, code),
        sink: listing,
    };
    let mut at = 0;
    while let Some((packet, length)) = packets.next(&bytes[at..]) {
        elements.packet(BufferOffset(at as u64), &packet, &mut driver);
        at += length;
    }
    assert_eq!(at, bytes.len(), "the last packet is whole");
    elements.end(BufferOffset(at as u64), &mut driver);
    assert_eq!(driver.sink.gaps, []);
    (driver.sink.executed, driver.sink.marks)
}

/// Checks that the trace of a program decodes to its instructions, from the start and from
/// synchronisation points on. Returns the marks of the whole trace.
pub(crate) fn leads_through<D, E>(
    program: &Program,
    bytes: &[u8],
    sync_bytes: usize,
    config: FlowConfig,
    decoders: impl Fn() -> (D, E),
) -> Vec<Mark>
where
    D: PacketDecoder,
    E: ElementDecoder<Packet = D::Packet>,
{
    let decode = |bytes| {
        let (packets, elements) = decoders();
        decoded(packets, elements, config, &program.code, bytes)
    };
    let (executed, marks) = decode(bytes);
    same(&executed, &program.executed, "from the start");
    let (mut packets, _) = decoders();
    let (mut at, mut syncs) = (0, 0);
    while let Some((packet, length)) = packets.next(&bytes[at..]) {
        match packet.name() {
            "async" => {
                syncs += 1;
                // Decoding from each point would take too long.
                if syncs % 7 == 1 {
                    let (executed, _) = decode(&bytes[at..]);
                    let from = program.executed.len() - executed.len();
                    same(
                        &executed,
                        &program.executed[from..],
                        "from a synchronisation",
                    );
                }
            }
            bad @ ("reserved" | "bad" | "bad_sequence") => panic!("{bad} at {at}"),
            _ => {}
        }
        at += length;
    }
    assert!(sync_bytes == 0 || bytes.len() < 40 * sync_bytes || syncs > 1);
    marks
}
