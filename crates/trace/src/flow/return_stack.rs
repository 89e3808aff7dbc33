//! The return stack: branches with link push, indirect branches without a traced target pop
//! (ARM IHI 0035B 4.13 "Return stack", ARM IHI 0064H "Return stack").
//!
//! A trace unit may have fewer entries and may empty its stack more often. It then traces a target,
//! and nothing is popped here. The top entries are the same in both.

use super::blocks::{Hot, SLOW, Space, target_of};

/// More entries than any trace unit has.
pub(super) const DEPTH: usize = 16;

/// Stands for a caller that was stacked before the part of the trace that is decoded here.
const UNKNOWN: u32 = u32::MAX;

/// Blocks that end in a branch with link. If full, it drops the oldest for a new one.
#[derive(Clone, Debug, Default)]
pub(super) struct ReturnStack {
    /// If there are callers below the known ones: [`UNKNOWN`] in the slots that no known caller has
    /// taken yet.
    callers: [u32; DEPTH],
    top: usize,
    count: usize,
    /// Whether there may be callers below the known ones.
    open: bool,
    /// Whether one of the unknown callers was needed.
    missed: bool,
}

impl ReturnStack {
    /// Creates a stack of known callers, oldest first, at most [`DEPTH`]. Below them there may be up
    /// to `room` unknown ones.
    pub(super) fn with_callers(callers: &[u32], room: usize) -> Self {
        let mut stack = Self {
            open: room > 0,
            ..Self::default()
        };
        for &caller in callers {
            stack.push(caller);
        }
        // The slots below the oldest known caller.
        for below in 0..room.min(DEPTH - stack.count) {
            let place = (stack.top + 2 * DEPTH - stack.count - below) % DEPTH;
            stack.callers[place] = UNKNOWN;
        }
        stack
    }

    /// Returns the maximum number of unknown callers below the known ones. A known caller pushed
    /// into the slot of an unknown one replaces it.
    pub(super) fn room(&self) -> usize {
        if !self.open {
            return 0;
        }
        let unknown = |caller: &&u32| **caller == UNKNOWN;
        self.callers.iter().filter(unknown).count()
    }

    /// Returns whether an unknown caller was needed since the last call.
    pub(super) fn take_missed(&mut self) -> bool {
        std::mem::take(&mut self.missed)
    }

    pub(super) fn set_missed(&mut self, missed: bool) {
        self.missed = missed;
    }

    #[inline]
    pub(super) fn push(&mut self, caller: u32) {
        self.top = (self.top + 1) % DEPTH;
        self.callers[self.top] = caller;
        self.count = (self.count + 1).min(DEPTH);
    }

    #[inline]
    pub(super) fn top(&self) -> Option<u32> {
        (self.count > 0).then(|| self.callers[self.top % DEPTH])
    }

    #[inline]
    pub(super) fn pop(&mut self) -> Option<u32> {
        let Some(count) = self.count.checked_sub(1) else {
            self.missed |= self.room() > 0;
            return None;
        };
        self.count = count;
        let caller = self.callers[self.top % DEPTH];
        self.top = (self.top + DEPTH - 1) % DEPTH;
        Some(caller)
    }

    /// Pops the newest caller if its next block is linked and lies in `space`; returns that block.
    /// `linking`: whether the branch itself pushes a caller.
    #[inline]
    pub(super) fn pop_linked(&mut self, hot: &[Hot], space: Space, linking: bool) -> Option<u32> {
        let caller = hot[self.top()? as usize];
        let next = caller.links[0];
        if next == SLOW || linking || !caller.lies_in(space) {
            return None;
        }
        self.pop();
        Some(target_of(next))
    }

    pub(super) fn clear(&mut self) {
        self.count = 0;
        self.open = false;
    }

    /// Removes all entries and returns them, oldest first.
    pub(super) fn drain(&mut self) -> Vec<u32> {
        let mut callers: Vec<u32> = std::iter::from_fn(|| self.pop()).collect();
        callers.reverse();
        callers
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_entry_is_dropped() {
        let mut stack = ReturnStack::default();
        assert_eq!(stack.pop(), None);
        for caller in 0..20 {
            stack.push(caller);
        }
        assert_eq!(stack.clone().drain(), (4..20).collect::<Vec<_>>());
        for caller in (4..20).rev() {
            assert_eq!(stack.pop(), Some(caller));
        }
        assert_eq!(stack.pop(), None);
    }

    #[test]
    fn unknown_callers_stay_below_until_known_ones_take_their_places() {
        let mut stack = ReturnStack::with_callers(&[1, 2], 14);
        assert_eq!(stack.room(), 14);
        for caller in 3..=5 {
            stack.push(caller);
        }
        assert_eq!(stack.room(), 11);
        for caller in (1..=5).rev() {
            assert_eq!(stack.pop(), Some(caller));
        }
        assert!(!stack.take_missed());
        assert_eq!(stack.pop(), None);
        assert!(stack.take_missed() && !stack.take_missed());
        assert_eq!(stack.room(), 11);

        // Once restored, the same slots are left.
        let mut stack = ReturnStack::with_callers(&[1, 2], 3);
        for caller in 0..11 {
            assert_eq!(stack.room(), 3);
            stack.push(caller);
        }
        assert_eq!(stack.room(), 3);
        stack.push(11);
        assert_eq!(stack.room(), 2);
        for caller in 12..20 {
            stack.push(caller);
        }
        assert_eq!(stack.room(), 0);
        assert_eq!(stack.drain().len(), DEPTH);
        assert_eq!(stack.pop(), None);
        assert!(!stack.take_missed());

        // After a gap in the trace there is nothing below.
        let mut stack = ReturnStack::with_callers(&[], DEPTH);
        stack.clear();
        assert_eq!((stack.room(), stack.pop()), (0, None));
        assert!(!stack.take_missed());
    }
}
