//! Comparison, instruction by instruction, with reports of a commercial debugger on the same
//! captures: addresses, opcodes, cycles, exceptions, timestamps, gaps.

use std::path::Path;
use std::process::Command;

use armsnap::snapshot::model::Snapshot;
use armsnap::snapshot::read::OpenOptions;
use serde_json::Value;

const SHARED: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../shared");

/// The memory of a snapshot's first core.
struct Memory(Vec<(u64, Vec<u8>)>);

impl Memory {
    fn of(snapshot: &str) -> Self {
        let loaded = Snapshot::open(Path::new(snapshot), &OpenOptions::default()).unwrap();
        let device = &loaded.snapshot.devices[0];
        let piece = |dump: &armsnap::snapshot::model::Dump| {
            let bytes = loaded.file(Path::new(&device.file), &dump.file).unwrap();
            let bytes = &bytes[dump.offset.unwrap_or(0) as usize..];
            let length = dump.length.map_or(usize::MAX, |length| length as usize);
            (dump.address, bytes[..length.min(bytes.len())].to_vec())
        };
        Self(device.dumps.iter().map(piece).collect())
    }

    fn read(&self, address: u64, size: usize) -> u32 {
        let found = self.0.iter().find_map(|(start, bytes)| {
            let at = usize::try_from(address.checked_sub(*start)?).ok()?;
            bytes.get(at..at + size)
        });
        let bytes = found.unwrap_or_else(|| panic!("no memory at {address:#x}"));
        bytes
            .iter()
            .rev()
            .fold(0, |value, &byte| value << 8 | u32::from(byte))
    }

    /// The opcode at an address in the usual notation, and its size.
    fn opcode(&self, address: u64, isa: &str) -> (String, u64) {
        if isa != "T32" {
            return (format!("{:08X}", self.read(address, 4)), 4);
        }
        let first = self.read(address, 2);
        if first >> 11 < 0b11101 {
            return (format!("{first:04X}"), 2);
        }
        (format!("{first:04X}{:04X}", self.read(address + 2, 2)), 4)
    }
}

fn number(value: &Value) -> u64 {
    match value {
        Value::String(text) => u64::from_str_radix(text.trim_start_matches("0x"), 16).unwrap(),
        other => other.as_u64().unwrap(),
    }
}

/// Events in a form common to both sides.
#[derive(Default)]
struct Events {
    list: Vec<String>,
    cycles: Option<u64>,
    pending: u64,
    /// Tracing was turned on again, and the cycles of the gap are not known yet.
    in_gap: bool,
    begun: bool,
}

impl Events {
    fn push(&mut self, event: String) {
        // The report has a line for each atom in missing code.
        if event.starts_with("missing") && self.list.last() == Some(&event) {
            return;
        }
        self.list.push(event);
    }

    fn end_gap(&mut self, cycles: u64) {
        if std::mem::take(&mut self.in_gap) {
            let gap = std::mem::take(&mut self.pending) + cycles;
            self.push(format!("disabled {gap}"));
        }
    }

    fn line(&mut self, line: &Value, memory: &Memory) {
        match line["kind"].as_str().unwrap() {
            "range" => {
                self.end_gap(0);
                let isa = line["isa"].as_str().unwrap();
                let (mut at, end) = (number(&line["start"]), number(&line["end"]));
                while at < end {
                    let (opcode, size) = memory.opcode(at, isa);
                    let next = at + size;
                    let counted = self.cycles.map_or(String::new(), |_| {
                        let own = line.get("cycles").filter(|_| next == end).map_or(0, number);
                        format!(" {}", own + std::mem::take(&mut self.pending))
                    });
                    self.push(format!("{at:X} {opcode}{counted}"));
                    at = next;
                }
            }
            "cycles" if self.in_gap => self.end_gap(number(&line["count"])),
            "cycles" => self.pending += number(&line["count"]),
            "trace_on" if !self.begun || self.cycles.is_none() => {
                self.begun = true;
                self.pending = 0;
                if self.cycles.is_none() {
                    self.push(format!("on {}", line["reason"].as_str().unwrap()));
                }
            }
            "trace_on" => self.in_gap = true,
            // Reports start with the first instruction.
            "timestamp" if !self.begun => {}
            "timestamp" => self.push(format!("timestamp {}", number(&line["value"]))),
            "exception" => self.push(format!("exception {}", number(&line["number"]))),
            "exception_return" => self.push("return".to_owned()),
            "memory_missing" => {
                self.pending = 0;
                self.push(format!("missing {:X}", number(&line["address"])));
            }
            "context" | "no_sync" | "end" => {}
            other => panic!("unexpected {other}"),
        }
    }

    /// Processes a line of the report for anything but an instruction.
    fn event(&mut self, detail: &str, cycles: &str) {
        let exception = detail.strip_prefix("Exception: ");
        match detail {
            "Exit from debug state" => self.push("on debug_restart".to_owned()),
            "Tracing Enabled" => self.push("on begin_or_filter".to_owned()),
            "Return from exception" => self.push("return".to_owned()),
            "Tracing disabled" => self.push(format!("disabled {cycles}")),
            "Tracing enabled" | "Debug stop" | "<Unknown>" | "Unknown instruction address" => {}
            _ => match (exception, detail.strip_prefix("Timestamp: ")) {
                (Some(exception), _) => {
                    let number = exception.split(['(', ')']).nth(1).unwrap();
                    self.push(format!("exception {number}"));
                }
                (_, Some(value)) => self.push(format!("timestamp {value}")),
                _ => panic!("unexpected {detail:?}"),
            },
        }
    }

    fn instruction(&mut self, address: &str, opcode: &str, cycles: &str, detail: &str) {
        let (_, address) = address.split_once(':').unwrap();
        if address == "?" {
            return;
        }
        let address = u64::from_str_radix(address.trim_start_matches("0x"), 16).unwrap();
        match (opcode.trim_start_matches("0x"), detail) {
            (_, "<Unknown>") => {}
            ("?", "Cannot access target memory") => self.push(format!("missing {address:X}")),
            ("?", detail) => panic!("unexpected {detail:?}"),
            (opcode, _) if cycles.is_empty() => self.push(format!("{address:X} {opcode}")),
            (opcode, _) => self.push(format!("{address:X} {opcode} {cycles}")),
        }
    }

    /// A line with record type, index, address, opcode, cycles and detail.
    fn long_line(&mut self, line: &str) {
        let columns: Vec<&str> = line.split('\t').collect();
        match columns[0] {
            "Record Type" | "Function" => {}
            "Instruction" => self.instruction(columns[2], columns[3], columns[4], columns[5]),
            _ => self.event(columns[5], columns[4]),
        }
    }

    /// A line with address, opcode and detail.
    fn short_line(&mut self, line: &str) {
        let columns: Vec<&str> = line.split('\t').collect();
        match columns[0] {
            "" => self.event(columns[2].trim(), ""),
            address => self.instruction(address, columns[1], "", columns[2].trim()),
        }
    }
}

/// Compares a report with the decoder's output for a source; returns the number of events in the
/// report.
fn compare(name: &str, report: &str, id: u64, with_cycles: bool) -> Option<(usize, usize)> {
    let snapshot = format!("{SHARED}/snapshots/{name}");
    let Ok(report) = std::fs::read_to_string(format!("{snapshot}/{report}")) else {
        crate::support::skip::missing("../shared is not there");
        return None;
    };
    let mut want = Events::default();
    for line in report.lines() {
        if with_cycles {
            want.long_line(line);
        } else {
            want.short_line(line);
        }
    }
    let output = Command::new(crate::support::armsnap())
        .args(["decode", "--format", "jsonl", &snapshot])
        .output()
        .unwrap();
    let memory = Memory::of(&snapshot);
    let mut have = Events {
        cycles: with_cycles.then_some(0),
        ..Events::default()
    };
    for line in String::from_utf8(output.stdout).unwrap().lines() {
        let line: Value = serde_json::from_str(line).unwrap();
        if line["trace_id"].as_u64() == Some(id) {
            have.line(&line, &memory);
        }
    }
    let mut left_out = 0;
    let returns = want.list.iter().filter(|event| *event == "return").count();
    for (i, want) in want.list.iter().enumerate() {
        // Reports of A64 omit the ten instructions up to an ERET, and missing code
        // between a branch target and an exception.
        while match have.list[i + left_out].as_str() {
            missing if missing.starts_with("missing") => want.starts_with("exception"),
            instruction => want == "return" && instruction.starts_with("FFFF"),
        } {
            left_out += 1;
        }
        let have = &have.list[i + left_out];
        assert_eq!(have, want, "event {i} of {name}, ID {id:#x}");
    }
    assert!(left_out <= 10 * returns + 2, "{left_out} left out");
    Some((want.list.len() + left_out, have.list.len()))
}

#[test]
fn three_cortex_a7() {
    for id in 0x10..=0x12 {
        let report = format!("ds5-dumps/etmv3_{id:#x}.txt");
        if let Some((report, decoded)) = compare("TC2", &report, id, true) {
            assert_eq!(report, decoded);
        }
    }
}

#[test]
fn a_cortex_a15_with_cycle_counts() {
    if let Some((report, decoded)) = compare("TC2", "ds5-dumps/ptmv1_0x13.txt", 0x13, true) {
        assert_eq!(report, decoded);
    }
}

#[test]
fn a_cortex_a15_with_return_stack() {
    let counts = compare("tc2-ptm-rstk-t32", "ds-5_trace_dump/a15_rs.txt", 2, false);
    // The report ends after 10 000 lines.
    if let Some((report, decoded)) = counts {
        assert!(report > 9_990 && report < decoded);
    }
}

#[test]
fn three_armv8_cores() {
    for (id, report) in [
        (0x11, "0x11_cpu_1_2015Sep17_104748"),
        (0x13, "0x13_cpu_3_2015Sep17_104147"),
        (0x15, "0x15_cpu_5_2015Sep17_105126"),
    ] {
        let report = format!("ds-5-dumps/Trace_Report_{report}.txt");
        if let Some((report, decoded)) = compare("juno_r1_1", &report, id, false) {
            assert_eq!(report, decoded);
        }
    }
}
