//! The connection to a client, besides its bytes.

use std::io;
use std::net::{Shutdown, TcpStream};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::AsFd;

/// What is asked for besides what is always reported: only Linux knows of a client that sends nothing
/// more, but still reads.
#[cfg(target_os = "linux")]
const ASKED: PollFlags = PollFlags::RDHUP;
#[cfg(not(target_os = "linux"))]
const ASKED: PollFlags = PollFlags::empty();

/// A connection to a client.
pub trait Peer: Send + Sync + 'static {
    /// Returns whether the client disconnected, even if there are unread bytes.
    fn has_left(&self) -> bool;

    /// Disconnects the client; its reader detects the end.
    fn hang_up(&self);
}

impl Peer for TcpStream {
    fn has_left(&self) -> bool {
        left(self)
    }

    fn hang_up(&self) {
        // It may be disconnected already.
        let _ = self.shutdown(Shutdown::Both);
    }
}

/// Returns what the client on standard input sends.
#[cfg(unix)]
pub fn standard_input() -> io::Result<std::fs::File> {
    Ok(io::stdin().as_fd().try_clone_to_owned()?.into())
}

/// Returns what the client on standard input sends.
#[cfg(not(unix))]
#[allow(clippy::unnecessary_wraps, reason = "as on Unix")]
pub fn standard_input() -> io::Result<io::Stdin> {
    Ok(io::stdin())
}

#[cfg(unix)]
impl Peer for std::fs::File {
    fn has_left(&self) -> bool {
        left(self)
    }

    /// Does nothing: a pipe has no other end that could be told.
    fn hang_up(&self) {}
}

#[cfg(unix)]
impl Peer for std::os::unix::net::UnixStream {
    fn has_left(&self) -> bool {
        left(self)
    }

    fn hang_up(&self) {
        let _ = self.shutdown(Shutdown::Both);
    }
}

#[cfg(not(unix))]
impl Peer for io::Stdin {
    /// Nothing can be said of a pipe that is full.
    fn has_left(&self) -> bool {
        false
    }

    fn hang_up(&self) {}
}

/// Polls a connection for a disconnect.
fn left(connection: &impl AsFd) -> bool {
    let mut connections = [PollFd::new(connection, ASKED)];
    let left = PollFlags::HUP | PollFlags::ERR | ASKED;
    let now = Timespec::default();
    poll(&mut connections, Some(&now)).is_ok() && connections[0].revents().intersects(left)
}
