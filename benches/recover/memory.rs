//! The true memory of the last states of a program: the final memory, and what the stores since
//! changed.

use super::truth::State;
use armsnap::data_addresses::Accessed;
use armsnap::semantics::{Control, Location, Machine, Semantics, Values, execute};
use std::collections::HashMap;
use std::rc::Rc;

/// What is known of a byte at some time.
#[derive(Clone, Copy)]
enum Byte {
    Known(u8),
    Unknown,
}

/// Memory while the states are walked through, from the first.
pub struct Memory {
    bytes: HashMap<u64, Byte>,
    /// Granules of 8 bytes that a later state stores to, with the last such state.
    stored: HashMap<u64, usize>,
}

/// One instruction's effect on memory.
struct Effect<'a>(&'a mut Memory, &'a mut bool);

impl Machine for Effect<'_> {
    fn load(&mut self, _: u64, _: u8) -> Option<u64> {
        None
    }

    fn store(&mut self, address: Option<u64>, size: u8, value: Option<u64>) {
        let Some(address) = address else { return };
        for index in 0..u64::from(size) {
            let byte = value.map_or(Byte::Unknown, |value| {
                Byte::Known((value >> (8 * index)) as u8)
            });
            self.0.bytes.insert(address.wrapping_add(index), byte);
        }
    }

    fn may_store_anywhere(&mut self) {
        *self.1 = true;
    }
}

impl Memory {
    /// Memory before the first state. `accesses` of state i have `instruction` i.
    pub fn new(
        states: &[State],
        accesses: &[Accessed],
        semantics: impl Fn(&State) -> Rc<Semantics>,
    ) -> Self {
        let mut stored = HashMap::new();
        for accessed in accesses.iter().filter(|accessed| accessed.access.store) {
            let access = accessed.access;
            for granule in access.address >> 3..=(access.address + u64::from(access.bytes) - 1) >> 3
            {
                stored.insert(granule, accessed.instruction as usize);
            }
        }
        for (index, state) in states.iter().enumerate() {
            for granule in written_by_kernel(state, &semantics(state)) {
                stored.insert(granule, index);
            }
        }
        Self {
            bytes: HashMap::new(),
            stored,
        }
    }

    /// Executes the instruction of a state, which made these accesses.
    pub fn execute(&mut self, state: &State, semantics: &Semantics, accesses: &[Accessed]) {
        // Unknown at first; then what the model of the instruction gives is known.
        for accessed in accesses.iter().filter(|accessed| accessed.access.store) {
            for index in 0..u64::from(accessed.access.bytes) {
                self.bytes
                    .insert(accessed.access.address + index, Byte::Unknown);
            }
        }
        for granule in written_by_kernel(state, semantics) {
            for index in 0..8 {
                self.bytes.insert(granule << 3 | index, Byte::Unknown);
            }
        }
        if !accesses.iter().any(|accessed| accessed.access.store) {
            return;
        }
        let mut values: Values = values(state);
        let mut anywhere = false;
        execute(
            semantics,
            state.pc,
            &mut values,
            &mut Effect(self, &mut anywhere),
        );
        if anywhere {
            for accessed in accesses {
                for index in 0..u64::from(accessed.access.bytes) {
                    self.bytes
                        .insert(accessed.access.address + index, Byte::Unknown);
                }
            }
        }
    }

    /// A byte before the instruction of a state, if it is known. `last` is the final memory.
    pub fn byte(&self, state: usize, address: u64, last: impl Fn(u64) -> Option<u8>) -> Option<u8> {
        match self.bytes.get(&address) {
            Some(Byte::Known(byte)) => Some(*byte),
            Some(Byte::Unknown) => None,
            None => {
                let later = self.stored.get(&(address >> 3));
                later
                    .is_none_or(|later| *later < state)
                    .then(|| last(address))?
            }
        }
    }

    /// The bytes that do not agree with the final memory: something else wrote them.
    pub fn disagreeing(&self, last: impl Fn(u64) -> Option<u8>) -> usize {
        let known = self.bytes.iter().filter_map(|(address, byte)| match byte {
            Byte::Known(byte) => Some((*address, *byte)),
            Byte::Unknown => None,
        });
        known
            .filter(|(address, byte)| last(*address).is_some_and(|last| last != *byte))
            .count()
    }
}

/// The general registers, stack pointer and flags of a state as values.
pub fn values(state: &State) -> Values {
    let mut values = [None; Location::KEPT];
    for (location, value) in values.iter_mut().zip(state.registers) {
        *location = Some(value);
    }
    let flags = [Location::N, Location::Z, Location::C, Location::V];
    for (location, flag) in flags.into_iter().zip(state.flags()) {
        values[location.index()] = Some(flag);
    }
    values
}

/// The granules that a system call may write: around what its first arguments point to.
fn written_by_kernel(state: &State, semantics: &Semantics) -> impl Iterator<Item = u64> + use<> {
    const MOST: u64 = 64;
    let calls = semantics.control == Control::SystemCall;
    let arguments: [u64; 4] = std::array::from_fn(|number| state.registers[number]);
    let arguments = arguments.into_iter().filter(move |_| calls);
    arguments.flat_map(|argument| argument >> 3..(argument >> 3) + MOST)
}
