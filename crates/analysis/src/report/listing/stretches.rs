//! Which lines of a listing belong to which time, for a listing of several sources by time.

use armsnap_arch::quantity::BufferOffset;
use armsnap_trace::element::{Itm, Mark};

/// Lines of a source in a row that are at one place of a time line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stretch {
    /// Where its text starts.
    pub start: usize,
    /// The offset of its first line in the buffer.
    pub at: BufferOffset,
    /// The time of its lines, in ticks of the timestamps; `None` before the first one.
    pub time: Option<u64>,
}

/// The stretches of a text.
///
/// The lines after a timestamp have its time. Those of an ITM have the time of the next global
/// timestamp, which it sends after what it belongs to; the last ones, of which there is none, that of
/// the one before.
#[derive(Clone, Debug, Default)]
pub struct Stretches {
    all: Vec<Stretch>,
    /// The last time.
    time: Option<u64>,
    /// The number of stretches that do not wait for the next timestamp.
    timed: usize,
    /// Whether the next line starts a stretch.
    starts: bool,
}

impl Stretches {
    /// A line starts.
    pub(super) fn line(&mut self, start: usize, at: BufferOffset) {
        let time = self.time;
        let stretch = Stretch { start, at, time };
        match self.all.last_mut() {
            // It has no lines yet.
            Some(last) if last.start == start => {
                *last = stretch;
                return;
            }
            Some(last)
                if !self.starts && last.time == time && (time.is_some() || last.at == at) => {}
            _ => self.all.push(stretch),
        }
        self.starts = false;
    }

    /// The line of this mark starts next.
    pub(super) fn mark(&mut self, start: usize, at: BufferOffset, mark: &Mark) {
        match mark {
            Mark::Timestamp(time) => self.time = Some(*time),
            Mark::Stm(stm) => self.time = stm.timestamp.or(self.time),
            Mark::Itm(Itm::GlobalTimestamp(time)) => {
                self.time = Some(*time);
                for waiting in &mut self.all[self.timed..] {
                    waiting.time = self.time;
                }
                self.starts = true;
                self.line(start, at);
                self.timed = self.all.len();
                self.starts = true;
            }
            _ => {}
        }
    }

    /// Takes the stretches of a text that is taken; the last one goes on in the next text.
    pub(super) fn take(&mut self) -> Vec<Stretch> {
        self.timed = 0;
        let all = std::mem::take(&mut self.all);
        let last = all.last().map(|last| Stretch { start: 0, ..*last });
        self.all.extend(last);
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The times of lines, one for each mark.
    fn times(marks: &[Mark]) -> Vec<Option<u64>> {
        let mut stretches = Stretches::default();
        for (start, mark) in marks.iter().enumerate() {
            stretches.mark(start, BufferOffset(start as u64), mark);
            stretches.line(start, BufferOffset(start as u64));
        }
        let all = stretches.take();
        let of = |line: usize| all.iter().rfind(|stretch| stretch.start <= line);
        (0..marks.len())
            .map(|line| of(line).unwrap().time)
            .collect()
    }

    #[test]
    fn lines_after_a_timestamp_have_its_time() {
        let marks = [
            Mark::End,
            Mark::Timestamp(7),
            Mark::End,
            Mark::Timestamp(9),
            Mark::End,
        ];
        assert_eq!(times(&marks), [None, Some(7), Some(7), Some(9), Some(9)]);
    }

    #[test]
    fn lines_of_an_itm_have_the_time_of_the_next_timestamp() {
        let write = Mark::Itm(Itm::Stimulus {
            port: 0,
            bytes: 1,
            value: 0,
        });
        let at = |time| Mark::Itm(Itm::GlobalTimestamp(time));
        let marks = [write, write, at(7), write, at(9), write];
        let wanted = [7, 7, 7, 9, 9, 9].map(Some);
        assert_eq!(times(&marks), wanted);
        assert_eq!(times(&[write, write]), [None, None]);
    }
}
