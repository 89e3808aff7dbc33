//! What is not known, and why a question has no answer.

use armsnap_history::recover::Limit;
use armsnap_history::timeline::Position;
use armsnap_snapshot::program::symbols::variables::Ambiguous;
use std::io;

/// A question that cannot be understood.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoQuestion {
    /// There is no such question.
    #[error(
        "expected a question, found {0:?}: calls FUNCTION, accesses ADDRESS[+LENGTH] or \
         EXPRESSION, variable EXPRESSION, where POSITION, values POSITION, memory POSITION ADDRESS LENGTH, why \
         POSITION EXPRESSION, or uses POSITION EXPRESSION"
    )]
    Unknown(String),
    /// A question has too few or too many arguments.
    #[error("expected the question {0}")]
    Arguments(&'static str),
    /// An argument is not what the question expects.
    #[error("the question expects {expected}, found {found:?}")]
    Argument {
        /// What was expected.
        expected: &'static str,
        /// What was found.
        found: String,
    },
}

/// Why a question was not answered.
#[derive(Debug, thiserror::Error)]
pub enum AskError {
    /// A core has no such position.
    #[error("there is no position {position}: the history is from {begin} to {end}")]
    NoSuchPosition {
        /// The position.
        position: Position,
        /// The first position of the history.
        begin: Position,
        /// The last one.
        end: Position,
    },
    /// The programs have no such function.
    #[error("there is no function {0:?} in the programs and libraries of the snapshot")]
    NoFunction(String),
    /// Something is not an expression.
    #[error("expected an expression of names, fields, elements and pointers, found {0:?}")]
    NoExpression(String),
    /// There is no such variable, nor a register.
    #[error("there is no variable or register {0:?} in scope there; debug information names them")]
    NoVariable(String),
    /// Several variables have a name.
    #[error(transparent)]
    Ambiguous(#[from] Ambiguous),
    /// Several base classes have a field.
    #[error("several base classes have a field {0:?}")]
    SeveralFields(String),
    /// A structure has no such field.
    #[error("there is no field {0:?}")]
    NoField(String),
    /// An expression does not fit the types of its variables.
    #[error("{0:?} has no meaning for the types of its variables")]
    Meaningless(String),
    /// An expression is a structure or an array.
    #[error("{0:?} is a structure or an array: name a field or an element of it")]
    NoNumber(String),
    /// The work was cancelled.
    #[error("interrupted before the question was answered")]
    Interrupted,
    /// The answers cannot be written.
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// What is not known, or not listed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unknown {
    /// Registers are unknown at a position.
    #[error("no register but the pc is known at {0}")]
    Registers(Position),
    /// Memory is unknown at a position.
    #[error("the memory from {address:#x} on is not known at {position}")]
    Memory {
        /// The position.
        position: Position,
        /// The first address.
        address: u64,
    },
    /// A function was not called.
    #[error("{0}: not called in the history that was searched")]
    NotCalled(String),
    /// Nothing accessed a range.
    #[error("no load or store of {0} is known in the history that was searched")]
    NotAccessed(String),
    /// An expression has no known value.
    #[error("no value of {0:?} is known in the history that was searched")]
    NoValue(String),
    /// Nothing used a value.
    #[error(
        "no instruction is known that used {0} before it was replaced, in the history that was searched"
    )]
    NotUsed(String),
    /// It is not known where an expression is.
    #[error("it is not known where {text:?} is at {position}")]
    Nowhere {
        /// The expression.
        text: String,
        /// The position.
        position: Position,
    },
    /// A search ended at the maximum number of positions.
    #[error("the history from {next} on was not searched: --from {next} continues there")]
    Long {
        /// The first position that was not searched.
        next: Position,
    },
    /// Accesses with unknown addresses.
    #[error(
        "{count} loads or stores to unknown addresses may have hit it too, the first at {first}"
    )]
    MayHave {
        /// How many.
        count: u64,
        /// The first one.
        first: Position,
    },
    /// A part of the history could not be explored.
    #[error("the history before {0} was not explored: other loads and stores may be there")]
    Unexplored(Position),
    /// The search ended at the maximum number of answers.
    #[error("more than {most} answers: --from {next} continues there")]
    More {
        /// The maximum.
        most: usize,
        /// The position of the next one.
        next: Position,
    },
    /// Not all instructions that used or made a value are listed.
    #[error("there are more instructions than the {0} that are listed")]
    NotListed(usize),
    /// A value is another one although no store to it is known.
    #[error(
        "the value was replaced before {0}, but not by a store of this core: later instructions are not listed"
    )]
    Replaced(Position),
    /// The path of a value ends where something may have written the memory.
    #[error("further back is not known: the instruction at {0} may have written this memory")]
    Overwritten(Position),
    /// The path of a value ends at a load from an unknown address.
    #[error(
        "further back is not known: nor is the address that the instruction at {0} loaded from"
    )]
    AddressUnknown(Position),
    /// The path of a value ends at a gap, an exception or an instruction without a model.
    #[error(
        "further back is not known: nothing from before the instruction at {0} is connected with it"
    )]
    Lost(Position),
    /// The path of a value leaves the history.
    #[error("older than the searched history")]
    Older,
    /// What ends proof, or recovery altogether.
    #[error(transparent)]
    Limit(#[from] Limit),
}
