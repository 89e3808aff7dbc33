//! Random programs: their code, an execution of it, and its trace.

use armsnap_arch::arch::branch::{Instruction, Kind};
use armsnap_arch::quantity::{Address, ExceptionLevel, Isa, Security};
use armsnap_trace::element::{Context, Mark, TraceOnReason};
use armsnap_trace::encode::{CodeAddress, TraceUnit, Tracer};
use armsnap_trace::etm::config::TimestampEncoding;
use armsnap_trace::flow::{self, Pieces, View};

/// A step of an execution.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Step {
    Run(CodeAddress, Address),
    Exception(u16, CodeAddress),
    /// The last instruction returned from an exception (M-profile).
    ExceptionReturn,
    /// The last instruction started an exception return, and an exception was tail-chained.
    TailChain(u16),
    /// The core halts in debug state, and continues elsewhere.
    Halt(CodeAddress),
    Context(Context),
    Cycles(u32),
    Mark(Mark),
}

/// An executed program.
#[derive(Debug, Default)]
pub(crate) struct Program {
    pub code: Pieces,
    /// The same code, by address.
    pub regions: Vec<(u64, Vec<u8>)>,
    pub steps: Vec<Step>,
    /// Each instruction, in order.
    pub executed: Vec<CodeAddress>,
    /// The next one.
    pub next: CodeAddress,
    /// A mask for numbers of cycles.
    pub most_cycles: u32,
}

/// Code in one instruction set.
#[derive(Clone, Copy, Debug)]
struct Region {
    base: u64,
    isa: Isa,
}

const AARCH64: [Region; 3] = [
    Region {
        base: 0x40_0000,
        isa: Isa::A64,
    },
    Region {
        base: 0x41_ff00,
        isa: Isa::A64,
    },
    Region {
        base: 0xffff_ff80_0801_0000,
        isa: Isa::A64,
    },
];
const AARCH32: [Region; 3] = [
    Region {
        base: 0x1_0000,
        isa: Isa::A32,
    },
    Region {
        base: 0x1_8000,
        isa: Isa::T32,
    },
    Region {
        base: 0xc010_ff00,
        isa: Isa::T32,
    },
];
const BYTES: u64 = 256;

/// Pseudo-random numbers (xorshift64*, Vigna).
pub(crate) struct Dice(u64);

impl Dice {
    pub fn new(seed: u64) -> Self {
        Self(seed | 1)
    }

    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 16
    }

    pub fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }

    /// Returns true once in `n` calls on average.
    fn once_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }
}

/// A random instruction, often a branch to a nearby address.
fn instruction(isa: Isa, mix: Mix, dice: &mut Dice) -> Vec<u8> {
    let near =
        |dice: &mut Dice, bits: u32| (dice.below(40) as u32).wrapping_sub(20) & ((1 << bits) - 1);
    let choice = dice.below(16);
    let word = match (isa, choice) {
        (Isa::A64, 0..=5) => 0xd503_201f,
        (Isa::A64, 6) => 0x1400_0000 | near(dice, 26),
        (Isa::A64, 7 | 8) => 0x9400_0000 | near(dice, 26),
        (Isa::A64, 9 | 10) => 0xb400_0000 | near(dice, 19) << 5,
        (Isa::A64, 11 | 12) => 0xd65f_03c0,
        (Isa::A64, 13) => 0xd63f_0020,
        (Isa::A64, 14) => 0xd69f_03e0,
        (Isa::A64, _) => [0xd503_3fdf, 0xd503_3f9f, 0xd61f_0020][dice.below(3) as usize],
        (Isa::T32, 5) if mix.it_blocks => return vec![0x08 | dice.next() as u8, 0xbf],
        (Isa::T32, 0..=5) => return vec![0, 0xbf],
        (Isa::T32, 6) => return vec![near(dice, 8) as u8, 0xe0],
        (Isa::T32, 7 | 8) => return vec![near(dice, 8) as u8, 0xd0],
        (Isa::T32, 9 | 10) => return vec![0x70, 0x47],
        (Isa::T32, 11) => return vec![0x98, 0x47],
        // BL and BLX backwards, ISB, SUBS PC, LR
        (Isa::T32, 12) => 0xf800_f7ff | near(dice, 11) << 16,
        (Isa::T32, 13) if mix.exchanges => 0xe800_f7ff | (near(dice, 11) & !1) << 16,
        // POP {PC}
        (Isa::T32, _) if mix.sets == Sets::Microcontroller && dice.once_in(3) => {
            return vec![0, 0xbd];
        }
        (Isa::T32, _) if mix.sets == Sets::Microcontroller => 0x8f6f_f3bf,
        (Isa::T32, _) => [0x8f6f_f3bf, 0x8f00_f3de, 0x8f4f_f3bf][dice.below(3) as usize],
        (_, 0..=5) => 0xe320_f000,
        (_, 6) => 0xea00_0000 | near(dice, 24),
        (_, 7 | 8) => 0xeb00_0000 | near(dice, 24),
        (_, 9 | 10) => 0x0a00_0000 | near(dice, 24),
        (_, 11 | 12) => 0xe12f_ff1e,
        (_, 13) => 0x112f_ff33,
        (Isa::A32, 14) if mix.exchanges => 0xfa00_0000 | near(dice, 24),
        (_, _) => [0xf57f_f06f, 0xf57f_f04f, 0xe1b0_f00e][dice.below(3) as usize],
    };
    word.to_le_bytes().to_vec()
}

/// The properties of a random program.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Mix {
    pub sets: Sets,
    pub it_blocks: bool,
    /// BLX (immediate).
    pub exchanges: bool,
    /// The state of the core changes.
    pub contexts: bool,
}

impl Mix {
    /// Everything.
    pub fn all(sets: Sets) -> Self {
        Self {
            sets,
            it_blocks: true,
            exchanges: sets != Sets::Microcontroller,
            contexts: true,
        }
    }
}

/// Which instruction sets a program has.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Sets {
    AArch64,
    AArch32,
    Both,
    Microcontroller,
}

struct Machine {
    mix: Mix,
    dice: Dice,
    program: Program,
    here: CodeAddress,
    it_block: u8,
    calls: Vec<CodeAddress>,
    /// The return addresses of exceptions, each with the rest of its IT block.
    stacked: Vec<(CodeAddress, u8)>,
    run: Option<CodeAddress>,
}

impl Machine {
    /// A random address: in the execution state of `like`, or any that `sets` allow.
    fn anywhere(&mut self, sets: Sets, like: Option<Isa>) -> CodeAddress {
        let both = self.dice.once_in(2);
        let regions = match (like, sets) {
            (_, Sets::Microcontroller) => [AARCH32[1], AARCH32[1], AARCH32[2]],
            (Some(Isa::A64), _) | (None, Sets::AArch64) => AARCH64,
            (Some(_), _) | (None, Sets::AArch32) => AARCH32,
            (None, Sets::Both) => {
                if both {
                    AARCH64
                } else {
                    AARCH32
                }
            }
        };
        let region = regions[self.dice.below(3) as usize];
        let step = if region.isa == Isa::T32 { 2 } else { 4 };
        CodeAddress {
            address: Address(region.base + self.dice.below(BYTES / step) * step),
            isa: region.isa,
        }
    }

    fn fetch(&self) -> Option<Instruction> {
        let CodeAddress { address, isa } = self.here;
        flow::instruction(&self.program.code, View::default(), isa, address)
    }

    fn cut(&mut self) {
        if let Some(start) = self.run.take().filter(|start| *start != self.here) {
            self.program.steps.push(Step::Run(start, self.here.address));
        }
    }

    fn go(&mut self, place: CodeAddress) {
        self.here = place;
        self.it_block = 0;
        self.run = None;
    }

    fn context(&mut self) {
        if !self.mix.contexts {
            return;
        }
        let security = if self.dice.once_in(2) {
            Security::Secure
        } else {
            Security::NonSecure
        };
        let id = |dice: &mut Dice| dice.once_in(2).then(|| dice.below(256) as u32);
        let context = Context {
            el: Some(ExceptionLevel(self.dice.below(4) as u8)),
            security: Some(security),
            vmid: id(&mut self.dice),
            context_id: id(&mut self.dice),
            ..Context::default()
        };
        self.program.steps.push(Step::Context(context));
    }

    fn except(&mut self, number: u16, sets: Sets) {
        self.cut();
        self.program.steps.push(Step::Exception(number, self.here));
        self.stacked.push((self.here, self.it_block));
        if self.dice.once_in(2) {
            self.context();
        }
        let handler = self.anywhere(sets, None);
        self.go(handler);
    }

    /// Adds random events between two instructions.
    fn between(&mut self, sets: Sets) {
        match self.dice.below(120) {
            0..=2 => self.except(14, sets),
            3 => {
                self.cut();
                self.context();
            }
            // An ETMv3 of Armv7-M has no exception number for it.
            4 if sets != Sets::Microcontroller => {
                self.cut();
                self.program.steps.push(Step::Halt(self.here));
                self.stacked.clear();
                let place = self.anywhere(sets, None);
                self.go(place);
            }
            5..=8 => {
                self.cut();
                let value = self.dice.next() >> self.dice.below(48);
                self.program.steps.push(Step::Mark(Mark::Timestamp(value)));
            }
            9 => {
                self.cut();
                self.program.steps.push(Step::Mark(Mark::Event(1)));
            }
            10..=40 => {
                self.cut();
                let cycles = self.dice.next() >> (28 + self.dice.below(20));
                self.program.steps.push(Step::Cycles(cycles as u32));
            }
            41..=60 => self.cut(),
            _ => {}
        }
    }

    fn step(&mut self, sets: Sets) {
        self.between(sets);
        let Some(instruction) = self.fetch() else {
            return self.except(11, sets);
        };
        self.program.executed.push(self.here);
        self.run.get_or_insert(self.here);
        let mut conditional = instruction.conditional;
        if self.it_block > 0 {
            self.it_block -= 1;
            conditional = true;
        } else {
            self.it_block = instruction.it_block;
        }
        let address = self.here.address.0 + u64::from(instruction.bytes);
        let after = CodeAddress {
            address: Address(address),
            isa: self.here.isa,
        };
        let jumps = !conditional || self.dice.once_in(2);
        let next = match instruction.kind {
            Kind::Branch { target, isa } if jumps => CodeAddress {
                address: target,
                isa,
            },
            Kind::Indirect if jumps && instruction.exception_return && !self.stacked.is_empty() => {
                return self.exception_return(sets);
            }
            Kind::Indirect if jumps => {
                let like = (!instruction.exception_return).then_some(self.here.isa);
                match self.calls.pop() {
                    Some(call) if call.isa == self.here.isa && self.dice.below(4) > 0 => call,
                    _ => self.anywhere(sets, like),
                }
            }
            _ => after,
        };
        if jumps && instruction.link {
            self.calls.push(after);
        }
        let returns = instruction.returns && jumps && sets == Sets::Microcontroller;
        if returns && self.dice.once_in(2) && !self.stacked.is_empty() {
            return self.exception_return(sets);
        }
        self.here = after;
        if next != after {
            self.cut();
            self.go(next);
        }
    }

    /// Returns from an exception, or in M-profile tail-chains another one.
    fn exception_return(&mut self, sets: Sets) {
        let micro = sets == Sets::Microcontroller;
        let start = self.run.take().unwrap_or(self.here);
        let bytes = self.fetch().map_or(0, |instruction| instruction.bytes);
        let end = Address(self.here.address.0 + u64::from(bytes));
        self.program.steps.push(Step::Run(start, end));
        let (next, it_block) = if micro && self.dice.once_in(3) {
            self.program.steps.push(Step::TailChain(15));
            (self.anywhere(sets, None), 0)
        } else {
            if micro {
                self.program.steps.push(Step::ExceptionReturn);
            }
            self.stacked.pop().unwrap()
        };
        if self.dice.once_in(2) {
            self.context();
        }
        self.go(next);
        self.it_block = it_block;
    }
}

impl Program {
    /// A random program and its execution, `instructions` long.
    pub fn random(seed: u64, mix: Mix, instructions: usize) -> Self {
        let sets = mix.sets;
        let mut machine = Machine {
            mix,
            dice: Dice::new(seed),
            program: Self::default(),
            here: CodeAddress::default(),
            it_block: 0,
            calls: Vec::new(),
            stacked: Vec::new(),
            run: None,
        };
        for region in AARCH64.into_iter().chain(AARCH32) {
            let mut bytes = Vec::new();
            while bytes.len() < BYTES as usize {
                bytes.extend(instruction(region.isa, mix, &mut machine.dice));
            }
            machine.program.regions.push((region.base, bytes.clone()));
            machine.program.code.add(Address(region.base), bytes);
        }
        let place = machine.anywhere(sets, None);
        machine.go(place);
        machine.context();
        while machine.program.executed.len() < instructions {
            machine.step(sets);
        }
        machine.cut();
        let next = machine.here;
        Self {
            next,
            most_cycles: u32::MAX,
            ..machine.program
        }
    }

    /// Returns the number of M-profile exception returns.
    pub fn exception_returns(&self) -> usize {
        let returns = |step: &&Step| matches!(step, Step::ExceptionReturn);
        self.steps.iter().filter(returns).count()
    }

    /// Returns its marks.
    pub fn marks(&self) -> impl Iterator<Item = Mark> + '_ {
        self.steps.iter().filter_map(|step| match *step {
            Step::Mark(mark) => Some(mark),
            _ => None,
        })
    }

    /// Returns its timestamps as `encoding` traces them.
    pub fn timestamps(&self, encoding: TimestampEncoding) -> Vec<Mark> {
        let timestamps = self.marks().filter_map(|mark| match mark {
            Mark::Timestamp(value) => Some(Mark::Timestamp(value & encoding.mask())),
            _ => None,
        });
        timestamps.collect()
    }

    /// Traces the program.
    pub fn trace<U: TraceUnit>(&self, unit: U, sync_bytes: usize) -> Vec<u8> {
        let mut bytes = Vec::new();
        let halt = unit.debug_halt();
        let mut tracer = Tracer::new(unit, &self.code, sync_bytes);
        for step in &self.steps {
            match *step {
                Step::Run(start, end) => tracer.run(start, end),
                Step::Exception(number, return_to) => tracer.exception(number, return_to),
                Step::Halt(here) => {
                    tracer.exception(halt.unwrap(), here);
                    tracer.gap(TraceOnReason::DebugRestart);
                }
                Step::ExceptionReturn => tracer.exception_return(),
                Step::TailChain(number) => tracer.tail_chain(number),
                Step::Context(context) => tracer.context(context),
                Step::Cycles(cycles) => tracer.cycles(cycles & self.most_cycles),
                Step::Mark(mark) => tracer.mark(mark),
            }
            if bytes.len().is_multiple_of(3) {
                tracer.take(&mut bytes);
            }
        }
        tracer.finish(Some(self.next));
        tracer.take(&mut bytes);
        assert_eq!(tracer.gaps(), 0);
        bytes
    }
}

/// Fails with the first difference and the instructions around it.
#[track_caller]
pub(crate) fn same(decoded: &[CodeAddress], executed: &[CodeAddress], what: &str) {
    let first = decoded
        .iter()
        .zip(executed)
        .take_while(|(a, b)| a == b)
        .count();
    if first == executed.len() && first == decoded.len() {
        return;
    }
    let around = |places: &[CodeAddress]| {
        let from = first.saturating_sub(4);
        format!(
            "{:x?}",
            &places[from.min(places.len())..(first + 3).min(places.len())]
        )
    };
    panic!(
        "{what}: {} of {}/{} agree\n executed {}\n decoded  {}",
        first,
        decoded.len(),
        executed.len(),
        around(executed),
        around(decoded)
    );
}
