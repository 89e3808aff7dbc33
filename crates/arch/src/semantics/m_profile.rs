//! The M profile: the registers that only it has, and what a core does when it takes an exception
//! and returns from one (DDI 0403, B1.5.6 to B1.5.8; DDI 0419 for Armv6-M).
//!
//! Modelled without changes between Secure and Non-secure state. A core takes an exception and
//! returns from it between two instructions; both are lists of relations, like instructions. So is
//! what happens before the first floating-point instruction of a handler or thread.

use super::builder::{Builder, ONE};
use super::operation::{Operation, Width};
use super::t32::{self, ItState};
use super::{Control, Location, Operand, Semantics};
use crate::encoding::t32::Wide;

/// Inputs of [`exception_entry`] that the core does not compute from registers: the address to
/// return to, and EXC_RETURN without its bits 3:2, and on cores with floating point 4.
pub const RETURN_ADDRESS: Location = Location::temporary(126);
/// See [`RETURN_ADDRESS`].
pub const EXCEPTION_RETURN: Location = Location::temporary(127);
/// The address of the frame, in [`exception_entry`] and [`exception_return`].
pub const FRAME_ADDRESS: Location = Location::temporary(125);
/// An input of [`first_float`]: whether the instruction is executed, and the core notes that floating
/// point is used (FPCCR.ASPEN).
pub const NOTES_FLOATS: Location = Location::temporary(124);
/// Bits of EXC_RETURN that are always 1.
pub const EXCEPTION_RETURN_BITS: u64 = 0xffff_ff80;

/// Bits of EXC_RETURN: the interrupted code used the process stack, in Thread mode; its frame has no
/// room for floating-point registers.
const ON_PROCESS_STACK: u8 = 2;
const IN_THREAD_MODE: u8 = 3;
const WITHOUT_FLOATS: u8 = 4;
/// Offsets in the frame of an exception after R0 to R3: R12, LR, the return address, and xPSR.
const FRAME: u64 = 0x20;
const REST: [(u64, Location); 2] = [(16, Location::general(12)), (20, Location::general(14))];
const FRAME_PC: u64 = 24;
const FRAME_STATUS: u64 = 28;
/// The size of a frame with S0 to S15 and FPSCR, which follow the others.
const FRAME_WITH_FLOATS: u64 = 0x68;

const STACK: Operand = Operand::Location(Location::general(13));
const OTHER: Operand = Operand::Location(Location::OTHER_STACK);
const ON_PROCESS: Operand = Operand::Location(Location::ON_PROCESS_STACK);
const HANDLER: Operand = Operand::Location(Location::HANDLER_MODE);
const FLOATS: Operand = Operand::Location(Location::FLOATS);

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

/// The registers that a frame with floating-point registers contains: D0 to D7, and those of FPSCR.
pub fn saved_floats() -> impl Iterator<Item = Location> {
    let low = (0..8).map(|number| Location::vector(number / 2, number % 2));
    low.chain([Location::FPSCR_FLAGS, Location::FPCR])
}

/// Whether an instruction is a floating-point instruction, which [`first_float`] may precede.
#[must_use]
pub const fn is_float(first: u16, second: u16) -> bool {
    first & 0xec00 == 0xec00 && second >> 9 & 7 == 0b101
}

/// Whether an instruction may change between Secure and Non-secure state (BXNS, BLXNS and SG), or saves or
/// restores the floating-point registers around that (VLSTM and VLLDM, DDI 0553, C2.4).
#[must_use]
pub const fn changes_security(first: u16, second: u16) -> bool {
    let saves_floats = first & 0xffe0 == 0xec20 && second & 0xff7f == 0x0a00;
    first & 0xff07 == 0x4704 || first == 0xe97f && second == 0xe97f || saves_floats
}

/// Like [`t32::decode`], on a core of the M profile.
#[must_use]
pub fn decode(first: u16, second: u16, address: u64, block: ItState) -> Semantics {
    let word = u32::from(first) << 16 | u32::from(second);
    let special = t32::is_wide(first).then(|| Wide::decode(word)).flatten();
    let number = (second & 0xff) as u8;
    let mut b = Builder::new();
    // TT, TTT, TTA and TTAT, which otherwise are STREX of the pc (DDI 0553, C2.4.275).
    if first & 0xfff0 == 0xe840 && second & 0xf03f == 0xf000 {
        b.unknown(Location::general((second >> 8 & 0xf).min(14) as u8));
        return b.finish(4);
    }
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
                // Read-only, limits of stacks, what masks exceptions, and registers of the other security
                // state.
                5..=7 | 10 | 11 | 16..=19 | 128.. => return Builder::new().finish(4),
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
        Location::FLOATS,
        Location::FLOATS_PENDING,
        Location::LAZY_FRAME,
    ] {
        b.unknown(location);
    }
}

/// What a core does when it takes an exception, before the first instruction of the handler. The
/// architecture leaves R0 to R3, R12 and the flags unknown there. `floats`: it may have floating
/// point.
#[must_use]
pub fn exception_entry(floats: bool) -> Semantics {
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
    let size = if floats {
        let sizes = [FRAME_WITH_FLOATS, FRAME].map(Operand::Constant);
        b.op(Operation::Select, sizes[0], sizes[1], FLOATS)
    } else {
        Operand::Constant(FRAME)
    };
    b.set2(FRAME_ADDRESS, Operation::Subtract(Width::W32), top, size);
    let mut status = b.op1(Operation::Unknown, Operand::ZERO);
    let bits = FLAGS.map(|(flag, low, count)| (Operand::Location(flag), low, count));
    // Bit T, and whether the frame was aligned.
    for (bit, low, count) in bits.into_iter().chain([(ONE, 24, 1), (padded, 9, 1)]) {
        status = b.op2(Operation::Insert { low, count }, status, bit);
    }
    let thread = b.inverted(HANDLER);
    let mut link = Operand::Location(EXCEPTION_RETURN);
    let bits = [(ON_PROCESS_STACK, ON_PROCESS), (IN_THREAD_MODE, thread)];
    let without = floats.then(|| (WITHOUT_FLOATS, b.inverted(FLOATS)));
    for (low, bit) in bits.into_iter().chain(without) {
        link = b.op2(Operation::Insert { low, count: 1 }, link, bit);
    }
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
    if floats {
        let at = address(&mut b, frame, FRAME);
        b.set(
            Location::LAZY_FRAME,
            Operation::Select,
            at,
            Operand::Location(Location::LAZY_FRAME),
            FLOATS,
        );
        lose_where(&mut b, Location::FLOATS_PENDING, FLOATS);
        store_floats(&mut b, frame, FRAME, FLOATS);
        for location in saved_floats() {
            lose_where(&mut b, location, FLOATS);
        }
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
    if floats {
        b.copy(Location::FLOATS, Operand::ZERO);
    }
    b.finish(0)
}

/// Stores unknown values where a frame has room for floating-point registers, if `condition` is 1: it
/// is not known when the core stores the registers there (FPCCR.LSPEN), if at all.
fn store_floats(b: &mut Builder, frame: Operand, offset: u64, condition: Operand) {
    for offset in (offset..).step_by(8).take(9) {
        let value = b.op1(Operation::Unknown, Operand::ZERO);
        let at = address(b, frame, offset);
        b.store_where(8, at, value, condition);
    }
}

fn lose_where(b: &mut Builder, location: Location, condition: Operand) {
    let lost = b.op1(Operation::Unknown, Operand::ZERO);
    let kept = Operand::Location(location);
    b.set(location, Operation::Select, lost, kept, condition);
}

/// What a core does before the first floating-point instruction after an exception or a return:
/// it stores the registers of interrupted code if it has not yet, and unless floating point is in
/// use already, sets the control bits of FPSCR anew.
#[must_use]
pub fn first_float() -> Semantics {
    let mut b = Builder::new();
    let frame = Operand::Location(Location::LAZY_FRAME);
    let pending = Operand::Location(Location::FLOATS_PENDING);
    store_floats(&mut b, frame, 0, pending);
    let first = b.inverted(FLOATS);
    lose_where(&mut b, Location::FPCR, first);
    let notes = Operand::Location(NOTES_FLOATS);
    b.set(
        Location::FLOATS_PENDING,
        Operation::Select,
        Operand::ZERO,
        pending,
        notes,
    );
    b.set2(Location::FLOATS, Operation::Or, FLOATS, notes);
    b.finish(0)
}

/// What a core does when a handler branched to EXC_RETURN, which is in [`EXCEPTION_RETURN`]. The
/// loaded address is left in [`RETURN_ADDRESS`]. `floats`: it may have floating point; then the
/// registers in the frame are unknown.
#[must_use]
pub fn exception_return(floats: bool) -> Semantics {
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
    let mut size = Operand::Constant(FRAME);
    if floats {
        let without = bit(&mut b, WITHOUT_FLOATS);
        let larger = Operand::Constant(FRAME_WITH_FLOATS);
        size = b.op(Operation::Select, size, larger, without);
        let with = b.inverted(without);
        for location in saved_floats() {
            lose_where(&mut b, location, with);
        }
        b.copy(Location::FLOATS, with);
        // If they are not stored yet, they never are.
        b.set(
            Location::FLOATS_PENDING,
            Operation::Select,
            Operand::ZERO,
            Operand::Location(Location::FLOATS_PENDING),
            with,
        );
    }
    let top = b.op2(Operation::Add(Width::W32), frame, size);
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Encoded by GNU as.
    #[test]
    fn changes_of_the_security_state_are_found() {
        for (first, second, changes) in [
            // bxns r4; blxns r5; bx r4; sg
            (0x4724, 0, true),
            (0x47ac, 0, true),
            (0x4720, 0, false),
            (0xe97f, 0xe97f, true),
            // vlstm r3; vlldm r3; vldmia r3, {s0}
            (0xec23, 0x0a00, true),
            (0xec33, 0x0a00, true),
            (0xec93, 0x0a01, false),
        ] {
            assert_eq!(changes_security(first, second), changes, "{first:#x}");
        }
    }
}
