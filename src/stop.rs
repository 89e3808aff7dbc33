//! Stopping long work by unwinding.
//!
//! Long work for a client runs under a [`Stop`] flag. After another thread sets the flag, the work
//! unwinds from its next call of [`check`], which costs an atomic load. No partial results are
//! returned, so the loops in between need no code for it.

use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// A flag that stops work. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct Stop(Arc<AtomicBool>);

/// The work was stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stopped;

thread_local! {
    static CURRENT: RefCell<Option<Stop>> = const { RefCell::new(None) };
}

impl Stop {
    /// Stops current and later work under this flag.
    pub fn set(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// Clears the flag for later work.
    pub fn clear(&self) {
        self.0.store(false, Ordering::Relaxed);
    }

    /// Returns whether the flag is set.
    pub fn is_set(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    /// Returns the flag of the work on this thread.
    pub fn current() -> Option<Self> {
        CURRENT.with_borrow(Clone::clone)
    }
}

/// Runs work under a stop flag.
pub fn heeding<R>(stop: Option<&Stop>, work: impl FnOnce() -> R) -> R {
    struct Restore(Option<Stop>);
    impl Drop for Restore {
        fn drop(&mut self) {
            CURRENT.set(self.0.take());
        }
    }
    let _restore = Restore(CURRENT.replace(stop.cloned()));
    work()
}

/// Unwinds up to [`catch`] if the flag of the work on this thread is set. Prints no panic message.
pub fn check() {
    if CURRENT.with_borrow(|stop| stop.as_ref().is_some_and(Stop::is_set)) {
        resume_unwind(Box::new(Stopped));
    }
}

/// Unwinds up to [`catch`] because the work cannot continue, if the thread has a stop flag.
pub fn end() {
    if CURRENT.with_borrow(Option::is_some) {
        resume_unwind(Box::new(Stopped));
    }
}

/// Runs work until it completes or is stopped.
///
/// # Errors
///
/// Returns [`Stopped`] if the work was stopped; its side effects may be incomplete.
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
    fn work_stops_at_a_check() {
        let stop = Stop::default();
        let mut rounds = 0;
        let done = heeding(Some(&stop), || {
            catch(|| {
                loop {
                    check();
                    rounds += 1;
                    if rounds == 3 {
                        stop.set();
                    }
                }
            })
        });
        assert_eq!((done, rounds), (Err::<(), _>(Stopped), 3));
        // Work outside is not affected.
        check();
        assert_eq!(catch(|| 7), Ok(7));
        stop.clear();
        heeding(Some(&stop), check);
    }

    #[test]
    fn other_panics_pass_through() {
        let caught = catch_unwind(|| catch(|| resume_unwind(Box::new("other"))));
        assert_eq!(*caught.unwrap_err().downcast::<&str>().unwrap(), "other");
    }
}
