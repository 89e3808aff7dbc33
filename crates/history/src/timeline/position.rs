//! The names of places in a core's history.

use std::fmt;
use std::str::FromStr;

/// A place in the history of one core: an executed instruction, a gap, or the halted state.
///
/// The name does not depend on what was decoded before: it counts from an offset in the trace
/// where decoding can start. Positions of one core are ordered by execution. Written as
/// `4096+17`: 17 places after offset 4096 of the trace; in the second and further buffers of a
/// core as `1/4096+17`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Position {
    /// Index of the buffer among the core's buffers.
    pub(crate) session: u32,
    /// Offset in the buffer where decoding starts.
    pub(crate) segment: u64,
    /// Places since then.
    pub(crate) index: u64,
}

impl Position {
    /// Returns the index of the buffer among the core's buffers.
    pub const fn buffer(self) -> usize {
        self.session as usize
    }

    /// Returns the number of places from `first` to this position, if both belong to one segment
    /// and `first` is not later.
    pub fn distance(self, first: Self) -> Option<u64> {
        let same = (self.session, self.segment) == (first.session, first.segment);
        self.index.checked_sub(first.index).filter(|_| same)
    }

    /// Returns the position `places` later in the same segment, whether it exists or not.
    #[must_use]
    pub fn after(self, places: u64) -> Self {
        let index = self.index.saturating_add(places);
        Self { index, ..self }
    }
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.session > 0 {
            write!(f, "{}/", self.session)?;
        }
        write!(f, "{}+{}", self.segment, self.index)
    }
}

/// Error for text that is not the name of a position.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a position: expected OFFSET+COUNT or BUFFER/OFFSET+COUNT")]
pub struct NoPosition(String);

impl FromStr for Position {
    type Err = NoPosition;

    fn from_str(text: &str) -> Result<Self, NoPosition> {
        let parse = || {
            let (session, rest) = match text.split_once('/') {
                Some((session, rest)) => (number(session)?, rest),
                None => (0, text),
            };
            let (segment, index) = rest.split_once('+')?;
            Some(Self {
                session: u32::try_from(session).ok()?,
                segment: number(segment)?,
                index: number(index)?,
            })
        };
        parse().ok_or_else(|| NoPosition(text.to_owned()))
    }
}

fn number(text: &str) -> Option<u64> {
    let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    digits.then(|| text.parse().ok())?
}

/// A direction of time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// Towards the end of history.
    Forward,
    /// Towards the start of history.
    Backward,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_can_be_read_again() {
        for (session, segment, index) in [(0, 0, 0), (0, 4096, 17), (3, u64::MAX, u64::MAX)] {
            let position = Position {
                session,
                segment,
                index,
            };
            assert_eq!(position.to_string().parse(), Ok(position));
        }
        for text in [
            "",
            "1",
            "+1",
            "1+",
            "1+-1",
            "x+1",
            "4294967296/1+1",
            "1/2",
            "1+1 ",
        ] {
            let error = text.parse::<Position>().unwrap_err();
            assert!(error.to_string().contains("OFFSET+COUNT"), "{text}");
        }
    }

    #[test]
    fn positions_are_ordered_by_execution() {
        let positions: Vec<Position> = ["9+0", "9+7", "10+2", "1/0+0"]
            .map(|text| text.parse().unwrap())
            .into();
        assert!(positions.is_sorted());
    }
}
