//! The return stack: branches with link push, indirect branches without a traced target pop
//! (ARM IHI 0035B 4.13 "Return stack", ARM IHI 0064H "Return stack").
//!
//! A trace unit may have fewer entries and may empty its stack more often. It then traces a target,
//! and nothing is popped here. The top entries are the same in both.

/// More entries than any trace unit has.
const DEPTH: usize = 16;

/// Blocks that end in a branch with link. If full, it drops the oldest for a new one.
#[derive(Clone, Debug, Default)]
pub(super) struct ReturnStack {
    callers: [u32; DEPTH],
    top: usize,
    count: usize,
}

impl ReturnStack {
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
        self.count = self.count.checked_sub(1)?;
        let caller = self.callers[self.top % DEPTH];
        self.top = (self.top + DEPTH - 1) % DEPTH;
        Some(caller)
    }

    pub(super) fn clear(&mut self) {
        self.count = 0;
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
}
