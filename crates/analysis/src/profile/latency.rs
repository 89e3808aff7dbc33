//! How long exceptions took, from entry to return.

use super::clock::Moment;
use super::stack::Call;
use std::collections::BTreeMap;

/// The maximum number of durations kept of an exception for its median: the first ones.
const MOST: usize = 1 << 20;

/// The distribution of durations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Spread {
    /// The smallest.
    pub minimum: u64,
    /// The median, the lower one of two; of the first million if there are more.
    pub median: u64,
    /// The largest.
    pub maximum: u64,
}

/// Durations, in order of arrival.
#[derive(Clone, Debug, Default)]
struct Lengths {
    kept: Vec<u64>,
    least: Option<u64>,
    most: Option<u64>,
}

impl Lengths {
    fn add(&mut self, length: u64) {
        self.least = Some(self.least.map_or(length, |least| least.min(length)));
        self.most = Some(self.most.map_or(length, |most| most.max(length)));
        if self.kept.len() < MOST {
            self.kept.push(length);
        }
    }

    /// Adds a difference of counts that the trace contains only from time to time: 0 means that
    /// there was none in between.
    fn add_known(&mut self, length: u64) {
        if length > 0 {
            self.add(length);
        }
    }

    fn spread(&self) -> Option<Spread> {
        let mut kept = self.kept.clone();
        let middle = kept.len().checked_sub(1)? / 2;
        let (_, median, _) = kept.select_nth_unstable(middle);
        Some(Spread {
            minimum: self.least?,
            median: *median,
            maximum: self.most?,
        })
    }
}

/// The exceptions of one name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExceptionStatistics {
    /// Its name.
    pub name: &'static str,
    /// How often it was taken.
    pub taken: u64,
    /// How often both its entry and its return were traced: these have durations.
    pub returned: u64,
    /// Instructions from entry to return.
    pub instructions: Option<Spread>,
    /// Cycles from entry to return, where they are counted.
    pub cycles: Option<Spread>,
    /// Timestamp ticks from entry to return, where a timestamp was traced in between.
    pub time: Option<Spread>,
}

/// The exceptions of one core.
#[derive(Clone, Debug, Default)]
pub struct Exceptions {
    by_name: BTreeMap<&'static str, Lasted>,
}

#[derive(Clone, Debug, Default)]
struct Lasted {
    taken: u64,
    returned: u64,
    instructions: Lengths,
    cycles: Lengths,
    time: Lengths,
}

impl Exceptions {
    pub(super) fn take(&mut self, name: &'static str) {
        self.by_name.entry(name).or_default().taken += 1;
    }

    pub(super) fn returned(&mut self, name: &'static str, call: &Call, end: &Moment) {
        let lasted = self.by_name.entry(name).or_default();
        lasted.returned += 1;
        let from = &call.begin;
        lasted
            .instructions
            .add(end.instructions.saturating_sub(from.instructions));
        if let (Some(first), Some(last)) = (from.cycles, end.cycles) {
            lasted.cycles.add_known(last.saturating_sub(first));
        }
        if let (Some(first), Some(last)) = (from.time, end.time) {
            lasted.time.add_known(last.saturating_sub(first));
        }
    }

    /// Returns what is known of each exception, by name.
    pub fn statistics(&self) -> Vec<ExceptionStatistics> {
        let all = self.by_name.iter();
        all.map(|(name, lasted)| ExceptionStatistics {
            name,
            taken: lasted.taken,
            returned: lasted.returned,
            instructions: lasted.instructions.spread(),
            cycles: lasted.cycles.spread(),
            time: lasted.time.spread(),
        })
        .collect()
    }
}
