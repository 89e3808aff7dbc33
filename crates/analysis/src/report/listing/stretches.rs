//! Which lines of a listing belong to which time, for a listing of several sources by time.

use armsnap_arch::quantity::BufferOffset;
use armsnap_trace::element::{Itm, Mark};

/// The size of lines in bytes that may wait for the next timestamp.
const MOST_WAITING: usize = 1 << 20;

/// Lines of a source in a row that have one time and one offset in the buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stretch {
    /// Where its text starts.
    pub start: usize,
    /// The offset of its lines in the buffer.
    pub at: BufferOffset,
    /// The time of its lines, in ticks of the timestamps; `None` before the first one.
    pub time: Option<u64>,
}

/// The stretches of a text.
///
/// The lines after a timestamp have its time. Those of an ITM have the time of the next global
/// timestamp, which an ITM sends after the packets that it dates; lines after the last timestamp have
/// the time of that one.
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
            Some(last) if !self.starts && (last.at, last.time) == (at, time) => {}
            _ => self.all.push(stretch),
        }
        self.starts = false;
    }

    /// The line of this mark starts next.
    pub(super) fn mark(&mut self, start: usize, at: BufferOffset, mark: &Mark) {
        match mark {
            // 0 if it is not known.
            Mark::Timestamp(time @ 1..) => self.time = Some(*time),
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

    /// The source has ended: no line waits for another timestamp.
    pub(super) fn end(&mut self) {
        self.timed = self.all.len();
    }

    /// Takes the stretches of a text of a length, of which as much is to be taken as is returned, too:
    /// few lines that wait for the next timestamp stay. The last stretch goes on in the next text.
    pub(super) fn take(&mut self, length: usize) -> (Vec<Stretch>, usize) {
        let waiting = self.all.get(self.timed).map(|first| first.start);
        let cut = waiting.filter(|start| length - start < MOST_WAITING);
        let cut = cut.unwrap_or(length);
        let mut rest = match cut < length {
            true => self.all.split_off(self.timed),
            false => self.all.last().copied().into_iter().collect(),
        };
        for stretch in &mut rest {
            stretch.start = stretch.start.saturating_sub(cut);
        }
        self.timed = 0;
        (std::mem::replace(&mut self.all, rest), cut)
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
        stretches.end();
        let (all, length) = stretches.take(marks.len());
        assert_eq!(length, marks.len());
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
            Mark::Timestamp(0),
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

    #[test]
    fn few_lines_that_wait_for_a_timestamp_stay() {
        let mut stretches = Stretches::default();
        let global = Mark::Itm(Itm::GlobalTimestamp(7));
        stretches.line(0, BufferOffset(0));
        stretches.mark(10, BufferOffset(1), &global);
        stretches.line(10, BufferOffset(1));
        stretches.line(20, BufferOffset(2));
        stretches.line(30, BufferOffset(3));
        let (all, length) = stretches.take(40);
        let times: Vec<_> = all.iter().map(|one| (one.start, one.time)).collect();
        assert_eq!((times, length), (vec![(0, Some(7)), (10, Some(7))], 20));
        // They have the time of the next one.
        let global = Mark::Itm(Itm::GlobalTimestamp(9));
        stretches.mark(20, BufferOffset(4), &global);
        stretches.line(20, BufferOffset(4));
        stretches.line(30, BufferOffset(5));
        let (all, length) = stretches.take(MOST_WAITING + 30);
        let times: Vec<_> = all.iter().map(|one| (one.start, one.time)).collect();
        let wanted = [(0, 9), (10, 9), (20, 9), (30, 9)].map(|(start, time)| (start, Some(time)));
        // Many do not wait.
        assert_eq!((times, length), (wanted.to_vec(), MOST_WAITING + 30));
    }

    #[test]
    fn lines_at_different_offsets_are_apart() {
        let mut stretches = Stretches::default();
        stretches.mark(0, BufferOffset(0), &Mark::Timestamp(7));
        for (start, at) in [(0, 0), (10, 4), (20, 4), (30, 5)] {
            stretches.line(start, BufferOffset(at));
        }
        stretches.end();
        let (all, _) = stretches.take(40);
        let places: Vec<_> = all.iter().map(|one| (one.start, one.at.0)).collect();
        assert_eq!(places, [(0, 0), (10, 4), (30, 5)]);
    }
}
