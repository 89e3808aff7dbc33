//! What instructions compute: each is decoded to a short list of relations between the values of
//! registers, flags and memory.
//!
//! A [`Relation`] says `destination = operation(a, b, c)`. The same list serves two readers: one
//! computes forward from known values ([`Operation::eval`], [`execute`]), and the recovery of past
//! values also reasons backward through it. Independent of trace, files and debuggers.

pub mod a32;
pub mod a64;
mod aarch32;
mod aes;
mod builder;
mod evaluation;
mod execution;
mod floating;
mod lanes;
mod location;
pub mod m_profile;
mod operation;
pub mod t32;

pub use execution::{Machine, Temporaries, Values, execute, execute_relations};
pub use location::Location;
pub use operation::{FloatOperation, FloatShape, LaneOperation, Lanes, Operation, Rounding, Width};

/// An operand of a relation: the value of a location before the relation, or a constant.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Operand {
    /// The current value of a location.
    Location(Location),
    /// A constant: an immediate, an address relative to the pc, or zero for `xzr`.
    Constant(u64),
}

impl Operand {
    /// Used for unused operands, and as the value of `xzr`.
    pub const ZERO: Self = Self::Constant(0);
}

/// One step of an instruction: `destination = operation(a, b, c)`.
///
/// Relations of an instruction are read in order; each sees what the earlier ones wrote. Values are
/// 64 bits; what an operation of a smaller width writes is zero-extended unless it says otherwise.
/// An instruction that needs its old source after writing it (`ldr x0, [x0], #8`) copies it to a
/// temporary first.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Relation {
    /// What is computed.
    pub operation: Operation,
    /// Where the result goes; [`Location::NOWHERE`] for a store.
    pub destination: Location,
    /// First operand; for a load or store, the address.
    pub a: Operand,
    /// Second operand; for a store, the value.
    pub b: Operand,
    /// Third operand; for a store, the predicate: the store happens if it is not zero.
    pub c: Operand,
}

/// Where execution continues after an instruction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Control {
    /// To the next instruction.
    Next,
    /// To a fixed address.
    Jump(u64),
    /// To `target` if `condition` is not zero, else to the next instruction.
    Conditional {
        /// A temporary that holds 0 or 1 after the relations.
        condition: Operand,
        /// The address if the branch is taken.
        target: u64,
    },
    /// To the address in an operand, read after the relations.
    Indirect {
        /// The target.
        target: Operand,
        /// Whether the branch is taken: not zero. `Operand::Constant(1)` for unconditional branches.
        condition: Operand,
        /// Whether bit 0 of the target selects the instruction set and is not part of the address
        /// (`bx`, `pop {pc}`).
        interworking: bool,
    },
    /// A system call (`svc`): the kernel may write memory and the result register.
    SystemCall,
    /// An exception return: pc and flags come from elsewhere.
    ExceptionReturn,
}

/// What one instruction does.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Semantics {
    /// The relations, in order.
    pub relations: Vec<Relation>,
    /// Where execution continues.
    pub control: Control,
    /// Size in bytes: 2 or 4.
    pub size: u8,
    /// Whether it may write memory anywhere, because it is not modelled: all memory is unknown
    /// after it. The registers that it may write have [`Operation::Unknown`] relations.
    pub may_store_anywhere: bool,
    /// A general register that holds an address in a block of memory that the instruction clears
    /// (DC ZVA): like [`may_store_anywhere`](Self::may_store_anywhere), but only within that block.
    /// The block size is a power of two that depends on the core, up to 2 KiB (DDI 0487,
    /// DCZID_EL0).
    pub clears_block: Option<Location>,
    /// Whether addresses may be mapped to other memory after it, because it selects translation
    /// tables or a process.
    pub changes_space: bool,
}
