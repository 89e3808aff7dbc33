//! How well a value is known.

use crate::timeline::Position;
use armsnap_arch::semantics::Location;
use std::fmt;

/// Why a value is believed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Status {
    /// It follows from the trace, the code and the final state alone.
    Proved,
    /// It also rests on the calling convention, or on rules on where stores go.
    Inferred,
}

impl Status {
    /// The word for users.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Proved => "proved",
            Self::Inferred => "inferred",
        }
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A value of the past.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Known<T> {
    /// The value.
    pub value: T,
    /// Why it is believed.
    pub status: Status,
}

impl Known<u8> {
    /// Returns the runs of known bytes among those from an address on: the address of each and its
    /// bytes.
    #[must_use]
    pub fn pieces(from: u64, bytes: &[Option<Self>]) -> Vec<(u64, Vec<u8>)> {
        let mut out: Vec<(u64, Vec<u8>)> = Vec::new();
        let mut connected = false;
        for (offset, byte) in (0_u64..).zip(bytes) {
            let at = from.checked_add(offset);
            if let (Some(at), Some(byte)) = (at, byte) {
                match out.last_mut().filter(|_| connected) {
                    Some((_, piece)) => piece.push(byte.value),
                    None => out.push((at, vec![byte.value])),
                }
            }
            connected = byte.is_some();
        }
        out
    }
}

/// Which values are shown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Level {
    /// None.
    Off,
    /// Proved ones.
    Proved,
    /// Proved and inferred ones.
    #[default]
    Inferred,
}

impl Level {
    /// Whether values of a status are shown.
    #[must_use]
    pub fn shows(self, status: Status) -> bool {
        match self {
            Self::Off => false,
            Self::Proved => status == Status::Proved,
            Self::Inferred => true,
        }
    }
}

/// Registers, flags and halves of vector registers at a position.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Registers(pub [Option<Known<u64>>; Location::KEPT]);

impl Registers {
    /// Registers of which nothing is known.
    #[must_use]
    pub fn unknown() -> Self {
        Self([None; Location::KEPT])
    }

    /// The value of a location; `None` if it is unknown, or a temporary.
    #[must_use]
    pub fn get(&self, location: Location) -> Option<Known<u64>> {
        self.0.get(location.index()).copied().flatten()
    }
}

/// What ends proof, or recovery altogether.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Limit {
    /// The trace does not end at the registers' pc, or this is unknown.
    #[error("the final state is not used: the trace is not known to end at its pc")]
    EndUnknown,
    /// The core's instructions are not modelled.
    #[error(
        "nothing is known: in this instruction set only programs recorded without their kernel \
         are modelled"
    )]
    NoModel,
    /// The M-profile core is not modelled.
    #[error(
        "nothing is known: of M-profile cores only Cortex-M0, M0+, M1, M3, M4, M7, M23, M33 and M35P are \
         modelled, the last three only with a program that has no entries for Non-secure code and leaves \
         FPCCR.TS and FPCCR.CLRONRET 0"
    )]
    NoCoreModel,
    /// Translation tables may map several addresses to the same memory.
    #[error(
        "nothing in memory is known: translation tables may map several addresses to one place"
    )]
    Translated,
    /// Other cores may write the memory.
    #[error("nothing in memory is proved: other cores may have written it")]
    OtherWriters,
    /// The security state of an M-profile core changes in the trace.
    #[error(
        "nothing is known across a change between Secure and Non-secure state, which the trace \
         reports"
    )]
    SecurityChanges,
    /// Devices may write the memory.
    #[error("nothing in memory is proved: devices (DMA) may have written it")]
    Devices,
    /// Values computed in two ways differ.
    #[error("nothing in memory is proved: it was also written by something that is not traced")]
    Contradiction,
    /// The program maps memory so that it may be at several addresses (`MAP_SHARED`).
    #[error(
        "nothing in memory is proved: the program mapped memory that may be at several addresses \
         (MAP_SHARED)"
    )]
    SharedMapping,
    /// Recorded data addresses are not used, for this reason.
    #[error("recorded data addresses are not used: {0}")]
    Addresses(String),
    /// Recorded inputs are used only up to this position, for this reason.
    #[error("recorded inputs are used up to {0}: {1}")]
    Replay(Position, String),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_bytes_separate_pieces() {
        let known = |value| {
            let status = Status::Proved;
            Some(Known { value, status })
        };
        let bytes = [None, known(1), known(2), None, known(3)];
        assert_eq!(Known::pieces(8, &bytes), [(9, vec![1, 2]), (12, vec![3])]);
        assert_eq!(Known::pieces(u64::MAX - 1, &bytes), [(u64::MAX, vec![1])]);
    }
}
