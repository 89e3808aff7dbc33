//! Readings of a clock along a track: timestamps or cycles, as many as fit on the page.

use super::pack::Packer;

/// The readings of one clock.
#[derive(Clone, Debug)]
pub struct Clock {
    /// Instructions of the track before the reading, and the clock's value; both ascend.
    readings: Vec<(u64, u64)>,
    most: usize,
    /// Each reading whose number is a multiple of this is kept.
    every: u64,
    seen: u64,
    backward: u64,
    last: Option<(u64, u64)>,
}

impl Clock {
    /// Keeps at most `most` readings.
    pub fn new(most: usize) -> Self {
        Self {
            readings: Vec::new(),
            most: most.max(4),
            every: 1,
            seen: 0,
            backward: 0,
            last: None,
        }
    }

    /// Adds a reading before the instruction with this number. Readings that go backwards are
    /// dropped.
    pub fn read(&mut self, place: u64, value: u64) {
        if self.last.is_some_and(|(p, v)| place < p || value < v) {
            self.backward += 1;
            return;
        }
        self.last = Some((place, value));
        if self.seen.is_multiple_of(self.every) {
            self.readings.push((place, value));
            if self.readings.len() >= self.most {
                let mut index = 0;
                self.readings.retain(|_| {
                    index += 1;
                    index % 2 == 1
                });
                self.every *= 2;
            }
        }
        self.seen += 1;
    }

    /// The first value.
    pub fn first(&self) -> Option<u64> {
        self.readings.first().map(|(_, value)| *value)
    }

    /// The number of readings that went backwards.
    pub fn backward(&self) -> u64 {
        self.backward
    }

    /// The readings as text, relative to `base`.
    pub fn pack(&self, base: u64) -> String {
        let mut packer = Packer::default();
        let (mut place, mut value) = (0, base);
        let end = self.last.filter(|last| self.readings.last() != Some(last));
        for &(at, read) in self.readings.iter().chain(&end) {
            packer.number(at - place);
            packer.number(read.saturating_sub(value));
            place = at;
            value = read.max(value);
        }
        packer.text()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_and_last_readings_stay() {
        let mut clock = Clock::new(64);
        for index in 0..100_000 {
            clock.read(index * 2, 1000 + index);
        }
        clock.read(300_000, 5);
        assert_eq!(clock.backward(), 1);
        assert!(clock.readings.len() < 64);
        assert_eq!(clock.first(), Some(1000));
        assert_eq!(clock.last, Some((199_998, 100_999)));
        let mut few = Clock::new(64);
        few.read(3, 10);
        few.read(5, 12);
        // 3, 0, 2, 2.
        assert_eq!(few.pack(10), "AwACAg==");
    }
}
