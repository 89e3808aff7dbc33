//! Packets of the remote protocol over a socket, client side.
//!
//! Handles framing and acknowledgements, not the meaning of packets.

use crate::remote_protocol::framing::{Framer, Incoming, write_packet};
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

/// A connection to a GDB server.
#[derive(Debug)]
pub(super) struct Transport {
    stream: UnixStream,
    framer: Framer,
    /// Received bytes; those from `at` to `end` are not yet parsed.
    ahead: Box<[u8]>,
    at: usize,
    end: usize,
    /// Acknowledgements not yet sent. A server does not read while it sends much output:
    /// acknowledging packet by packet would fill the socket and deadlock both sides.
    owed: Vec<u8>,
    /// The last packet sent, framed.
    sent: Vec<u8>,
    /// How often it was resent.
    resent: u8,
}

/// The timeout for sending.
const WRITE: Duration = Duration::from_secs(30);

/// How often a packet is resent, or requested again.
const TRIES: u8 = 8;

impl Transport {
    /// Connects to a socket, retrying for at most `wait` until the server listens.
    pub(super) fn connect(socket: &Path, wait: Duration) -> io::Result<Self> {
        const PAUSE: Duration = Duration::from_millis(5);
        let until = Instant::now() + wait;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            match UnixStream::connect(socket) {
                Ok(stream) => {
                    stream.set_write_timeout(Some(WRITE))?;
                    return Ok(Self {
                        stream,
                        framer: Framer::default(),
                        ahead: vec![0; 1 << 16].into(),
                        at: 0,
                        end: 0,
                        owed: Vec::new(),
                        sent: Vec::new(),
                        resent: 0,
                    });
                }
                Err(error) if left.is_zero() => return Err(error),
                Err(_) => std::thread::sleep(PAUSE.min(left)),
            }
        }
    }

    /// Sends a packet.
    pub(super) fn send(&mut self, payload: &[u8]) -> io::Result<()> {
        self.sent.clear();
        write_packet(payload, &mut self.sent);
        self.resent = 0;
        self.acknowledge()?;
        self.stream.write_all(&self.sent)
    }

    fn acknowledge(&mut self) -> io::Result<()> {
        let owed = std::mem::take(&mut self.owed);
        self.stream.write_all(&owed)
    }

    /// Sends bytes without framing.
    pub(super) fn send_raw(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.stream.write_all(bytes)
    }

    /// Receives the next packet, expanded; `None` if none arrives before `until`.
    pub(super) fn receive(&mut self, until: Instant) -> io::Result<Option<Vec<u8>>> {
        let mut bad = 0;
        loop {
            while self.at < self.end {
                let byte = self.ahead[self.at];
                self.at += 1;
                match self.framer.push(byte) {
                    Some(Incoming::Packet(payload)) => {
                        self.owed.push(b'+');
                        return Ok(Some(expand(&payload)));
                    }
                    Some(Incoming::BadChecksum | Incoming::TooLong) => {
                        bad += 1;
                        if bad > TRIES {
                            return Err(invalid("packets are damaged or too long"));
                        }
                        self.owed.push(b'-');
                        self.acknowledge()?;
                    }
                    Some(Incoming::Resend) => {
                        self.resent += 1;
                        if self.resent > TRIES {
                            return Err(invalid("packets arrive incomplete"));
                        }
                        self.stream.write_all(&self.sent)?;
                    }
                    Some(Incoming::Acknowledge | Incoming::Interrupt) | None => {}
                }
            }
            (self.at, self.end) = (0, 0);
            match self.fill(until) {
                Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                Ok(count) => self.end = count,
                Err(error) if is_timeout(&error) => return Ok(None),
                Err(error) => return Err(error),
            }
        }
    }

    fn fill(&mut self, until: Instant) -> io::Result<usize> {
        const SOON: Duration = Duration::from_millis(20);
        loop {
            let mut left = until.saturating_duration_since(Instant::now());
            if !self.owed.is_empty() {
                left = left.min(SOON);
            }
            // A timeout of zero is invalid.
            self.stream
                .set_read_timeout(Some(left.max(Duration::from_millis(1))))?;
            match self.stream.read(&mut self.ahead) {
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if is_timeout(&error) => {
                    self.acknowledge()?;
                    if Instant::now() >= until {
                        return Err(error);
                    }
                }
                read => return read,
            }
        }
    }
}

fn is_timeout(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut)
}

fn invalid(text: &str) -> io::Error {
    io::Error::new(ErrorKind::InvalidData, text)
}

/// Decodes escapes and run-length encoding (GDB manual, E.1).
fn expand(payload: &[u8]) -> Vec<u8> {
    let mut out: Vec<u8> = Vec::with_capacity(payload.len());
    let mut bytes = payload.iter();
    while let Some(&byte) = bytes.next() {
        match byte {
            b'}' => out.extend(bytes.next().map(|byte| byte ^ 0x20)),
            b'*' => {
                let count = bytes.next().map_or(0, |count| count.saturating_sub(29));
                if let Some(&last) = out.last() {
                    out.extend(std::iter::repeat_n(last, count.into()));
                }
            }
            _ => out.push(byte),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::remote_protocol::framing::{write_binary, write_hex_runs};

    #[test]
    fn runs_and_escapes_are_decoded() {
        assert_eq!(expand(b"0* 1}\x03z"), b"00001#z");
        assert_eq!(expand(b"*"), b"");
        assert_eq!(expand(b"* }"), b"");
        let all: Vec<u8> = (0..=255).collect();
        let mut binary = Vec::new();
        write_binary(&all, &mut binary);
        assert_eq!(expand(&binary), all);
        let mut runs = Vec::new();
        write_hex_runs(&[0; 1000], &mut runs);
        assert_eq!(expand(&runs), [b'0'; 2000]);
    }
}
