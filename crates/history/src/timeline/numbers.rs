//! The positions of instructions by their number in the trace.

use super::entry::Entry;
use super::history::History;
use super::position::{Direction, Position};
use armsnap_snapshot::stop::Cancel;

/// The positions of a core's instructions, numbered from 0 at the start of its history.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Numbers {
    /// The number and position of the first of each group of instructions at consecutive positions.
    first: Vec<(u64, Position)>,
    count: u64,
}

impl Numbers {
    /// Numbers the instructions of a history, which decodes all of it; `None` if it was cancelled.
    pub fn of(history: &mut History, cancel: &Cancel) -> Option<Self> {
        /// Entries between two checks for a request to cancel.
        const OFTEN: usize = 1 << 12;
        let mut numbers = Self::default();
        let begin = history.begin();
        for (done, event) in history.entries(begin, Direction::Forward).enumerate() {
            if done.is_multiple_of(OFTEN) && cancel.is_requested() {
                return None;
            }
            if let Entry::Run { range, .. } = event.entry {
                numbers.push(event.position, range.instructions.into());
            }
        }
        Some(numbers)
    }

    fn push(&mut self, position: Position, instructions: u64) {
        let number = self.count;
        self.count += instructions;
        let follows =
            |(first, start): (u64, Position)| position.distance(start) == Some(number - first);
        if !self.first.last().copied().is_some_and(follows) {
            self.first.push((number, position));
        }
    }

    /// Returns the number of instructions.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Returns the position of an instruction.
    pub fn position(&self, number: u64) -> Option<Position> {
        let after = self.first.partition_point(|(first, _)| *first <= number);
        let (first, start) = *self.first.get(after.checked_sub(1)?)?;
        (number < self.count).then(|| start.after(number - first))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gaps_and_segments_interrupt_consecutive_positions() {
        let position = |text: &str| text.parse::<Position>().unwrap();
        let mut numbers = Numbers::default();
        // 10+5 is a gap.
        for (at, instructions) in [("10+0", 3), ("10+3", 2), ("10+6", 1), ("99+0", 4)] {
            numbers.push(position(at), instructions);
        }
        assert_eq!(numbers.first.len(), 3);
        let all = [
            "10+0", "10+1", "10+2", "10+3", "10+4", "10+6", "99+0", "99+1", "99+2", "99+3",
        ];
        assert_eq!(numbers.count(), all.len() as u64);
        for (number, wanted) in (0..).zip(all) {
            assert_eq!(numbers.position(number), Some(position(wanted)));
        }
        assert_eq!(numbers.position(10), None);
        assert_eq!(Numbers::default().position(0), None);
    }
}
