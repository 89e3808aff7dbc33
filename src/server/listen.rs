//! Sockets, pipes and the loop between them and sessions.
//!
//! Each client has a session and a thread of its own; a client that leaves, in whatever way,
//! takes nothing with it.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use std::os::fd::AsFd;
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::{UnixListener, UnixStream};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::endpoint::Endpoint;
use super::patience::SIGN;
use super::session::{End, Meanwhile, Session};

/// Most clients of one endpoint at a time.
const MAX_CLIENTS: usize = 32;
/// Bytes that are read ahead while a move goes on.
const AHEAD: usize = 0x1_0000;
/// What a client sends that wants a move to stop.
const CTRL_C: u8 = 0x03;

/// What a client sent, as far as it was read.
struct Input<R> {
    reader: R,
    bytes: Vec<u8>,
    next: usize,
}

impl<R: Read + AsFd> Input<R> {
    fn new(reader: R) -> Self {
        Self {
            reader,
            bytes: Vec::new(),
            next: 0,
        }
    }

    /// The next byte of those that were read.
    fn byte(&mut self) -> Option<u8> {
        let byte = self.bytes.get(self.next).copied()?;
        self.next += 1;
        Some(byte)
    }

    /// Waits for more bytes; answers whether there are any.
    fn read(&mut self) -> io::Result<bool> {
        self.bytes.drain(..self.next);
        self.next = 0;
        let before = self.bytes.len();
        self.bytes.resize(before + 0x4000, 0);
        let count = loop {
            match self.reader.read(&mut self.bytes[before..]) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                result => break result,
            }
        };
        let read = count.as_ref().map_or(0, |count| *count);
        self.bytes.truncate(before + read);
        count.map(|count| count > 0)
    }

    /// Whether there is something to read, or the client is gone.
    fn is_ready(&self) -> bool {
        let mut descriptors = [PollFd::new(&self.reader, PollFlags::IN)];
        let now = Timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        poll(&mut descriptors, Some(&now)).is_ok_and(|count| count > 0)
    }

    /// What the client does while an answer is made. One that is gone wants none.
    fn meanwhile(&mut self) -> Meanwhile {
        let room = self.bytes.len() - self.next < AHEAD;
        if room && self.is_ready() && !self.read().unwrap_or(false) {
            return Meanwhile::Interrupts;
        }
        let sent = &self.bytes[self.next..];
        if sent.contains(&CTRL_C) {
            Meanwhile::Interrupts
        } else if sent.contains(&b'$') {
            Meanwhile::AsksOn
        } else {
            Meanwhile::Waits
        }
    }
}

/// Speaks with one client until one side ends it.
pub fn converse(
    endpoint: Arc<Endpoint>,
    input: impl Read + AsFd,
    output: impl Write + Send + 'static,
) -> io::Result<Option<End>> {
    let output = Arc::new(Mutex::new(output));
    let send = |bytes: &[u8]| {
        let mut output = output.lock().unwrap_or_else(PoisonError::into_inner);
        output.write_all(bytes)?;
        output.flush()
    };
    let signs = Arc::clone(&output);
    let mut session = Session::new(endpoint).with_signs(Arc::new(move || {
        let mut output = signs.lock().unwrap_or_else(PoisonError::into_inner);
        // A client that went away is noticed where its packets are read.
        let _ = output.write_all(SIGN).and_then(|()| output.flush());
    }));
    let mut input = Input::new(input);
    let mut replies = Vec::new();
    while input.read()? {
        while let Some(byte) = input.byte() {
            let end = session.push_while(byte, &mut replies, &mut || input.meanwhile());
            // At once: the next answer may take its time, and say so.
            if !replies.is_empty() {
                send(&replies)?;
                replies.clear();
            }
            if end.is_some() {
                return Ok(end);
            }
        }
    }
    Ok(None)
}

/// Speaks with the client on standard input and output.
pub fn serve_stdio(endpoint: Arc<Endpoint>) -> io::Result<()> {
    match converse(endpoint, io::stdin().lock(), io::stdout()) {
        Err(error) if is_disconnect(&error) => Ok(()),
        other => other.map(|_| ()),
    }
}

fn is_disconnect(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::BrokenPipe
            | io::ErrorKind::ConnectionReset
            | io::ErrorKind::ConnectionAborted
    )
}

/// A place where clients of one endpoint connect.
pub enum Listener {
    /// A TCP port.
    Tcp(TcpListener),
    /// A Unix socket; its file is removed when the listener is dropped.
    Unix(UnixListener, SocketFile),
}

/// The file of a Unix socket.
#[derive(Debug)]
pub struct SocketFile(PathBuf);

impl Drop for SocketFile {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

impl SocketFile {
    /// Its path.
    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Listener {
    /// Listens on a TCP address; port 0 takes a free one.
    pub fn tcp(address: SocketAddr) -> io::Result<Self> {
        TcpListener::bind(address).map(Self::Tcp)
    }

    /// Listens on a Unix socket. A socket that nobody listens on any more is replaced.
    pub fn unix(path: &Path) -> io::Result<Self> {
        let listener = match UnixListener::bind(path) {
            Err(error) if error.kind() == io::ErrorKind::AddrInUse && is_stale(path) => {
                std::fs::remove_file(path)?;
                UnixListener::bind(path)?
            }
            other => other?,
        };
        Ok(Self::Unix(listener, SocketFile(path.to_owned())))
    }

    /// What is typed behind `target remote`.
    pub fn address(&self) -> io::Result<String> {
        match self {
            Self::Tcp(listener) => Ok(listener.local_addr()?.to_string()),
            Self::Unix(_, file) => Ok(file.0.display().to_string()),
        }
    }

    /// The socket's file, to be removed when the program is ended by a signal.
    pub fn file(&self) -> Option<&Path> {
        match self {
            Self::Tcp(_) => None,
            Self::Unix(_, file) => Some(file.path()),
        }
    }

    /// Serves clients until the listener fails.
    pub fn serve(self, endpoint: &Arc<Endpoint>) -> io::Result<()> {
        let clients = Arc::new(AtomicUsize::new(0));
        loop {
            match &self {
                Self::Tcp(listener) => match listener.accept() {
                    Ok((stream, _)) => {
                        let _ = stream.set_nodelay(true);
                        let input = stream.try_clone();
                        client(endpoint, &clients, input, stream);
                    }
                    Err(error) => pass_over(error)?,
                },
                Self::Unix(listener, _) => match listener.accept() {
                    Ok((stream, _)) => {
                        let input = stream.try_clone();
                        client(endpoint, &clients, input, stream);
                    }
                    Err(error) => pass_over(error)?,
                },
            }
        }
    }
}

/// A connection that failed before it was accepted concerns nobody else.
fn pass_over(error: io::Error) -> io::Result<()> {
    match error.kind() {
        io::ErrorKind::Interrupted
        | io::ErrorKind::ConnectionAborted
        | io::ErrorKind::ConnectionReset => Ok(()),
        _ => Err(error),
    }
}

fn is_stale(path: &Path) -> bool {
    let is_socket = std::fs::symlink_metadata(path).is_ok_and(|data| data.file_type().is_socket());
    is_socket && UnixStream::connect(path).is_err()
}

/// Speaks with a client in a thread of its own; beyond [`MAX_CLIENTS`] the connection is closed.
fn client<S: Read + Write + AsFd + Send + 'static>(
    endpoint: &Arc<Endpoint>,
    clients: &Arc<AtomicUsize>,
    input: io::Result<S>,
    output: S,
) {
    struct Leave(Arc<AtomicUsize>);
    impl Drop for Leave {
        fn drop(&mut self) {
            self.0.fetch_sub(1, Ordering::Relaxed);
        }
    }
    let before = clients.fetch_add(1, Ordering::Relaxed);
    let leave = Leave(Arc::clone(clients));
    let Ok(input) = input else { return };
    if before >= MAX_CLIENTS {
        return;
    }
    let endpoint = Arc::clone(endpoint);
    // A thread that cannot be had closes the connection; the others go on.
    let _ = thread::Builder::new()
        .name("client".to_owned())
        .spawn(move || {
            let _leave = leave;
            let _ = converse(endpoint, input, output);
        });
}
