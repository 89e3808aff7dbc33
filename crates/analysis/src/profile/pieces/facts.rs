//! Facts about code without symbols, found after pieces had assumed otherwise.

use armsnap_arch::hash::NumberSet;

/// Facts that are found one by one, and never withdrawn.
#[derive(Clone, Debug, Default)]
pub(in super::super) struct Facts {
    /// Where functions without a symbol start.
    pub starts: Vec<u64>,
    /// Addresses about which nothing may be assumed.
    pub doubtful: Vec<u64>,
}

impl Facts {
    /// Adds other facts.
    pub fn extend(&mut self, other: &Self) {
        self.starts.extend(&other.starts);
        self.doubtful.extend(&other.doubtful);
    }
}

/// The facts that a recorder knows.
#[derive(Debug, Default)]
pub(super) struct KnownFacts {
    pub starts: NumberSet<u64>,
    pub doubtful: NumberSet<u64>,
    seen: (usize, usize),
}

impl KnownFacts {
    /// Learns the facts that are new.
    pub fn learn(&mut self, facts: &Facts) {
        self.starts.extend(facts.starts.iter().skip(self.seen.0));
        self.doubtful
            .extend(facts.doubtful.iter().skip(self.seen.1));
        self.seen = (facts.starts.len(), facts.doubtful.len());
    }
}
