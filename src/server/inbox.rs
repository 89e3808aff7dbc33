//! Input from a client, read ahead by a separate thread. This shows during a request whether the
//! client still waits for the reply.
//!
//! A client that disconnects or sends Ctrl-C cancels its request. Work that polls for this ends in
//! order ([`crate::stop::Cancel`]); work that continues after [`GRACE`] is unwound
//! ([`crate::stop::Stop`]).

use std::collections::VecDeque;
use std::io::{self, Read};
use std::os::fd::AsFd;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::session::Meanwhile;
use crate::stop::Stop;

/// Maximum number of bytes read ahead.
const AHEAD: usize = 0x1_0000;
/// The byte that interrupts a move.
const CTRL_C: u8 = 0x03;
/// Time that cancelled work has to end by itself.
const GRACE: Duration = Duration::from_secs(1);
/// How often cancelled work is checked.
const CHECK: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 100_000_000,
};

/// The bytes received from a client. Clones share them.
#[derive(Clone, Default)]
pub(super) struct Inbox {
    shared: Arc<(Mutex<State>, Condvar)>,
    stop: Stop,
}

#[derive(Default)]
struct State {
    bytes: VecDeque<u8>,
    /// The client disconnected, or reading failed.
    ended: bool,
    /// The error, if reading failed.
    error: Option<io::Error>,
    /// A request is being answered; `true` if a further packet cancels it.
    busy: Option<bool>,
    /// When the request was cancelled.
    unwanted: Option<Instant>,
    /// The bytes are not consumed any more.
    closed: bool,
}

impl State {
    fn meanwhile(&self) -> Meanwhile {
        if self.ended || self.bytes.contains(&CTRL_C) {
            Meanwhile::Interrupts
        } else if self.bytes.contains(&b'$') {
            Meanwhile::AsksOn
        } else {
            Meanwhile::Waits
        }
    }

    /// Returns whether the current request is cancelled, and records when that happened.
    fn is_unwanted(&mut self) -> bool {
        let unwanted = match (self.busy, self.meanwhile()) {
            (None, _) | (_, Meanwhile::Waits) | (Some(false), Meanwhile::AsksOn) => false,
            (Some(_), Meanwhile::Interrupts) | (Some(true), Meanwhile::AsksOn) => true,
        };
        if unwanted {
            self.unwanted.get_or_insert_with(Instant::now);
        } else {
            self.unwanted = None;
        }
        unwanted
    }
}

impl Inbox {
    /// Starts the thread that reads from `reader` until the client disconnects.
    pub fn fill(&self, reader: impl Read + AsFd + Send + 'static) -> io::Result<()> {
        let inbox = self.clone();
        let reading = thread::Builder::new().name("reader".to_owned());
        reading.spawn(move || inbox.read(reader)).map(|_| ())
    }

    /// Returns the stop flag for the work of this client.
    pub fn stop(&self) -> &Stop {
        &self.stop
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.shared.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for the next byte. `None`: the client disconnected.
    pub fn next(&self) -> io::Result<Option<u8>> {
        let mut state = self.lock();
        loop {
            if let Some(byte) = state.bytes.pop_front() {
                return Ok(Some(byte));
            }
            if state.ended {
                return state.error.take().map_or(Ok(None), Err);
            }
            let changed = &self.shared.1;
            state = changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Returns what the client has done since the request.
    pub fn meanwhile(&self) -> Meanwhile {
        self.lock().meanwhile()
    }

    /// Marks the start of a request. `takes_back`: a further packet from the client cancels it.
    pub fn begin(&self, takes_back: bool) {
        self.lock().busy = Some(takes_back);
    }

    /// Marks the end of a request.
    pub fn end(&self) {
        let mut state = self.lock();
        state.busy = None;
        state.unwanted = None;
        self.stop.clear();
        // The reader may be waiting for space.
        self.shared.1.notify_all();
    }

    /// Stops reading.
    pub fn close(&self) {
        self.lock().closed = true;
        self.shared.1.notify_all();
    }

    /// Returns whether a request is being answered.
    pub fn is_busy(&self) -> bool {
        self.lock().busy.is_some()
    }

    fn read(&self, mut reader: impl Read + AsFd) {
        let mut piece = vec![0; 0x4000];
        loop {
            let mut state = self.lock();
            let watched = state.is_unwanted();
            if watched && state.unwanted.is_some_and(|since| since.elapsed() >= GRACE) {
                self.stop.set();
            }
            if state.closed {
                return;
            }
            let full = state.bytes.len() >= AHEAD;
            if state.ended || full {
                // There is nothing to read, but a disconnect is still detected.
                let wait = Duration::from_nanos(CHECK.tv_nsec as u64);
                let changed = &self.shared.1;
                let waited = changed.wait_timeout(state, wait);
                let (mut state, _) = waited.unwrap_or_else(PoisonError::into_inner);
                state.ended |= full && has_left(&reader);
                continue;
            }
            drop(state);
            if watched && !is_ready(&reader, CHECK) {
                continue;
            }
            let count = reader.read(&mut piece);
            let mut state = self.lock();
            match count {
                Ok(0) => state.ended = true,
                Ok(count) => state.bytes.extend(&piece[..count]),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => {
                    state.ended = true;
                    state.error = Some(error);
                }
            }
            self.shared.1.notify_all();
        }
    }
}

/// Waits until there is something to read or the client disconnects; returns whether it did.
fn is_ready(reader: &impl AsFd, wait: Timespec) -> bool {
    let mut descriptors = [PollFd::new(reader, PollFlags::IN)];
    poll(&mut descriptors, Some(&wait)).is_ok_and(|count| count > 0)
}

/// Returns whether the client disconnected, even if there are unread bytes.
fn has_left(reader: &impl AsFd) -> bool {
    let left = PollFlags::HUP | PollFlags::ERR | PollFlags::RDHUP;
    let mut descriptors = [PollFd::new(reader, PollFlags::RDHUP)];
    let now = Timespec::default();
    poll(&mut descriptors, Some(&now)).is_ok() && descriptors[0].revents().intersects(left)
}
