//! Numbered pieces of work on several threads, with results in order.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread::Builder;

/// Whether further pieces are started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Then {
    Continue,
    /// Pieces that were started are completed: at least all before this one.
    Stop,
}

/// Does pieces of work 0 to `count` - 1, with one thread per worker; the first works on the current
/// thread. Returns their results, `None` for those that were not started.
pub(super) fn each<W: Send, T: Send>(
    workers: &mut [W],
    count: usize,
    work: impl Fn(&mut W, usize) -> (T, Then) + Sync,
) -> Vec<Option<T>> {
    let next = AtomicUsize::new(0);
    let mut none = Vec::new();
    none.resize_with(count, || None);
    let results = Mutex::new(none);
    let run = |worker: &mut W| {
        loop {
            let at = next.fetch_add(1, Ordering::Relaxed);
            if at >= count {
                break;
            }
            let (result, then) = work(worker, at);
            if then == Then::Stop {
                next.store(count, Ordering::Relaxed);
            }
            results.lock().unwrap_or_else(PoisonError::into_inner)[at] = Some(result);
        }
    };
    if let Some((first, others)) = workers.split_first_mut() {
        std::thread::scope(|scope| {
            let others = others.iter_mut().take(count.saturating_sub(1));
            // Threads that cannot be started leave their work to the others.
            let others = others.map_while(|worker| {
                let run = &run;
                Builder::new().spawn_scoped(scope, move || run(worker)).ok()
            });
            let others: Vec<_> = others.collect();
            run(first);
            for other in others {
                if let Err(why) = other.join() {
                    std::panic::resume_unwind(why);
                }
            }
        });
    }
    results.into_inner().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_are_in_order_and_complete_up_to_the_one_that_stops() {
        for workers in 1..5 {
            let mut done = vec![0; workers];
            let all = each(&mut done, 100, |done, at| {
                *done += 1;
                (at * at, Then::Continue)
            });
            let wanted: Vec<_> = (0..100).map(|at| Some(at * at)).collect();
            assert_eq!(all, wanted);
            assert_eq!(done.iter().sum::<i32>(), 100);
            for stop in [0, 7, 99] {
                let some = each(&mut done, 100, |_, at| {
                    let then = [Then::Continue, Then::Stop][usize::from(at == stop)];
                    (at, then)
                });
                assert!((0..=stop).all(|at| some[at] == Some(at)));
            }
        }
        assert_eq!(each(&mut [(), ()], 0, |(), at| (at, Then::Stop)), []);
    }

    #[test]
    fn a_panic_in_any_thread_is_passed_on() {
        let fails = std::panic::catch_unwind(|| {
            each(&mut [0, 1, 2], 50, |_, at| {
                if at == 20 {
                    std::panic::resume_unwind(Box::new("twenty"));
                }
                (at, Then::Continue)
            })
        });
        assert_eq!(*fails.unwrap_err().downcast::<&str>().unwrap(), "twenty");
    }
}
