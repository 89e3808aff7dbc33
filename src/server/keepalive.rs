//! Keepalive packets while a client waits for a reply.
//!
//! GDB waits a few seconds for most replies. While it waits for a reply about tracing, it prints
//! the text of packets of the form `O<text in hex>` and restarts the timeout: an empty one only
//! restarts the timeout.

use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

/// Interval between keepalive packets. GDB waits for two seconds.
const PAUSE: Duration = Duration::from_millis(500);

/// An empty output packet.
pub(super) const PACKET: &[u8] = b"$O#4f";

/// A function that sends a keepalive packet to a client.
pub(super) type Alive = Arc<dyn Fn() + Send + Sync>;

/// Runs `work`, sending keepalive packets until it is done.
pub(super) fn with_keepalive<R>(alive: Option<&Alive>, work: impl FnOnce() -> R) -> R {
    let Some(alive) = alive else { return work() };
    thread::scope(|scope| {
        let (done, waiting) = channel::<()>();
        // If no thread can be started, no keepalive packets are sent.
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
    fn keepalive_packets_are_sent_until_the_work_is_done() {
        let signs = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&signs);
        let alive: Alive = Arc::new(move || {
            counted.fetch_add(1, Ordering::SeqCst);
        });
        // The work ends after two packets.
        let seen = with_keepalive(Some(&alive), || {
            while signs.load(Ordering::SeqCst) < 2 {
                thread::yield_now();
            }
            signs.load(Ordering::SeqCst)
        });
        let after = signs.load(Ordering::SeqCst);
        assert!(seen >= 2 && after - seen <= 1);
        assert_eq!(with_keepalive(Some(&alive), || 7), 7);
        assert_eq!(with_keepalive(None, || 7), 7);
    }
}
