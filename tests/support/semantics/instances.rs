//! Single instructions, most of them random, executed by the emulator on random states: the states
//! after them are as the models predict.

use armsnap::semantics::{Location, Machine, Semantics, Values, execute};
use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// How many instructions the program that executes them takes at once.
pub const BATCH: usize = 256;
/// Where its memory for loads and stores is.
pub const MEMORY: u64 = 0x1000_0600;
const BYTES: usize = 1024;

/// An instruction with the state before or after it, in the program's form.
#[derive(Clone)]
pub struct Instance {
    /// Before: the instruction. After: the signal that it raised, or 0.
    pub word: u64,
    /// x0 to x30, sp, nzcv, fpcr, and the halves of v0 to v31.
    pub registers: [u64; 98],
    pub memory: [u8; BYTES],
}

impl Instance {
    const SIZE: usize = 99 * 8 + BYTES;

    fn write(&self, to: &mut Vec<u8>) {
        to.extend(self.word.to_le_bytes());
        for value in self.registers {
            to.extend(value.to_le_bytes());
        }
        to.extend(self.memory);
    }

    fn read(bytes: &[u8]) -> Self {
        let word = |index: usize| u64::from_le_bytes(bytes[8 * index..][..8].try_into().unwrap());
        Self {
            word: word(0),
            registers: std::array::from_fn(|index| word(index + 1)),
            memory: bytes[99 * 8..].try_into().unwrap(),
        }
    }

    /// The values of AArch32, where the registers are those of the program for it.
    fn values_of_arm(&self) -> Values {
        let mut values = [None; Location::KEPT];
        let (cpsr, fpscr) = (self.registers[32], self.registers[33]);
        for (number, value) in self.registers[..15].iter().enumerate() {
            values[number] = Some(*value);
        }
        for (flag, low, mask) in [
            (Location::N, 31, 1),
            (Location::Z, 30, 1),
            (Location::C, 29, 1),
            (Location::V, 28, 1),
            (Location::Q, 27, 1),
            (Location::GE, 16, 15),
        ] {
            values[flag.index()] = Some(cpsr >> low & mask);
        }
        values[Location::FPCR.index()] = Some(fpscr & 0x07ff_9f00);
        values[Location::FPSCR_FLAGS.index()] = Some(fpscr >> 28);
        for (number, value) in self.registers[34..66].iter().enumerate() {
            values[Location::vector(0, 0).index() + number] = Some(*value);
        }
        values
    }

    fn values(&self) -> Values {
        let mut values = [None; Location::KEPT];
        for (index, value) in self.registers.into_iter().enumerate() {
            match index {
                0..=31 => values[index] = Some(value),
                32 => {
                    for (flag, bit) in [
                        (Location::N, 31),
                        (Location::Z, 30),
                        (Location::C, 29),
                        (Location::V, 28),
                    ] {
                        values[flag.index()] = Some(value >> bit & 1);
                    }
                }
                33 => values[Location::FPCR.index()] = Some(value),
                _ => values[Location::vector(0, 0).index() + index - 34] = Some(value),
            }
        }
        values
    }
}

/// The window of memory, each byte known or not.
struct Window(Vec<Option<u8>>);

impl Window {
    fn place(address: u64) -> Option<usize> {
        usize::try_from(address.checked_sub(MEMORY)?)
            .ok()
            .filter(|place| *place < BYTES)
    }
}

impl Machine for Window {
    fn load(&mut self, address: u64, size: u8) -> Option<u64> {
        let mut value = 0;
        for offset in 0..u64::from(size) {
            let byte = self.0[Self::place(address.wrapping_add(offset))?]?;
            value |= u64::from(byte) << (8 * offset);
        }
        Some(value)
    }

    fn store(&mut self, address: Option<u64>, size: u8, value: Option<u64>) {
        let Some(address) = address else {
            return self.may_store_anywhere();
        };
        for offset in 0..u64::from(size) {
            if let Some(place) = Self::place(address.wrapping_add(offset)) {
                self.0[place] = value.map(|value| (value >> (8 * offset)) as u8);
            }
        }
    }

    fn may_store_anywhere(&mut self) {
        self.0.fill(None);
    }
}

/// Random numbers that are the same each time.
pub struct Random(pub u64);

impl Random {
    /// xorshift64*
    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    pub fn below(&mut self, end: u64) -> u64 {
        (self.next() >> 20) % end
    }

    /// A number that is often one at which something changes.
    fn value(&mut self) -> u64 {
        const EDGES: [u64; 10] = [
            0,
            1,
            31,
            64,
            0x7fff_ffff,
            0x8000_0000,
            0xffff_ffff,
            i64::MAX as u64,
            1 << 63,
            u64::MAX,
        ];
        match self.below(5) {
            0 => EDGES[self.below(10) as usize],
            1 => self.below(64),
            2 => self.next() >> self.below(64),
            _ => self.next(),
        }
    }

    /// A pair of singles or a double, if not any bits.
    fn float(&mut self) -> u64 {
        const DOUBLES: [f64; 10] = [
            0.0,
            -0.0,
            1.0,
            -1.5,
            1e300,
            2.5,
            f64::INFINITY,
            f64::NAN,
            1e-310,
            9.3e18,
        ];
        const SINGLES: [f32; 10] = [
            0.0,
            -0.0,
            1.0,
            -1.5,
            1e38,
            2.5,
            f32::INFINITY,
            f32::NAN,
            1e-40,
            2.2e9,
        ];
        let mut single = || match self.below(3) {
            0 => SINGLES[self.below(10) as usize].to_bits(),
            1 => (self.below(2000) as f32 / 7.0 - 100.0).to_bits(),
            _ => self.next() as u32,
        };
        let pair = u64::from(single()) << 32 | u64::from(single());
        match self.below(6) {
            0 => DOUBLES[self.below(10) as usize].to_bits(),
            1 => (self.below(20000) as f64 / 7.0 - 1000.0).to_bits(),
            2 | 3 => pair,
            _ => self.value(),
        }
    }

    /// An instruction and a state; `fixed` are the bits of the encoding group.
    pub fn instance(&mut self, mask: u32, fixed: u32) -> Instance {
        let mut word = self.next() as u32 & !mask | fixed;
        // The emulator (7.2) gives up at some unallocated encodings of half precision.
        while word & 0x8f7e_0c00 == 0x0e78_0800 {
            word = self.next() as u32 & !mask | fixed;
        }
        let accesses = word & 0x0a00_0000 == 0x0800_0000;
        if accesses && word & 0x3b00_0000 == 0x3900_0000 && self.below(4) != 0 {
            // A small offset.
            word &= !0x003f_0000;
        }
        let mut registers = [0; 98];
        for (index, register) in registers.iter_mut().enumerate() {
            let pointer = MEMORY + 256 + 16 * self.below(32);
            *register = match index {
                31 => pointer,
                0..=30 if accesses && index % 4 != 3 => pointer + self.below(2) * self.below(16),
                // An address that is not the program's own.
                0..=30 if accesses => match self.below(4) {
                    0 => self.below(64),
                    1 => self.below(64).wrapping_neg(),
                    _ => self.next() & !0x7000_0000 | 0x0040_0000_8000_0000,
                },
                0..=30 => self.value(),
                32 => self.below(16) << 28,
                33 => 0,
                _ => self.float(),
            };
        }
        let mut memory = [0; BYTES];
        for chunk in memory.chunks_mut(8) {
            chunk.copy_from_slice(&self.next().to_le_bytes());
        }
        // Sometimes memory holds what a compare-and-swap compares with.
        if accesses && self.below(2) == 0 {
            let (compared, base) = ((word >> 16 & 31) as usize, (word >> 5 & 31) as usize);
            if let Some(place) = Window::place(registers[base]).filter(|_| compared < 31) {
                registers[compared] =
                    u64::from_le_bytes(memory[place..place + 8].try_into().unwrap());
            }
        }
        Instance {
            word: u64::from(word),
            registers,
            memory,
        }
    }

    /// An instruction of AArch32, and a state; `accesses`: registers are addresses.
    pub fn instance_of_arm(&mut self, mask: u32, fixed: u32, accesses: bool) -> Instance {
        let mut word = self.next() as u32 & !mask | fixed;
        if accesses && word & 0x0e00_0000 == 0x0600_0000 {
            // An offset that is not shifted to a place of the program's own.
            word &= !0x0000_0e00;
        }
        let mut registers = [0; 98];
        for (index, register) in registers.iter_mut().enumerate() {
            let pointer = MEMORY + 256 + 16 * self.below(32);
            *register = match index {
                13 => pointer,
                0..=14 if accesses && index % 4 != 3 => pointer + self.below(2) * self.below(16),
                0..=14 if accesses => self.below(64).wrapping_sub(self.below(2) * 64) as u32 as u64,
                0..=14 => self.value() as u32 as u64,
                32 => self.below(32) << 27 | self.below(16) << 16,
                34.. => self.float(),
                _ => 0,
            };
        }
        let mut memory = [0; BYTES];
        for chunk in memory.chunks_mut(8) {
            chunk.copy_from_slice(&self.next().to_le_bytes());
        }
        Instance {
            word: u64::from(word),
            registers,
            memory,
        }
    }
}

/// The program that executes instances.
pub struct Executor(Child);

impl Executor {
    pub fn start(emulator: &[&str], program: &Path) -> Self {
        let child = Command::new(emulator[0])
            .args(&emulator[1..])
            .arg(program)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        Self(child)
    }

    /// Returns the states after [`BATCH`] instructions.
    pub fn execute(&mut self, instances: &[Instance]) -> Vec<Instance> {
        assert_eq!(instances.len(), BATCH);
        let mut bytes = Vec::with_capacity(BATCH * Instance::SIZE);
        for instance in instances {
            instance.write(&mut bytes);
        }
        self.0.stdin.as_mut().unwrap().write_all(&bytes).unwrap();
        self.0
            .stdout
            .as_mut()
            .unwrap()
            .read_exact(&mut bytes)
            .unwrap();
        bytes.chunks(Instance::SIZE).map(Instance::read).collect()
    }
}

impl Drop for Executor {
    fn drop(&mut self) {
        drop(self.0.stdin.take());
        self.0.wait().unwrap();
    }
}

/// How the instances compare.
#[derive(Default)]
pub struct Tally {
    /// Executed without a signal.
    pub executed: u64,
    /// Those of them for which the model gives the whole state after them.
    pub whole: u64,
    /// By instruction: what is wrong.
    pub wrong: BTreeMap<u32, String>,
    /// Instructions that the emulator does not know, but the model does.
    pub unallocated: BTreeMap<u32, u64>,
    /// Instructions without a model, or with a partial one.
    pub unknown: BTreeMap<u32, u64>,
}

impl Tally {
    /// Compares the model's state with the emulator's.
    pub fn take(
        &mut self,
        semantics: &Semantics,
        address: u64,
        before: &Instance,
        after: &Instance,
    ) {
        let [known, is] = [before, after].map(Instance::values);
        self.compare(semantics, address, before, after, known, &is);
    }

    /// Compares states of AArch32.
    pub fn take_arm(
        &mut self,
        semantics: &Semantics,
        address: u64,
        before: &Instance,
        after: &Instance,
    ) {
        let [known, is] = [before, after].map(Instance::values_of_arm);
        self.compare(semantics, address, before, after, known, &is);
    }

    fn compare(
        &mut self,
        semantics: &Semantics,
        address: u64,
        before: &Instance,
        after: &Instance,
        mut values: Values,
        is: &Values,
    ) {
        let word = before.word as u32;
        if after.word != 0 {
            if after.word == 4 && semantics.relations.len() < 100 {
                *self.unallocated.entry(word).or_default() += 1;
            }
            return;
        }
        self.executed += 1;
        let mut window = Window(before.memory.iter().copied().map(Some).collect());
        execute(semantics, address, &mut values, &mut window);
        let mut whole = true;
        let mut wrong = Vec::new();
        for (index, (known, is)) in values.iter().zip(is).enumerate() {
            match (known, is) {
                (Some(known), Some(is)) if known != is => {
                    wrong.push(format!("location {index}: {known:#x}, is {is:#x}"));
                }
                (None, Some(_)) => whole = false,
                _ => {}
            }
        }
        for (place, (known, is)) in window.0.iter().zip(after.memory).enumerate() {
            match known {
                Some(known) if *known != is => {
                    wrong.push(format!("byte {place}: {known:#x}, is {is:#x}"))
                }
                None => whole = false,
                Some(_) => {}
            }
        }
        self.whole += u64::from(whole);
        if !whole {
            *self.unknown.entry(word).or_default() += 1;
        }
        if !wrong.is_empty() {
            let relations = semantics.relations.iter();
            wrong.extend(relations.map(|relation| {
                let (operation, [a, b, c]) =
                    (relation.operation, [relation.a, relation.b, relation.c]);
                format!(
                    "{:?} = {operation:?} {a:?} {b:?} {c:?}",
                    relation.destination
                )
            }));
            self.wrong.insert(word, wrong.join("\n"));
        }
    }
}
