//! Blocks followed by their IDs produce the same trace as blocks examined one by one.

use super::*;
use crate::record::stream;
use armsnap_arch::quantity::Isa;
use armsnap_trace::element::Context;
use proptest::prelude::*;
use std::io::Cursor;

/// The last instruction of a block.
#[derive(Clone, Copy, Debug)]
enum End {
    Plain,
    Barrier,
    Jump(usize),
    Conditional(usize),
    Call(usize),
    Return,
    IndirectCall,
}

/// A program: for each block, the number of instructions before the last one, and the last one.
#[derive(Clone, Debug)]
struct Program {
    isa: Isa,
    blocks: Vec<(usize, End)>,
}

const START: u64 = 0x1_0000;

impl Program {
    fn starts(&self) -> Vec<u64> {
        let mut at = START;
        let mut starts = Vec::new();
        for (before, end) in &self.blocks {
            starts.push(at);
            let (small, last) = match (self.isa, end) {
                (Isa::T32, End::Call(_) | End::Barrier) => (2, 4),
                (Isa::T32, _) => (2, 2),
                _ => (4, 4),
            };
            at += small * *before as u64 + last;
        }
        starts
    }

    /// The block's code, in pieces of one instruction.
    fn code(&self, block: usize) -> Vec<Vec<u8>> {
        let starts = self.starts();
        let (before, end) = self.blocks[block];
        let small = if self.isa == Isa::T32 { 2 } else { 4 };
        let here = starts[block] + small * before as u64;
        let away = |target: usize, pipeline: u64| starts[target].wrapping_sub(here + pipeline);
        let word = |word: u32| word.to_le_bytes().to_vec();
        let half = |half: u16| half.to_le_bytes().to_vec();
        let (other, last) = match self.isa {
            Isa::A64 => {
                let jump = |target| (away(target, 0) >> 2) as u32;
                let last = match end {
                    End::Plain => 0xd503_201f,
                    End::Barrier => 0xd503_3fdf,
                    End::Jump(to) => 0x1400_0000 | jump(to) & 0x3ff_ffff,
                    End::Conditional(to) => 0x5400_0000 | (jump(to) & 0x7_ffff) << 5,
                    End::Call(to) => 0x9400_0000 | jump(to) & 0x3ff_ffff,
                    End::Return => 0xd65f_03c0,
                    End::IndirectCall => 0xd63f_0020,
                };
                (word(0xd503_201f), word(last))
            }
            Isa::A32 => {
                let jump = |target| (away(target, 8) >> 2) as u32 & 0xff_ffff;
                let last = match end {
                    End::Plain => 0xe1a0_0000,
                    End::Barrier => 0xf57f_f06f,
                    End::Jump(to) => 0xea00_0000 | jump(to),
                    End::Conditional(to) => 0x0a00_0000 | jump(to),
                    End::Call(to) => 0xeb00_0000 | jump(to),
                    End::Return => 0xe12f_ff1e,
                    End::IndirectCall => 0xe12f_ff31,
                };
                (word(0xe1a0_0000), word(last))
            }
            _ => {
                let jump = |target| (away(target, 4) >> 1) as u32;
                let halves = |high: u32, low: u32| word(high | low << 16);
                let last = match end {
                    End::Plain => half(0xbf00),
                    End::Barrier => halves(0xf3bf, 0x8f6f),
                    End::Jump(to) => half(0xe000 | jump(to) as u16 & 0x7ff),
                    End::Conditional(to) => half(0xd000 | jump(to) as u16 & 0xff),
                    End::Call(to) => {
                        let offset = jump(to);
                        let sign = offset >> 31;
                        let j = |bit: u32| (offset >> bit & 1) ^ sign ^ 1;
                        let high = 0xf000 | sign << 10 | offset >> 11 & 0x3ff;
                        halves(high, 0xd000 | j(22) << 13 | j(21) << 11 | offset & 0x7ff)
                    }
                    End::Return => half(0x4770),
                    End::IndirectCall => half(0x4788),
                };
                // The first block begins with IT.
                let other = if block == 0 { 0xbf08 } else { 0xbf00 };
                (half(other), last)
            }
        };
        let mut code = vec![other; before];
        code.push(last);
        code
    }

    fn definitions(&self) -> Vec<u8> {
        let set: u32 = match self.isa {
            Isa::A64 => 1,
            Isa::A32 => 2,
            _ => 3,
        };
        let mut out = Vec::new();
        for (id, start) in self.starts().into_iter().enumerate() {
            let code = self.code(id);
            for number in [id as u32, code.len() as u32, 0, set] {
                out.extend(number.to_le_bytes());
            }
            out.extend(start.to_le_bytes());
            out.extend(code.iter().map(|piece| piece.len() as u8));
            out.extend(code.concat());
        }
        out
    }

    /// Executes the program; choices that the code leaves open are taken from `choices`. With
    /// `counted`, each block is followed by an event that says that it was executed completely.
    fn events(&self, choices: &[u16], counted: bool) -> Vec<u8> {
        let count = self.blocks.len();
        let starts = self.starts();
        let mut words: Vec<u32> = Vec::new();
        let mut here = 0;
        for &choice in choices {
            let any = usize::from(choice >> 7) % count;
            let (before, end) = self.blocks[here];
            words.push(here as u32);
            here = match (choice & 0x7f, end) {
                (0, _) => {
                    // A signal before the last instruction.
                    let size = if self.isa == Isa::T32 { 2 } else { 4 };
                    let at = starts[here] + size * before as u64;
                    let thumb = u32::from(self.isa == Isa::T32);
                    words.push(0x8000_0000 | (before as u32 + 1));
                    words.extend([0xc000_0000, 11, at as u32 | thumb, 0]);
                    any
                }
                (other, end) => {
                    if counted {
                        words.push(0x8000_0000 | (before as u32 + 1));
                    }
                    match end {
                        // A jump that nothing explains.
                        _ if other == 1 => any,
                        End::Conditional(to) if choice & 0x40 != 0 => to,
                        End::Jump(to) | End::Call(to) => to,
                        End::Return | End::IndirectCall => any,
                        _ => (here + 1) % count,
                    }
                }
            };
        }
        words.iter().flat_map(|word| word.to_le_bytes()).collect()
    }

    fn stream(&self, choices: &[u16], counted: bool) -> Vec<u8> {
        let mut out = Vec::new();
        let mut chunk = |kind: u32, data: &[u8]| {
            for number in [kind, 0, data.len() as u32, 7] {
                out.extend(number.to_le_bytes());
            }
            out.extend(data);
        };
        chunk(3, &[]);
        chunk(1, &self.definitions());
        chunk(2, &self.events(choices, counted));
        out
    }
}

fn settings(isa: Isa, trace: protocol::TraceOptions) -> Settings {
    Settings {
        sets: match isa {
            Isa::A64 => Sets::A64,
            _ => Sets::A32AndT32,
        },
        context: Context {
            isa,
            is_64bit: Some(isa == Isa::A64),
            ..Context::default()
        },
        exceptions: Exceptions::Signals,
        trace,
        carrier: Carrier::ContextId,
        late: false,
        data_addresses: None,
        calls: None,
    }
}

/// Returns the trace of a stream, and its numbers of instructions and gaps.
fn recorded(settings: Settings, stream: &[u8]) -> (Vec<u8>, u64, u64) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("trace.bin");
    let store = TraceStore::create(&path, settings.trace.last).unwrap();
    let (observer, _receiver) = std::sync::mpsc::channel();
    let mut recording = recording(settings, store, None, observer, Arc::default());
    stream::read(Cursor::new(stream), &mut *recording).unwrap();
    let summary = recording.finish(&BTreeMap::new()).unwrap();
    let bytes = std::fs::read(path).unwrap();
    (bytes, summary.instructions, summary.gaps)
}

fn programs() -> impl Strategy<Value = Program> {
    let isa = prop::sample::select(vec![Isa::A64, Isa::A32, Isa::T32]);
    let block = (1..6_usize, 0..9_u8, any::<prop::sample::Index>());
    (isa, prop::collection::vec(block, 1..12)).prop_map(|(isa, blocks)| Program {
        isa,
        blocks: blocks
            .iter()
            .map(|(before, end, target)| {
                let target = target.index(blocks.len());
                let end = match end {
                    0 => End::Plain,
                    1 => End::Barrier,
                    2 => End::Jump(target),
                    3 => End::Call(target),
                    4 => End::Return,
                    5 => End::IndirectCall,
                    _ => End::Conditional(target),
                };
                // This allows blocks of one instruction.
                (before - 1, end)
            })
            .collect(),
    })
}

fn options() -> impl Strategy<Value = protocol::TraceOptions> {
    let flags = any::<[bool; 4]>();
    let sync = prop::sample::select(vec![0_usize, 16, 64, 4096]);
    (0..3_u8, flags, sync, prop::option::of(100..2000_u64)).prop_map(
        |(protocol, [broadcast, stack, cycles, timestamps], sync, last)| protocol::TraceOptions {
            protocol: match protocol {
                0 => Protocol::Etmv4,
                1 => Protocol::Ptm,
                _ => Protocol::Etmv3,
            },
            branch_broadcast: broadcast,
            return_stack: stack,
            cycles,
            timestamps: if timestamps {
                Timestamps::Always
            } else {
                Timestamps::default()
            },
            sync,
            last,
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]
    #[test]
    fn known_blocks_make_the_same_trace(
        program in programs(),
        mut options in options(),
        choices in prop::collection::vec(any::<u16>(), 1..3000),
    ) {
        if program.isa == Isa::A64 {
            options.protocol = Protocol::Etmv4;
        }
        let run = |counted| {
            let stream = program.stream(&choices, counted);
            recorded(settings(program.isa, options), &stream)
        };
        let (followed, looked_at) = (run(false), run(true));
        prop_assert_eq!(followed.1, looked_at.1);
        prop_assert_eq!(followed.2, looked_at.2);
        prop_assert!(followed.0 == looked_at.0);
    }
}
