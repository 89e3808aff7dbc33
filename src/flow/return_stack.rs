//! The return stack: branches with link push, indirect branches without a traced target pop
//! (PFT IHI 0035 4.13, ETMv4 IHI 0064 "Return stack").
//!
//! A trace unit may have fewer entries than this one and may empty its stack more often: it then
//! traces a target, and nothing is popped here. What lies on top is the same in both.

/// More than any trace unit has.
const DEPTH: usize = 16;

/// Blocks that end in a branch with link; the oldest is dropped for a new one.
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

    /// The entries, oldest first.
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
