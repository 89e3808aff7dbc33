//! What limits the statements on a fault.

use serde::{Serialize, Serializer};

/// What limits the statements on a fault, or how they were found.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Note {
    /// The registers recorded it earlier.
    #[error(
        "the registers keep a fault until software clears it or the next one comes: when it was is not known"
    )]
    Kept,
    /// An exception that may be over.
    #[error(
        "{register} keeps an exception until the next one: whether it is still being handled is not known, nor whether ELR belongs to it"
    )]
    PerhapsOver {
        /// The syndrome register.
        register: &'static str,
    },
    /// There are no fault registers.
    #[error(
        "the cause is not known: the snapshot has neither the fault registers nor memory at \
         0xe000ed28 (and cores of Armv6-M and Armv8-M Baseline have none)"
    )]
    NoFaultRegisters,
    /// The exception frame may not have been written.
    #[error("stacking failed: the registers of the interrupted code are not known")]
    NotStacked,
    /// The exception frame is not where it can be.
    #[error(
        "the exception frame was not found: the registers of the interrupted code are not known"
    )]
    NoFrame,
    /// EXC_RETURN was found on the stack.
    #[error("inferred: the handler changed LR; EXC_RETURN {0:#x} was found on its stack")]
    ExcReturnOnStack(u32),
    /// What EXC_RETURN says.
    #[error("EXC_RETURN {value:#x}: {mode} was interrupted, its frame is on the {stack}")]
    ExcReturn {
        /// Its value.
        value: u32,
        /// The mode of the interrupted code.
        mode: &'static str,
        /// The stack of its frame.
        stack: &'static str,
    },
    /// The link register of an abort may have changed.
    #[error("the handler may have changed LR: which instruction faulted is not known")]
    LinkRegisterMayHaveChanged,
    /// A signal without its information.
    #[error(
        "inferred: what the kernel said about the signal was not saved; another process can send \
         it too"
    )]
    SignalWithoutInformation,
}

impl Serialize for Note {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}
