//! The flow: single cases, and a comparison with a slow twin.

mod atoms;
mod code;
mod equal;
mod instructions;
mod lines;
mod memo;
mod returns;
mod twin;

use super::*;
use crate::element::{Atoms, Element, Exception, Mark};
use armsnap_arch::quantity::{Address, BufferOffset, Isa};

/// One output of the flow, with blocks as ranges.
#[derive(Clone, Debug, PartialEq)]
enum Out {
    Range(Range, Option<u32>),
    Q(QRange),
    Exception(Exception),
    Gap(Gap),
    Mark(Mark),
}

#[derive(Debug, Default)]
struct Log(pub Vec<(BufferOffset, Out)>);

impl FlowSink for Log {
    fn range(&mut self, at: BufferOffset, range: &Range, cycles: Option<u32>) {
        self.0.push((at, Out::Range(*range, cycles)));
    }
    fn q_range(&mut self, at: BufferOffset, range: &QRange) {
        self.0.push((at, Out::Q(*range)));
    }
    fn exception(&mut self, at: BufferOffset, exception: &Exception) {
        self.0.push((at, Out::Exception(*exception)));
    }
    fn gap(&mut self, at: BufferOffset, gap: Gap) {
        self.0.push((at, Out::Gap(gap)));
    }
    fn mark(&mut self, at: BufferOffset, mark: &Mark) {
        self.0.push((at, Out::Mark(*mark)));
    }
}

/// Numbers of blocks, instructions and cycle counts before each other output.
#[derive(Debug, Default, PartialEq)]
struct Counting {
    others: Vec<(Executed, BufferOffset, Out)>,
    since: Executed,
}

impl Counting {
    fn of(log: Log) -> Self {
        let mut counting = Self::default();
        for (at, out) in log.0 {
            counting.push(at, out);
        }
        counting
    }

    fn push(&mut self, at: BufferOffset, out: Out) {
        match out {
            Out::Range(range, _) => self.executed(Executed {
                blocks: 1,
                instructions: range.instructions as usize,
                cycle_counts: 0,
            }),
            Out::Mark(Mark::Cycles(_)) => self.since.cycle_counts += 1,
            other => self
                .others
                .push((std::mem::take(&mut self.since), at, other)),
        }
    }
}

impl FlowSink for Counting {
    const COUNTS: bool = true;

    fn executed(&mut self, executed: Executed) {
        self.since.blocks += executed.blocks;
        self.since.instructions += executed.instructions;
        self.since.cycle_counts += executed.cycle_counts;
    }
    fn range(&mut self, at: BufferOffset, range: &Range, cycles: Option<u32>) {
        self.push(at, Out::Range(*range, cycles));
    }
    fn q_range(&mut self, at: BufferOffset, range: &QRange) {
        self.push(at, Out::Q(*range));
    }
    fn exception(&mut self, at: BufferOffset, exception: &Exception) {
        self.push(at, Out::Exception(*exception));
    }
    fn gap(&mut self, at: BufferOffset, gap: Gap) {
        self.push(at, Out::Gap(gap));
    }
    fn mark(&mut self, at: BufferOffset, mark: &Mark) {
        self.push(at, Out::Mark(*mark));
    }
}

const NOP: u32 = 0xd503_201f;

const RET: u32 = 0xd65f_03c0;

const ERET: u32 = 0xd69f_03e0;

fn bl(from: u64, to: u64) -> u32 {
    0x9400_0000 | ((to.wrapping_sub(from) >> 2) as u32 & 0x3ff_ffff)
}

fn words(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

fn a64(pieces: &[(u64, &[u32])]) -> Pieces {
    let mut code = Pieces::default();
    for (address, piece) in pieces {
        code.add(Address(*address), words(piece));
    }
    code
}

fn atoms(text: &str) -> Element {
    let bits = text.chars().enumerate().fold(0, |bits, (index, atom)| {
        bits | u32::from(atom == 'E') << index
    });
    Element::WaypointAtoms(Atoms {
        bits,
        count: text.len() as u8,
    })
}

fn address(address: u64) -> Element {
    Element::Address {
        address: Address(address),
        isa: Isa::A64,
    }
}

fn exception(return_address: u64) -> Element {
    Element::Exception(Exception {
        number: 1,
        name: "IRQ",
        return_address: Some(Address(return_address)),
    })
}

fn run(config: FlowConfig, code: impl CodeImage, elements: &[Element]) -> Vec<String> {
    let mut flow = Flow::new(config, code);
    let mut log = Log::default();
    for (index, element) in elements.iter().enumerate() {
        flow.element(BufferOffset(index as u64), *element, &mut log);
    }
    log.0.iter().map(|(_, out)| line(out)).collect()
}

/// Writes one output as a line.
fn line(out: &Out) -> String {
    match out {
        Out::Range(range, cycles) => {
            let atom = if range.last.taken { 'E' } else { 'N' };
            let kind = range.last.kind.name();
            let mut text = format!(
                "{:x}-{:x} {} {kind} {atom}",
                range.start.0, range.end.0, range.instructions
            );
            if let Some(cycles) = cycles {
                text += &format!(" cycles {cycles}");
            }
            text
        }
        Out::Q(range) => format!(
            "q {:x} {:x} {:?}",
            range.start.0, range.end.0, range.instructions
        ),
        Out::Exception(exception) => match exception.return_address {
            Some(address) => format!("exception {:x}", address.0),
            None => "exception".into(),
        },
        Out::Gap(Gap::MemoryMissing(address)) => format!("missing {:x}", address.0),
        Out::Gap(Gap::TargetNotTraced { after }) => format!("no target {:x}", after.0),
        Out::Gap(gap) => format!("{gap:?}"),
        Out::Mark(Mark::ExceptionReturn) => "exception return".into(),
        Out::Mark(mark) => format!("{mark:?}"),
    }
}

/// A function at 0x2000, called twice in a row from 0x1000.
fn calls() -> Pieces {
    a64(&[
        (0x1000, &[bl(0x1000, 0x2000), bl(0x1004, 0x2000), ERET]),
        (0x2000, &[NOP, RET]),
    ])
}

const STACK: FlowConfig = FlowConfig {
    waypoints: Waypoints {
        barriers: false,
        waits: false,
    },
    return_stack: true,
    exception_returns: false,
    exceptions_here: false,
    most_blocks: 1 << 21,
};

/// Even and odd exception levels see different code at the same addresses.
#[derive(Debug)]
struct Levels([Pieces; 2]);

impl CodeImage for Levels {
    fn view(&self, context: &ContextKey) -> View {
        View(u32::from(context.el.unwrap_or_default().0 & 1))
    }
    fn slice(&self, view: View, address: Address) -> &[u8] {
        self.0[view.0 as usize].slice(view, address)
    }
}
