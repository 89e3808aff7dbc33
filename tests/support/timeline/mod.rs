//! Continuous decoding of the trace of a core, to compare histories with.

use super::following::Following;
use armsnap::capture::Capture;
use armsnap::decode::{Image, SourceSinks, decode_buffer};
use armsnap::element::{Exception, Mark};
use armsnap::flow::{FlowSink, Gap as FlowGap, InstructionKind, QRange, Range};
use armsnap::quantity::BufferOffset;
use armsnap::snapshot::OpenSnapshot;
use armsnap::snapshot::memory::CoreMemory;
use armsnap::timeline::{Entry, Gap};

/// Entries of a whole trace, from the output of the flow.
#[derive(Default)]
pub struct Continuous {
    pub entries: Vec<(u64, Entry)>,
    open: bool,
}

impl Continuous {
    fn push(&mut self, at: BufferOffset, entry: Entry) {
        self.entries.push((at.0, entry));
    }
}

impl FlowSink for Continuous {
    fn range(&mut self, at: BufferOffset, range: &Range, cycles: Option<u32>) {
        if range.instructions > 0 {
            self.open = false;
            let range = *range;
            self.push(at, Entry::Run { range, cycles });
        }
    }

    fn q_range(&mut self, at: BufferOffset, range: &QRange) {
        self.open = false;
        self.push(at, Entry::Gap(Gap::UnknownPath(*range)));
    }

    fn exception(&mut self, at: BufferOffset, exception: &Exception) {
        self.push(at, Entry::Exception(*exception));
    }

    fn gap(&mut self, at: BufferOffset, gap: FlowGap) {
        self.open = true;
        self.push(at, Entry::Gap(Gap::Flow(gap)));
    }

    fn mark(&mut self, at: BufferOffset, mark: &Mark) {
        let gap = match mark {
            Mark::End => return,
            Mark::NoSync(reason) => Some(Gap::NoSync(*reason)),
            Mark::TraceOn(reason) => Some(Gap::TraceOff(*reason)),
            _ => None,
        };
        if let Some(gap) = gap
            && !std::mem::replace(&mut self.open, true)
        {
            self.push(at, Entry::Gap(gap));
        }
        self.push(at, Entry::Mark(*mark));
    }
}

impl SourceSinks<Self> for Continuous {
    fn end(&mut self, _: BufferOffset) {}

    fn output(&mut self) -> &mut Self {
        self
    }
}

/// The whole trace of a core.
pub fn continuous(loaded: &OpenSnapshot, core: usize, memory: &CoreMemory) -> Vec<(u64, Entry)> {
    let mut entries = Vec::new();
    let (capture, _) = Capture::open(loaded);
    let (sources, _) = capture.following(&loaded.snapshot, core);
    for (index, (buffer, source)) in sources.into_iter().enumerate() {
        let mut sink = Continuous {
            open: true,
            ..Continuous::default()
        };
        if index > 0 {
            sink.push(BufferOffset(0), Entry::Gap(Gap::Buffer));
        }
        let make = Following {
            image: Image(Some(memory)),
            sink,
        };
        let mut decoders = [(source.trace_id, source.config.visit(make))];
        decode_buffer(buffer, &mut decoders, 256 << 10, |_, _| Ok::<(), ()>(())).unwrap();
        entries.append(&mut decoders[0].1.output().entries);
    }
    entries
}

/// Joins runs without a branch between them, where atoms are instructions.
pub fn merged(entries: Vec<(u64, Entry)>) -> Vec<(u64, Entry)> {
    let mut out: Vec<(u64, Entry)> = Vec::new();
    for (at, entry) in entries {
        if let (
            Some((_, Entry::Run { range: before, .. })),
            Entry::Run {
                range,
                cycles: None,
            },
        ) = (out.last_mut(), entry)
            && before.last.kind == InstructionKind::Other
            && before.last.taken
            && before.end == range.start
            && before.isa == range.isa
        {
            before.end = range.end;
            before.instructions += range.instructions;
            before.last = range.last;
            continue;
        }
        out.push((at, entry));
    }
    out
}
