//! The connection to a client, apart from its bytes.

use std::io;
use std::net::{Shutdown, TcpStream};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::AsFd;

/// The events to poll for in addition to those that are always reported. Only Linux reports that a
/// client will send nothing more but still reads.
#[cfg(target_os = "linux")]
const POLLED: PollFlags = PollFlags::RDHUP;
#[cfg(not(target_os = "linux"))]
const POLLED: PollFlags = PollFlags::empty();

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

/// Returns the standard input as a connection.
///
/// # Errors
///
/// If it cannot be duplicated.
#[cfg(unix)]
pub fn standard_input() -> io::Result<std::fs::File> {
    Ok(io::stdin().as_fd().try_clone_to_owned()?.into())
}

/// Returns the standard input as a connection.
///
/// # Errors
///
/// None; a `Result` as on Unix.
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

    /// Does nothing: a pipe cannot be shut down from this end.
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
    /// A disconnect cannot be detected while a pipe is full.
    fn has_left(&self) -> bool {
        false
    }

    fn hang_up(&self) {}
}

/// Polls a connection for a disconnect.
fn left(connection: &impl AsFd) -> bool {
    let mut connections = [PollFd::new(connection, POLLED)];
    let left = PollFlags::HUP | PollFlags::ERR | POLLED;
    let now = Timespec::default();
    poll(&mut connections, Some(&now)).is_ok() && connections[0].revents().intersects(left)
}
