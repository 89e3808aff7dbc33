//! The open calls of contexts that were left while others are executed.

use std::collections::VecDeque;

/// The maximum number of contexts.
const MAX_SUSPENDED: usize = 64;

/// The open calls of contexts that were left; the one left last is the last.
#[derive(Clone, Debug)]
pub struct Suspended<C>(VecDeque<C>);

impl<C> Default for Suspended<C> {
    fn default() -> Self {
        Self(VecDeque::new())
    }
}

impl<C> Suspended<C> {
    /// Leaves a context for another one. Returns the calls of the context that is resumed, the one left
    /// last for which `returning` finds a depth, and that depth; `None` if the other context is new.
    pub fn exchange(
        &mut self,
        left: C,
        returning: impl Fn(&C) -> Option<usize>,
    ) -> Option<(C, usize)> {
        let contexts = self.0.iter().enumerate().rev();
        let mut found = contexts.filter_map(|(index, calls)| Some((index, returning(calls)?)));
        let found = found.next();
        let resumed = found.and_then(|(index, depth)| Some((self.0.remove(index)?, depth)));
        self.0.push_back(left);
        if self.0.len() > MAX_SUSPENDED {
            self.0.pop_front();
        }
        resumed
    }

    /// Forgets all contexts.
    pub fn clear(&mut self) {
        self.0.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_context_left_last_is_resumed_and_the_oldest_is_forgotten() {
        let mut contexts = Suspended::default();
        let is =
            |wanted: usize| move |context: &usize| (context % 100 == wanted).then_some(*context);
        assert_eq!(contexts.exchange(7, is(7)), None);
        assert_eq!(contexts.exchange(107, is(1)), None);
        assert_eq!(contexts.exchange(1, is(7)), Some((107, 107)));
        assert_eq!(contexts.exchange(2, is(7)), Some((7, 7)));
        for other in 0..MAX_SUSPENDED - 1 {
            assert_eq!(contexts.exchange(1000, is(99)), None, "{other}");
        }
        assert_eq!(contexts.exchange(1000, is(1)), None);
        assert_eq!(contexts.exchange(1000, is(2)), None);
    }
}
