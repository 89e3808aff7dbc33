//! Sockets, pipes and the loop between them and sessions.
//!
//! Each client has its own session and threads. When a client leaves, only the work for it ends. At
//! most `MAX_CLIENTS` have a slot at a time: a new one takes the slot of the one that has been idle
//! longest.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
#[cfg(unix)]
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use rustix::io::Errno;

use super::endpoint::Endpoint;
use super::inbox::Inbox;
use super::keepalive::PACKET;
use super::peer::{self, Peer};
use super::session::{End, Session};
use armsnap_snapshot::stop::Unwind;

/// Maximum number of simultaneous clients of one endpoint.
const MAX_CLIENTS: usize = 32;
/// Pause before retrying when the system has no descriptor or memory for a client.
const PAUSE: Duration = Duration::from_millis(100);
/// The system's errors in this case.
#[cfg(unix)]
const LACKS: [Errno; 4] = [Errno::MFILE, Errno::NFILE, Errno::NOBUFS, Errno::NOMEM];
#[cfg(not(unix))]
const LACKS: [Errno; 2] = [Errno::MFILE, Errno::NOBUFS];
/// Idle time after which TCP checks whether a client is still there.
const KEEP_ALIVE: Duration = Duration::from_secs(60);

/// Serves one client until either side disconnects.
///
/// # Errors
///
/// If reading or writing fails.
pub fn converse(
    endpoint: Arc<Endpoint>,
    input: impl Read + Peer,
    output: impl Write + Send + 'static,
) -> io::Result<Option<End>> {
    let inbox = Inbox::default();
    inbox.fill(input)?;
    let done = answer(endpoint, &inbox, output, &|| ());
    inbox.close();
    done
}

/// Answers the requests in an inbox; calls `heard` each time that it sends replies.
fn answer(
    endpoint: Arc<Endpoint>,
    inbox: &Inbox,
    output: impl Write + Send + 'static,
    heard: &dyn Fn(),
) -> io::Result<Option<End>> {
    let output = Arc::new(Mutex::new(output));
    let send = |bytes: &[u8]| {
        let mut output = output.lock().unwrap_or_else(PoisonError::into_inner);
        output.write_all(bytes)?;
        output.flush()
    };
    let kept_alive = Arc::clone(&output);
    let unwind = Unwind::on(inbox.cancelled());
    let mut session = Session::unwinding(endpoint, unwind).with_keepalive(Arc::new(move || {
        let mut output = kept_alive.lock().unwrap_or_else(PoisonError::into_inner);
        // The reader detects disconnects.
        let _ = output.write_all(PACKET).and_then(|()| output.flush());
    }));
    let mut replies = Vec::new();
    while let Some(bytes) = inbox.next()? {
        // Only the last byte of a packet causes work.
        inbox.begin();
        let mut bytes = bytes.iter();
        let end = bytes.find_map(|byte| session.push_while(*byte, &mut replies, inbox));
        inbox.end();
        // Send at once: the next request may take long.
        if !replies.is_empty() {
            heard();
            send(&replies)?;
            replies.clear();
        }
        if end.is_some() {
            return Ok(end);
        }
    }
    Ok(None)
}

/// Serves the client on standard input and output.
///
/// # Errors
///
/// If reading or writing fails, other than by a disconnect.
pub fn serve_stdio(endpoint: Arc<Endpoint>) -> io::Result<()> {
    match converse(endpoint, peer::standard_input()?, io::stdout()) {
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

/// A socket where clients of one endpoint connect.
pub enum Listener {
    /// A TCP port.
    Tcp(TcpListener),
    /// A Unix socket; its file is removed when the listener is dropped.
    #[cfg(unix)]
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
    /// Returns its path.
    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Listener {
    /// Listens on a TCP address; port 0 selects a free port.
    ///
    /// # Errors
    ///
    /// If the address cannot be used.
    pub fn tcp(address: SocketAddr) -> io::Result<Self> {
        TcpListener::bind(address).map(Self::Tcp)
    }

    /// Listens on a Unix socket. Replaces a socket file without a listener.
    ///
    /// # Errors
    ///
    /// If the path cannot be used.
    #[cfg(unix)]
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

    /// Returns the argument for `target remote`.
    ///
    /// # Errors
    ///
    /// If the system does not report the address.
    pub fn address(&self) -> io::Result<String> {
        match self {
            Self::Tcp(listener) => Ok(listener.local_addr()?.to_string()),
            #[cfg(unix)]
            Self::Unix(_, file) => Ok(file.0.display().to_string()),
        }
    }

    /// Returns the socket file, to be removed when a signal ends the program.
    pub fn file(&self) -> Option<&Path> {
        match self {
            Self::Tcp(_) => None,
            #[cfg(unix)]
            Self::Unix(_, file) => Some(file.path()),
        }
    }

    /// Serves clients until the listener fails.
    ///
    /// # Errors
    ///
    /// Always: why it failed.
    pub fn serve(self, endpoint: &Arc<Endpoint>) -> io::Result<()> {
        let slots = Arc::new(Slots::default());
        loop {
            match &self {
                Self::Tcp(listener) => match listener.accept() {
                    Ok((stream, _)) => {
                        let _ = stream.set_nodelay(true);
                        let _ = keep_alive(&stream);
                        client(endpoint, &slots, stream);
                    }
                    Err(error) => ignore_temporary(error)?,
                },
                #[cfg(unix)]
                Self::Unix(listener, _) => match listener.accept() {
                    Ok((stream, _)) => client(endpoint, &slots, stream),
                    Err(error) => ignore_temporary(error)?,
                },
            }
        }
    }
}

/// Enables TCP keepalive, which detects clients whose machine is gone.
fn keep_alive(stream: &TcpStream) -> io::Result<()> {
    rustix::net::sockopt::set_socket_keepalive(stream, true)?;
    rustix::net::sockopt::set_tcp_keepidle(stream, KEEP_ALIVE)?;
    Ok(())
}

/// Ignores an error after which accepting can be retried: the connection failed before it was accepted,
/// or descriptors or memory are short until other clients disconnect. Returns any other error.
fn ignore_temporary(error: io::Error) -> io::Result<()> {
    let lacks = |errno: &Errno| error.raw_os_error() == Some(errno.raw_os_error());
    if LACKS.iter().any(lacks) {
        thread::sleep(PAUSE);
        return Ok(());
    }
    match error.kind() {
        io::ErrorKind::Interrupted
        | io::ErrorKind::ConnectionAborted
        | io::ErrorKind::ConnectionReset => Ok(()),
        _ => Err(error),
    }
}

#[cfg(unix)]
fn is_stale(path: &Path) -> bool {
    use std::os::unix::fs::FileTypeExt;
    let is_socket = std::fs::symlink_metadata(path).is_ok_and(|data| data.file_type().is_socket());
    is_socket && UnixStream::connect(path).is_err()
}

/// A client's connection, shared by its threads.
struct Connection<S>(Arc<S>);

impl<S> Clone for Connection<S> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<S> Read for Connection<S>
where
    for<'a> &'a S: Read,
{
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        (&*self.0).read(bytes)
    }
}

impl<S> Write for Connection<S>
where
    for<'a> &'a S: Write,
{
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        (&*self.0).write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        (&*self.0).flush()
    }
}

impl<S: Peer> Peer for Connection<S> {
    fn has_left(&self) -> bool {
        self.0.has_left()
    }

    fn hang_up(&self) {
        self.0.hang_up();
    }
}

/// The clients of an endpoint.
#[derive(Default)]
struct Slots(Mutex<Taken>);

#[derive(Default)]
struct Taken {
    next: u64,
    clients: Vec<Slot>,
}

struct Slot {
    number: u64,
    /// When it last received a reply; `None` before its first request.
    heard: Option<Instant>,
    since: Instant,
    inbox: Inbox,
    /// Its connection, to be closed.
    connection: Arc<dyn Peer>,
}

impl Slots {
    fn with<R>(&self, change: impl FnOnce(&mut Taken) -> R) -> R {
        change(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Allocates a slot for a new client. If all are taken, disconnects the client that has been
    /// idle longest, clients without any request first. `None` if all are busy.
    fn take(self: &Arc<Self>, inbox: &Inbox, connection: Arc<dyn Peer>) -> Option<ClientSlot> {
        self.with(|taken| {
            if taken.clients.len() >= MAX_CLIENTS {
                let idle = taken.clients.iter().enumerate();
                let idle = idle.filter(|(_, slot)| !slot.inbox.is_busy());
                let (oldest, _) = idle.min_by_key(|(_, slot)| (slot.heard, slot.since))?;
                let slot = taken.clients.swap_remove(oldest);
                // Its reader detects the end, and its threads end.
                slot.connection.hang_up();
            }
            let number = taken.next;
            taken.next += 1;
            taken.clients.push(Slot {
                number,
                heard: None,
                since: Instant::now(),
                inbox: inbox.clone(),
                connection,
            });
            let slots = Arc::clone(self);
            Some(ClientSlot { slots, number })
        })
    }
}

/// The slot of a client; dropping it frees the slot.
struct ClientSlot {
    slots: Arc<Slots>,
    number: u64,
}

impl ClientSlot {
    fn heard(&self) {
        self.slots.with(|taken| {
            let mut clients = taken.clients.iter_mut();
            if let Some(slot) = clients.find(|slot| slot.number == self.number) {
                slot.heard = Some(Instant::now());
            }
        });
    }
}

impl Drop for ClientSlot {
    fn drop(&mut self) {
        let number = self.number;
        self.slots
            .with(|taken| taken.clients.retain(|slot| slot.number != number));
    }
}

/// Serves a client in a new thread.
fn client<S>(endpoint: &Arc<Endpoint>, slots: &Arc<Slots>, stream: S)
where
    S: Peer,
    for<'a> &'a S: Read + Write,
{
    let connection = Connection(Arc::new(stream));
    let inbox = Inbox::default();
    let shared: Arc<dyn Peer> = connection.0.clone();
    let Some(place) = slots.take(&inbox, shared) else {
        return;
    };
    let endpoint = Arc::clone(endpoint);
    // If no thread can be started, only this connection is closed.
    let _ = thread::Builder::new()
        .name("client".to_owned())
        .spawn(move || {
            if inbox.fill(connection.clone()).is_ok() {
                let _ = answer(endpoint, &inbox, connection.clone(), &|| place.heard());
                inbox.close();
            }
            // Other holders of the connection detect the end.
            connection.hang_up();
        });
}
