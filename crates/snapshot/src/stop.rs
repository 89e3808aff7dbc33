//! Cancelling long work.
//!
//! A [`Cancel`] is a request to end work whose result is no longer wanted. Loops that can stop with
//! a partial result poll it between two pieces of work. Deeper loops, whose partial results would
//! be wrong, are given an [`Unwind`], and call [`Unwind::check`]: if they continue for more than a
//! second after the request, they are unwound from there up to [`catch`]. Neither is called in an
//! inner loop.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant};

/// The time that cancelled work has to stop by itself.
const GRACE: Duration = Duration::from_secs(1);

/// A request to end work. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct Cancel {
    /// When work is to end, in nanoseconds since [`START`]; 0 if it is not to end.
    due: Arc<AtomicU64>,
    /// The latest time when work is to end, in the same unit.
    latest: u64,
    /// The number of times that [`Cancel::is_requested`] may still return `false`; no limit if
    /// `None`.
    checks: Option<Arc<AtomicU64>>,
}

/// The work was cancelled and unwound.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stopped;

static START: LazyLock<Instant> = LazyLock::new(Instant::now);

/// Returns a time in nanoseconds since [`START`], never 0.
fn nanoseconds(time: Instant) -> u64 {
    let passed = time.saturating_duration_since(*START).as_nanos();
    u64::try_from(passed).unwrap_or(u64::MAX).max(1)
}

impl Cancel {
    /// Returns a request that takes effect after some time.
    #[must_use]
    pub fn after(patience: Duration) -> Self {
        let cancel = Self::default();
        let due = nanoseconds(Instant::now() + patience);
        cancel.due.store(due, Ordering::Relaxed);
        cancel
    }

    /// Returns the same request with a limit: after `checks` calls, [`is_requested`](Self::is_requested)
    /// returns `true`.
    #[must_use]
    pub fn limited_to(&self, checks: u64) -> Self {
        Self {
            checks: Some(Arc::new(AtomicU64::new(checks))),
            ..self.clone()
        }
    }

    /// Returns the same request with a time limit: it also takes effect after some time.
    #[must_use]
    pub fn within(&self, patience: Duration) -> Self {
        let due = nanoseconds(Instant::now() + patience);
        let latest = match self.latest {
            0 => due,
            latest => latest.min(due),
        };
        Self {
            latest,
            ..self.clone()
        }
    }

    /// Cancels the work, unless an earlier request is in effect.
    pub fn request(&self) {
        let now = nanoseconds(Instant::now());
        let earlier = |due: u64| (due == 0 || due > now).then_some(now);
        let order = Ordering::Relaxed;
        let _ = self.due.fetch_update(order, order, earlier);
    }

    /// Withdraws the request, so that later work is not cancelled.
    pub fn clear(&self) {
        self.due.store(0, Ordering::Relaxed);
    }

    /// Returns whether the work is to end.
    #[must_use]
    pub fn is_requested(&self) -> bool {
        let used_up = self.checks.as_ref().is_some_and(|checks| {
            let one_less = |left: u64| left.checked_sub(1);
            let left = checks.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_less);
            left.is_err()
        });
        used_up || self.is_due(Duration::ZERO)
    }

    /// Returns whether the work should have ended at least `grace` ago.
    fn is_due(&self, grace: Duration) -> bool {
        let times = [self.due.load(Ordering::Relaxed), self.latest];
        let Some(due) = times.into_iter().filter(|&due| due != 0).min() else {
            return false;
        };
        nanoseconds(Instant::now()) >= due.saturating_add(grace.as_nanos() as u64)
    }
}

/// Unwinds deep work for someone who may stop waiting for it. By default, nobody does, and all work
/// completes.
#[derive(Clone, Debug, Default)]
pub struct Unwind(Option<Cancel>);

impl Unwind {
    /// Unwinds work on a request. The caller of the work has to [`catch`] that.
    #[must_use]
    pub fn on(cancel: &Cancel) -> Self {
        Self(Some(cancel.clone()))
    }

    /// Unwinds up to [`catch`] if the work was cancelled more than a second ago. Prints no panic
    /// message.
    pub fn check(&self) {
        if self.0.as_ref().is_some_and(|cancel| cancel.is_due(GRACE)) {
            resume_unwind(Box::new(Stopped));
        }
    }

    /// Unwinds up to [`catch`] because the work cannot continue, if someone may stop it.
    pub fn end(&self) {
        if self.0.is_some() {
            resume_unwind(Box::new(Stopped));
        }
    }
}

/// Runs work until it completes or is unwound.
///
/// # Errors
///
/// Returns [`Stopped`] if the work was unwound; its side effects may be incomplete.
pub fn catch<R>(work: impl FnOnce() -> R) -> Result<R, Stopped> {
    catch_unwind(AssertUnwindSafe(work)).map_err(|why| match why.downcast::<Stopped>() {
        Ok(stopped) => *stopped,
        Err(panic) => resume_unwind(panic),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_that_does_not_end_in_time_is_unwound_at_a_check() {
        let cancel = Cancel::default();
        let unwind = Unwind::on(&cancel);
        let mut rounds = 0;
        let done = catch(|| {
            loop {
                unwind.check();
                rounds += 1;
                if rounds == 3 {
                    cancel.request();
                    // The work still has time to stop by itself.
                    unwind.check();
                    assert!(cancel.is_requested());
                    std::thread::sleep(GRACE);
                }
            }
        });
        assert_eq!((done, rounds), (Err::<(), _>(Stopped), 3));
        // Other work is not affected.
        Unwind::default().check();
        Unwind::default().end();
        assert_eq!(catch(|| 7), Ok(7));
        cancel.clear();
        assert!(!cancel.is_requested());
        unwind.check();
        assert_eq!(catch(|| unwind.end()), Err(Stopped));
    }

    #[test]
    fn a_request_takes_effect_after_its_time_or_its_checks() {
        assert!(Cancel::after(Duration::ZERO).is_requested());
        let later = Cancel::after(Duration::from_secs(3600));
        assert!(!later.is_requested());
        let twice = later.limited_to(2);
        let asked = [(); 4].map(|()| twice.is_requested());
        assert_eq!(asked, [false, false, true, true]);
        assert!(!later.is_requested());
        later.request();
        assert!(later.is_requested());
        // A clone is the same request, and a limited one ends with it.
        let all = Cancel::default();
        let limited = all.limited_to(100);
        all.clone().request();
        assert!(all.is_requested() && limited.is_requested());
    }

    #[test]
    fn a_request_with_a_time_limit_takes_effect_at_the_earlier_time() {
        let all = Cancel::default();
        let short = all.within(Duration::ZERO);
        let long = all.within(Duration::from_secs(3600));
        assert!(short.is_requested() && short.within(Duration::from_secs(1)).is_requested());
        assert!(!all.is_requested() && !long.is_requested());
        all.request();
        assert!(long.is_requested());
        all.clear();
        assert!(!long.is_requested() && short.is_requested());
    }

    #[test]
    fn other_panics_pass_through() {
        let caught = catch_unwind(|| catch(|| resume_unwind(Box::new("other"))));
        assert_eq!(*caught.unwrap_err().downcast::<&str>().unwrap(), "other");
    }
}
