//! Branches, exception generation and system instructions.

use super::arithmetic::{LOW_32, with_unknown_code};
use super::system;
use super::word::{to_x, x};
use crate::encoding::{a64::Branch, signed};
use crate::semantics::builder::{Builder, ONE};
use crate::semantics::{Control, Location, Operand, Operation};

const LINK: Location = Location::general(30);

pub(super) fn decode(builder: &mut Builder, word: u32, address: u64) -> Option<()> {
    let target = |imm, bits| address.wrapping_add_signed(signed(imm, bits) << 2);
    match Branch::decode(word)? {
        Branch::Immediate { link, imm } => {
            if link {
                self::link(builder, address);
            }
            builder.control = Control::Jump(target(imm, 26));
        }
        Branch::CompareZero {
            sf,
            nonzero,
            imm,
            rt,
        } => {
            let mut tested = x(rt);
            if !sf {
                tested = builder.op1(LOW_32, tested);
            }
            let zero = builder.op2(Operation::Equal, tested, Operand::ZERO);
            let condition = if nonzero {
                builder.inverted(zero)
            } else {
                zero
            };
            let target = target(imm, 19);
            builder.control = Control::Conditional { condition, target };
        }
        Branch::TestBit {
            high,
            nonzero,
            low,
            imm,
            rt,
        } => {
            let low = u8::from(high) << 5 | low;
            let bit = builder.op1(Operation::Extract { low, count: 1 }, x(rt));
            let condition = if nonzero { bit } else { builder.inverted(bit) };
            let target = target(imm, 14);
            builder.control = Control::Conditional { condition, target };
        }
        Branch::Conditional { imm, cond } => {
            let condition = builder.holds(cond);
            let target = target(imm, 19);
            builder.control = Control::Conditional { condition, target };
        }
        Branch::Register { link: false, rn } | Branch::Return { rn } => {
            branch(builder, x(rn));
        }
        Branch::Register { rn, .. } => {
            let mut target = x(rn);
            if target == Operand::Location(LINK) {
                target = builder.kept(target);
            }
            link(builder, address);
            branch(builder, target);
        }
        Branch::RegisterAndZero { link, rn } | Branch::RegisterAndModifier { link, rn, .. } => {
            let target = with_unknown_code(builder, x(rn));
            if link {
                self::link(builder, address);
            }
            branch(builder, target);
        }
        Branch::ReturnAuthenticated { rm: 31 } => {
            let target = with_unknown_code(builder, x(30));
            branch(builder, target);
        }
        Branch::ExceptionReturn {} | Branch::ExceptionReturnAuthenticated {} => {
            // The stack pointer becomes the one of another exception level.
            builder.unknown(Location::SP);
            builder.unknown_flags();
            builder.control = Control::ExceptionReturn;
        }
        Branch::SystemCall { .. } => builder.control = Control::SystemCall,
        // The SMC Calling Convention 1.0 (DEN0028) keeps x18 to x30.
        Branch::HypervisorOrMonitorCall { .. } => {
            for number in 0..18 {
                builder.unknown(Location::general(number));
            }
            builder.may_store_anywhere = true;
        }
        // Only traps.
        Branch::Breakpoint { .. } => {}
        // Semihosting writes its result to x0, and also writes buffers.
        Branch::Halt { .. } => {
            builder.unknown(Location::general(0));
            builder.may_store_anywhere = true;
        }
        Branch::Hint { crm, op2 } => system::hint(builder, crm, op2),
        Branch::Barrier { .. } | Branch::WaitWithTimeout { .. } => {}
        Branch::WriteState { op1, op2, .. } => system::write_state(builder, op1, op2),
        Branch::SystemOperation {
            op1,
            crn,
            crm,
            op2,
            rt,
        } => system::operation(builder, rt, (op1, crn, crm, op2)),
        Branch::SystemOperationWithResult { crn, rt, .. } => {
            builder.unknown(to_x(rt));
            builder.may_store_anywhere = crn != 7;
        }
        Branch::ReadRegister {
            o0,
            op1,
            crn,
            crm,
            op2,
            rt,
        } => system::read_register(builder, rt, (2 + u8::from(o0), op1, crn, crm, op2)),
        Branch::WriteRegister {
            o0,
            op1,
            crn,
            crm,
            op2,
            rt,
        } => system::write_register(builder, rt, (2 + u8::from(o0), op1, crn, crm, op2)),
        // Not modelled.
        Branch::CompareRegister { .. }
        | Branch::ComparePart { .. }
        | Branch::CompareImmediate { .. }
        | Branch::ReturnByLabel { .. }
        | Branch::ReturnAuthenticated { .. }
        | Branch::TransactionExit {}
        | Branch::ReadTransaction { .. } => return None,
    }
    Some(())
}

fn link(builder: &mut Builder, address: u64) {
    builder.copy(LINK, Operand::Constant(address.wrapping_add(4)));
}

fn branch(builder: &mut Builder, target: Operand) {
    builder.control = Control::Indirect {
        target,
        condition: ONE,
        interworking: false,
    };
}
