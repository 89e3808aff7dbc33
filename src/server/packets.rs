//! Packets that gdbstub does not support, or that a snapshot answers differently.

use std::fmt::Write as _;
use std::path::PathBuf;
use std::sync::Arc;

use gdbstub::common::Tid;

use super::breakpoints::Refusal;
use super::btrace;
use super::callers;
use super::endpoint::{Endpoint, HistoryMode};
use super::execution::standing;
use super::history_registers::{self, HistoryRegister};
use super::libraries;
use super::past_values::PATIENCE;
use super::reply::{MALFORMED, NO_MEMORY, known_or_not, pair, thread_id, transfer};
use super::resume::{self, Other, Resume};
use super::shown_memory;
use super::target::SnapshotTarget;
use super::tracepoints;
use crate::remote_protocol::framing::{MAX_PACKET, write_hex_runs, write_packet};
use crate::remote_protocol::hex::{self, parse_hex};
use armsnap_arch::arch::pointer_auth::{self, Masks};
use armsnap_snapshot::mapped;
use armsnap_snapshot::snapshot::inputs;
use armsnap_snapshot::stop::Cancel;

/// How to handle a packet.
pub(super) enum Answer {
    /// Reply with a payload, escaped as required.
    Reply(Vec<u8>),
    /// `QStartNoAckMode`.
    NoAckMode,
    /// `vKill`, answered before the session ends.
    Kill,
    /// A move, answered with a stop reply.
    Move(Resume),
    /// A `monitor` command, answered with text.
    Monitor(String),
    /// Pass to gdbstub.
    Pass(Vec<u8>),
}

/// The reply to a packet that is not supported.
const UNSUPPORTED: &[u8] = b"";
/// GDB shows the text after `E.`.
const READ_ONLY_REGISTERS: &[u8] = b"E.a snapshot is read-only: its registers cannot be changed";
const READ_ONLY_MEMORY: &[u8] = b"E.a snapshot is read-only: its memory cannot be changed";

/// Answers a packet, or decides how to handle it.
pub(super) fn answer(target: &mut SnapshotTarget, packet: &[u8]) -> Answer {
    let reply = |reply: &[u8]| Answer::Reply(reply.to_vec());
    let or_malformed =
        |reply: Option<Vec<u8>>| Answer::Reply(reply.unwrap_or_else(|| MALFORMED.to_vec()));
    if let Some(reply) = tracepoints::answer(target, packet) {
        return Answer::Reply(reply);
    }
    if let Some(reply) = btrace::answer(target, packet) {
        return Answer::Reply(reply);
    }
    let general = target.selection.read();
    // Packets of the handshake need no position.
    if !packet.starts_with(b"q") && !packet.starts_with(b"Q") && !packet.starts_with(b"v") {
        target.positions.rest();
    }
    match packet {
        b"QStartNoAckMode" => Answer::NoAckMode,
        b"QThreadSuffixSupported" => {
            // Only LLDB asks this.
            target.takes_unknown_for_value = true;
            reply(UNSUPPORTED)
        }
        [b'H', operation, thread @ ..] => match select(target, *operation, thread) {
            Some(packet) => Answer::Pass(packet),
            None => reply(MALFORMED),
        },
        [b'm', arguments @ ..] => or_malformed(memory(target, arguments)),
        [b'p', number @ ..] => or_malformed(register(target, number)),
        b"g" => or_malformed(registers(target)),
        [b'P' | b'G', ..] => reply(READ_ONLY_REGISTERS),
        [b'M' | b'X', ..] => reply(READ_ONLY_MEMORY),
        [b'Z', breakpoint @ ..] => Answer::Reply(change_breakpoint(target, true, breakpoint)),
        [b'z', breakpoint @ ..] => Answer::Reply(change_breakpoint(target, false, breakpoint)),
        b"bs" | b"bc" if target.endpoint.history != HistoryMode::Replay => reply(UNSUPPORTED),
        b"?" => {
            let without_pc = !target.takes_unknown_for_value && !target.knows_pc(general);
            Answer::Reply(stands(target, general, true, without_pc).into_bytes())
        }
        [b'T', thread @ ..] if thread_id(thread).is_some_and(|tid| target.core(tid).is_some()) => {
            target
                .selection
                .asks_for(thread_id(thread).unwrap_or(general));
            Answer::Pass(packet.to_vec())
        }
        b"qC" => Answer::Reply(format!("QC{general:x}").into_bytes()),
        b"vCont?" => reply(b"vCont;c;C;s;S;r"),
        _ if packet.starts_with(b"qSupported") => {
            // GDB sends this since version 11; LLDB does not read the masks that old versions of
            // GDB fail on.
            let features = String::from_utf8_lossy(packet);
            target.is_gdb = features.contains("QThreadEvents+");
            target.is_old_gdb = target.is_gdb && !features.contains("memory-tagging+");
            // Threads have plain numbers: one endpoint is one process.
            Answer::Pass(b"qSupported:swbreak+".to_vec())
        }
        _ if packet.starts_with(b"vKill") => Answer::Kill,
        _ if packet.starts_with(b"qRcmd,") => match text(&packet[b"qRcmd,".len()..]) {
            Some(command) => Answer::Monitor(command),
            None => reply(MALFORMED),
        },
        _ => match resume::parse(packet, target.selection.user(), target.alone) {
            Ok(resume) if target.core(resume.thread).is_some() => Answer::Move(resume),
            Ok(_) | Err(Other::Malformed) => reply(MALFORMED),
            Err(Other::NoMove) => {
                named(target, packet).map_or_else(|| Answer::Pass(packet.to_vec()), or_malformed)
            }
        },
    }
}

/// Returns whether the reply contains unchecked bytes of the snapshot's files: trace frames, branch
/// traces, and the memory and registers of a frame.
pub(super) fn is_of_files(target: &SnapshotTarget, packet: &[u8]) -> bool {
    const FRAMES: [&[u8]; 6] = [
        b"QTFrame:",
        b"qTV:",
        b"qTP:",
        b"qTBuffer:",
        b"qXfer:traceframe-info:",
        b"qXfer:btrace:",
    ];
    FRAMES.iter().any(|name| packet.starts_with(name))
        || matches!(packet, [b'm' | b'g' | b'p', ..]) && target.looks_at_frame()
}

/// Decodes text written as pairs of hexadecimal digits.
fn text(digits: &[u8]) -> Option<String> {
    hex::decode_text(std::str::from_utf8(digits).ok()?)
}

/// Answers packets with long names. The inner `None` means a malformed packet.
fn named(target: &mut SnapshotTarget, packet: &[u8]) -> Option<Option<Vec<u8>>> {
    let after = |name: &str| packet.strip_prefix(name.as_bytes());
    if packet == b"qOffsets" {
        Some(Some(offsets(&target.endpoint)))
    } else if let Some(rest) = after("qXfer:threads:read:") {
        target.selection.lists();
        Some(transfer(target.endpoint.threads_xml.as_bytes(), rest))
    } else if let Some(rest) = after("qXfer:libraries-svr4:read:") {
        let libraries = target.libraries()?;
        Some(transfer(libraries.as_bytes(), rest))
    } else if let Some(rest) = after("qXfer:siginfo:read:") {
        Some(siginfo(target, rest))
    } else if let Some(rest) = after("qThreadStopInfo") {
        Some(thread_stop(target, rest))
    } else {
        after(callers::PACKET)
            .map(|rest| callers::answer(target, rest))
            .or_else(|| after(callers::POSITION).map(|rest| callers::position(target, rest)))
            .or_else(|| after(IS_INPUT).map(|rest| is_input(target, rest)))
            .or_else(|| after(IS_PRIVATE).map(|_| Some(flag(mapped::is_private()))))
            .or_else(|| after("qMemoryRegionInfo:").map(|rest| region(target, rest)))
    }
}

/// Asks whether a path, in hex, names a file or directory that is being served, on the server's system.
const IS_INPUT: &str = "qArmsnap.is-input:";

fn is_input(target: &SnapshotTarget, digits: &[u8]) -> Option<Vec<u8>> {
    let path = PathBuf::from(text(digits)?);
    let is_input = inputs::is_input(&path, &target.endpoint.loaded);
    Some(flag(is_input))
}

/// Asks whether a file that is being served is private to its owner.
const IS_PRIVATE: &str = "qArmsnap.is-private";

fn flag(value: bool) -> Vec<u8> {
    vec![if value { b'1' } else { b'0' }]
}

/// `Z` and `z`.
fn change_breakpoint(target: &mut SnapshotTarget, set: bool, packet: &[u8]) -> Vec<u8> {
    match target.breakpoints.change(set, packet) {
        Ok(()) => b"OK".to_vec(),
        // A core without history has only one position, so no move passes an access.
        Err(Refusal::Watchpoint) if !target.positions.has_history() => b"OK".to_vec(),
        Err(Refusal::Watchpoint) => match target.watchpoints.change(set, packet) {
            Some(()) => b"OK".to_vec(),
            None => MALFORMED.to_vec(),
        },
        Err(Refusal::TooMany) => b"E.too many breakpoints".to_vec(),
        Err(Refusal::Malformed) => MALFORMED.to_vec(),
    }
}

/// Reports where a position-independent program was loaded. If the reply is empty, GDB uses the
/// addresses in the file.
fn offsets(endpoint: &Endpoint) -> Vec<u8> {
    let program = endpoint
        .program
        .iter()
        .find(|program| program.elf.offset != 0);
    let first = program.and_then(|program| program.elf.segments.first());
    first.map_or_else(Vec::new, |first| {
        format!("TextSeg={:x}", first.address).into_bytes()
    })
}

/// Formats the `qSupported` reply: the applicable features of gdbstub, and our own.
pub(super) fn features(reply: &[u8], endpoint: &Endpoint) -> Vec<u8> {
    let text = String::from_utf8_lossy(reply);
    let text = text.trim_start_matches('$');
    let text = text.split('#').next().unwrap_or_default();
    let mut features = format!("PacketSize={MAX_PACKET:x}");
    for feature in text.split(';') {
        let ours = feature.starts_with("PacketSize=") || feature == "multiprocess+";
        if !(ours || feature.is_empty()) {
            let _ = write!(features, ";{feature}");
        }
    }
    features.push_str(";swbreak+;hwbreak+;qXfer:threads:read+");
    let mut cores = endpoint.cores.iter();
    if cores.any(|core| endpoint.signal(core).is_some()) {
        features.push_str(";qXfer:siginfo:read+");
    }
    if endpoint.programs().next().is_some() {
        features.push_str(libraries::FEATURE);
    }
    match endpoint.history {
        HistoryMode::Replay => features.push_str(";ReverseStep+;ReverseContinue+"),
        HistoryMode::Btrace => features.push_str(btrace::FEATURES),
        HistoryMode::None => {}
    }
    if endpoint.traces.is_some() {
        features.push_str(";qXfer:traceframe-info:read+");
    }
    let mut out = Vec::new();
    write_packet(features.as_bytes(), &mut out);
    out
}

/// Adds the number of address bits in a pointer to a reply about the system (LLDB), if pointers have
/// authentication codes.
pub(super) fn with_address_bits(reply: Vec<u8>, target: &SnapshotTarget) -> Vec<u8> {
    let core = target.core(target.selection.read());
    let masks = core.and_then(|core| Masks::of(&core.registers));
    let text = String::from_utf8_lossy(&reply);
    let contents = text.strip_prefix('$').and_then(|text| text.split_once('#'));
    let (Some(masks), Some((contents, _))) = (masks, contents) else {
        return reply;
    };
    let mut out = Vec::new();
    let contents = format!("{contents}addressing_bits:{};", masks.address_bits());
    write_packet(contents.as_bytes(), &mut out);
    out
}

/// `H`: selects a thread, and returns the packet for gdbstub in the form that it supports.
fn select(target: &mut SnapshotTarget, operation: u8, thread: &[u8]) -> Option<Vec<u8>> {
    let chosen = match thread {
        b"-1" | b"0" => None,
        _ => {
            let tid = thread_id(thread)?;
            target.core(tid)?;
            Some(tid)
        }
    };
    match operation {
        b'g' => target
            .selection
            .reads(chosen.unwrap_or(target.selection.read())),
        b'c' => target.alone = chosen,
        _ => return None,
    }
    Some(format!("Hg{:x}", target.selection.read()).into_bytes())
}

/// `m`: the known bytes from the address; an error if there are none.
fn memory(target: &mut SnapshotTarget, arguments: &[u8]) -> Option<Vec<u8>> {
    let (address, length) = pair(arguments, b',')?;
    let length = usize::try_from(length).ok()?.min(MAX_PACKET / 2 - 8);
    target.selection.reads_memory();
    let thread = target.selection.read();
    let bytes = shown_memory::read(target, thread, address, length)?;
    if bytes.is_empty() {
        return Some(NO_MEMORY.to_vec());
    }
    let mut reply = Vec::with_capacity(2 * bytes.len());
    write_hex_runs(&bytes, &mut reply);
    Some(reply)
}

/// `g`: the general registers.
fn registers(target: &mut SnapshotTarget) -> Option<Vec<u8>> {
    let endpoint = Arc::clone(&target.endpoint);
    let thread = target.selection.read();
    let cancel = Cancel::after(PATIENCE);
    let bytes: Option<Vec<_>> = endpoint
        .block()
        .map(|register| Some(endpoint.in_order(target.register(thread, register, &cancel)?)))
        .collect();
    Some(known_or_not(&bytes?.concat()))
}

/// `p`: a register, with `xx` for each unknown byte, because an error breaks a backtrace of GDB. LLDB
/// receives the error: it would show bytes of 0xcc in place of `xx`.
fn register(target: &mut SnapshotTarget, number: &[u8]) -> Option<Vec<u8>> {
    let number = u32::try_from(parse_hex(number)?).ok()?;
    let history = target.endpoint.history_registers;
    if let Some(register) = history.and_then(|registers| registers.find(number)) {
        let thread = target.selection.read();
        return Some(match register {
            HistoryRegister::Position => {
                let is_big = target.endpoint.is_big_endian();
                history_registers::position_value(target.shown_position(thread), is_big).into()
            }
            HistoryRegister::Isa => {
                let is_big = target.endpoint.is_big_endian();
                history_registers::isa_value(target.positions.isa(thread), is_big).into()
            }
        });
    }
    let endpoint = Arc::clone(&target.endpoint);
    let register = endpoint.description.register(number)?;
    let cancel = Cancel::after(PATIENCE);
    let bytes = target.register(target.selection.read(), register, &cancel)?;
    let bytes = endpoint.in_order(bytes);
    if target.takes_unknown_for_value && bytes.contains(&None) {
        return Some(NO_MEMORY.to_vec());
    }
    Some(known_or_not(&bytes))
}

/// `qThreadStopInfo` (LLDB): why a thread stopped.
fn thread_stop(target: &SnapshotTarget, thread: &[u8]) -> Option<Vec<u8>> {
    let tid = thread_id(thread)?;
    target.core(tid)?;
    Some(stands(target, tid, tid == target.selection.read(), false).into_bytes())
}

/// Returns the stop reply of a thread at the state of the snapshot.
fn stands(target: &SnapshotTarget, thread: Tid, current: bool, without_pc: bool) -> String {
    let core = target.core(thread);
    let signal = core.and_then(|core| target.endpoint.signal(core));
    standing(thread, core, signal.as_ref(), current, without_pc)
}

/// `qXfer:siginfo:read`: what the kernel reported about the signal that stopped the selected thread. At
/// past positions it is not known.
fn siginfo(target: &SnapshotTarget, arguments: &[u8]) -> Option<Vec<u8>> {
    let thread = target.selection.read();
    let halted = target.positions.past(thread).is_none();
    let core = target.core(thread).filter(|_| halted);
    let signal = core.and_then(|core| target.endpoint.signal(core));
    let information = signal.map(|signal| signal.information);
    match information.filter(|information| !information.is_empty()) {
        Some(information) => transfer(&information, arguments),
        None => Some(NO_MEMORY.to_vec()),
    }
}

/// `qMemoryRegionInfo` (LLDB): the known region around an address, or the gap.
fn region(target: &SnapshotTarget, address: &[u8]) -> Option<Vec<u8>> {
    let core = target.core(target.selection.read())?;
    let address = pointer_auth::without_tag(&core.registers, parse_hex(address)?);
    let region = target.endpoint.range_at(core, &target.memory_view, address);
    let mut reply = format!("start:{:x};size:{:x};", region.start, region.size);
    if region.known {
        reply.push_str("permissions:rwx;");
    }
    Some(reply.into_bytes())
}
