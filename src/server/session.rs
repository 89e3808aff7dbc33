//! The session of one client: bytes in, bytes out.
//!
//! The session frames packets, verifies checksums, answers those in the table of `packets`, and passes the
//! others to gdbstub. gdbstub fails on a malformed packet: here it is answered with an error, and the
//! session continues. When gdbstub waits for the end of a move, the session moves the cores.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::{Duration, Instant};

use gdbstub::conn::Connection;
use gdbstub::stub::GdbStub;
use gdbstub::stub::state_machine::state::{Idle, Running};
use gdbstub::stub::state_machine::{GdbStubStateMachine, GdbStubStateMachineInner};

use super::endpoint::{Endpoint, HistoryMode};
use super::execution::{self, Moved};
use super::keepalive::Alive;
use super::packets::{self, Handler};
use super::positions::Past;
use super::reply::{MALFORMED, NO_MEMORY};
use super::stub::RegisterNumber;
use super::target::SnapshotTarget;
use crate::remote_protocol::framing::{Framer, Incoming, MAX_PACKET, write_packet};
use crate::remote_protocol::hex;
use armsnap_snapshot::stop::{self, Cancel, Stopped, Unwind};

/// How long a Ctrl-C that arrived after the end of a move counts for the next move.
///
/// A client sends it while it waits for a move. If the move has already ended, it was one of many
/// (`reverse-stepi 1000`), and the Ctrl-C cancels the next one.
const LATE: Duration = Duration::from_secs(1);

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
/// gdbstub in one of its states.
type StubIn<State> = GdbStubStateMachineInner<'static, State, SnapshotTarget, Outbox>;

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

/// How a packet is answered.
enum Answer {
    /// With this payload, escaped as required.
    Reply(Vec<u8>),
    /// With packets of gdbstub; there may be none.
    Packets(Vec<u8>),
    /// `QStartNoAckMode`.
    NoAckMode,
    /// `vKill`, answered before the session ends.
    Kill,
    /// gdbstub waits for the end of a move.
    Moves(StubIn<Running>),
    /// With packets of gdbstub, before the session ends.
    Ended(Vec<u8>, End),
}

/// The reply to a packet that is not supported.
const UNSUPPORTED: Answer = Answer::Reply(Vec::new());

fn malformed() -> Answer {
    Answer::Reply(MALFORMED.to_vec())
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
    /// Whether a document filled gdbstub's buffer.
    is_filled: bool,
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
}

impl Session {
    /// Creates a session for an endpoint.
    pub fn new(endpoint: Arc<Endpoint>) -> Self {
        Self::unwinding(endpoint, Unwind::default())
    }

    /// Same as [`Self::new`]; `unwind` ends work for a packet that cannot stop by itself.
    pub(super) fn unwinding(endpoint: Arc<Endpoint>, unwind: Unwind) -> Self {
        Self {
            framer: Framer::default(),
            stub: None,
            is_filled: false,
            target: SnapshotTarget::new(endpoint, unwind),
            acknowledges: true,
            last_reply: Vec::new(),
            greeting: Greeting::Awaited,
            alive: None,
            late: None,
            interrupted: false,
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
                    // take that long to open a file. GDB would read a second reply as the reply to
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
            // GDB sends this after two seconds even on a reliable connection, and would read a
            // second reply as the reply to its next packet.
            Incoming::Resend => {}
            // A Ctrl-C during a move has been reported by `client`.
            Incoming::Interrupt if std::mem::take(&mut self.interrupted) => {}
            Incoming::Interrupt => self.late = Some(Instant::now()),
        }
        None
    }

    /// Returns whether the client no longer waits for the reply to its packet.
    ///
    /// GDB does not report when its user interrupts a command: it continues with the next packet,
    /// and would read a late reply as the reply to that packet. (With acknowledgements, a client
    /// resends its packet instead.)
    fn is_abandoned(&self, client: &dyn Client) -> bool {
        !self.acknowledges && client.meanwhile() == Meanwhile::SendsPacket
    }

    fn acknowledge(&self, out: &mut Vec<u8>) {
        if self.acknowledges {
            out.push(b'+');
        }
    }

    fn packet(&mut self, packet: &[u8], out: &mut Vec<u8>, client: &dyn Client) -> Option<End> {
        // With acknowledgements, a client resends a packet that it waits for.
        self.target.cancel = client.cancel(!self.acknowledges);
        let places = self.target.positions.places();
        let is_of_files = packets::is_of_files(&self.target, packet);
        let is_handshake = matches!(packet, [b'q' | b'Q' | b'v', ..]);
        let answer = stop::catch(|| {
            // Those of the handshake and those about a trace frame need no position.
            if !is_handshake && !is_of_files {
                self.target.positions.rest();
            }
            self.answer(packet)
        });
        let answer = match answer {
            Ok(answer) => answer,
            Err(Stopped) => {
                self.target.come_back(places.clone());
                if self.is_abandoned(client) {
                    return None;
                }
                malformed()
            }
        };
        if packet.starts_with(b"qRcmd") {
            self.interrupted |= client.meanwhile() == Meanwhile::Interrupts;
            if self.is_abandoned(client) {
                return None;
            }
        }
        match answer {
            Answer::Reply(_) | Answer::Packets(_)
                if is_of_files && self.target.cut_file().is_some() =>
            {
                write_packet(NO_MEMORY, out);
            }
            Answer::Reply(reply) => write_packet(&reply, out),
            Answer::Packets(packets) => out.extend_from_slice(&packets),
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
            Answer::Moves(stub) => self.carry_out(stub, places, out, client),
            Answer::Ended(packets, end) => {
                out.extend_from_slice(&packets);
                return Some(end);
            }
        }
        None
    }

    /// Moves the cores as the client requested, and appends the stop reply.
    fn carry_out(
        &mut self,
        stub: StubIn<Running>,
        places: Vec<Option<Past>>,
        out: &mut Vec<u8>,
        client: &dyn Client,
    ) {
        let Some(resume) = self.target.resume.take() else {
            write_packet(MALFORMED, out);
            return;
        };
        let is_late = self.late.take().is_some_and(|at| at.elapsed() < LATE);
        // The client waits for the stop reply: the user did not cause packets sent meanwhile.
        let cancel = client.cancel(false);
        let target = &mut self.target;
        let done = stop::catch(|| match is_late {
            true => execution::interrupted(target, resume.thread, String::new()),
            false => execution::run(target, resume, &cancel),
        });
        let cut = self.target.cut_file();
        let is_cancelled = match &done {
            Ok(moved) => !is_late && moved.stop.is_interrupted(),
            Err(Stopped) => true,
        };
        let interrupted = client.meanwhile() == Meanwhile::Interrupts;
        self.interrupted |= is_cancelled && interrupted;
        let moved = match (done, cut) {
            (Ok(moved), None) => moved,
            (_, cut) => {
                self.target.come_back(places);
                let why = cut.unwrap_or_default();
                execution::interrupted(&mut self.target, resume.thread, why)
            }
        };
        self.report(stub, &moved, out);
    }

    /// Appends text for the user and the stop reply.
    fn report(&mut self, stub: StubIn<Running>, moved: &Moved, out: &mut Vec<u8>) {
        if !moved.text.is_empty() {
            write_packet(format!("O{}", hex::encode(&moved.text)).as_bytes(), out);
        }
        let (stop, target) = (moved.stop, &mut self.target);
        let registers = stop.registers(target);
        let registers = registers.iter();
        let mut registers =
            registers.map(|(number, bytes)| (RegisterNumber(*number), bytes.as_slice()));
        let reason = stop.reason(target);
        let Ok(GdbStubStateMachine::Idle(idle)) =
            stub.report_stop_with_regs(target, reason, &mut registers)
        else {
            write_packet(MALFORMED, out);
            return;
        };
        let mut reply = payload(self.idle(idle));
        reply.extend_from_slice(stop.more(&self.target).as_bytes());
        write_packet(&reply, out);
    }

    /// Answers a packet, or decides how the session answers it.
    fn answer(&mut self, packet: &[u8]) -> Answer {
        let Some((handler, rest)) = packets::find(packet) else {
            return self.pass(packet);
        };
        let target = &mut self.target;
        match handler {
            Handler::Frames(_) if target.endpoint.traces.is_none() => UNSUPPORTED,
            Handler::Branches(_) if target.endpoint.history != HistoryMode::Btrace => UNSUPPORTED,
            Handler::Reply(reply) | Handler::Frames(reply) | Handler::Branches(reply) => {
                reply(target, rest).map_or_else(malformed, Answer::Reply)
            }
            Handler::Request(request) => match request(target, packet) {
                Some(request) => self.pass(&request),
                None => malformed(),
            },
            Handler::Both(request, complete) => match request(target, packet) {
                Some(request) => match self.pass(&request) {
                    Answer::Packets(reply) => Answer::Reply(complete(&self.target, payload(reply))),
                    other => other,
                },
                None => malformed(),
            },
            Handler::NoAckMode => Answer::NoAckMode,
            Handler::Kill => Answer::Kill,
        }
    }

    /// Passes one packet to gdbstub.
    fn pass(&mut self, packet: &[u8]) -> Answer {
        let fills = packet.starts_with(b"qXfer:") || packet.starts_with(b"vFile:");
        if std::mem::take(&mut self.is_filled) && !fills {
            self.stub = None;
        }
        let Some(mut stub) = self.stub.take().or_else(|| self.new_stub()) else {
            return malformed();
        };
        self.is_filled = fills;
        let mut framed = Vec::new();
        write_packet(packet, &mut framed);
        for byte in framed {
            stub = match stub {
                GdbStubStateMachine::Idle(idle) => {
                    match idle.incoming_data(&mut self.target, byte) {
                        Ok(next) => next,
                        Err(_) => return malformed(),
                    }
                }
                _ => return malformed(),
            };
        }
        match stub {
            GdbStubStateMachine::Idle(idle) => Answer::Packets(self.idle(idle)),
            GdbStubStateMachine::Running(running) => Answer::Moves(running),
            GdbStubStateMachine::Disconnected(mut ended) => {
                let packets = without_acknowledgement(std::mem::take(&mut ended.borrow_conn().0));
                let end = match ended.get_reason() {
                    gdbstub::stub::DisconnectReason::Kill => End::Killed,
                    _ => End::Detached,
                };
                Answer::Ended(packets, end)
            }
            GdbStubStateMachine::CtrlCInterrupt(_) => malformed(),
        }
    }

    /// Keeps gdbstub for the next packet, and returns its output.
    fn idle(&mut self, mut stub: StubIn<Idle<SnapshotTarget>>) -> Vec<u8> {
        let output = without_acknowledgement(std::mem::take(&mut stub.borrow_conn().0));
        self.stub = Some(stub.into());
        output
    }

    /// Creates a state machine, for the first packet, after a malformed one, and after documents have
    /// filled its buffer.
    fn new_stub(&mut self) -> Option<Stub> {
        let stub = GdbStub::builder(Outbox::default())
            .packet_buffer_size(MAX_PACKET + 16)
            .build()
            .ok()?
            .run_state_machine(&mut self.target)
            .ok()?;
        self.stub = Some(stub);
        // At each packet gdbstub searches its buffer for a second `#`: this packet, longer than most,
        // leaves one near the start.
        let select = format!("Hg{:0>200x}", self.target.selection.read());
        match self.pass(select.as_bytes()) {
            Answer::Packets(_) => self.stub.take(),
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

/// Returns what a packet of gdbstub contains.
fn payload(mut packet: Vec<u8>) -> Vec<u8> {
    packet.truncate(packet.len().saturating_sub("#00".len()));
    if packet.first() == Some(&b'$') {
        packet.remove(0);
    }
    packet
}
