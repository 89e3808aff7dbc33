//! Stores to unknown addresses.
//!
//! Accesses are numbered backward in time. A barrier is an access that may have written a class of
//! cells; a value read before it may differ from one read after it.

use crate::recover::graph::nodes::NONE;

/// The barriers of one class of cells: each access that is not a barrier points towards the next
/// barrier.
#[derive(Debug, Default)]
pub(in crate::recover) struct Barriers {
    next: Vec<u32>,
}

impl Barriers {
    /// Adds the next access.
    pub fn push(&mut self, is_barrier: bool) {
        let number = self.next.len() as u32;
        self.next.push(if is_barrier { number } else { number + 1 });
    }

    /// The number of accesses.
    pub fn len(&self) -> usize {
        self.next.len()
    }

    /// The first barrier at or after an access, going towards the past.
    pub fn first(&mut self, from: u32) -> Option<u32> {
        let length = self.next.len() as u32;
        let mut at = from;
        while at < length {
            let next = self.next[at as usize];
            if next == at {
                return Some(at);
            }
            // Halves the path for the next search.
            let beyond = self.next.get(next as usize).copied().unwrap_or(next);
            self.next[at as usize] = beyond;
            at = beyond;
        }
        None
    }

    /// Records that an access is not a barrier.
    pub fn remove(&mut self, access: u32) {
        self.next[access as usize] = access + 1;
    }

    pub fn contains(&self, access: u32) -> bool {
        self.next[access as usize] == access
    }

    pub fn bytes(&self) -> usize {
        self.next.capacity() * size_of::<u32>()
    }
}

/// For each barrier, the events that wait for more to be known of it.
#[derive(Debug, Default)]
pub(in crate::recover) struct Watchers {
    first: Vec<u32>,
    /// Events, each with the next one of its barrier.
    all: Vec<(u32, u32)>,
}

impl Watchers {
    pub fn grow(&mut self, accesses: usize) {
        self.first.resize(accesses, NONE);
    }

    pub fn clear(&mut self) {
        self.first.fill(NONE);
        self.all.clear();
    }

    /// Makes an event wait for a barrier.
    pub fn add(&mut self, barrier: u32, event: u32) {
        let first = &mut self.first[barrier as usize];
        self.all.push((event, *first));
        *first = self.all.len() as u32 - 1;
    }

    /// Takes the events that wait for a barrier.
    pub fn take(&mut self, barrier: u32) -> Vec<u32> {
        let mut at = std::mem::replace(&mut self.first[barrier as usize], NONE);
        let mut events = Vec::new();
        while at != NONE {
            let (event, next) = self.all[at as usize];
            events.push(event);
            at = next;
        }
        events
    }

    pub fn bytes(&self) -> usize {
        self.first.capacity() * size_of::<u32>() + self.all.capacity() * size_of::<(u32, u32)>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_barrier_towards_the_past_is_found() {
        let mut barriers = Barriers::default();
        for number in 0..100 {
            barriers.push(number % 10 == 5);
        }
        assert_eq!(barriers.first(0), Some(5));
        assert_eq!(barriers.first(5), Some(5));
        assert_eq!(barriers.first(6), Some(15));
        barriers.remove(15);
        assert_eq!(barriers.first(6), Some(25));
        assert_eq!(barriers.first(96), None);
        for number in (5..100).step_by(10).filter(|&n| n != 15) {
            barriers.remove(number);
        }
        assert_eq!(barriers.first(0), None);
        barriers.push(true);
        assert_eq!(barriers.first(0), Some(100));
    }
}
