//! What a client sends, read ahead by a thread of its own: so that it is known while an answer is
//! made whether the answer is still wanted.
//!
//! A client that leaves, or presses Ctrl-C, wants the work for it to end. Work that asks now and
//! then ends in order; what has not ended after [`GRACE`] is ended where it is ([`crate::stop`]).

use std::collections::VecDeque;
use std::io::{self, Read};
use std::os::fd::AsFd;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::session::Meanwhile;
use crate::stop::Stop;

/// Bytes that are read ahead.
const AHEAD: usize = 0x1_0000;
/// What a client sends that wants a move to stop.
const CTRL_C: u8 = 0x03;
/// Work that is not wanted may go on for so long.
const GRACE: Duration = Duration::from_secs(1);
/// How often it is looked at meanwhile.
const LOOK: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 100_000_000,
};

/// What a client has sent, as far as it was read. Clones share it.
#[derive(Clone, Default)]
pub(super) struct Inbox {
    shared: Arc<(Mutex<State>, Condvar)>,
    stop: Stop,
}

#[derive(Default)]
struct State {
    bytes: VecDeque<u8>,
    /// The client sends nothing more: it has left, or reading failed.
    ended: bool,
    /// Why, if that was an error.
    error: Option<io::Error>,
    /// An answer is made; whether packets that come meanwhile say that it is not wanted.
    busy: Option<bool>,
    /// Since when the answer is not wanted.
    unwanted: Option<Instant>,
    /// Nobody takes the bytes any more.
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

    /// Whether an answer is made that is not wanted; notes since when.
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
    /// Reads from `reader` until the client leaves.
    pub fn fill(&self, reader: impl Read + AsFd + Send + 'static) -> io::Result<()> {
        let inbox = self.clone();
        let reading = thread::Builder::new().name("reader".to_owned());
        reading.spawn(move || inbox.read(reader)).map(|_| ())
    }

    /// What ends the work for this client.
    pub fn stop(&self) -> &Stop {
        &self.stop
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.shared.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The next byte; waits for it. `None`: the client has left.
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

    /// What the client does while an answer is made.
    pub fn meanwhile(&self) -> Meanwhile {
        self.lock().meanwhile()
    }

    /// An answer is made from now on; `takes_back`: the client sends another packet only where it
    /// does not want it any more.
    pub fn begin(&self, takes_back: bool) {
        self.lock().busy = Some(takes_back);
    }

    /// The answer is made.
    pub fn end(&self) {
        let mut state = self.lock();
        state.busy = None;
        state.unwanted = None;
        self.stop.clear();
        // The reader may wait for room.
        self.shared.1.notify_all();
    }

    /// Nothing is taken any more.
    pub fn close(&self) {
        self.lock().closed = true;
        self.shared.1.notify_all();
    }

    /// Whether an answer is made.
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
                // Either way there is nothing to read; one who has left is still noticed.
                let wait = Duration::from_nanos(LOOK.tv_nsec as u64);
                let changed = &self.shared.1;
                let waited = changed.wait_timeout(state, wait);
                let (mut state, _) = waited.unwrap_or_else(PoisonError::into_inner);
                state.ended |= full && has_left(&reader);
                continue;
            }
            drop(state);
            if watched && !is_ready(&reader, LOOK) {
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

/// Whether there is something to read, or the client is gone; waits for it.
fn is_ready(reader: &impl AsFd, wait: Timespec) -> bool {
    let mut descriptors = [PollFd::new(reader, PollFlags::IN)];
    poll(&mut descriptors, Some(&wait)).is_ok_and(|count| count > 0)
}

/// Whether the other side is gone, though it has sent more than was read.
fn has_left(reader: &impl AsFd) -> bool {
    let left = PollFlags::HUP | PollFlags::ERR | PollFlags::RDHUP;
    let mut descriptors = [PollFd::new(reader, PollFlags::RDHUP)];
    let now = Timespec::default();
    poll(&mut descriptors, Some(&now)).is_ok() && descriptors[0].revents().intersects(left)
}
