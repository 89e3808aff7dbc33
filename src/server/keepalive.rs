//! Signs of life while a client waits for an answer.
//!
//! GDB gives most replies some seconds. Where it waits for a reply about tracing it prints what
//! packets of the form `O<text in hex>` say, and waits anew: an empty one keeps it waiting.

use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

/// GDB waits for two seconds.
const PAUSE: Duration = Duration::from_millis(500);

/// A packet that says nothing.
pub(super) const SIGN: &[u8] = b"$O#4f";

/// Sends a client a sign of life.
pub(super) type Alive = Arc<dyn Fn() + Send + Sync>;

/// Does work; until it is done signs of life are sent.
pub(super) fn patiently<R>(alive: Option<&Alive>, work: impl FnOnce() -> R) -> R {
    let Some(alive) = alive else { return work() };
    thread::scope(|scope| {
        let (done, waiting) = channel::<()>();
        // Without a thread the work is done without signs.
        let _ = thread::Builder::new().spawn_scoped(scope, move || {
            while waiting.recv_timeout(PAUSE) == Err(RecvTimeoutError::Timeout) {
                alive();
            }
        });
        let result = work();
        drop(done);
        result
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};

    #[test]
    fn signs_are_sent_until_the_work_is_done() {
        let signs = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&signs);
        let alive: Alive = Arc::new(move || {
            counted.fetch_add(1, Ordering::SeqCst);
        });
        // The work lasts until a sign was sent.
        let seen = patiently(Some(&alive), || {
            while signs.load(Ordering::SeqCst) < 2 {
                thread::yield_now();
            }
            signs.load(Ordering::SeqCst)
        });
        let after = signs.load(Ordering::SeqCst);
        assert!(seen >= 2 && after - seen <= 1);
        assert_eq!(patiently(Some(&alive), || 7), 7);
        assert_eq!(patiently(None, || 7), 7);
    }
}
