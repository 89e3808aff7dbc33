//! Trace frames, computed from the listing of `armsnap decode`, and read from a file.

use super::listing;
use armsnap::capture::{Capture, Protocol};
use armsnap::snapshot::OpenSnapshot;
use armsnap::tfile::{Block, File};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;

/// The contents of a trace frame.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FrameInstruction {
    pub pc: u64,
    /// Code in hex, as the listing writes it.
    pub code: String,
    /// The known trace state variables.
    pub variables: BTreeMap<&'static str, i64>,
}

fn number(value: &Value) -> Option<i64> {
    match value {
        Value::String(text) => {
            let hex = text.strip_prefix("0x")?;
            Some(u64::from_str_radix(hex, 16).unwrap().cast_signed())
        }
        other => other.as_i64(),
    }
}

/// The listing of `decode` for one source in one buffer.
#[derive(Default)]
pub struct Listing {
    pub instructions: Vec<FrameInstruction>,
    /// Whether each ends a straight line.
    pub ends: Vec<usize>,
    /// The number of instructions in ranges so far, and whether the last one ends a straight line.
    ranges: usize,
    ended: bool,
    /// The last state of the core in the listing.
    state: Vec<Value>,
    known: BTreeMap<&'static str, i64>,
    /// Whether the next cycle count belongs to the last instruction.
    counting: bool,
}

impl Listing {
    fn count(&mut self, cycles: i64) {
        *self.known.entry("cycles").or_default() += cycles;
    }

    /// Starts a part that is not connected to the previous one.
    fn cut(&mut self) {
        self.known.remove("exception");
        self.known.remove("exception_return");
        self.known.insert("gap", 1);
        self.counting = false;
    }

    fn line(&mut self, core: usize, line: &Value) {
        let set = |known: &mut BTreeMap<_, _>, name: &'static str, value: &Value| {
            match number(value) {
                Some(value) => known.insert(name, value),
                None => known.remove(name),
            };
        };
        match line["kind"].as_str().unwrap() {
            "instruction" => {
                if let Some(cycles) = number(&line["cycles"]) {
                    self.count(cycles);
                }
                let mut variables = self.known.clone();
                for once in ["exception", "exception_return", "gap"] {
                    self.known.remove(once);
                }
                variables.insert("core", core as i64);
                variables.insert("line", number(&line["address"]).unwrap());
                variables.insert("offset", line["offset"].as_i64().unwrap());
                match line["isa"].as_str().unwrap() {
                    "A64" => None,
                    isa => variables.insert("thumb", i64::from(isa == "T32")),
                };
                self.instructions.push(FrameInstruction {
                    pc: number(&line["address"]).unwrap().cast_unsigned(),
                    code: line["bytes"].as_str().unwrap().to_owned(),
                    variables,
                });
                self.counting = true;
            }
            "cycles" => {
                self.count(number(&line["count"]).unwrap());
                let last = self.instructions.last_mut().filter(|_| self.counting);
                if let Some(last) = last {
                    last.variables.insert("cycles", self.known["cycles"]);
                }
            }
            "timestamp" => set(&mut self.known, "timestamp", &line["value"]),
            "context" => {
                set(&mut self.known, "context_id", &line["context_id"]);
                set(&mut self.known, "vmid", &line["vmid"]);
                set(&mut self.known, "el", &line["el"]);
                let states = ["non-secure", "secure", "realm", "root"];
                let state = states.iter().position(|name| line["security"] == *name);
                set(&mut self.known, "security", &Value::from(state));
            }
            "exception" => {
                set(&mut self.known, "exception", &line["number"]);
                let known = &mut self.known;
                set(known, "exception_return", &line["return_address"]);
                self.counting = false;
            }
            "no_sync" | "trace_on" | "memory_missing" | "q_range" | "not_followed"
            | "return_stack_empty" | "not_reached" => {
                self.cut();
            }
            _ => {}
        }
    }
}

impl Listing {
    /// The straight line ends with the last instruction.
    fn end(&mut self) {
        if !std::mem::replace(&mut self.ended, true) {
            self.ends.push(self.ranges - 1);
        }
    }

    /// Processes a line of the listing of elements. `single`: atoms are instructions (ETMv3), of which a
    /// straight line has many.
    fn element(&mut self, line: &Value, single: bool) {
        match line["kind"].as_str().unwrap() {
            "range" => {
                self.ranges += line["instructions"].as_u64().unwrap() as usize;
                self.ended = false;
                if !single || line["last"]["kind"] != "other" {
                    self.end();
                }
            }
            "context" => {
                let state = ["el", "security", "vmid", "context_id"];
                let state: Vec<Value> = state.iter().map(|name| line[name].clone()).collect();
                if self.state != state && self.ranges > 0 {
                    self.end();
                }
                self.state = state;
            }
            "exception" | "no_sync" | "trace_on" | "memory_missing" | "not_followed"
                if self.ranges > 0 =>
            {
                self.end();
            }
            _ => {}
        }
    }
}
/// The listings of each core, in the order of its buffers and sources.
pub fn listings(path: &Path, loaded: &OpenSnapshot, ends: bool) -> BTreeMap<usize, Vec<Listing>> {
    let (capture, _) = Capture::open(loaded);
    let sources: Vec<_> = capture
        .buffers
        .iter()
        .flat_map(|buffer| buffer.sources.iter().map(move |source| (buffer, source)))
        .collect();
    let mut listings: Vec<Listing> = sources.iter().map(|_| Listing::default()).collect();
    listings.iter_mut().for_each(Listing::cut);
    let place = |line: &Value| {
        let mut all = sources.iter();
        all.position(|(b, s)| line["source"] == *s.name && line["buffer"] == *b.name)
            .unwrap()
    };
    for line in listing(path, "instructions") {
        let place = place(&line);
        let core = sources[place].1.core.unwrap_or(usize::MAX);
        listings[place].line(core, &line);
    }
    if ends {
        for line in listing(path, "elements") {
            let place = place(&line);
            let single = sources[place].1.protocol == Protocol::Etmv3;
            listings[place].element(&line, single);
        }
        let told = listings.iter_mut().filter(|listing| listing.ranges > 0);
        told.for_each(Listing::end);
    }
    let mut cores: BTreeMap<usize, Vec<Listing>> = BTreeMap::new();
    for ((_, source), listing) in sources.into_iter().zip(listings) {
        if let Some(core) = source.core {
            cores.entry(core).or_default().push(listing);
        }
    }
    cores
}

/// The instructions of each core.
pub fn listed(path: &Path, loaded: &OpenSnapshot) -> BTreeMap<usize, Vec<FrameInstruction>> {
    let cores = listings(path, loaded, false).into_iter();
    cores
        .map(|(core, listings)| {
            let instructions = listings
                .into_iter()
                .flat_map(|listing| listing.instructions);
            (core, instructions.collect())
        })
        .collect()
}

/// The frames after the frame of the halted state.
pub fn frames(file: &File<'_>) -> Vec<FrameInstruction> {
    let description = file.description();
    let names: BTreeMap<i32, &'static str> = description
        .variables
        .iter()
        .map(|v| (v.number as i32, &*v.name.clone().leak()))
        .collect();
    let tracepoints = description.tracepoints.iter();
    let addresses: BTreeMap<u16, u64> = tracepoints
        .map(|of| (of.number as u16, of.address))
        .collect();
    let name = Protocol::Etmv3.name().bytes();
    let protocol: String = name.map(|byte| format!("{byte:02x}")).collect();
    let mut fields = description.status.iter().flat_map(|status| &status.other);
    let single = fields.any(|(_, value)| *value == protocol);
    let frames = file.frames().skip(1).map(|frame| {
        let frame = frame.unwrap();
        let mut instruction = FrameInstruction {
            pc: addresses[&frame.tracepoint],
            ..FrameInstruction::default()
        };
        for block in frame.blocks() {
            match block {
                Block::Memory { address, bytes } => {
                    assert_eq!(address, instruction.pc);
                    for byte in bytes {
                        write!(instruction.code, "{byte:02x}").unwrap();
                    }
                }
                // The listing of instructions does not have it.
                Block::Variable { number, .. } if names[&number] == "taken" => {}
                Block::Variable { number, .. }
                    if single && names[&number] == "exception_return" => {}
                Block::Variable { number, value } => {
                    instruction.variables.insert(names[&number], value);
                }
                Block::Registers(_) | Block::Unreadable { .. } => panic!("{block:?}"),
            }
        }
        instruction
    });
    frames.collect()
}
