//! A client of GDB's remote protocol (GDB manual, appendix E): access to the emulator's registers,
//! memory and breakpoints, and control of its execution.
//!
//! Replies are untrusted data: every wait has a timeout, every length a bound.

use super::transport::Transport;
use crate::remote_protocol::hex::{self, parse_hex};
pub use armsnap_arch::arch::target::{DescriptionError, Target};
use armsnap_arch::xml::{self, XmlError};
use std::collections::BTreeSet;
use std::io;
use std::ops::Range;
use std::path::Path;
use std::time::{Duration, Instant};

/// Errors of the connection to the emulator's GDB server.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// No server listens at the endpoint.
    #[error("{endpoint}: no GDB server answers: {error}")]
    Connect {
        /// The endpoint.
        endpoint: String,
        /// The cause.
        error: io::Error,
    },
    /// The connection is lost.
    #[error("the connection to the GDB server is lost: {0}")]
    Lost(#[from] io::Error),
    /// No reply came in time.
    #[error("the GDB server does not reply to {0:?}")]
    Silent(String),
    /// An unexpected reply.
    #[error("the GDB server was asked {asked:?}: expected {wanted}, found {found:?}")]
    Unexpected {
        /// The request.
        asked: String,
        /// The expected reply.
        wanted: &'static str,
        /// The reply, shortened to a line.
        found: String,
    },
    /// The target description cannot be used.
    #[error(transparent)]
    Description(#[from] DescriptionError),
    /// A document of the target description cannot be parsed.
    #[error("{name}: {error}")]
    Document {
        /// The document.
        name: String,
        /// What is wrong with it.
        error: XmlError,
    },
    /// The documents of the target description include each other without end.
    #[error("tdesc: it includes itself")]
    IncludesItself,
}

/// Why the program stopped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stop {
    /// It is halted by a signal.
    Signal {
        /// GDB's number of the signal: 5 for a breakpoint or a step, 2 for an interrupt.
        signal: u8,
        /// The thread that received the signal, if the reply names it.
        thread: Option<String>,
    },
    /// It exited with this status.
    Exited(u64),
    /// It was ended by a signal.
    Ended(u8),
}

/// A program in an emulator.
#[derive(Debug)]
pub struct Remote {
    transport: Transport,
    target: Target,
    /// The number of bytes of memory read by one request.
    piece: usize,
    /// Registers that the server does not return for `p`.
    unreadable: BTreeSet<u32>,
    /// Output of the program or the emulator's monitor.
    output: Vec<u8>,
}

/// The timeout of a reply.
const REPLY: Duration = Duration::from_secs(30);

/// The number of bytes of a description read by one request.
const CHUNK: usize = 0x800;

/// The maximum size of a description's document in bytes.
const LONGEST_DOCUMENT: usize = 1 << 22;

/// The maximum number of documents of a description.
const DOCUMENTS: usize = 64;

/// The maximum number of threads.
const THREADS: usize = 1 << 16;

impl Remote {
    /// Connects to a socket within `wait`, once the server listens, and reads the target description.
    pub fn connect(socket: &Path, wait: Duration) -> Result<Self, Error> {
        let transport = Transport::connect(socket, wait).map_err(|error| Error::Connect {
            endpoint: socket.display().to_string(),
            error,
        })?;
        let mut remote = Self {
            transport,
            target: Target {
                architecture: armsnap_arch::arch::Architecture::AArch64,
                by_default: None,
                registers: Vec::new(),
                numbers: Vec::new(),
            },
            piece: 0x400,
            unreadable: BTreeSet::new(),
            output: Vec::new(),
        };
        let supported =
            remote.ask("qSupported:xmlRegisters=arm;swbreak+;hwbreak+;vContSupported+")?;
        let supported = String::from_utf8_lossy(&supported).into_owned();
        let size = supported
            .split(';')
            .find_map(|feature| parse_hex(feature.strip_prefix("PacketSize=")?.as_bytes()));
        if let Some(size) = size {
            // The reply to `m` has two digits for each byte.
            remote.piece = (size / 2).clamp(16, 0x4000) as usize;
        }
        let document = remote.document("target.xml", &mut 0)?;
        remote.target = Target::read(&document)?;
        Ok(remote)
    }

    /// Returns the architecture and registers.
    pub fn target(&self) -> &Target {
        &self.target
    }

    /// Takes the output since the last call: the monitor's, and the program's if the server forwards
    /// it.
    pub fn take_output(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.output)
    }

    /// Returns the thread IDs, as used by [`Remote::select`] and in [`Stop`].
    pub fn threads(&mut self) -> Result<Vec<String>, Error> {
        let mut threads = Vec::new();
        let mut asked = "qfThreadInfo";
        while threads.len() < THREADS {
            let reply = self.ask(asked)?;
            let Some(list) = reply.strip_prefix(b"m").filter(|list| !list.is_empty()) else {
                break;
            };
            let list = String::from_utf8_lossy(list);
            threads.extend(list.split(',').map(str::to_owned));
            asked = "qsThreadInfo";
        }
        Ok(threads)
    }

    /// Selects the thread whose registers are read.
    pub fn select(&mut self, thread: &str) -> Result<(), Error> {
        self.done(&format!("Hg{thread}"))
    }

    /// Reads all registers of the selected thread, in the order of [`Target::registers`]; `None`
    /// for those that the server does not report.
    pub fn registers(&mut self) -> Result<Vec<Option<Vec<u8>>>, Error> {
        self.registers_if(|_| true)
    }

    /// Same as [`registers`](Self::registers), without those that need a request of their own and whose names are
    /// not `wanted`.
    pub fn registers_if(
        &mut self,
        wanted: impl Fn(&str) -> bool,
    ) -> Result<Vec<Option<Vec<u8>>>, Error> {
        let reply = self.ask("g")?;
        let mut rest = &reply[..];
        let mut values = Vec::new();
        let known = self.target.registers.iter();
        let known: Vec<(usize, bool)> = known.map(|(name, size)| (*size, wanted(name))).collect();
        for ((size, wanted), number) in known.into_iter().zip(self.target.numbers.clone()) {
            // A reply to `g` may be short: the remaining registers are read one by one.
            let digits = rest.split_off(..2 * size).filter(|_| size > 0);
            values.push(match digits {
                Some(digits) => bytes_of(digits),
                None if !wanted => None,
                None => {
                    rest = &[];
                    self.register(number, size)?
                }
            });
        }
        Ok(values)
    }

    /// Reads a register of the selected thread by number.
    fn register(&mut self, number: u32, size: usize) -> Result<Option<Vec<u8>>, Error> {
        if self.unreadable.contains(&number) {
            return Ok(None);
        }
        let reply = self.ask(&format!("p{number:x}"))?;
        let value = bytes_of(&reply).filter(|bytes| bytes.len() == size && size > 0);
        if value.is_none() {
            self.unreadable.insert(number);
        }
        Ok(value)
    }

    /// Reads a register of the selected thread by name.
    pub fn value(&mut self, name: &str) -> Result<Option<u64>, Error> {
        let found = self.target.registers.iter().position(|r| r.0 == name);
        let Some(index) = found else {
            return Ok(None);
        };
        let (size, number) = (self.target.registers[index].1, self.target.numbers[index]);
        let bytes = self.register(number, size)?;
        Ok(bytes
            .filter(|bytes| bytes.len() <= 8)
            .map(|bytes| number_of(&bytes)))
    }

    /// Reads `length` bytes of memory at `address`, or those before the first unreadable one.
    pub fn memory(&mut self, address: u64, length: usize) -> Result<Vec<u8>, Error> {
        let mut memory = Vec::new();
        while memory.len() < length {
            let Some(at) = address.checked_add(memory.len() as u64) else {
                break;
            };
            let wanted = self.piece.min(length - memory.len());
            let reply = self.ask(&format!("m{at:x},{wanted:x}"))?;
            match bytes_of(&reply) {
                Some(bytes) if !bytes.is_empty() && bytes.len() <= wanted => memory.extend(bytes),
                _ => break,
            }
        }
        Ok(memory)
    }

    /// Inserts a breakpoint. `kind` is the size of the instruction in bytes, 2 to 4.
    pub fn insert_breakpoint(&mut self, address: u64, kind: u8) -> Result<(), Error> {
        self.done(&format!("Z0,{address:x},{kind:x}"))
    }

    /// Removes a breakpoint.
    pub fn remove_breakpoint(&mut self, address: u64, kind: u8) -> Result<(), Error> {
        self.done(&format!("z0,{address:x},{kind:x}"))
    }

    /// Resumes all threads; see [`Remote::wait`].
    pub fn resume(&mut self) -> Result<(), Error> {
        Ok(self.transport.send(b"vCont;c")?)
    }

    /// Delivers a signal (GDB's number) to the selected thread and resumes all threads; see
    /// [`Remote::wait`].
    pub fn resume_with(&mut self, signal: u8) -> Result<(), Error> {
        Ok(self.transport.send(format!("C{signal:02x}").as_bytes())?)
    }

    /// Steps one thread by one instruction while the others stay halted; see [`Remote::wait`].
    pub fn step(&mut self, thread: &str) -> Result<(), Error> {
        Ok(self
            .transport
            .send(format!("vCont;s:{thread}").as_bytes())?)
    }

    /// Delivers a signal (GDB's number) to one thread and steps it by one instruction; see
    /// [`Remote::wait`].
    pub fn step_with(&mut self, thread: &str, signal: u8) -> Result<(), Error> {
        let packet = format!("vCont;S{signal:02x}:{thread}");
        Ok(self.transport.send(packet.as_bytes())?)
    }

    /// Interrupts the running program; see [`Remote::wait`].
    pub fn interrupt(&mut self) -> Result<(), Error> {
        Ok(self.transport.send_raw(&[3])?)
    }

    /// Waits for the running program to stop, for at most `wait`.
    pub fn wait(&mut self, wait: Duration) -> Result<Option<Stop>, Error> {
        let until = Instant::now() + wait;
        while let Some(packet) = self.transport.receive(until)? {
            let request = packet.strip_prefix(b"F").and_then(|rest| rest.first());
            if request.is_some_and(u8::is_ascii_lowercase) {
                // Host I/O is refused (GDB manual, E.13.8: EUNKNOWN).
                self.transport.send(b"F-1,270f")?;
            } else if !self.printed(&packet) {
                return stop(&packet)
                    .map(Some)
                    .ok_or_else(|| unexpected("vCont", "a stop reply", &packet));
            }
        }
        Ok(None)
    }

    /// Runs a command of the emulator's monitor and returns its output.
    pub fn monitor(&mut self, command: &str) -> Result<String, Error> {
        self.output.clear();
        let mut packet = b"qRcmd,".to_vec();
        crate::remote_protocol::hex::write_hex(command.as_bytes(), &mut packet);
        let asked = String::from_utf8_lossy(&packet).into_owned();
        self.done(&asked)?;
        Ok(String::from_utf8_lossy(&self.take_output()).into_owned())
    }

    /// Sends a request and returns the reply.
    pub fn ask(&mut self, request: &str) -> Result<Vec<u8>, Error> {
        self.transport.send(request.as_bytes())?;
        let until = Instant::now() + REPLY;
        loop {
            match self.transport.receive(until)? {
                None => return Err(Error::Silent(request.to_owned())),
                Some(packet) if self.printed(&packet) => {}
                // Another thread stopped at the same time; its stop will be reported again.
                Some(packet) if packet.starts_with(b"T") && stop(&packet).is_some() => {}
                Some(packet) => return Ok(packet),
            }
        }
    }

    fn done(&mut self, request: &str) -> Result<(), Error> {
        match &self.ask(request)?[..] {
            b"OK" => Ok(()),
            reply => Err(unexpected(request, "OK", reply)),
        }
    }

    /// Returns whether a packet is output: `O` and hex digits, unlike `OK`.
    fn printed(&mut self, packet: &[u8]) -> bool {
        const MOST: usize = 1 << 22;
        let digits = packet.strip_prefix(b"O").filter(|rest| !rest.is_empty());
        let Some(mut text) = digits.and_then(bytes_of) else {
            return false;
        };
        text.truncate(MOST.saturating_sub(self.output.len()));
        self.output.append(&mut text);
        true
    }

    /// Reads a document of the target description with its includes expanded.
    fn document(&mut self, name: &str, count: &mut usize) -> Result<String, Error> {
        *count += 1;
        if *count > DOCUMENTS {
            return Err(Error::IncludesItself);
        }
        let mut text = Vec::new();
        loop {
            let offset = text.len();
            let asked = format!("qXfer:features:read:{name}:{offset:x},{CHUNK:x}");
            let reply = self.ask(&asked)?;
            match reply.split_first() {
                Some((b'l', rest)) => {
                    text.extend_from_slice(rest);
                    break;
                }
                Some((b'm', rest)) if !rest.is_empty() && offset < LONGEST_DOCUMENT => {
                    text.extend_from_slice(rest);
                }
                _ => return Err(unexpected(&asked, "part of the target description", &reply)),
            }
        }
        // Servers do not always declare the prefix.
        let text = String::from_utf8_lossy(&text)
            .replace("<xi:include", "<include")
            .replace("</xi:include", "</include");
        let parts = includes(&text).map_err(|error| Error::Document {
            name: name.to_owned(),
            error,
        })?;
        let mut whole = String::new();
        let mut from = 0;
        for (place, href) in parts {
            whole.push_str(&text[from..place.start]);
            let inside = self.document(&href, count)?;
            whole.push_str(&inside[root(&inside).unwrap_or_default()]);
            from = place.end;
        }
        whole.push_str(&text[from..]);
        Ok(whole)
    }
}

/// Returns the position and name of each document that a document includes.
fn includes(text: &str) -> Result<Vec<(Range<usize>, String)>, XmlError> {
    let document = xml::read(text)?;
    let nodes = document.descendants();
    let nodes = nodes.filter(|node| node.has_tag_name("include"));
    let href =
        |node: roxmltree::Node<'_, '_>| node.attribute("href").unwrap_or_default().to_owned();
    Ok(nodes.map(|node| (node.range(), href(node))).collect())
}

/// Returns the position of a document's root element.
fn root(text: &str) -> Option<Range<usize>> {
    Some(xml::read(text).ok()?.root_element().range())
}

/// Returns the value of up to eight little-endian bytes.
pub(super) fn number_of(bytes: &[u8]) -> u64 {
    let join = |value, byte: &u8| value << 8 | u64::from(*byte);
    bytes.iter().rev().fold(0, join)
}

/// Decodes pairs of hex digits; `None` for others, such as the `xxxx` of an unavailable register.
pub(super) fn bytes_of(digits: &[u8]) -> Option<Vec<u8>> {
    hex::decode(std::str::from_utf8(digits).ok()?)
}

/// Parses a stop reply (GDB manual, E.3).
fn stop(packet: &[u8]) -> Option<Stop> {
    let (kind, rest) = packet.split_first()?;
    let number = |digits: &[u8]| bytes_of(digits)?.first().copied();
    let text = String::from_utf8_lossy(rest);
    let mut fields = text.split(';');
    let first = fields.next()?;
    match kind {
        b'S' => Some(Stop::Signal {
            signal: number(first.as_bytes())?,
            thread: None,
        }),
        b'T' => {
            let pairs = first.get(2..).into_iter().chain(fields);
            let thread = pairs
                .filter_map(|pair| pair.split_once(':'))
                .find(|(name, _)| *name == "thread")
                .map(|(_, thread)| thread.to_owned());
            Some(Stop::Signal {
                signal: number(first.get(..2)?.as_bytes())?,
                thread,
            })
        }
        b'W' => Some(Stop::Exited(parse_hex(first.as_bytes())?)),
        b'X' => Some(Stop::Ended(number(first.as_bytes())?)),
        _ => None,
    }
}

fn unexpected(asked: &str, wanted: &'static str, found: &[u8]) -> Error {
    Error::Unexpected {
        asked: asked.to_owned(),
        wanted,
        found: String::from_utf8_lossy(&found[..found.len().min(200)]).into_owned(),
    }
}

#[cfg(test)]
mod tests;
