//! Helpers for tests of history: a client of the remote protocol, and the steps in the
//! decoder's listing of a trace.

#![allow(dead_code, reason = "each test uses a part of it")]

pub mod in_gdb;

use std::collections::HashSet;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use armsnap::remote_protocol::framing::write_packet;
use armsnap::server::{Endpoint, Meanwhile, Options, Session, endpoints};
use armsnap::snapshot::OpenOptions;
use armsnap::snapshot::model::Snapshot;

/// A step of a history.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// An instruction, by its address.
    At(u64),
    /// A gap.
    Gap,
}

/// How a move ended.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stop {
    /// The signal.
    pub signal: u8,
    /// The thread.
    pub thread: usize,
    /// The program counter.
    pub pc: Option<u64>,
    /// `swbreak`, `hwbreak`, or the end of history that was reached.
    pub why: String,
    /// The text for the user.
    pub console: String,
}

impl Stop {
    /// Whether an end of history was reached.
    pub fn is_end(&self) -> bool {
        matches!(self.why.as_str(), "begin" | "end")
    }

    /// The kind of place. GDB cannot go on without a program counter, even at a gap.
    pub fn step(&self) -> Step {
        let pc = self.pc.expect("a program counter");
        match self.signal {
            29 => Step::Gap,
            _ => Step::At(pc),
        }
    }
}

/// A client of a session in this process.
pub struct Client {
    session: Session,
}

fn hex_text(digits: &str) -> String {
    let bytes = (0..digits.len() / 2)
        .map(|at| u8::from_str_radix(&digits[2 * at..2 * at + 2], 16).unwrap())
        .collect();
    String::from_utf8(bytes).unwrap()
}

impl Client {
    /// A client of the first endpoint of a snapshot.
    pub fn new(snapshot: &Path, options: &Options) -> Self {
        let loaded = Snapshot::open(snapshot, &OpenOptions::default()).unwrap();
        let endpoint: Endpoint = endpoints(&loaded, options).unwrap().remove(0);
        let mut session = Session::new(Arc::new(endpoint));
        let mut out = Vec::new();
        session.feed(b"$QStartNoAckMode#b0", &mut out);
        assert_eq!(out, b"+$OK#9a");
        Self { session }
    }

    /// Sends a packet; returns the payloads of all replies.
    pub fn ask(&mut self, packet: &str) -> Vec<String> {
        self.ask_and(packet, Meanwhile::Waits)
    }

    /// Sends a packet, and calls a function during the request.
    pub fn ask_and(&mut self, packet: &str, meanwhile: Meanwhile) -> Vec<String> {
        let (mut bytes, mut out) = (Vec::new(), Vec::new());
        write_packet(packet.as_bytes(), &mut bytes);
        for byte in bytes {
            let end = self.session.push_while(byte, &mut out, &meanwhile);
            assert_eq!(end, None);
        }
        let text = String::from_utf8(out).unwrap();
        let packets = text.split('$').skip(1);
        packets
            .map(|packet| packet.split('#').next().unwrap().to_owned())
            .collect()
    }

    /// Moves.
    pub fn go(&mut self, packet: &str) -> Stop {
        let mut stop = Stop::default();
        for reply in self.ask(packet) {
            if let Some(text) = reply.strip_prefix('O') {
                stop.console += &hex_text(text);
                continue;
            }
            let rest = reply.strip_prefix('T').expect(&reply);
            stop.signal = u8::from_str_radix(&rest[..2], 16).unwrap();
            for pair in rest[2..].split_terminator(';') {
                let (key, value) = pair.split_once(':').unwrap();
                match key {
                    "thread" => stop.thread = usize::from_str_radix(value, 16).unwrap(),
                    "swbreak" | "hwbreak" => stop.why = key.to_owned(),
                    "replaylog" => stop.why = value.to_owned(),
                    "reason" | "description" => {}
                    // The program counter of 32 and of 64 bits; other registers are ignored.
                    "0f" | "20" => {
                        let bytes = value.len() / 2;
                        let value = u64::from_str_radix(value, 16).unwrap();
                        stop.pc = Some(value.swap_bytes() >> (64 - 8 * bytes));
                    }
                    _ => {}
                }
            }
        }
        stop
    }

    /// The steps of moves until an end of history.
    pub fn walk(&mut self, packet: &str) -> Vec<Step> {
        let mut steps = Vec::new();
        loop {
            let stop = self.go(packet);
            if stop.is_end() {
                return steps;
            }
            steps.push(stop.step());
        }
    }

    /// The reply to a `monitor` command.
    pub fn monitor(&mut self, command: &str) -> String {
        let replies = self.ask(&monitor(command));
        let (last, told) = replies.split_last().unwrap();
        assert_eq!(last, "OK", "{command}");
        let text = told.iter().map(|reply| hex_text(&reply[1..]));
        text.collect()
    }
}

/// The packet of a `monitor` command.
pub fn monitor(command: &str) -> String {
    let digits = command.bytes().map(|byte| format!("{byte:02x}"));
    format!("qRcmd,{}", digits.collect::<String>())
}

/// The lines of `armsnap decode` for a source.
fn lines(snapshot: &Path, source: &str) -> Vec<serde_json::Value> {
    let mut command = Command::new(crate::support::armsnap());
    command.arg("decode").arg(snapshot);
    command.args([
        "--source",
        source,
        "--level",
        "instructions",
        "--format",
        "jsonl",
    ]);
    let output = command.output().unwrap();
    assert!(output.status.success());
    let text = String::from_utf8(output.stdout).unwrap();
    let lines = text.lines().map(|line| serde_json::from_str(line).unwrap());
    lines.collect()
}

fn address(line: &serde_json::Value) -> u64 {
    let digits = line["address"].as_str().unwrap().strip_prefix("0x");
    u64::from_str_radix(digits.unwrap(), 16).unwrap()
}

/// The addresses of load-exclusive instructions that a source's core executed.
pub fn exclusive_loads(snapshot: &Path, source: &str) -> HashSet<u64> {
    let lines = lines(snapshot, source).into_iter();
    let loads = lines.filter(|line| {
        let text = line["text"].as_str().unwrap_or_default();
        text.starts_with("ldx") || text.starts_with("ldax")
    });
    loads.map(|line| address(&line)).collect()
}

/// The steps of a source's core according to `armsnap decode`, oldest first.
pub fn decoded(snapshot: &Path, source: &str) -> Vec<Step> {
    let mut steps = Vec::new();
    for line in lines(snapshot, source) {
        match line["kind"].as_str().unwrap() {
            "instruction" => steps.push(Step::At(address(&line))),
            "memory_missing" | "q_range" => steps.push(Step::Gap),
            // One loss of trace is one gap, however many elements report it.
            "trace_on" | "no_sync" => {
                if matches!(steps.last(), Some(Step::At(_))) {
                    steps.push(Step::Gap);
                }
            }
            _ => {}
        }
    }
    steps
}

/// Fails with the first different step.
#[track_caller]
pub fn same(found: &[Step], wanted: &[Step], way: &str) {
    for (number, (found, wanted)) in found.iter().zip(wanted).enumerate() {
        assert_eq!(found, wanted, "{way}, step {number}");
    }
    assert_eq!(found.len(), wanted.len(), "{way}");
}
