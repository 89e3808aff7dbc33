//! Linux signals in A64: what the kernel writes when it delivers one, and reads when the handler
//! returns (arch/arm64/kernel/signal.c: `struct rt_sigframe_user_layout`; uapi/asm/sigcontext.h,
//! uapi/asm/ucontext.h).
//!
//! Both are lists of relations, like instructions. The handler starts with SP at the frame, where
//! all registers were stored; its return loads them from there.

use crate::recover::facts::final_state::FinalMemory;
use armsnap_arch::semantics::{Control, Location, Operand, Operation, Relation, Semantics, Width};
use std::collections::HashMap;

/// `struct rt_sigframe`: siginfo, ucontext, sigcontext. A frame record follows.
const SIZE: u64 = 0x1250;
/// The most bytes that the kernel writes (SIGFRAME_MAXSZ).
pub(in crate::recover) const MAX_SIZE: u64 = 256 << 10;
/// x0 to x30, SP, and PSTATE in the frame.
const GENERAL: u64 = 0x138;
pub(in crate::recover) const STACK_POINTER: u64 = 0x230;
const STATUS: u64 = 0x240;
/// `struct fpsimd_context`, which comes first: its head, FPSR, FPCR, and the vectors.
const FLOATING: u64 = 0x250;
const FLOATING_HEAD: u64 = 0x210 << 32 | 0x4650_8001;
const FPSR: u64 = FLOATING + 8;
const FPCR: u64 = FLOATING + 12;
const VECTORS: u64 = FLOATING + 16;

/// The code of `mov x8, #139`, the number of `rt_sigreturn`.
pub(in crate::recover) const MOV_X8_SIGRETURN: u32 = 0xd280_1168;

/// The location that is saved at an offset in the frame.
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

/// Relations being assembled.
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

    /// Computes the address of an offset in the frame.
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

    fn store(&mut self, value: Location, offset: u64, size: u8) {
        let address = Location::temporary(0);
        self.address(address, offset);
        let operands = [
            Operand::Location(address),
            Operand::Location(value),
            Operand::Constant(1),
        ];
        self.push(Operation::Store { size }, Location::NOWHERE, operands);
    }

    fn semantics(self) -> Semantics {
        Semantics {
            relations: self.0,
            control: Control::Next,
            size: 4,
            may_store_anywhere: false,
            clears_block: None,
            changes_space: false,
        }
    }
}

/// The delivery of a signal. Its frame may be anywhere, and may be larger: what is beyond is not
/// included.
pub(in crate::recover) fn delivery() -> Semantics {
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
        if offset == FPSR {
            list.store(value, FPSR, 4);
            list.store(Location::FPCR, FPCR, 4);
        } else {
            list.store(value, offset, 8);
        }
    }
    // The number, with SA_SIGINFO also addresses in the frame, and the handler's return address.
    for number in [0, 1, 2, 30] {
        list.unknown(Location::general(number));
    }
    list.address(Location::general(29), SIZE);
    list.semantics()
}

/// The return of a signal's handler.
pub(in crate::recover) fn sigreturn() -> Semantics {
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

fn word(address: Option<u64>, memory: &dyn FinalMemory) -> Option<u64> {
    let mut bytes = [0; 8];
    let read = memory.read(address?, &mut bytes);
    (read == 8).then(|| u64::from_le_bytes(bytes))
}

/// The address of the frame of a signal that was delivered on the same stack with this stack
/// pointer, if memory still holds it.
pub(in crate::recover) fn frame_below(stack_pointer: u64, memory: &dyn FinalMemory) -> Option<u64> {
    let frame = (stack_pointer & !15).checked_sub(SIZE + 16)?;
    let word = |offset| word(frame.checked_add(offset), memory);
    let agrees = word(STACK_POINTER)? == stack_pointer && word(FLOATING)? == FLOATING_HEAD;
    agrees.then_some(frame)
}

/// The signal frames in memory, by the stack pointer in them; `None` if there are several.
#[derive(Debug, Default)]
pub(in crate::recover) struct Frames(HashMap<u64, Option<u64>>);

impl Frames {
    /// Searches memory for frames.
    pub fn find(memory: &dyn FinalMemory) -> Self {
        /// The most bytes that are searched, the bytes read at once, and the most frames that are
        /// kept.
        const MAX_SEARCHED: usize = 64 << 20;
        const PIECE: usize = 64 << 10;
        const MAX_FRAMES: usize = 1 << 16;
        let mut found = HashMap::new();
        let mut piece = vec![0; PIECE];
        let mut next = memory.next(0);
        let mut searched = 0;
        while searched < MAX_SEARCHED
            // Frames are aligned to 16 bytes, and so is the offset of this head in them.
            && let Some(at) = next.and_then(|at| at.checked_next_multiple_of(16))
        {
            let read = memory.read(at, &mut piece);
            let heads = (at..).step_by(16).zip(piece[..read].as_chunks::<16>().0);
            for (head, _) in heads.filter(|(_, bytes)| bytes[..8] == FLOATING_HEAD.to_le_bytes()) {
                let frame = head.checked_sub(FLOATING);
                let stack_pointer = frame.and_then(|frame| frame.checked_add(STACK_POINTER));
                if let Some(stack_pointer) = word(stack_pointer, memory) {
                    let only = found.entry(stack_pointer).or_insert(frame);
                    *only = only.filter(|only| Some(*only) == frame);
                }
            }
            if found.len() > MAX_FRAMES {
                return Self::default();
            }
            searched += read;
            next = match read {
                0 => memory.next(at),
                read => at.checked_add(read as u64),
            };
        }
        Self(found)
    }

    /// The only frame that contains a stack pointer.
    pub fn with(&self, stack_pointer: u64) -> Option<u64> {
        self.0.get(&stack_pointer).copied().flatten()
    }
}

/// The first three arguments of a handler, if the frame describes a signal (`siginfo_t`): its
/// number, that description, and the context. A handler without SA_SIGINFO receives only the
/// number, and the kernel writes no description.
pub(in crate::recover) fn arguments(frame: u64, memory: &dyn FinalMemory) -> Option<[u64; 3]> {
    /// Where `ucontext` is in the frame, after `siginfo_t`.
    const CONTEXT: u64 = 128;
    let first = word(Some(frame), memory)?;
    let second = word(frame.checked_add(8), memory)?;
    let (number, error) = (first as u32, first >> 32);
    // Negative codes belong to signals sent by processes; the kernel's own have few values.
    let (code, padding) = (second as i32, second >> 32);
    let is_signal = (1..=64).contains(&number) && error == 0;
    let is_sent = (-64..=128).contains(&code) && padding == 0;
    (is_signal && is_sent).then(|| [number.into(), frame, frame.wrapping_add(CONTEXT)])
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};

    /// Two regions of words, whose reads are counted.
    #[derive(Default)]
    struct Regions {
        words: [(u64, Vec<u64>); 2],
        reads: AtomicUsize,
    }

    impl FinalMemory for Regions {
        fn read(&self, address: u64, out: &mut [u8]) -> usize {
            self.reads.fetch_add(1, Ordering::Relaxed);
            let bytes = self.words.iter().find_map(|(start, words)| {
                let from = usize::try_from(address.checked_sub(*start)?).ok()?;
                let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
                bytes.get(from..).map(<[u8]>::to_vec)
            });
            let bytes = bytes.unwrap_or_default();
            let count = bytes.len().min(out.len());
            out[..count].copy_from_slice(&bytes[..count]);
            count
        }

        fn next(&self, address: u64) -> Option<u64> {
            let starts = self.words.iter().map(|(start, _)| *start);
            starts.filter(|start| *start > address).min()
        }

        fn is_constant(&self, _: u64) -> bool {
            false
        }
    }

    /// Memory with frames at these addresses, containing these stack pointers.
    fn memory(frames: &[(u64, u64)]) -> Regions {
        // The first ends within an aligned block.
        let mut regions = [(0x1_0008, vec![0; 3]), (0x2_0000, vec![0; 0x4000])];
        for (frame, stack_pointer) in frames {
            let words = &mut regions[1].1;
            let mut put = |offset, word| words[((frame + offset - 0x2_0000) / 8) as usize] = word;
            put(STACK_POINTER, *stack_pointer);
            put(FLOATING, FLOATING_HEAD);
        }
        Regions {
            words: regions,
            ..Regions::default()
        }
    }

    #[test]
    fn frames_are_found_by_the_stack_pointer_in_them() {
        let all = [(0x2_0000, 0x7000), (0x2_4010, 0x8000), (0x3_2010, 0x9000)];
        let memory = memory(&all);
        let found = Frames::find(&memory);
        for (frame, stack_pointer) in all {
            assert_eq!(found.with(stack_pointer), Some(frame));
        }
        assert_eq!(found.with(0x7008), None);
        // 128 KiB in pieces of 64 KiB, the end of each region, and each stack pointer.
        let reads = memory.reads.load(Ordering::Relaxed);
        assert!(reads < 12, "{reads}");
    }

    #[test]
    fn of_several_frames_with_a_stack_pointer_none_is_taken() {
        let same = [(0x2_0000, 0x7000), (0x2_4000, 0x7000), (0x2_8000, 0x7000)];
        assert_eq!(Frames::find(&memory(&same)).with(0x7000), None);
        // Unaligned, and without its start.
        let odd = memory(&[(0x2_0008, 0x7000)]);
        assert_eq!(Frames::find(&odd).with(0x7000), None);
    }

    #[test]
    fn arguments_follow_from_a_description_only() {
        let described = |first, second| {
            let mut memory = memory(&[]);
            memory.words[1].1[..2].copy_from_slice(&[first, second]);
            arguments(0x2_0000, &memory)
        };
        // SIGSEGV from the kernel (SEGV_MAPERR), SIGUSR1 from tgkill (SI_TKILL).
        let all = |number| Some([number, 0x2_0000, 0x2_0080]);
        assert_eq!(described(11, 1), all(11));
        assert_eq!(described(10, u64::from((-6_i32).cast_unsigned())), all(10));
        for (first, second) in [
            (0, 0),
            (65, 1),
            (11 | 1 << 32, 1),
            (11, 1 << 32),
            (11, 0x1000),
        ] {
            assert_eq!(described(first, second), None, "{first:#x} {second:#x}");
        }
    }
}
