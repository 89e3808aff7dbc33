//! The clock of a timeline.

use crate::profile::{Moment, Profile, Track};

/// What time is measured in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Clock {
    /// Executed instructions of the track.
    Instructions,
    /// Cycles counted by the trace.
    Cycles,
    /// Timestamps in the trace.
    Time,
}

impl Clock {
    /// Its name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Instructions => "instructions",
            Self::Cycles => "cycles",
            Self::Time => "timestamp ticks",
        }
    }

    /// Why tracks cannot be drawn with it; `None` if they can.
    pub fn lacks(self, tracks: &[(Track, Profile)]) -> Option<String> {
        let lacking = |(track, profile): &&(Track, Profile)| {
            let totals = &profile.totals;
            // An empty track fits on any axis.
            let lacks = match self {
                Self::Instructions => false,
                Self::Cycles => track.follows && totals.cycles.is_none(),
                Self::Time => totals.last_time.is_none(),
            };
            lacks && totals.elements > 0
        };
        let track = &tracks.iter().find(lacking)?.0;
        Some(format!("{}: its trace has no {}", track.name, self.name()))
    }
}

/// Converts the moments of one track to times that never go backwards.
#[derive(Clone, Copy, Debug)]
pub struct Axis {
    clock: Clock,
    /// A source without instructions numbers its events instead.
    numbers: bool,
    events: u64,
    last: u64,
}

impl Axis {
    /// Measures a track.
    pub fn new(clock: Clock, track: &Track) -> Self {
        Self {
            clock,
            numbers: !track.follows && clock != Clock::Time,
            events: 0,
            last: 0,
        }
    }

    /// Advances to a moment and returns its time.
    pub fn now(&mut self, moment: &Moment) -> u64 {
        self.last = self.last.max(self.of(moment));
        self.last
    }

    /// The latest time so far.
    pub fn last(&self) -> u64 {
        self.last
    }

    fn of(&self, moment: &Moment) -> u64 {
        if self.numbers {
            return self.events;
        }
        match self.clock {
            Clock::Instructions => moment.instructions,
            Clock::Cycles => moment.cycles.unwrap_or(0),
            Clock::Time => moment.time.unwrap_or(0),
        }
    }

    /// Counts an event.
    pub fn count(&mut self) {
        self.events += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tracks_without_anything_lack_no_clock() {
        let track = Track {
            name: "cpu0".to_owned(),
            core: Some(0),
            source: 0,
            source_name: "ETM".to_owned(),
            follows: true,
        };
        let mut tracks = [(track, Profile::default())];
        for clock in [Clock::Instructions, Clock::Cycles, Clock::Time] {
            assert_eq!(clock.lacks(&tracks), None);
        }
        tracks[0].1.totals.elements = 1;
        assert_eq!(Clock::Instructions.lacks(&tracks), None);
        for clock in [Clock::Cycles, Clock::Time] {
            assert!(
                clock
                    .lacks(&tracks)
                    .is_some_and(|why| why.starts_with("cpu0: "))
            );
        }
    }
}
