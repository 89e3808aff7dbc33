//! Input from a client, read ahead by a separate thread. This shows during a request whether the
//! client still waits for the reply.
//!
//! A client cancels its request if it disconnects, sends Ctrl-C, or sends another packet when that
//! means that it no longer waits ([`armsnap_snapshot::stop::Cancel`]).

use std::collections::VecDeque;
use std::io::{self, Read};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use super::peer::Peer;
use super::session::{Client, Meanwhile};
use armsnap_snapshot::stop::Cancel;

/// Maximum number of bytes read ahead.
const AHEAD: usize = 0x1_0000;
/// The byte that interrupts a move.
const CTRL_C: u8 = 0x03;
/// How often a client whose bytes are not read is checked for a disconnect.
const CHECK: Duration = Duration::from_millis(100);

/// Number of bytes that suffice to recognise an HTTP request: a method and a space.
const HTTP_METHOD: usize = 8;

/// Whether a client is a browser: any web page can make one send requests to a port of this system.
fn is_http(first: &[u8]) -> bool {
    let methods: [&[u8]; 9] = [
        b"GET ",
        b"POST ",
        b"PUT ",
        b"HEAD ",
        b"OPTIONS ",
        b"DELETE ",
        b"PATCH ",
        b"TRACE ",
        b"CONNECT ",
    ];
    methods.iter().any(|method| first.starts_with(method))
}

/// The bytes received from a client. Clones share them.
#[derive(Clone, Default)]
pub(super) struct Inbox {
    shared: Arc<(Mutex<State>, Condvar)>,
    cancel: Cancel,
}

#[derive(Default)]
struct State {
    bytes: VecDeque<u8>,
    /// Whether the client disconnected, or reading failed.
    ended: bool,
    /// The error, if reading failed.
    error: Option<io::Error>,
    /// `Some` while a request is answered: whether a further packet cancels it.
    busy: Option<bool>,
    /// Whether the bytes are no longer consumed.
    closed: bool,
}

impl State {
    fn meanwhile(&self) -> Meanwhile {
        if self.ended || self.bytes.contains(&CTRL_C) {
            Meanwhile::Interrupts
        } else if self.bytes.contains(&b'$') {
            Meanwhile::SendsPacket
        } else {
            Meanwhile::Waits
        }
    }

    /// Returns whether the client no longer waits for the reply.
    fn is_unwanted(&self) -> bool {
        match (self.busy, self.meanwhile()) {
            (None, _) | (_, Meanwhile::Waits) | (Some(false), Meanwhile::SendsPacket) => false,
            (Some(_), Meanwhile::Interrupts) | (Some(true), Meanwhile::SendsPacket) => true,
        }
    }
}

impl Client for Inbox {
    fn meanwhile(&self) -> Meanwhile {
        self.lock().meanwhile()
    }

    fn cancel(&self, by_packets: bool) -> Cancel {
        let mut state = self.lock();
        state.busy = Some(by_packets);
        self.cancel.clear();
        if state.is_unwanted() {
            self.cancel.request();
        }
        self.cancel.clone()
    }
}

impl Inbox {
    /// Starts the thread that reads from `reader` until the client disconnects.
    ///
    /// # Errors
    ///
    /// If the thread cannot be started.
    pub fn fill(&self, reader: impl Read + Peer + 'static) -> io::Result<()> {
        let inbox = self.clone();
        let reading = thread::Builder::new().name("reader".to_owned());
        reading.spawn(move || inbox.read(reader)).map(|_| ())
    }

    /// Returns the request that cancels the work for this client.
    pub fn cancelled(&self) -> &Cancel {
        &self.cancel
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.shared.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for the next bytes; `None` if the client disconnected. Only the first of them may start a
    /// packet or interrupt: further such bytes stay in the inbox, to show what the client does meanwhile.
    ///
    /// # Errors
    ///
    /// If reading failed.
    pub fn next(&self) -> io::Result<Option<Vec<u8>>> {
        let mut state = self.lock();
        loop {
            if !state.bytes.is_empty() {
                let starts = |byte: &u8| matches!(*byte, CTRL_C | b'$');
                let next = state.bytes.iter().skip(1).position(starts);
                let count = next.map_or(state.bytes.len(), |next| next + 1);
                return Ok(Some(state.bytes.drain(..count).collect()));
            }
            if state.ended {
                return state.error.take().map_or(Ok(None), Err);
            }
            let changed = &self.shared.1;
            state = changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Marks the start of a request.
    pub fn begin(&self) {
        self.lock().busy = Some(false);
    }

    /// Marks the end of a request.
    pub fn end(&self) {
        self.lock().busy = None;
        self.cancel.clear();
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

    fn read(&self, mut reader: impl Read + Peer) {
        let mut piece = vec![0; 0x4000];
        let mut first: Vec<u8> = Vec::new();
        loop {
            let state = self.lock();
            if state.is_unwanted() {
                self.cancel.request();
            }
            if state.closed {
                return;
            }
            let full = state.bytes.len() >= AHEAD;
            if state.ended || full {
                // There is nothing to read, but a disconnect is still detected.
                let changed = &self.shared.1;
                let waited = changed.wait_timeout(state, CHECK);
                let (mut state, _) = waited.unwrap_or_else(PoisonError::into_inner);
                state.ended |= full && reader.has_left();
                continue;
            }
            drop(state);
            let count = reader.read(&mut piece);
            let mut state = self.lock();
            match count {
                Ok(0) => state.ended = true,
                Ok(count) => {
                    let more = HTTP_METHOD.saturating_sub(first.len()).min(count);
                    first.extend(&piece[..more]);
                    match is_http(&first) {
                        // Its body must not be read as packets.
                        true => state.ended = true,
                        false => state.bytes.extend(&piece[..count]),
                    }
                }
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
