//! Branches and exception generation (C4.1, "Branches, Exception Generating and System
//! instructions").

use super::arithmetic::{LOW_32, with_unknown_code};
use super::system;
use super::word::{Word, x};
use crate::semantics::builder::{Builder, ONE};
use crate::semantics::{Control, Location, Operand, Operation};

const LINK: Location = Location::general(30);

pub(super) fn decode(builder: &mut Builder, word: Word, address: u64) -> Option<()> {
    let target = |low, count| address.wrapping_add_signed(word.signed(low, count) << 2);
    match word.field(24, 8) {
        // B, BL: imm26.
        0x14..=0x17 => builder.control = Control::Jump(target(0, 26)),
        0x94..=0x97 => {
            link(builder, address);
            builder.control = Control::Jump(target(0, 26));
        }
        // CBZ, CBNZ.
        0x34 | 0x35 | 0xb4 | 0xb5 => {
            let mut tested = x(word.d());
            if !word.bit(31) {
                tested = builder.op1(LOW_32, tested);
            }
            let zero = builder.op2(Operation::Equal, tested, Operand::ZERO);
            let condition = if word.bit(24) {
                builder.inverted(zero)
            } else {
                zero
            };
            builder.control = Control::Conditional {
                condition,
                target: target(5, 19),
            };
        }
        // TBZ, TBNZ.
        0x36 | 0x37 | 0xb6 | 0xb7 => {
            let low = (word.field(31, 1) << 5 | word.field(19, 5)) as u8;
            let bit = builder.op1(Operation::Extract { low, count: 1 }, x(word.d()));
            let condition = if word.bit(24) {
                bit
            } else {
                builder.inverted(bit)
            };
            builder.control = Control::Conditional {
                condition,
                target: target(5, 14),
            };
        }
        // B.cond, BC.cond.
        0x54 => {
            let condition = builder.holds(word.field(0, 4) as u8);
            builder.control = Control::Conditional {
                condition,
                target: target(5, 19),
            };
        }
        0xd4 => exception(builder, word)?,
        0xd5 => system::decode(builder, word)?,
        0xd6 | 0xd7 => register(builder, word, address)?,
        _ => return None,
    }
    Some(())
}

fn link(builder: &mut Builder, address: u64) {
    builder.copy(LINK, Operand::Constant(address.wrapping_add(4)));
}

fn exception(builder: &mut Builder, word: Word) -> Option<()> {
    match (word.field(21, 3), word.field(2, 3), word.field(0, 2)) {
        // SVC
        (0b000, 0, 1) => builder.control = Control::SystemCall,
        // HVC, SMC: the SMC Calling Convention 1.0 (DEN0028) keeps x18 to x30.
        (0b000, 0, 2 | 3) => {
            for number in 0..18 {
                builder.unknown(Location::general(number));
            }
            builder.may_store_anywhere = true;
        }
        // BRK only traps.
        (0b001, 0, 0) => {}
        // HLT: semihosting writes its result to x0, and also writes buffers.
        (0b010, 0, 0) => {
            builder.unknown(Location::general(0));
            builder.may_store_anywhere = true;
        }
        _ => return None,
    }
    Some(())
}

/// BR, BLR, RET and ERET, also with pointer authentication.
fn register(builder: &mut Builder, word: Word, address: u64) -> Option<()> {
    let (opc, op3, op4) = (word.field(21, 4), word.field(10, 6), word.field(0, 5));
    if word.field(16, 5) != 31 {
        return None;
    }
    let authenticates = match (opc, op3, op4) {
        (0..=2, 0, 0) => false,
        (0 | 1, 2 | 3, 31) => true,
        (2, 2 | 3, 31) if word.n() == 31 => true,
        (8 | 9, 2 | 3, _) => true,
        (4, 0, 0) | (4, 2 | 3, 31) if word.n() == 31 => {
            // The stack pointer becomes the one of another exception level.
            builder.unknown(Location::SP);
            builder.unknown_flags();
            builder.control = Control::ExceptionReturn;
            return Some(());
        }
        _ => return None,
    };
    let from = if opc == 2 && authenticates {
        x(30)
    } else {
        x(word.n())
    };
    let mut target = if authenticates {
        with_unknown_code(builder, from)
    } else {
        from
    };
    if opc & 7 == 1 {
        if target == Operand::Location(LINK) {
            target = builder.kept(target);
        }
        link(builder, address);
    }
    builder.control = Control::Indirect {
        target,
        condition: ONE,
        interworking: false,
    };
    Some(())
}
