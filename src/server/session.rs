//! One client's conversation: bytes in, bytes out.
//!
//! The session frames packets and checks sums, answers what gdbstub lacks (`packets`)
//! and passes the rest on, byte by byte. gdbstub gives up on a malformed packet: here it is
//! answered with an error, and the conversation goes on.

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
use super::target::SnapshotTarget;
use crate::mapped;
use crate::remote_protocol::framing::{Framer, Incoming, MAX_PACKET, hex_text, write_packet};
use crate::stop::{self, Stopped};

/// The reply to a packet that cannot be understood.
pub(super) const MALFORMED: &[u8] = b"E01";

/// How long a Ctrl-C that came too late for one move counts for the next.
///
/// A client sends it while it waits for a move to end. If that has ended by then, it was one of
/// many (`reverse-stepi 1000`), and it is the next one that the user does not want.
const LATE: Duration = Duration::from_secs(1);

/// How often it is looked whether the snapshot's files are still whole.
const LOOK: Duration = Duration::from_secs(1);

/// How a conversation ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The client detached.
    Detached,
    /// The client killed what it takes for a program; the snapshot is as it was.
    Killed,
}

/// What a client does while an answer is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Meanwhile {
    /// It waits.
    Waits,
    /// It has sent Ctrl-C.
    Interrupts,
    /// It has sent another packet.
    AsksOn,
}

type Stub = GdbStubStateMachine<'static, SnapshotTarget, Outbox>;

/// What gdbstub has written.
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

/// What gdbstub made of a packet.
enum Outcome {
    /// Its reply, framed; empty where there is none.
    Reply(Vec<u8>),
    Ended(Vec<u8>, End),
    Failed,
}

/// How far the client's first question, `qSupported`, has come.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Greeting {
    Awaited,
    /// It is answered, and the client has not said that the reply arrived.
    Asked,
    Over,
}

/// A conversation with one client.
pub struct Session {
    framer: Framer,
    stub: Option<Stub>,
    target: SnapshotTarget,
    /// Packets are acknowledged until the client asks for no-ack mode.
    acknowledges: bool,
    last_reply: Vec<u8>,
    greeting: Greeting,
    /// Sends a sign of life.
    alive: Option<Alive>,
    /// When a Ctrl-C came that no move was stopped by.
    late: Option<Instant>,
    /// A move was stopped by a Ctrl-C that is still to be read.
    heeded: bool,
    /// When the files were looked at last.
    looked: Instant,
}

impl Session {
    /// A conversation about the cores of an endpoint.
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
            heeded: false,
            looked: Instant::now(),
        }
    }

    /// Whether packets are acknowledged: then a client sends one again that it has no answer to.
    pub(super) fn acknowledges(&self) -> bool {
        self.acknowledges
    }

    /// `alive` sends [`SIGN`](super::keepalive::SIGN) while the client waits.
    pub(super) fn with_signs(mut self, alive: Alive) -> Self {
        self.alive = Some(alive);
        self
    }

    /// Takes bytes of the client and appends the replies, until an end.
    pub fn feed(&mut self, bytes: &[u8], out: &mut Vec<u8>) -> Option<End> {
        bytes.iter().find_map(|byte| self.push(*byte, out))
    }

    /// Takes one byte of the client and appends the reply to what it completes.
    ///
    /// Any bytes are allowed. A reply is never longer than about two [`MAX_PACKET`].
    pub fn push(&mut self, byte: u8, out: &mut Vec<u8>) -> Option<End> {
        self.push_while(byte, out, &mut || Meanwhile::Waits)
    }

    /// The same; `client` tells while an answer takes its time whether it is waited for.
    pub fn push_while(
        &mut self,
        byte: u8,
        out: &mut Vec<u8>,
        client: &mut dyn FnMut() -> Meanwhile,
    ) -> Option<End> {
        match self.framer.push(byte)? {
            Incoming::Packet(packet) => {
                let greets = packet.starts_with(b"qSupported");
                self.greeting = match self.greeting {
                    Greeting::Awaited if greets => Greeting::Asked,
                    // GDB asks again after two seconds, which a server that it starts itself may
                    // need to open a file: a second reply would be taken for that to its next
                    // packet.
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
            // GDB says so whenever it has waited for two seconds, even where nothing gets lost: a
            // second reply would be taken for that to its next packet.
            Incoming::Resend => {}
            // One that a move waits for is stopped by what `client` says.
            Incoming::Interrupt if std::mem::take(&mut self.heeded) => {}
            Incoming::Interrupt => self.late = Some(Instant::now()),
        }
        None
    }

    fn acknowledge(&self, out: &mut Vec<u8>) {
        if self.acknowledges {
            out.push(b'+');
        }
    }

    /// A file of the snapshot that is not whole any more. Whole pages that are missing are noticed
    /// at once, the rest when the files are looked at.
    fn cut_file(&mut self) -> Option<String> {
        if !mapped::is_cut() && self.looked.elapsed() < LOOK {
            return None;
        }
        self.looked = Instant::now();
        let cut = mapped::cut_file()?;
        Some(format!("{cut}: what comes of it is not known any more\n"))
    }

    fn packet(
        &mut self,
        packet: &[u8],
        out: &mut Vec<u8>,
        client: &mut dyn FnMut() -> Meanwhile,
    ) -> Option<End> {
        let places = self.target.positions.places();
        let answer = stop::catch(|| packets::answer(&mut self.target, packet));
        let answer = answer.unwrap_or_else(|Stopped| {
            self.target.positions.come_back(places.clone());
            Answer::Reply(MALFORMED.to_vec())
        });
        match answer {
            Answer::Reply(_)
                if packets::is_of_files(&self.target, packet) && self.cut_file().is_some() =>
            {
                write_packet(packets::NO_MEMORY, out);
            }
            Answer::Reply(reply) => write_packet(&reply, out),
            Answer::NoAckMode => {
                self.acknowledges = false;
                // In between acknowledgements a sign would be one packet more to acknowledge.
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
                let mut goes_on = || {
                    let interrupted = client() == Meanwhile::Interrupts;
                    self.heeded |= interrupted;
                    !interrupted
                };
                let target = &mut self.target;
                let done = stop::catch(|| {
                    if late {
                        execution::interrupted(target, resume.thread, "", out);
                    } else {
                        execution::run(target, resume, &mut goes_on, out);
                    }
                });
                let cut = self.cut_file();
                if done.is_err() || cut.is_some() {
                    out.truncate(start);
                    self.target.positions.come_back(places);
                    let why = cut.unwrap_or_default();
                    execution::interrupted(&mut self.target, resume.thread, &why, out);
                }
            }
            Answer::Monitor(command) => {
                // GDB does not say when its user does not want to wait for a command any longer: it
                // goes on with the next packet, and would take a late answer for that to it. (One that
                // waits for an acknowledgement sends its packet again.)
                let acknowledges = self.acknowledges;
                let mut now = || match client() {
                    Meanwhile::AsksOn if acknowledges => Meanwhile::Waits,
                    now => now,
                };
                let mut goes_on = || now() == Meanwhile::Waits;
                let target = &mut self.target;
                let done = stop::catch(|| monitor::run(target, &command, &mut goes_on));
                let text = done.unwrap_or_else(|Stopped| {
                    self.target.positions.come_back(places);
                    monitor::STOPPED.to_owned()
                });
                self.heeded |= now() == Meanwhile::Interrupts;
                if now() == Meanwhile::AsksOn {
                    return None;
                }
                let text = self.cut_file().unwrap_or(text);
                for line in text.lines() {
                    write_packet(format!("O{}0a", hex_text(line)).as_bytes(), out);
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
                }
                out.extend_from_slice(&reply);
            }
        }
        None
    }

    /// Gives one packet to gdbstub.
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

    /// A new state machine, after the first packet or a malformed one.
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

/// The session acknowledges packets itself; gdbstub never learns of no-ack mode.
fn without_acknowledgement(mut bytes: Vec<u8>) -> Vec<u8> {
    if bytes.first() == Some(&b'+') {
        bytes.remove(0);
    }
    bytes
}
