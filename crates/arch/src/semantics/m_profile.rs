//! The M profile: the registers that only it has, and what a core does when it takes an exception
//! and returns from one (DDI 0403, B1.5.6 to B1.5.8; DDI 0419 for Armv6-M).
//!
//! Modelled without floating point and without the Security Extension. A core takes an exception
//! and returns from it between two instructions; both are lists of relations, like instructions.

use super::builder::{Builder, ONE};
use super::operation::{Operation, Width};
use super::t32::{self, ItState};
use super::{Control, Location, Operand, Semantics};
use crate::encoding::t32::Wide;

/// Inputs of [`exception_entry`] that the core does not compute from registers: the address to
/// return to, and EXC_RETURN without its bits 3:2.
pub const RETURN_ADDRESS: Location = Location::temporary(126);
/// See [`RETURN_ADDRESS`].
pub const EXCEPTION_RETURN: Location = Location::temporary(127);
/// The address of the frame, in [`exception_entry`] and [`exception_return`].
pub const FRAME_ADDRESS: Location = Location::temporary(125);
/// Bits of EXC_RETURN that are the same in all exceptions of a core without floating point.
pub const EXCEPTION_RETURN_BITS: u64 = 0xffff_fff1;

/// Bits of EXC_RETURN: the interrupted code used the process stack, in Thread mode.
const ON_PROCESS_STACK: u8 = 2;
const IN_THREAD_MODE: u8 = 3;
/// Offsets in the frame of an exception after R0 to R3: R12, LR, the return address, and xPSR.
const FRAME: u64 = 0x20;
const REST: [(u64, Location); 2] = [(16, Location::general(12)), (20, Location::general(14))];
const FRAME_PC: u64 = 24;
const FRAME_STATUS: u64 = 28;

const STACK: Operand = Operand::Location(Location::general(13));
const OTHER: Operand = Operand::Location(Location::OTHER_STACK);
const ON_PROCESS: Operand = Operand::Location(Location::ON_PROCESS_STACK);
const HANDLER: Operand = Operand::Location(Location::HANDLER_MODE);

/// The flags, with their bits in xPSR.
const FLAGS: [(Location, u8, u8); 6] = [
    (Location::N, 31, 1),
    (Location::Z, 30, 1),
    (Location::C, 29, 1),
    (Location::V, 28, 1),
    (Location::Q, 27, 1),
    (Location::GE, 16, 4),
];

/// R0 to R3, R12 and LR with their offsets in the frame of an exception.
fn saved() -> impl Iterator<Item = (u64, Location)> {
    let low = (0..4_u8).map(|number| (4 * u64::from(number), Location::general(number)));
    low.chain(REST)
}

/// Like [`t32::decode`], on a core of the M profile.
#[must_use]
pub fn decode(first: u16, second: u16, address: u64, block: ItState) -> Semantics {
    let word = u32::from(first) << 16 | u32::from(second);
    let special = t32::is_wide(first).then(|| Wide::decode(word)).flatten();
    let number = (second & 0xff) as u8;
    let mut b = Builder::new();
    match special {
        Some(Wide::ReadState { rd }) if rd < 13 && !block.is_inside() => {
            let to = Location::general(rd);
            match number {
                // An unprivileged thread reads 0.
                8 => in_handler(&mut b, to, STACK),
                9 => in_handler(&mut b, to, OTHER),
                _ => b.unknown(to),
            }
            return b.finish(4);
        }
        Some(Wide::WriteState { rn, .. }) if !(1..=3).contains(&number) && number != 0 => {
            if block.is_inside() {
                forget_stacks(&mut b);
                return b.finish(4);
            }
            let value = Operand::Location(Location::general(rn));
            let value = b.op2(Operation::And, value, Operand::Constant(0xffff_fffc));
            match number {
                // Read-only, or they mask exceptions.
                5..=7 | 16..=19 => return Builder::new().finish(4),
                // An unprivileged thread writes nothing.
                8 => {
                    let lost = b.op1(Operation::Unknown, Operand::ZERO);
                    let main = b.op(Operation::Select, value, lost, HANDLER);
                    b.set(
                        Location::general(13),
                        Operation::Select,
                        STACK,
                        main,
                        ON_PROCESS,
                    );
                    let lost = b.op1(Operation::Unknown, Operand::ZERO);
                    b.set(
                        Location::OTHER_STACK,
                        Operation::Select,
                        lost,
                        OTHER,
                        ON_PROCESS,
                    );
                }
                9 => {
                    let lost = b.op1(Operation::Unknown, Operand::ZERO);
                    b.set(
                        Location::OTHER_STACK,
                        Operation::Select,
                        value,
                        lost,
                        HANDLER,
                    );
                    let lost = b.op1(Operation::Unknown, Operand::ZERO);
                    b.set(
                        Location::general(13),
                        Operation::Select,
                        lost,
                        STACK,
                        ON_PROCESS,
                    );
                }
                _ => forget_stacks(&mut b),
            }
            return b.finish(4);
        }
        _ => {}
    }
    let mut semantics = t32::decode(first, second, address, block);
    if semantics.control == Control::SystemCall {
        // An exception like others.
        semantics.control = Control::Next;
    }
    if semantics.may_store_anywhere {
        let mut b = Builder::new();
        forget_stacks(&mut b);
        semantics.relations.extend(b.finish(4).relations);
    }
    semantics
}

/// Copies a stack pointer if the core is in Handler mode; otherwise the result is unknown.
fn in_handler(b: &mut Builder, to: Location, stack: Operand) {
    let lost = b.op1(Operation::Unknown, Operand::ZERO);
    b.set(to, Operation::Select, stack, lost, HANDLER);
}

fn forget_stacks(b: &mut Builder) {
    for location in [
        Location::general(13),
        Location::OTHER_STACK,
        Location::ON_PROCESS_STACK,
        Location::HANDLER_MODE,
    ] {
        b.unknown(location);
    }
}

/// What a core does when it takes an exception, before the first instruction of the handler. The
/// architecture leaves R0 to R3, R12 and the flags unknown there.
#[must_use]
pub fn exception_entry() -> Semantics {
    let mut b = Builder::new();
    // Whether the frame was aligned to 8 bytes: CCR.STKALIGN is not known.
    let aligns = b.op1(Operation::Unknown, Operand::ZERO);
    let odd = b.op1(Operation::Extract { low: 2, count: 1 }, STACK);
    let padded = b.op2(Operation::And, aligns, odd);
    let padding = b.op2(
        Operation::ShiftLeft(Width::W32),
        padded,
        Operand::Constant(2),
    );
    let top = b.op2(Operation::Subtract(Width::W32), STACK, padding);
    let frame = Operand::Location(FRAME_ADDRESS);
    let size = Operand::Constant(FRAME);
    b.set2(FRAME_ADDRESS, Operation::Subtract(Width::W32), top, size);
    let mut status = b.op1(Operation::Unknown, Operand::ZERO);
    let bits = FLAGS.map(|(flag, low, count)| (Operand::Location(flag), low, count));
    // Bit T, and whether the frame was aligned.
    for (bit, low, count) in bits.into_iter().chain([(ONE, 24, 1), (padded, 9, 1)]) {
        status = b.op2(Operation::Insert { low, count }, status, bit);
    }
    let thread = b.inverted(HANDLER);
    let link = Operand::Location(EXCEPTION_RETURN);
    let low = ON_PROCESS_STACK;
    let link = b.op2(Operation::Insert { low, count: 1 }, link, ON_PROCESS);
    let low = IN_THREAD_MODE;
    let link = b.op2(Operation::Insert { low, count: 1 }, link, thread);
    b.set(
        Location::general(13),
        Operation::Select,
        OTHER,
        frame,
        ON_PROCESS,
    );
    b.set(
        Location::OTHER_STACK,
        Operation::Select,
        frame,
        OTHER,
        ON_PROCESS,
    );
    let stored = saved().map(|(offset, location)| (offset, Operand::Location(location)));
    let rest = [
        (FRAME_PC, Operand::Location(RETURN_ADDRESS)),
        (FRAME_STATUS, status),
    ];
    for (offset, value) in stored.chain(rest) {
        let at = address(&mut b, frame, offset);
        b.store(4, at, value);
    }
    b.copy(Location::general(14), link);
    for number in [0, 1, 2, 3, 12] {
        b.unknown(Location::general(number));
    }
    for (flag, ..) in FLAGS {
        b.unknown(flag);
    }
    b.copy(Location::ON_PROCESS_STACK, Operand::ZERO);
    b.copy(Location::HANDLER_MODE, ONE);
    b.finish(0)
}

/// What a core does when a handler branched to EXC_RETURN, which is in [`EXCEPTION_RETURN`]. The
/// loaded address is left in [`RETURN_ADDRESS`].
#[must_use]
pub fn exception_return() -> Semantics {
    let mut b = Builder::new();
    let link = Operand::Location(EXCEPTION_RETURN);
    let bit = |b: &mut Builder, low| b.op1(Operation::Extract { low, count: 1 }, link);
    let process = bit(&mut b, ON_PROCESS_STACK);
    let thread = bit(&mut b, IN_THREAD_MODE);
    // Handlers use the main stack.
    let process = b.op2(Operation::And, process, thread);
    let frame = Operand::Location(FRAME_ADDRESS);
    b.set(FRAME_ADDRESS, Operation::Select, OTHER, STACK, process);
    for (offset, location) in saved() {
        let at = address(&mut b, frame, offset);
        b.load_to(location, 4, at);
    }
    let at = address(&mut b, frame, FRAME_PC);
    b.load_to(RETURN_ADDRESS, 4, at);
    let at = address(&mut b, frame, FRAME_STATUS);
    let status = b.load(4, at);
    let padded = b.op1(Operation::Extract { low: 9, count: 1 }, status);
    let padding = b.op2(
        Operation::ShiftLeft(Width::W32),
        padded,
        Operand::Constant(2),
    );
    let top = b.op2(Operation::Add(Width::W32), frame, Operand::Constant(FRAME));
    b.set(
        Location::OTHER_STACK,
        Operation::Select,
        STACK,
        OTHER,
        process,
    );
    // The padding first: it is often known from the lowest bits of the sum.
    b.set2(
        Location::general(13),
        Operation::Add(Width::W32),
        padding,
        top,
    );
    for (flag, low, count) in FLAGS {
        b.set1(flag, Operation::Extract { low, count }, status);
    }
    b.copy(Location::ON_PROCESS_STACK, process);
    let handler = b.inverted(thread);
    b.copy(Location::HANDLER_MODE, handler);
    b.finish(0)
}

/// The address of an offset in a frame.
fn address(b: &mut Builder, frame: Operand, offset: u64) -> Operand {
    match offset {
        0 => frame,
        _ => b.op2(Operation::Add(Width::W32), frame, Operand::Constant(offset)),
    }
}
