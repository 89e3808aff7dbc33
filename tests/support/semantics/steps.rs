//! Whole programs in the emulator, which logs every state: the model of each instruction makes one
//! state into the next.

use super::shadow::Shadow;
use armsnap::semantics::a32;
use armsnap::semantics::t32::{self, ItState, is_wide};
use armsnap::semantics::{Control, Location, Operand, Operation, Semantics, Values, execute};
use std::collections::{BTreeMap, HashMap};
use std::io::{BufRead, BufReader};
use std::process::{Child, ChildStderr, Command, Stdio};

/// The state before an instruction.
#[derive(Clone)]
pub struct State {
    pub pc: u64,
    pub values: Values,
    /// In T32, the state of the IT block.
    pub t32: Option<ItState>,
}

impl Default for State {
    fn default() -> Self {
        Self {
            pc: 0,
            values: [None; Location::KEPT],
            t32: None,
        }
    }
}

/// An instruction as the emulator's disassembler shows it.
#[derive(Clone)]
pub struct Code {
    /// In T32, the first halfword is in the lower bits.
    pub word: u32,
    pub mnemonic: String,
    pub model: Option<Semantics>,
}

/// The log of a program in the emulator.
pub struct Log {
    program: Child,
    lines: BufReader<ChildStderr>,
    line: Vec<u8>,
    pub code: HashMap<u64, Code>,
}

impl Log {
    /// Starts a program; its output is dropped.
    pub fn of(command: &mut Command) -> Self {
        command
            .env("QEMU_SINGLESTEP", "1")
            .env("QEMU_LOG", "in_asm,cpu,fpu,nochain");
        command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped());
        let mut program = command.spawn().unwrap();
        let lines = BufReader::with_capacity(1 << 20, program.stderr.take().unwrap());
        Self {
            program,
            lines,
            line: Vec::new(),
            code: HashMap::new(),
        }
    }

    /// The next state, until the program ends.
    pub fn next(&mut self) -> Option<State> {
        let mut state = State::default();
        loop {
            self.line.clear();
            if self.lines.read_until(b'\n', &mut self.line).unwrap() == 0 {
                return None;
            }
            if self.line.starts_with(b"0x") {
                self.take_code();
            } else if state.take(&self.line) {
                return Some(state);
            }
        }
    }

    /// `0x00400588:  d280001e  movz     x30, #0`
    fn take_code(&mut self) -> Option<()> {
        let line = std::str::from_utf8(&self.line).ok()?;
        let (address, rest) = line[2..].split_once(':')?;
        let mut fields = rest.split_whitespace();
        let first = fields.next()?;
        let mut word = u32::from_str_radix(first, 16).ok()?;
        if first.len() == 4 && is_wide(word as u16) {
            word |= u32::from_str_radix(fields.next()?, 16).ok()? << 16;
        }
        let mnemonic = fields.next().unwrap_or("?").to_owned();
        let address = u64::from_str_radix(address, 16).ok()?;
        self.code.insert(
            address,
            Code {
                word,
                mnemonic,
                model: None,
            },
        );
        Some(())
    }
}

impl Drop for Log {
    fn drop(&mut self) {
        let _ = self.program.kill();
        self.program.wait().unwrap();
    }
}

impl State {
    /// Takes a line of `NAME=VALUE`; whether it is the last of a state.
    fn take(&mut self, line: &[u8]) -> bool {
        if let Some(fpscr) = line.strip_prefix(b"FPSCR: ") {
            let fpscr = hex(&fpscr[..8]);
            self.values[Location::FPCR.index()] = Some(fpscr & 0x07ff_9f00);
            self.values[Location::FPSCR_FLAGS.index()] = Some(fpscr >> 28);
            return true;
        }
        let mut last = false;
        for field in line.split(|byte| *byte == b' ' || *byte == b'\n') {
            let Some(equals) = field.iter().position(|byte| *byte == b'=') else {
                continue;
            };
            let (name, value) = (&field[..equals], &field[equals + 1..]);
            match name {
                b"PC" => self.pc = hex(value),
                b"SP" => self.values[Location::SP.index()] = Some(hex(value)),
                b"FPCR" => self.values[Location::FPCR.index()] = Some(hex(value)),
                b"PSTATE" => {
                    let flags = [Location::V, Location::C, Location::Z, Location::N];
                    for (bit, flag) in (28..).zip(flags) {
                        self.values[flag.index()] = Some(hex(value) >> bit & 1);
                    }
                }
                b"R15" => self.pc = hex(value),
                b"PSR" => self.take_psr(hex(value)),
                [b'R', number @ ..] => {
                    self.values[Location::general(decimal(number)).index()] = Some(hex(value));
                }
                [b'd', number @ ..] => {
                    let number = decimal(number);
                    let half = Location::vector(number / 2, number % 2);
                    self.values[half.index()] = Some(hex(value));
                }
                [b'X', number @ ..] => {
                    self.values[Location::general(decimal(number)).index()] = Some(hex(value));
                }
                [b'Q', number @ ..] if value.len() == 33 => {
                    let number = decimal(number);
                    self.values[Location::vector(number, 1).index()] = Some(hex(&value[..16]));
                    self.values[Location::vector(number, 0).index()] = Some(hex(&value[17..]));
                    last = number == 31;
                }
                _ => {}
            }
        }
        last
    }
}

impl State {
    /// CPSR of AArch32.
    fn take_psr(&mut self, psr: u64) {
        for (flag, low, mask) in [
            (Location::N, 31, 1),
            (Location::Z, 30, 1),
            (Location::C, 29, 1),
            (Location::V, 28, 1),
            (Location::Q, 27, 1),
            (Location::GE, 16, 15),
        ] {
            self.values[flag.index()] = Some(psr >> low & mask);
        }
        let block = ItState::from_bits((psr >> 8 & 0xfc | psr >> 25 & 3) as u8);
        self.t32 = (psr & 0x20 != 0).then_some(block);
    }
}

fn hex(digits: &[u8]) -> u64 {
    digits.iter().fold(0, |value, digit| {
        let digit = match digit {
            b'0'..=b'9' => digit - b'0',
            _ => (digit | 0x20) - b'a' + 10,
        };
        value << 4 | u64::from(digit)
    })
}

fn decimal(digits: &[u8]) -> u8 {
    digits
        .iter()
        .fold(0, |value, digit| value * 10 + (digit - b'0'))
}

/// The model of an instruction of AArch32.
pub fn decode_arm(word: u32, state: &State) -> Semantics {
    match state.t32 {
        Some(block) => t32::decode(word as u16, (word >> 16) as u16, state.pc, block),
        None => a32::decode(word, state.pc),
    }
}

/// How the steps of a program compare.
#[derive(Default)]
pub struct Tally {
    pub steps: u64,
    /// Steps whose destinations were all known, except memory that was never accessed before.
    pub known: u64,
    /// By mnemonic: steps, and those known.
    pub by_mnemonic: BTreeMap<String, (u64, u64)>,
    /// Loads of bytes that were known, and agreed.
    pub loads: u64,
    /// The first few errors.
    pub wrong: Vec<String>,
}

impl Tally {
    /// Takes every step of a program, at most `limit`.
    pub fn take(&mut self, log: &mut Log, limit: u64, decode: impl Fn(u32, &State) -> Semantics) {
        let mut shadow = Shadow::default();
        let mut thread_pointer = None;
        let Some(mut before) = log.next() else {
            return;
        };
        for _ in 0..limit {
            let Some(after) = log.next() else {
                break;
            };
            let Some(code) = log.code.get_mut(&before.pc) else {
                // What the kernel's page does for programs of A32, the emulator does itself.
                assert!(before.pc >> 12 == 0xffff0, "no code at {:#x}", before.pc);
                shadow.forget();
                before = after;
                continue;
            };
            let model = code.model.get_or_insert_with(|| decode(code.word, &before));
            self.check_block(&before, &after, code.word);
            before.values[Location::THREAD_POINTER.index()] = thread_pointer;
            let known = self.step(
                &before,
                &after,
                code.word,
                model,
                &mut shadow,
                &mut thread_pointer,
            );
            let counts = self.by_mnemonic.entry(code.mnemonic.clone()).or_default();
            counts.0 += 1;
            counts.1 += u64::from(known);
            self.steps += 1;
            self.known += u64::from(known);
            before = after;
        }
    }

    /// Where the next instruction follows in memory, so does the state of the IT block.
    fn check_block(&mut self, before: &State, after: &State, word: u32) {
        let (Some(block), Some(is)) = (before.t32, after.t32) else {
            return;
        };
        let size = if is_wide(word as u16) { 4 } else { 2 };
        let next = block.next(word as u16);
        if after.pc == before.pc + size && next != is {
            self.wrong
                .push(format!("{:#x}: IT {is:?}, not {next:?}", after.pc));
        }
    }

    fn step(
        &mut self,
        before: &State,
        after: &State,
        word: u32,
        model: &Semantics,
        shadow: &mut Shadow,
        thread_pointer: &mut Option<u64>,
    ) -> bool {
        let mut values = before.values;
        shadow.loads.clear();
        let next = execute(model, before.pc, &mut values, shadow);
        let mut told = |what: String| {
            if self.wrong.len() < 20 {
                self.wrong
                    .push(format!("{:#x}: {word:08x}: {what}", before.pc));
            }
        };
        // The kernel's part.
        let system_call = model.control == Control::SystemCall;
        if system_call {
            shadow.forget();
            values[0] = None;
            values[Location::THREAD_POINTER.index()] = None;
        }
        if let Some(next) = next.filter(|next| *next != after.pc) {
            told(format!("goes to {:#x}, not {next:#x}", after.pc));
        }
        let mut known = next.is_some();
        for (index, (value, is)) in values.iter().zip(&after.values).enumerate() {
            match (value, is) {
                (Some(value), Some(is)) if value != is => {
                    told(format!("location {index} is {is:#x}, not {value:#x}"));
                }
                (None, Some(_)) => known = false,
                _ => {}
            }
        }
        *thread_pointer = values[Location::THREAD_POINTER.index()];
        learn(model, after, shadow, thread_pointer);
        let missed = shadow.loads.iter().any(|load| !load.2);
        self.loads += shadow.loads.iter().filter(|load| load.2).count() as u64;
        known || missed || system_call
    }
}

/// What the next state says of memory and registers that the log does not have.
fn learn(model: &Semantics, after: &State, shadow: &mut Shadow, thread_pointer: &mut Option<u64>) {
    let of = |operation: fn(&Operation) -> bool| {
        model
            .relations
            .iter()
            .filter(move |relation| operation(&relation.operation))
    };
    let pointer = Operand::Location(Location::THREAD_POINTER);
    if let Some(read) = model
        .relations
        .iter()
        .find(|relation| relation.a == pointer)
    {
        *thread_pointer = after.values[read.destination.index()];
    }
    let loads = of(|operation| matches!(operation, Operation::Load { .. }));
    let stores = of(|operation| matches!(operation, Operation::Store { .. })).count();
    if stores != 0 || loads.clone().count() != shadow.loads.len() {
        return;
    }
    for (load, (address, size, known)) in loads.zip(shadow.loads.clone()) {
        // A load of a sign goes through a temporary.
        let signed = Operation::ExtractSigned {
            low: 0,
            count: 8 * size,
        };
        let through = model.relations.iter().find(|relation| {
            relation.a == Operand::Location(load.destination) && relation.operation == signed
        });
        let to = through.map_or(load.destination, |relation| relation.destination);
        if !known
            && to.is_kept()
            && let Some(value) = after.values[to.index()]
        {
            shadow.learn(address, size, value);
        }
    }
}
