//! The session of one client: bytes in, bytes out.
//!
//! The session frames packets, verifies checksums, answers packets that gdbstub does not support
//! (`packets`), and passes the others on byte by byte. gdbstub fails on a malformed packet: here it
//! is answered with an error, and the session continues.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::{Duration, Instant};

use gdbstub::conn::Connection;
use gdbstub::stub::GdbStub;
use gdbstub::stub::state_machine::GdbStubStateMachine;

use super::endpoint::Endpoint;
use super::execution;
use super::keepalive::Alive;
use super::monitor;
use super::packets::{self, Answer};
use super::reply::{MALFORMED, NO_MEMORY};
use super::target::SnapshotTarget;
use crate::remote_protocol::framing::{Framer, Incoming, MAX_PACKET, write_packet};
use crate::remote_protocol::hex;
use armsnap_snapshot::mapped;
use armsnap_snapshot::stop::{self, Cancel, Stopped};
use armsnap_snapshot::text::one_line;

/// How long a Ctrl-C that arrived after the end of a move counts for the next move.
///
/// A client sends it while it waits for a move. If the move has already ended, it was one of many
/// (`reverse-stepi 1000`), and the Ctrl-C cancels the next one.
const LATE: Duration = Duration::from_secs(1);

/// How often the snapshot's files are checked for truncation.
const CHECK: Duration = Duration::from_secs(1);

/// How a session ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The client detached.
    Detached,
    /// The client killed the apparent program; the snapshot is unchanged.
    Killed,
}

/// What a client does while its request is answered.
pub trait Client {
    /// Returns what it has done since its request.
    fn meanwhile(&self) -> Meanwhile;

    /// Returns the request to cancel the work: Ctrl-C and a disconnect request it, and so does
    /// another packet if `by_packets`.
    fn cancel(&self, by_packets: bool) -> Cancel;
}

/// A client that did this before its request is processed, and does nothing afterwards.
impl Client for Meanwhile {
    fn meanwhile(&self) -> Meanwhile {
        *self
    }

    fn cancel(&self, by_packets: bool) -> Cancel {
        let cancel = Cancel::default();
        if *self == Self::Interrupts || by_packets && *self == Self::SendsPacket {
            cancel.request();
        }
        cancel
    }
}

/// What a client has done since its request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Meanwhile {
    /// It waits.
    Waits,
    /// It has sent Ctrl-C.
    Interrupts,
    /// It has sent another packet.
    SendsPacket,
}

type Stub = GdbStubStateMachine<'static, SnapshotTarget, Outbox>;

/// The output of gdbstub.
#[derive(Default)]
struct Outbox(Vec<u8>);

impl Connection for Outbox {
    type Error = Infallible;

    fn write(&mut self, byte: u8) -> Result<(), Infallible> {
        self.0.push(byte);
        Ok(())
    }

    fn write_all(&mut self, bytes: &[u8]) -> Result<(), Infallible> {
        self.0.extend_from_slice(bytes);
        Ok(())
    }

    fn flush(&mut self) -> Result<(), Infallible> {
        Ok(())
    }
}

/// The result of passing a packet to gdbstub.
enum Outcome {
    /// Its reply, framed; may be empty.
    Reply(Vec<u8>),
    Ended(Vec<u8>, End),
    Failed,
}

/// The state of the client's first request, `qSupported`.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Greeting {
    Awaited,
    /// Answered, but the reply is not acknowledged.
    Asked,
    Over,
}

/// The session of one client.
pub struct Session {
    framer: Framer,
    stub: Option<Stub>,
    target: SnapshotTarget,
    /// Whether packets are acknowledged: until the client requests no-ack mode.
    acknowledges: bool,
    last_reply: Vec<u8>,
    greeting: Greeting,
    /// Sends keepalive packets.
    alive: Option<Alive>,
    /// When a Ctrl-C arrived that stopped no move.
    late: Option<Instant>,
    /// Whether a move was stopped by a Ctrl-C that has not been read yet.
    interrupted: bool,
    /// When the files were last checked.
    checked: Instant,
}

impl Session {
    /// Creates a session for an endpoint.
    pub fn new(endpoint: Arc<Endpoint>) -> Self {
        Self {
            framer: Framer::default(),
            stub: None,
            target: SnapshotTarget::new(endpoint),
            acknowledges: true,
            last_reply: Vec::new(),
            greeting: Greeting::Awaited,
            alive: None,
            late: None,
            interrupted: false,
            checked: Instant::now(),
        }
    }

    /// Uses `alive` to send [`PACKET`](super::keepalive::PACKET) while the client waits.
    pub(super) fn with_keepalive(mut self, alive: Alive) -> Self {
        self.alive = Some(alive);
        self
    }

    /// Processes bytes from the client and appends the replies, until the session ends.
    pub fn feed(&mut self, bytes: &[u8], out: &mut Vec<u8>) -> Option<End> {
        bytes.iter().find_map(|byte| self.push(*byte, out))
    }

    /// Processes one byte from the client, and appends the reply to the packet that it completes.
    ///
    /// Any bytes are allowed. A reply is never longer than about two [`MAX_PACKET`].
    pub fn push(&mut self, byte: u8, out: &mut Vec<u8>) -> Option<End> {
        self.push_while(byte, out, &Meanwhile::Waits)
    }

    /// Same as [`Self::push`]; `client` tells what the client does during long requests.
    pub fn push_while(&mut self, byte: u8, out: &mut Vec<u8>, client: &dyn Client) -> Option<End> {
        match self.framer.push(byte)? {
            Incoming::Packet(packet) => {
                let greets = packet.starts_with(b"qSupported");
                self.greeting = match self.greeting {
                    Greeting::Awaited if greets => Greeting::Asked,
                    // GDB repeats the request after two seconds, and a server that it starts may
                    // take that long to open a file. GDB would take a second reply for the reply to
                    // its next packet.
                    Greeting::Asked if greets => return None,
                    _ => Greeting::Over,
                };
                self.acknowledge(out);
                let start = out.len();
                let end = self.packet(&packet, out, client);
                self.last_reply.clear();
                self.last_reply.extend_from_slice(&out[start..]);
                return end;
            }
            Incoming::TooLong => {
                self.acknowledge(out);
                write_packet(MALFORMED, out);
            }
            Incoming::BadChecksum if self.acknowledges => out.push(b'-'),
            Incoming::BadChecksum => write_packet(MALFORMED, out),
            Incoming::Resend if self.acknowledges => out.extend_from_slice(&self.last_reply),
            Incoming::Acknowledge if self.greeting == Greeting::Asked => {
                self.greeting = Greeting::Over;
            }
            Incoming::Acknowledge => {}
            // GDB sends this after two seconds even on a reliable connection, and would take a
            // second reply for the reply to its next packet.
            Incoming::Resend => {}
            // A Ctrl-C during a move has been reported by `client`.
            Incoming::Interrupt if std::mem::take(&mut self.interrupted) => {}
            Incoming::Interrupt => self.late = Some(Instant::now()),
        }
        None
    }

    /// Returns whether the client no longer waits for the reply to its packet.
    ///
    /// GDB does not report when its user interrupts a command: it continues with the next packet, and
    /// would take a late reply for the reply to it. (With acknowledgements, a client resends its packet
    /// instead.)
    fn is_abandoned(&self, client: &dyn Client) -> bool {
        !self.acknowledges && client.meanwhile() == Meanwhile::SendsPacket
    }

    fn acknowledge(&self, out: &mut Vec<u8>) {
        if self.acknowledges {
            out.push(b'+');
        }
    }

    /// Returns a message if a file of the snapshot was truncated. Missing whole pages are detected
    /// at once, the rest when the files are checked.
    fn cut_file(&mut self) -> Option<String> {
        if !mapped::is_cut() && self.checked.elapsed() < CHECK {
            return None;
        }
        self.checked = Instant::now();
        let cut = mapped::cut_file()?;
        let cut = one_line(&cut);
        Some(format!("{cut}: its contents are not known any more\n"))
    }

    fn packet(&mut self, packet: &[u8], out: &mut Vec<u8>, client: &dyn Client) -> Option<End> {
        // With acknowledgements, a client resends a packet that it waits for.
        let cancel = client.cancel(!self.acknowledges);
        let places = self.target.positions.places();
        let answer = match stop::catch(|| packets::answer(&mut self.target, packet)) {
            Ok(answer) => answer,
            Err(Stopped) => {
                self.target.come_back(places.clone());
                if self.is_abandoned(client) {
                    return None;
                }
                Answer::Reply(MALFORMED.to_vec())
            }
        };
        match answer {
            Answer::Reply(_)
                if packets::is_of_files(&self.target, packet) && self.cut_file().is_some() =>
            {
                write_packet(NO_MEMORY, out);
            }
            Answer::Reply(reply) => write_packet(&reply, out),
            Answer::NoAckMode => {
                self.acknowledges = false;
                // With acknowledgements, a keepalive packet would have to be acknowledged too.
                self.target.alive = self.alive.clone();
                write_packet(b"OK", out);
            }
            Answer::Kill => {
                write_packet(b"OK", out);
                return Some(End::Killed);
            }
            Answer::Move(resume) => {
                let late = self.late.take().is_some_and(|at| at.elapsed() < LATE);
                let start = out.len();
                // The client waits for the stop reply: the user did not cause packets sent meanwhile.
                let cancel = client.cancel(false);
                let target = &mut self.target;
                let done = stop::catch(|| {
                    if late {
                        execution::interrupted(target, resume.thread, "", out);
                        return false;
                    }
                    execution::run(target, resume, &cancel, out)
                });
                let cut = self.cut_file();
                let interrupted = client.meanwhile() == Meanwhile::Interrupts;
                self.interrupted |= done.unwrap_or(true) && interrupted;
                if done.is_err() || cut.is_some() {
                    out.truncate(start);
                    self.target.come_back(places);
                    let why = cut.unwrap_or_default();
                    execution::interrupted(&mut self.target, resume.thread, &why, out);
                }
            }
            Answer::Monitor(command) => {
                let target = &mut self.target;
                let done = stop::catch(|| monitor::run(target, &command, &cancel));
                let text = done.unwrap_or_else(|Stopped| {
                    self.target.come_back(places);
                    monitor::STOPPED.to_owned()
                });
                self.interrupted |= client.meanwhile() == Meanwhile::Interrupts;
                if self.is_abandoned(client) {
                    return None;
                }
                let text = self.cut_file().unwrap_or(text);
                for line in text.lines() {
                    write_packet(format!("O{}0a", hex::encode(line)).as_bytes(), out);
                }
                write_packet(b"OK", out);
            }
            Answer::Pass(packet) => {
                let mut reply = match self.pass(&packet) {
                    Outcome::Reply(bytes) => bytes,
                    Outcome::Ended(bytes, end) => {
                        out.extend_from_slice(&bytes);
                        return Some(end);
                    }
                    Outcome::Failed => {
                        let mut reply = Vec::new();
                        write_packet(MALFORMED, &mut reply);
                        reply
                    }
                };
                if packet.starts_with(b"qSupported") {
                    reply = packets::features(&reply, &self.target.endpoint);
                } else if packet == b"qHostInfo" {
                    reply = packets::with_address_bits(reply, &self.target);
                }
                out.extend_from_slice(&reply);
            }
        }
        None
    }

    /// Passes one packet to gdbstub.
    fn pass(&mut self, packet: &[u8]) -> Outcome {
        let Some(mut stub) = self.stub.take().or_else(|| self.new_stub()) else {
            return Outcome::Failed;
        };
        let mut framed = Vec::new();
        write_packet(packet, &mut framed);
        for byte in framed {
            stub = match stub {
                GdbStubStateMachine::Idle(idle) => {
                    match idle.incoming_data(&mut self.target, byte) {
                        Ok(next) => next,
                        Err(_) => return Outcome::Failed,
                    }
                }
                _ => return Outcome::Failed,
            };
        }
        match stub {
            GdbStubStateMachine::Idle(mut idle) => {
                let reply = without_acknowledgement(std::mem::take(&mut idle.borrow_conn().0));
                self.stub = Some(idle.into());
                Outcome::Reply(reply)
            }
            GdbStubStateMachine::Disconnected(mut ended) => {
                let reply = without_acknowledgement(std::mem::take(&mut ended.borrow_conn().0));
                let end = match ended.get_reason() {
                    gdbstub::stub::DisconnectReason::Kill => End::Killed,
                    _ => End::Detached,
                };
                Outcome::Ended(reply, end)
            }
            _ => Outcome::Failed,
        }
    }

    /// Creates a state machine, for the first packet and after a malformed one.
    fn new_stub(&mut self) -> Option<Stub> {
        let stub = GdbStub::builder(Outbox::default())
            .packet_buffer_size(MAX_PACKET + 16)
            .build()
            .ok()?
            .run_state_machine(&mut self.target)
            .ok()?;
        self.stub = Some(stub);
        let select = format!("Hg{:x}", self.target.selection.read());
        match self.pass(select.as_bytes()) {
            Outcome::Reply(_) => self.stub.take(),
            _ => None,
        }
    }
}

/// Removes the acknowledgement: the session acknowledges packets itself, and gdbstub is unaware of
/// no-ack mode.
fn without_acknowledgement(mut bytes: Vec<u8>) -> Vec<u8> {
    if bytes.first() == Some(&b'+') {
        bytes.remove(0);
    }
    bytes
}
