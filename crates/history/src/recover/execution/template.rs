//! Instructions in the form that the solver needs.

use armsnap_arch::quantity::Isa;
use armsnap_arch::semantics::{Control, Location, Operand, Operation};

/// The operation of relations that hold by the calling convention: both nodes are equal.
pub(in crate::recover) const SAME_BY_CONVENTION: u32 = 0;
/// The operation of system calls: the number, and the result afterwards.
pub(in crate::recover) const SYSTEM_CALL: u32 = 1;
/// The operation of signals: the stack pointers of the handler, and of the program before.
pub(in crate::recover) const SIGNAL_FRAME: u32 = 2;

/// The operation of what the handler of a signal receives: its first three arguments, and its stack
/// pointer.
pub(in crate::recover) const SIGNAL_ARGUMENTS: u32 = 4;

/// The operation of the first, third and fourth argument of a system call, whose relation follows.
pub(in crate::recover) const ARGUMENTS: u32 = 3;

/// The operation of an instruction that clears the block of memory that its base points into.
pub(in crate::recover) const CLEARS_BLOCK: u32 = 5;

/// An operation of an instruction.
#[derive(Clone, Copy, Debug)]
pub(in crate::recover) struct Op {
    pub operation: Operation,
    pub destination: Location,
    /// Operands; for an access: the base of the address, the data and the predicate.
    pub operands: [Operand; 3],
    /// For an access: the offset from the base.
    pub displacement: u64,
    /// For an access: whether the base is the stack or frame pointer.
    pub direct: bool,
    /// Whether addresses have 32 bits.
    pub narrow: bool,
}

impl Op {
    /// The number of bytes that it loads or stores.
    pub fn access(&self) -> Option<u8> {
        match self.operation {
            Operation::Load { size } | Operation::Store { size } => Some(size),
            _ => None,
        }
    }

    /// The stack pointer of its instruction set.
    pub fn stack_pointer(&self) -> Location {
        stack_pointer(self.narrow)
    }

    /// Whether it may move the stack pointer up by a variable amount: a function frees what it
    /// allocated, or the frames of functions are left.
    pub fn frees_stack(&self) -> bool {
        self.destination == self.stack_pointer()
            && match (self.operation, self.operands) {
                (Operation::Copy, [Operand::Location(from), ..]) => from.is_kept(),
                (Operation::Add(_), [_, Operand::Location(_), _]) => !self.narrow,
                _ => false,
            }
    }

    /// Whether it moves the stack pointer up by a register, as do functions of GCC that continue in
    /// another frame (`__builtin_eh_return`).
    pub fn leaves_frames(&self) -> bool {
        matches!(self.operation, Operation::Add(_)) && self.frees_stack()
    }

    /// Whether it sets the stack pointer in another way than to allocate and free in a function: it
    /// may be another stack.
    pub fn switches_stack(&self) -> bool {
        let from = self.operands[0];
        let temporary = matches!(from, Operand::Location(location) if !location.is_kept());
        let own = temporary || is_direct(from, self.narrow);
        let keeps = matches!(
            self.operation,
            Operation::Add(_) | Operation::Subtract(_) | Operation::And | Operation::Copy
        );
        self.destination == self.stack_pointer() && !(keeps && own)
    }

    /// The constant that it adds to its first operand, if that is all it does.
    pub fn added(&self) -> Option<u64> {
        match (self.operation, self.operands) {
            (Operation::Copy, [Operand::Location(_), ..]) => Some(0),
            (Operation::Add(_), [Operand::Location(_), Operand::Constant(more), _]) => Some(more),
            (Operation::Subtract(_), [Operand::Location(_), Operand::Constant(less), _]) => {
                Some(less.wrapping_neg())
            }
            _ => None,
        }
    }

    /// Whether it moves the stack pointer by a constant, or derives a frame pointer from it.
    pub fn moves_frame(&self) -> bool {
        let stack = Operand::Location(self.stack_pointer());
        let moves = self.destination == self.stack_pointer() && !self.switches_stack();
        self.added().is_some() && (moves || self.is_frame_pointer() && self.operands[0] == stack)
    }

    /// Whether its result goes to the frame pointer, if there is one.
    pub fn is_frame_pointer(&self) -> bool {
        self.destination == Location::general(if self.narrow { 11 } else { 29 })
    }

    /// Whether it loads a register that a store saved in the frame.
    pub fn restores(&self, store: &Self) -> bool {
        let saves = self.direct && store.direct;
        saves && store.operands[1] == Operand::Location(self.destination)
    }

    pub fn is_store(&self) -> bool {
        matches!(self.operation, Operation::Store { .. })
    }
}

/// The stack pointer of AArch32 or AArch64.
pub(in crate::recover) const fn stack_pointer(narrow: bool) -> Location {
    if narrow {
        Location::general(13)
    } else {
        Location::SP
    }
}

/// An instruction at an address.
#[derive(Clone, Copy, Debug)]
pub(in crate::recover) struct Template {
    pub pc: u64,
    pub isa: Isa,
    pub size: u8,
    pub control: Control,
    /// Its operations are `ops[first..first + count]`.
    pub first: u32,
    pub count: u16,
    /// Whether it may write any memory.
    pub stores_anywhere: bool,
    /// The location that points into the block of memory that it clears, if it clears one.
    pub clears_block: Option<Location>,
    /// Whether an address may mean other memory after it.
    pub changes_space: bool,
    /// Whether all locations are unknown after it.
    pub opaque: bool,
    /// Whether it leaves the address after it in the link register.
    pub calls: bool,
    /// Whether it is a branch that was not taken according to the trace.
    pub untaken: bool,
    /// Whether it is a system call after an instruction that selects the return of a signal's
    /// handler.
    pub sigreturn: bool,
    /// Whether it is Go code, whose functions preserve nothing.
    pub go: bool,
    /// Whether an exception may have interrupted it after a part of its loads or stores: on M-profile
    /// cores, it continues or starts again when the handler returns (DDI 0403, B1.5.10).
    pub resumed: bool,
    /// What it means for the use of floating point, on M-profile cores.
    pub floats: Floats,
    /// Whether no instruction with floating point is known to have been executed since the last
    /// exception or the return from it.
    pub is_first_float: bool,
}

/// What an instruction of an M-profile core means for the use of floating point.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::recover) enum Floats {
    /// Nothing.
    Keeps,
    /// It is a floating-point instruction.
    Uses,
    /// It is one that depends on a condition.
    MayUse,
    /// After it, it is not known whether floating point was used.
    Forgets,
}

impl Template {
    /// The address after it.
    pub fn end(&self) -> u64 {
        self.pc.wrapping_add(self.size.into())
    }
}

/// The halfword at the start of some code.
pub(in crate::recover) fn half(code: &[u8]) -> Option<u16> {
    code.first_chunk::<2>()
        .map(|half| u16::from_le_bytes(*half))
}

/// Whether a base is the stack pointer or the frame pointer.
pub(super) fn is_direct(base: Operand, narrow: bool) -> bool {
    let Operand::Location(location) = base else {
        return false;
    };
    let general = |numbers: &[u8]| numbers.iter().any(|&n| location == Location::general(n));
    location == Location::SP || general(if narrow { &[13, 11, 7] } else { &[29] })
}
