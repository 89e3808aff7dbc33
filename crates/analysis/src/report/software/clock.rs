//! The times of an ITM: timestamps come after the packets that they belong to.

use armsnap_trace::element::{Itm, Mark, NoSyncReason};
use serde::Serialize;

/// A time in the trace of a source.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Time {
    /// Clock cycles of the local timestamps since the first byte of the trace; without local
    /// timestamps, the value of the global ones.
    pub ticks: u64,
    /// How often trace was lost before it. If it was, more time may have passed.
    pub losses: u32,
}

impl Time {
    /// Returns the ticks from an earlier time to this one; `None` if trace was lost between them, or
    /// if global timestamps went back.
    pub fn since(self, earlier: Self) -> Option<u64> {
        let known = self.losses == earlier.losses;
        let ticks = self.ticks.checked_sub(earlier.ticks);
        ticks.filter(|_| known)
    }

    /// Writes it in ticks, or in seconds if the frequency of the clock is given: `12` or `0.000012`.
    /// `≥` stands before a time with losses.
    pub fn text(self, hertz: Option<f64>) -> String {
        let bound = if self.losses > 0 { "≥" } else { "" };
        match hertz {
            Some(hertz) => format!("{bound}{:.6}", self.ticks as f64 / hertz),
            None => format!("{bound}{}", self.ticks),
        }
    }
}

/// What an element says about time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tick {
    /// Nothing.
    None,
    /// The time of the packets since the last timestamp.
    Now(Time),
    /// Packets were lost here.
    Lost,
}

/// Adds up the timestamps of a source.
#[derive(Clone, Debug)]
pub struct Clock {
    prescaler: u32,
    now: Time,
    /// Whether timestamps come after packets, and whether there have been local ones.
    is_behind: bool,
    is_local: bool,
    started: bool,
}

impl Clock {
    /// Creates a clock whose local timestamps count this many cycles each.
    pub const fn new(prescaler: u32) -> Self {
        Self {
            prescaler,
            now: Time {
                ticks: 0,
                losses: 0,
            },
            is_behind: false,
            is_local: false,
            started: false,
        }
    }

    /// Returns whether the times of packets come after them. An STM has them in its packets.
    pub const fn is_behind(&self) -> bool {
        self.is_behind
    }

    /// Processes an element.
    pub fn mark(&mut self, mark: &Mark) -> Tick {
        match *mark {
            Mark::Itm(Itm::LocalTimestamp { delta, .. }) => {
                if !self.is_local {
                    self.now.ticks = 0;
                }
                let ticks = u64::from(delta) * u64::from(self.prescaler);
                self.now.ticks = self.now.ticks.saturating_add(ticks);
                (self.is_behind, self.is_local) = (true, true);
                Tick::Now(self.now)
            }
            Mark::Itm(Itm::GlobalTimestamp(time)) if !self.is_local => {
                self.now.ticks = time;
                self.is_behind = true;
                Tick::Now(self.now)
            }
            Mark::Stm(stm) => match stm.timestamp {
                Some(time) => {
                    self.now.ticks = time;
                    Tick::Now(self.now)
                }
                None => Tick::None,
            },
            Mark::Itm(Itm::Overflow) => self.lose(),
            Mark::NoSync(reason) => {
                let first = !std::mem::replace(&mut self.started, true);
                match first && reason == NoSyncReason::Start {
                    true => Tick::None,
                    false => self.lose(),
                }
            }
            _ => Tick::None,
        }
    }

    fn lose(&mut self) -> Tick {
        // Before the first timestamp, no time is known that could be too short.
        if self.is_behind {
            self.now.losses = self.now.losses.saturating_add(1);
        }
        Tick::Lost
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_between_two_times_may_not_be_known() {
        let time = |ticks, losses| Time { ticks, losses };
        assert_eq!(time(9, 0).since(time(5, 0)), Some(4));
        assert_eq!(time(9, 1).since(time(5, 0)), None);
        assert_eq!(time(5, 0).since(time(9, 0)), None);
    }
}
