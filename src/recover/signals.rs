//! Signals of Linux in A64: what the kernel writes when it delivers one, and reads when the handler
//! returns (arch/arm64/kernel/signal.c: `struct rt_sigframe_user_layout`; uapi/asm/sigcontext.h,
//! uapi/asm/ucontext.h).
//!
//! Both are lists of relations, as instructions are. The handler starts with SP at the frame, where
//! all registers were stored; its return loads them from there.

use super::final_state::FinalMemory;
use crate::semantics::{Control, Location, Operand, Operation, Relation, Semantics, Width};

/// `struct rt_sigframe`: siginfo, ucontext, sigcontext. A frame record follows.
const SIZE: u64 = 0x1250;
/// x0 to x30, SP, and PSTATE in the frame.
const GENERAL: u64 = 0x138;
const STACK_POINTER: u64 = 0x230;
const STATUS: u64 = 0x240;
/// `struct fpsimd_context`, which comes first: its head, FPCR, and the vectors.
const FLOATING: u64 = 0x250;
const FLOATING_HEAD: u64 = 0x210 << 32 | 0x4650_8001;
const FPCR: u64 = FLOATING + 12;
const VECTORS: u64 = FLOATING + 16;

/// The code of `mov x8, #139`, the number of `rt_sigreturn`.
pub(super) const MOV_X8_SIGRETURN: u32 = 0xd280_1168;

/// What is in a location of the frame, in words.
fn saved(offset: u64) -> Option<Location> {
    let number = |from: u64, count: u64| {
        let number = offset.checked_sub(from)? / 8;
        (number < count).then_some(number as u8)
    };
    let vector = |number: u8| Location::vector(number / 2, number % 2);
    number(GENERAL, 31)
        .map(Location::general)
        .or_else(|| number(VECTORS, 64).map(vector))
        .or_else(|| number(SIZE, 2).map(|number| Location::general(29 + number)))
}

/// Relations that are put together.
#[derive(Default)]
struct List(Vec<Relation>);

impl List {
    fn push(&mut self, operation: Operation, destination: Location, [a, b, c]: [Operand; 3]) {
        self.0.push(Relation {
            operation,
            destination,
            a,
            b,
            c,
        });
    }

    fn one(&mut self, operation: Operation, destination: Location, a: Location) {
        let operands = [Operand::Location(a), Operand::ZERO, Operand::ZERO];
        self.push(operation, destination, operands);
    }

    fn unknown(&mut self, destination: Location) {
        self.push(Operation::Unknown, destination, [Operand::ZERO; 3]);
    }

    /// The address of a place in the frame.
    fn address(&mut self, destination: Location, offset: u64) {
        let operands = [
            Operand::Location(Location::SP),
            Operand::Constant(offset),
            Operand::ZERO,
        ];
        self.push(Operation::Add(Width::W64), destination, operands);
    }

    fn load(&mut self, destination: Location, offset: u64, size: u8) {
        let address = Location::temporary(0);
        self.address(address, offset);
        let operands = [
            Operand::Location(address),
            Operand::ZERO,
            Operand::Constant(1),
        ];
        self.push(Operation::Load { size }, destination, operands);
    }

    fn store(&mut self, value: Location, offset: u64) {
        let address = Location::temporary(0);
        self.address(address, offset);
        let operands = [
            Operand::Location(address),
            Operand::Location(value),
            Operand::Constant(1),
        ];
        self.push(Operation::Store { size: 8 }, Location::NOWHERE, operands);
    }

    fn semantics(self) -> Semantics {
        Semantics {
            relations: self.0,
            control: Control::Next,
            size: 4,
            may_store_anywhere: false,
            changes_space: false,
        }
    }
}

/// A signal is delivered. Its frame may be anywhere, and may be larger: what is beyond is not part of
/// this.
pub(super) fn delivery() -> Semantics {
    let [stack_pointer, value] = [1, 2].map(Location::temporary);
    let mut list = List::default();
    list.one(Operation::Copy, stack_pointer, Location::SP);
    list.unknown(Location::SP);
    for offset in (0..SIZE + 16).step_by(8) {
        let value = match saved(offset) {
            Some(location) => location,
            None if offset == STACK_POINTER => stack_pointer,
            None => {
                list.unknown(value);
                value
            }
        };
        list.store(value, offset);
    }
    // The number, with SA_SIGINFO also addresses in the frame; and where the handler returns to.
    for number in [0, 1, 2, 30] {
        list.unknown(Location::general(number));
    }
    list.address(Location::general(29), SIZE);
    list.semantics()
}

/// The handler of a signal returns.
pub(super) fn sigreturn() -> Semantics {
    let status = Location::temporary(1);
    let mut list = List::default();
    for number in 0..31 {
        list.load(
            Location::general(number),
            GENERAL + 8 * u64::from(number),
            8,
        );
    }
    for number in 0..64 {
        let location = Location::vector(number / 2, number % 2);
        list.load(location, VECTORS + 8 * u64::from(number), 8);
    }
    list.load(Location::FPCR, FPCR, 4);
    list.load(status, STATUS, 8);
    let flags = [Location::N, Location::Z, Location::C, Location::V];
    for (flag, low) in flags.into_iter().zip([31, 30, 29, 28]) {
        list.one(Operation::Extract { low, count: 1 }, flag, status);
    }
    list.load(Location::SP, STACK_POINTER, 8);
    list.semantics()
}

/// Bytes of memory that are searched for a frame, and bytes read at once.
const MAX_SEARCHED: usize = 64 << 20;
const PIECE: usize = 64 << 10;

/// Where the frame of a signal is that was delivered with this stack pointer, if memory still holds it:
/// on the same stack, or else the only one on another (sigaltstack).
pub(super) fn frame(stack_pointer: u64, memory: &dyn FinalMemory) -> Option<u64> {
    let below = (stack_pointer & !15).checked_sub(SIZE + 16);
    below
        .filter(|&frame| is_frame(frame, stack_pointer, memory))
        .or_else(|| frame_elsewhere(stack_pointer, memory))
}

fn word(address: Option<u64>, memory: &dyn FinalMemory) -> Option<u64> {
    let mut bytes = [0; 8];
    let read = memory.read(address?, &mut bytes);
    (read == 8).then(|| u64::from_le_bytes(bytes))
}

fn is_frame(frame: u64, stack_pointer: u64, memory: &dyn FinalMemory) -> bool {
    let word = |offset| word(frame.checked_add(offset), memory);
    word(STACK_POINTER) == Some(stack_pointer) && word(FLOATING) == Some(FLOATING_HEAD)
}

/// Searches all memory for the only frame with a stack pointer.
fn frame_elsewhere(stack_pointer: u64, memory: &dyn FinalMemory) -> Option<u64> {
    let wanted = stack_pointer.to_le_bytes();
    let mut found = None;
    let mut piece = vec![0; PIECE];
    let mut next = memory.next(0);
    let mut searched = 0;
    while let Some(at) = next
        && searched < MAX_SEARCHED
    {
        // Frames are aligned to 16 bytes, and so is the place of the stack pointer.
        let at = at.checked_next_multiple_of(16)?;
        let read = memory.read(at, &mut piece);
        let words = piece[..read].as_chunks::<16>().0.iter().enumerate();
        for (index, _) in words.filter(|(_, word)| word[..8] == wanted) {
            let frame = (at + 16 * index as u64).wrapping_sub(STACK_POINTER);
            if is_frame(frame, stack_pointer, memory) && found.replace(frame).is_some() {
                return None;
            }
        }
        searched += read;
        next = match read {
            0 => memory.next(at),
            read => at.checked_add(read as u64),
        };
    }
    found
}

/// The first three arguments of a handler, if the frame describes a signal (`siginfo_t`): its number,
/// that description, and the context. A handler without SA_SIGINFO gets only the number, and the kernel
/// describes nothing.
pub(super) fn arguments(frame: u64, memory: &dyn FinalMemory) -> Option<[u64; 3]> {
    /// Where `ucontext` is in the frame, after `siginfo_t`.
    const CONTEXT: u64 = 128;
    let half = |word: u64, high| (word >> if high { 32 } else { 0 }) as u32;
    let (first, second) = (
        word(Some(frame), memory)?,
        word(frame.checked_add(8), memory)?,
    );
    let (number, error) = (half(first, false), half(first, true));
    // Negative codes are of signals that processes send; the kernel's own have few values.
    let (code, padding) = (half(second, false) as i32, half(second, true));
    let is_signal = (1..=64).contains(&number) && error == 0;
    let is_sent = (-64..=128).contains(&code) && padding == 0;
    (is_signal && is_sent).then(|| [number.into(), frame, frame.wrapping_add(CONTEXT)])
}
