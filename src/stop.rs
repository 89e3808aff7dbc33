//! Work that is not wanted any more ends.
//!
//! Whoever starts long work on behalf of somebody hands it a [`Stop`]; from any other thread that
//! can be set, and the work then unwinds from the next place where it asks: [`check`]. Nothing
//! half done comes back, so no loop in between needs to know. It costs an atomic load at each
//! such place. Knows nothing of what is worked on.

use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// A wish that work ends. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct Stop(Arc<AtomicBool>);

/// Work was ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stopped;

thread_local! {
    static CURRENT: RefCell<Option<Stop>> = const { RefCell::new(None) };
}

impl Stop {
    /// Ends the work that heeds it, now and later.
    pub fn set(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// Lets later work go on.
    pub fn clear(&self) {
        self.0.store(false, Ordering::Relaxed);
    }

    /// Whether work is to end.
    pub fn is_set(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    /// That of the work which this thread does.
    pub fn current() -> Option<Self> {
        CURRENT.with_borrow(Clone::clone)
    }
}

/// Does work that heeds a wish to stop.
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

/// Ends here if the work of this thread is not wanted any more. Nothing is printed: it is no
/// panic, though it unwinds like one up to [`catch`].
pub fn check() {
    if CURRENT.with_borrow(|stop| stop.as_ref().is_some_and(Stop::is_set)) {
        resume_unwind(Box::new(Stopped));
    }
}

/// Ends here because the work cannot be done any more, if this thread heeds a wish to stop: then
/// there is somebody who catches it.
pub fn end() {
    if CURRENT.with_borrow(Option::is_some) {
        resume_unwind(Box::new(Stopped));
    }
}

/// Does work up to its end, or to where it was ended. What it changed may be half done then.
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
    fn work_ends_where_it_asks() {
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
        // Other work does not heed it.
        check();
        assert_eq!(catch(|| 7), Ok(7));
        stop.clear();
        heeding(Some(&stop), check);
    }

    #[test]
    fn other_panics_go_on() {
        let caught = catch_unwind(|| catch(|| resume_unwind(Box::new("other"))));
        assert_eq!(*caught.unwrap_err().downcast::<&str>().unwrap(), "other");
    }
}
