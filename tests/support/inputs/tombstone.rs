//! Tombstones of Android, as debuggerd would have written them in place of core files of Linux.

use super::minidump::{Form as Layout, context};
use crate::support::gdb::testdata;
use object::{Object, ObjectSegment};
use prost::Message;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;

/// The fields that we write, with the numbers in tombstone.proto.
#[derive(Clone, PartialEq, Message)]
pub struct Tombstone {
    #[prost(int32, tag = "1")]
    pub arch: i32,
    #[prost(string, tag = "2")]
    pub build_fingerprint: String,
    #[prost(string, tag = "3")]
    pub revision: String,
    #[prost(string, tag = "4")]
    pub timestamp: String,
    #[prost(uint32, tag = "5")]
    pub pid: u32,
    #[prost(uint32, tag = "6")]
    pub tid: u32,
    #[prost(string, repeated, tag = "9")]
    pub command_line: Vec<String>,
    #[prost(message, tag = "10")]
    pub signal_info: Option<Signal>,
    #[prost(string, tag = "14")]
    pub abort_message: String,
    #[prost(message, repeated, tag = "15")]
    pub causes: Vec<Cause>,
    #[prost(btree_map = "uint32, message", tag = "16")]
    pub threads: BTreeMap<u32, Thread>,
    #[prost(message, repeated, tag = "17")]
    pub memory_mappings: Vec<Mapping>,
}

#[derive(Clone, PartialEq, Message)]
pub struct Signal {
    #[prost(int32, tag = "1")]
    pub number: i32,
    #[prost(string, tag = "2")]
    pub name: String,
    #[prost(int32, tag = "3")]
    pub code: i32,
    #[prost(string, tag = "4")]
    pub code_name: String,
    #[prost(bool, tag = "8")]
    pub has_fault_address: bool,
    #[prost(uint64, tag = "9")]
    pub fault_address: u64,
}

#[derive(Clone, PartialEq, Message)]
pub struct Cause {
    #[prost(string, tag = "1")]
    pub human_readable: String,
}

#[derive(Clone, PartialEq, Message)]
pub struct Thread {
    #[prost(int32, tag = "1")]
    pub id: i32,
    #[prost(string, tag = "2")]
    pub name: String,
    #[prost(message, repeated, tag = "3")]
    pub registers: Vec<Register>,
    #[prost(message, repeated, tag = "4")]
    pub current_backtrace: Vec<Frame>,
    #[prost(message, repeated, tag = "5")]
    pub memory_dump: Vec<Memory>,
}

#[derive(Clone, PartialEq, Message)]
pub struct Register {
    #[prost(string, tag = "1")]
    pub name: String,
    #[prost(uint64, tag = "2")]
    pub value: u64,
}

#[derive(Clone, PartialEq, Message)]
pub struct Frame {
    #[prost(uint64, tag = "1")]
    pub rel_pc: u64,
    #[prost(uint64, tag = "2")]
    pub pc: u64,
    #[prost(string, tag = "6")]
    pub file_name: String,
    #[prost(string, tag = "8")]
    pub build_id: String,
}

#[derive(Clone, PartialEq, Message)]
pub struct Memory {
    #[prost(string, tag = "1")]
    pub register_name: String,
    #[prost(string, tag = "2")]
    pub mapping_name: String,
    #[prost(uint64, tag = "3")]
    pub begin_address: u64,
    #[prost(bytes = "vec", tag = "4")]
    pub memory: Vec<u8>,
}

#[derive(Clone, PartialEq, Message)]
pub struct Mapping {
    #[prost(uint64, tag = "1")]
    pub begin_address: u64,
    #[prost(uint64, tag = "2")]
    pub end_address: u64,
    #[prost(uint64, tag = "3")]
    pub offset: u64,
    #[prost(bool, tag = "4")]
    pub read: bool,
    #[prost(bool, tag = "5")]
    pub write: bool,
    #[prost(bool, tag = "6")]
    pub execute: bool,
    #[prost(string, tag = "7")]
    pub mapping_name: String,
    #[prost(string, tag = "8")]
    pub build_id: String,
}

/// The number of bytes near a register, as debuggerd prints, and for the stack pointer, to have all
/// frames.
const NEAR: u64 = 256;
const STACK: u64 = 4096;

/// The tombstone of testdata/linux-core/program.core, with another thread.
pub fn of_linux() -> Tombstone {
    let directory = testdata("linux-core");
    let core = fs::read(directory.join("program.core")).unwrap();
    let context = context(&core, Layout::Arm64);
    let word = |at: usize| u64::from_le_bytes(context[at..at + 8].try_into().unwrap());
    let names = (0..30).map(|number| format!("x{number}"));
    let names = names.chain(["lr", "sp", "pc"].map(str::to_owned));
    let mut registers: Vec<Register> = names
        .enumerate()
        .map(|(index, name)| Register {
            name,
            value: word(8 + 8 * index),
        })
        .collect();
    let state = u32::from_le_bytes(context[4..8].try_into().unwrap());
    registers.push(Register {
        name: "pst".to_owned(),
        value: state.into(),
    });
    let file = object::File::parse(&*core).unwrap();
    let near = |register: &Register| {
        let size = if register.name == "sp" { STACK } else { NEAR };
        let from = (register.value & !7).saturating_sub(32);
        let data = file.segments().find_map(|segment| {
            let end = segment.address() + segment.size();
            let size = size.min(end.checked_sub(from)?);
            segment.data_range(from, size).unwrap()
        })?;
        Some(Memory {
            register_name: register.name.clone(),
            mapping_name: "[stack]".to_owned(),
            begin_address: from,
            memory: data.to_vec(),
        })
    };
    let memory = registers.iter().filter_map(near).collect();
    let (mut mappings, mut frames) = (Vec::new(), Vec::new());
    for (base, path) in [
        (0xaaaa_db47_2000_u64, "/program"),
        (0xffff_bd7d_2000, "/lib/libwork.so"),
    ] {
        let bytes = fs::read(directory.join("root").join(&path[1..])).unwrap();
        let elf = object::File::parse(&*bytes).unwrap();
        let id = elf.build_id().unwrap().unwrap();
        let build_id: String = id.iter().map(|byte| format!("{byte:02x}")).collect();
        let segment = elf.segments().next().unwrap();
        let length = segment.size().next_multiple_of(0x1000);
        mappings.push(Mapping {
            begin_address: base,
            end_address: base + length,
            offset: 0,
            read: true,
            write: false,
            execute: true,
            mapping_name: path.to_owned(),
            build_id: build_id.clone(),
        });
        let pc = registers[32].value;
        if (base..base + length).contains(&pc) {
            frames.push(Frame {
                rel_pc: pc - base,
                pc,
                file_name: path.to_owned(),
                build_id,
            });
        }
    }
    let failed = Thread {
        id: 4711,
        name: "main \u{1b}[31m".to_owned(),
        registers,
        current_backtrace: frames,
        memory_dump: memory,
    };
    let mut waiting = failed.clone();
    (waiting.id, waiting.name) = (4712, "worker".to_owned());
    waiting.registers[0].value = 0x1234;
    waiting.memory_dump.clear();
    Tombstone {
        arch: 1,
        build_fingerprint: "example/board/board:16/A/1:user/test-keys".to_owned(),
        revision: "0".to_owned(),
        timestamp: "2026-02-03 04:05:06.789012345+0000".to_owned(),
        pid: 4711,
        tid: 4711,
        command_line: vec!["/program".to_owned()],
        signal_info: Some(Signal {
            number: 11,
            name: "SIGSEGV".to_owned(),
            code: 1,
            code_name: "SEGV_MAPERR".to_owned(),
            has_fault_address: true,
            fault_address: 0x10,
        }),
        abort_message: "no \u{1b}[31mlevel".to_owned(),
        causes: vec![Cause {
            human_readable: "null pointer dereference".to_owned(),
        }],
        threads: [(4712, waiting), (4711, failed)].into(),
        memory_mappings: mappings,
    }
}

fn registers(out: &mut String, thread: &Thread) {
    for row in thread.registers.chunks(4) {
        out.push_str("  ");
        for register in row {
            let _ = write!(out, "  {:<3} {:016x}", register.name, register.value);
        }
        out.push('\n');
    }
    out.push_str("\nbacktrace:\n");
    for (index, frame) in thread.current_backtrace.iter().enumerate() {
        let _ = writeln!(
            out,
            "      #{index:02} pc {:016x}  {} (visit+8) (BuildId: {})",
            frame.rel_pc, frame.file_name, frame.build_id
        );
    }
    for memory in &thread.memory_dump {
        let (name, mapping) = (&memory.register_name, &memory.mapping_name);
        let _ = write!(out, "\nmemory near {name} ({mapping}):");
        for (index, word) in memory.memory.chunks_exact(8).enumerate() {
            if index % 2 == 0 {
                let at = memory.begin_address + 8 * index as u64;
                let ended = if index == 0 { "" } else { "  0123456789abcdef" };
                let _ = write!(out, "{ended}\n    {at:016x}");
            }
            let word = u64::from_le_bytes(word.try_into().unwrap());
            let _ = write!(out, " {word:016x}");
        }
        out.push_str("  ................\n");
    }
}

/// The same as text.
pub fn as_text(tombstone: &Tombstone) -> String {
    let stars = "*** ".repeat(16);
    let mut out = format!(
        "{}\nBuild fingerprint: '{}'\nRevision: '0'\nABI: 'arm64'\nTimestamp: {}\nCmdline: {}\n",
        stars.trim_end(),
        tombstone.build_fingerprint,
        tombstone.timestamp,
        tombstone.command_line.join(" ")
    );
    let head = |out: &mut String, thread: &Thread| {
        let (pid, tid, name) = (tombstone.pid, thread.id, &thread.name);
        let _ = writeln!(
            out,
            "pid: {pid}, tid: {tid}, name: {name}  >>> /program <<<\nuid: 10132"
        );
    };
    let failed = &tombstone.threads[&tombstone.tid];
    head(&mut out, failed);
    let signal = tombstone.signal_info.as_ref().unwrap();
    let _ = writeln!(
        out,
        "signal {} ({}), code {} ({}), fault addr {:#018x} (read)\nCause: {}\nAbort message: '{}'",
        signal.number,
        signal.name,
        signal.code,
        signal.code_name,
        signal.fault_address,
        tombstone.causes[0].human_readable,
        tombstone.abort_message
    );
    registers(&mut out, failed);
    let split = |address: u64| format!("{:08x}'{:08x}", address >> 32, address & 0xffff_ffff);
    let count = tombstone.memory_mappings.len() + 1;
    let _ = writeln!(out, "\nmemory map ({count} entries):");
    let _ = writeln!(
        out,
        "--->Fault address falls at 00000000'00000010 before any mapped regions"
    );
    for map in &tombstone.memory_mappings {
        let _ = writeln!(
            out,
            "    {}-{} r-x  {:8x}  {:8x}  {} (BuildId: {}) (load bias 0x1000)",
            split(map.begin_address),
            split(map.end_address - 1),
            map.offset,
            map.end_address - map.begin_address,
            map.mapping_name,
            map.build_id
        );
    }
    out.push_str("    0000ffff'bd800000-0000ffff'bd800fff rw-         0      1000  [anon:x y]\n");
    out.push_str("--------- log main\n02-03 04:05:06.789  4711  4711 I example : text\n");
    for thread in tombstone.threads.values() {
        if thread.id as u32 != tombstone.tid {
            out.push_str("--- --- ---\n");
            head(&mut out, thread);
            registers(&mut out, thread);
        }
    }
    out.push_str("\nopen files:\n    fd 0: /dev/null (unowned)\n");
    out
}

/// The same as the text in the log, which has only the thread that failed, without the map.
pub fn as_log(tombstone: &Tombstone) -> String {
    let text = as_text(tombstone);
    let text = text.split("\nmemory map").next().unwrap();
    let lines = text.lines().map(|line| {
        let before = "02-03 04:05:06.789  4720  4720 F DEBUG   : ";
        format!("{before}{line}\n")
    });
    format!(
        "02-03 04:05:06.700  4711  4711 I example : text\n{}",
        lines.collect::<String>()
    )
}
