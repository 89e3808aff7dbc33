//! `qArmsnap.callers`: the frames of a stack at a past position, for an unwinder in the client.
//!
//! Registers and stacks of the past may be unknown, but the open calls are known. The request contains
//! a thread and the number of frames that the client already has: `qArmsnap.callers:1,0`. The reply
//! contains the next frames, innermost first, as `STACK,CALL,FUNCTION,PC;` (the first three identify
//! a frame), and one more character:
//!
//! - `+`: there are more frames;
//! - `.`: the caller of the last frame is unknown;
//! - `^PC`: the last frame returns to PC, in a frame on a stack whose calls are not in the trace: the
//!   client unwinds from there by itself, using the registers that are known;
//! - `^` alone: the newest frame is such a frame;
//! - `-` alone: at the halted state or in a trace frame, where the client unwinds by itself;
//! - `-STACK,CALL,FUNCTION`: the same, at a halted state that the trace leads to. CALL and FUNCTION
//!   identify its newest frame at past positions, where the client then uses the frame's true stack
//!   address; STACK is a lower address, for the frames of later calls;
//! - `~` alone: not finished. The client repeats the request, and its user can interrupt it in between
//!   (GDB sends no Ctrl-C while it waits for a reply).
//!
//! If the stack pointer was known when a frame's function was called, the frame has a fifth field with
//! its value, which is the frame's true stack address. Known registers of its caller follow as
//! `NAME:VALUE`. Both are taken at the first position of the call, so they are the same at every
//! position within it.
//!
//! The frame of a signal handler starts with `s`, and the next frame is the code that it interrupted. At
//! the handler's entry `x30` contains its return address: code that asks the kernel to resume the
//! program. If known, it is reported as `x30:VALUE`, which no other frame has. The other registers have
//! their values at the handler's return to that code.
//!
//! `qArmsnap.position:1` is answered with the register `$position` of the thread, in hex.

use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use gdbstub::common::Tid;

use super::endpoint::Endpoint;
use super::frame_calls::{self, Owner};
use super::memory::MemoryView;
use super::past_values::past_position;
use super::positions::{GAPS, Positions};
use super::reply::thread_id;
use super::target::SnapshotTarget;
use armsnap_arch::arch::Architecture;
use armsnap_history::calls::{OpenCall, Outside};
use armsnap_history::recover::RegisterLocations;
use armsnap_history::timeline::{Direction, EndAgrees, PointKind, Position};
use armsnap_snapshot::program::symbols::Symbols;
use armsnap_snapshot::stop::Cancel;

pub(super) const PACKET: &str = "qArmsnap.callers:";
pub(super) const POSITION: &str = "qArmsnap.position:";
/// Time limit of the search for calls before a reply.
const TIME_LIMIT: Duration = Duration::from_millis(300);
/// Time limit of recovering registers for a reply; with the search, clients wait up to two seconds.
const VALUES_LIMIT: Duration = Duration::from_millis(1500);
/// The number of callers beyond those in a reply whose stack addresses are considered.
const OUTER: usize = 64;
/// Maximum number of frames in the first reply at a position. A step needs no more.
const FIRST_FRAMES: usize = 4;
/// Maximum number of frames in each further reply.
const FRAMES: usize = 64;
/// The stack address of frames of a 64-bit core. No program can use it: bits 55 to 52 of a valid
/// address are equal, whatever its top byte (ARM DDI 0487, D8.1, VA ranges of up to 52 bits).
const NOWHERE: u64 = 0b0110 << 52;
/// Size of the unused memory required before and after the stack address of frames of a 32-bit core.
const FREE: u64 = 1 << 20;

/// Answers a request for the register `$position` of a thread.
pub(super) fn position(target: &mut SnapshotTarget, thread: &[u8]) -> Option<Vec<u8>> {
    let position = target.shown_position(thread_id(thread)?);
    Some(format!("{position:x}").into_bytes())
}

/// Answers a request; `None` if it is malformed.
pub(super) fn answer(target: &mut SnapshotTarget, request: &[u8]) -> Option<Vec<u8>> {
    let comma = request.iter().position(|byte| *byte == b',')?;
    let thread = thread_id(&request[..comma])?;
    let skip = crate::remote_protocol::hex::parse_hex(&request[comma + 1..])?;
    let skip = usize::try_from(skip).ok()?;
    target.core(thread)?;
    if target.trace.frame.is_some() {
        return Some(b"-".to_vec());
    }
    let cancel = Cancel::after(TIME_LIMIT);
    let pc = match target.positions.past(thread) {
        Some(past) => past.pc,
        None if target.positions.rests(thread) => target.positions.end_of_trace(thread),
        None => return Some(at_halted_state(target, thread, &cancel)),
    };
    let Some(pc) = pc else {
        return Some(b"-".to_vec());
    };
    let position = frames_position(&mut target.positions, thread)?;
    let symbols = target.symbols();
    let stack = target.callers.stack;
    let stack = *target
        .callers
        .stack
        .insert(stack.unwrap_or_else(|| nowhere(&target.endpoint)));
    let pads = target.landing_pads();
    let history = target.positions.history(thread)?;
    let calls = target.callers.of(thread, pads);
    // A frame is identified by its call; its pc comes from the call within it.
    let (first, count, frames) = match skip.checked_sub(1) {
        Some(before) => (before, 1 + FRAMES + OUTER, FRAMES),
        None => (0, FIRST_FRAMES + OUTER, FIRST_FRAMES),
    };
    let (calls, outside) = calls.at(history, position, first, count, &cancel);
    if outside == Outside::Unfinished {
        return Some(b"~".to_vec());
    }
    let mut calls = calls.as_slice();
    let mut site = Some((pc.0, pc.0));
    let mut within = None;
    if skip > 0 {
        let Some((inner, outer)) = calls.split_first() else {
            return Some(b".".to_vec());
        };
        site = return_site(inner);
        within = Some(inner);
        calls = outer;
    }
    let mut text = String::new();
    let mut frame = |call: Option<(u64, &OpenCall)>, (pc, inside): (u64, u64), stack: &Stack| {
        let (number, function) = name(&symbols, call, inside);
        let Stack { address, registers } = stack;
        if call.is_some_and(|(_, call)| call.signal) {
            text.push('s');
        }
        let _ = write!(
            text,
            "{address:x},{number:x},{function:x},{pc:x}{registers};"
        );
    };
    let cancel = Cancel::after(VALUES_LIMIT);
    let newest = (skip == 0).then_some(position);
    let all = (calls, outside == Outside::Unknown);
    let Some(own) = own_calls(target, thread, (newest, site, within), all, &cancel) else {
        return Some(b"~".to_vec());
    };
    let ends = own.map(|(count, owner)| {
        calls = &calls[..count];
        owner
    });
    if ends == Some(Owner::Other) && calls.is_empty() && skip == 0 {
        return Some(b"^".to_vec());
    }
    let Some(stacks) = stacks(target, thread, calls, stack, &cancel) else {
        return Some(b"~".to_vec());
    };
    let history = target.positions.history(thread)?;
    for (call, stack) in calls.iter().zip(&stacks).take(frames) {
        let Some(at) = site else { break };
        frame(Some((history.number(call.entry), call)), at, stack);
        site = return_site(call);
    }
    let outside = if calls.len() > frames {
        Outside::More
    } else {
        outside
    };
    let is_last = calls.len() <= frames;
    if let (Some(Owner::Other), true, Some((pc, _))) = (ends, is_last, site) {
        let _ = write!(text, "^{pc:x}");
        return Some(text.into_bytes());
    }
    let outside = match ends {
        Some(_) if is_last => Outside::Unknown,
        _ => outside,
    };
    let end = match (outside, site) {
        (Outside::More, Some(_)) => '+',
        (Outside::Unknown | Outside::Unfinished, Some(at)) => {
            let address = stack;
            let registers = String::new();
            frame(None, at, &Stack { address, registers });
            '.'
        }
        (_, None) => '.',
    };
    text.push(end);
    Some(text.into_bytes())
}

/// The number of calls before the first one that does not belong to its frame, and the owner of
/// that call.
type Own = Option<(usize, Owner)>;

/// Finds the first call that does not belong to its frame. The outer `None` means that the search was
/// cancelled. `ends` says that no call is known beyond these.
///
/// The first frame is at `newest`, or is the one to which the call `within` returns; `site` is its pc, and
/// an address inside its function.
fn own_calls(
    target: &mut SnapshotTarget,
    thread: Tid,
    (newest, site, within): (Option<Position>, Option<(u64, u64)>, Option<&OpenCall>),
    (calls, ends): (&[OpenCall], bool),
    cancel: &Cancel,
) -> Option<Own> {
    let architecture = target.endpoint.architecture();
    let registers = match newest.filter(|at| past_position(&target.positions, thread) == Some(*at))
    {
        Some(position) => {
            let endpoint = Arc::clone(&target.endpoint);
            let (values, positions) = (&mut target.past_values, &mut target.positions);
            let known = values.registers(&endpoint, positions, (thread, position), cancel);
            if known.is_none() && cancel.is_requested() {
                return None;
            }
            known
        }
        None => None,
    };
    let mut site = site;
    let mut inner = within;
    // Beyond the last call, where no more is known, there is a frame without a call.
    let beyond = ends.then_some(None);
    let all = calls.iter().map(Some).chain(beyond);
    for (number, call) in all.enumerate() {
        let Some((_, inside)) = site else { break };
        let mut known_at = |call: &OpenCall| {
            if call.exception && !call.signal {
                return Some(String::new());
            }
            let known = caller_registers(target, (thread, call), cancel);
            known.map(str::to_owned)
        };
        let entry = match call {
            Some(call) => field(&known_at(call)?, "sp"),
            None => None,
        };
        let outer = match inner {
            // The handler's stack says nothing about the stack of the interrupted code.
            Some(inner) if inner.exception => String::new(),
            Some(inner) => known_at(inner)?,
            None => String::new(),
        };
        let register = |name: &str| match (inner, &registers) {
            (None, Some(known)) => {
                let value = RegisterLocations::of(architecture, name)?
                    .value(known)?
                    .value;
                u64::try_from(value).ok()
            }
            _ => field(&outer, name),
        };
        let owner = match call {
            Some(call) => frame_calls::owner(target, thread, (call, entry), inside, register),
            None => match frame_calls::frame_address(target, inside, register) {
                Some(_) => Owner::Other,
                None => Owner::Frame,
            },
        };
        if owner != Owner::Frame {
            return Some(Some((number, owner)));
        }
        site = call.and_then(return_site);
        inner = call;
    }
    Some(None)
}

/// Returns the value of a register in the fields of a frame.
fn field(fields: &str, name: &str) -> Option<u64> {
    let mut fields = fields.split(',').filter_map(|field| field.split_once(':'));
    let (_, digits) = fields.find(|(of, _)| *of == name)?;
    u64::from_str_radix(digits, 16).ok()
}

/// The stack address of a frame, and the fields for the registers of its caller, if the address is the
/// true one.
struct Stack {
    address: u64,
    registers: String,
}

/// Returns the stacks of the frames of some calls, the newest call first. `nowhere` is the address of
/// the outermost frames whose stack addresses are unknown. Returns `None` if it was cancelled; what was
/// found until then is kept.
///
/// GDB considers a stack corrupt if a caller's stack address is lower. So a frame with an unknown address
/// is placed above all others if it is one of the outermost frames, and otherwise below them, together
/// with the frames of all calls within it. This depends only on its call and the calls around it, not on
/// the position.
fn stacks(
    target: &mut SnapshotTarget,
    thread: Tid,
    calls: &[OpenCall],
    nowhere: u64,
    cancel: &Cancel,
) -> Option<Vec<Stack>> {
    let mut known: Vec<String> = Vec::with_capacity(calls.len());
    for call in calls {
        let registers = match call.exception && !call.signal {
            true => "",
            false => caller_registers(target, (thread, call), cancel)?,
        };
        known.push(registers.to_owned());
    }
    let below = below_stack(&target.endpoint, thread).unwrap_or(nowhere);
    let (mut is_known, mut is_below) = (false, false);
    let mut out: Vec<Stack> = Vec::with_capacity(calls.len());
    for registers in known.into_iter().rev() {
        is_below |= is_known && registers.is_empty();
        is_known |= !registers.is_empty();
        let address = if is_below { below } else { nowhere };
        let registers = if is_below { String::new() } else { registers };
        out.push(Stack { address, registers });
    }
    out.reverse();
    Some(out)
}

/// Returns the fields for the registers of a call's caller, which start with the stack pointer; empty
/// if that is not known. For a signal handler they include the link register. Returns `None` if it
/// was cancelled: registers that could not be computed in time are not recorded as unknown.
fn caller_registers<'a>(
    target: &'a mut SnapshotTarget,
    (thread, call): (Tid, &OpenCall),
    cancel: &Cancel,
) -> Option<&'a str> {
    let entry = (thread, call.entry);
    if !target.callers.registers.contains_key(&entry) {
        let architecture = target.endpoint.architecture();
        let endpoint = Arc::clone(&target.endpoint);
        let (values, positions) = (&mut target.past_values, &mut target.positions);
        let known = values.registers(&endpoint, positions, entry, cancel);
        if known.is_none() && cancel.is_requested() {
            return None;
        }
        let mut text = String::new();
        let value = |name: &str| RegisterLocations::of(architecture, name)?.value(known.as_ref()?);
        // Go functions preserve nothing, and their stack may have been moved since.
        let preserves = call.signal || !target.go().contains(call.function.0);
        if let Some(stack) = value("sp").filter(|_| preserves) {
            let _ = write!(text, ",{:x},sp:{:x}", stack.value, stack.value);
            let link = call.signal.then(|| "x30".to_owned());
            for name in saved_registers(architecture).chain(link) {
                if let Some(known) = value(&name) {
                    let _ = write!(text, ",{name}:{:x}", known.value);
                }
            }
        }
        target.callers.registers.insert(entry, text);
    }
    target.callers.registers.get(&entry).map(String::as_str)
}

/// Returns the general registers that a function preserves for its caller (AAPCS64 6.1.1, AAPCS32
/// 6.1.1).
fn saved_registers(architecture: Architecture) -> impl Iterator<Item = String> {
    let (prefix, numbers) = match architecture {
        Architecture::AArch64 => ("x", 19..=29),
        Architecture::AArch32 | Architecture::MProfile => ("r", 4..=11),
    };
    numbers.map(move |number| format!("{prefix}{number}"))
}

/// Returns the call and the function that identify a frame. The call has the number of the position of
/// its first instruction.
fn name(symbols: &Symbols, call: Option<(u64, &OpenCall)>, inside: u64) -> (u64, u64) {
    let function = symbols.function(inside).map(|(_, offset)| inside - offset);
    let function = function.or_else(|| call.map(|(_, call)| call.function.0));
    let call = call.map_or(0, |(number, _)| number + 1);
    (call, function.unwrap_or(0))
}

/// Returns the reply at the halted state.
fn at_halted_state(target: &mut SnapshotTarget, thread: Tid, cancel: &Cancel) -> Vec<u8> {
    if !target.positions.reach_end(thread, cancel) {
        return b"~".to_vec();
    }
    let symbols = target.symbols();
    let pc = target.core(thread).and_then(|core| core.registers.pc());
    let stack = below_stack(&target.endpoint, thread);
    let pads = target.landing_pads();
    let known = pc.zip(stack).zip(target.positions.history(thread));
    let Some(((pc, stack), history)) = known else {
        return b"-".to_vec();
    };
    if history.end_agrees() != EndAgrees::Yes {
        return b"-".to_vec();
    }
    let end = history.end();
    let calls = target.callers.of(thread, pads);
    let (calls, outside) = calls.at(history, end, 0, 1, cancel);
    if outside == Outside::Unfinished {
        return b"~".to_vec();
    }
    let first = calls.first().map(|call| (history.number(call.entry), call));
    let (call, function) = name(&symbols, first, pc);
    format!("-{stack:x},{call:x},{function:x}").into_bytes()
}

/// Returns the pc of the caller of a call, or of the code that a signal interrupted, and an address
/// inside that function. `None` for other exceptions: the code that they interrupted is not a caller.
fn return_site(call: &OpenCall) -> Option<(u64, u64)> {
    let to = call.returns_to.filter(|_| !call.exception || call.signal)?;
    let inside = if call.signal {
        to.0
    } else {
        to.0.wrapping_sub(1)
    };
    Some((to.0, inside))
}

/// Returns an address without memory.
fn nowhere(endpoint: &Endpoint) -> u64 {
    if endpoint.architecture() == Architecture::AArch64 {
        return NOWHERE;
    }
    let free = |at: &u64| {
        endpoint.cores.iter().all(|core| {
            let range = endpoint.range_at(core, &MemoryView::Current, *at);
            !range.known && range.size >= 2 * FREE
        })
    };
    let last = (1 << 32) - 2 * FREE;
    let mut places = (0..=last).rev().step_by(2 * FREE as usize);
    places.find(free).unwrap_or(last) + FREE
}

/// Returns an address without known memory below the stack of the halted state.
fn below_stack(endpoint: &Endpoint, thread: Tid) -> Option<u64> {
    let stack = endpoint
        .cores
        .get(thread.get() - 1)?
        .registers
        .value("sp")?;
    let mut at = 0_u64;
    while at.checked_add(2 * FREE)? <= stack {
        let mut ranges = endpoint
            .cores
            .iter()
            .map(|core| endpoint.range_at(core, &MemoryView::Current, at));
        match ranges.find(|range| range.known || range.size < 2 * FREE) {
            Some(range) => at = at.checked_add(range.size.max(1))?,
            None => return Some(at + FREE),
        }
    }
    None
}

/// Returns the position whose open calls belong to the pc shown for a core. After a gap this is the
/// next position with a known pc.
fn frames_position(positions: &mut Positions, thread: Tid) -> Option<Position> {
    let Some(past) = positions.past(thread) else {
        return positions.position(thread);
    };
    let mut place = past.place;
    let history = positions.history(thread)?;
    for _ in 0..GAPS {
        if place.reached().is_some() || place.kind == PointKind::Halted {
            break;
        }
        let Some(next) = history.step(place.position, Direction::Forward) else {
            break;
        };
        place = history.place(next)?;
    }
    Some(place.position)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server::{Options, endpoints};
    use armsnap_snapshot::snapshot::OpenOptions;
    use armsnap_snapshot::snapshot::model::Snapshot;
    use std::path::Path;

    /// Registers that could not be computed in time are computed when they are requested again.
    #[test]
    fn registers_that_were_cancelled_are_not_kept_as_unknown() {
        let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata/recorded/etmv4");
        let loaded = Snapshot::open(&directory, &OpenOptions::default()).unwrap();
        let endpoint = endpoints(&loaded, &Options::default()).unwrap().remove(0);
        let unwind = armsnap_snapshot::stop::Unwind::default();
        let mut target = SnapshotTarget::new(Arc::new(endpoint), unwind);
        let thread = Tid::new(1).unwrap();
        let history = target.positions.history(thread).unwrap();
        let end = history.end();
        let entry = history.step(end, Direction::Backward).unwrap();
        let cancelled = Cancel::default();
        cancelled.request();
        let call = OpenCall {
            entry,
            function: armsnap_arch::quantity::Address(0),
            returns_to: None,
            exception: false,
            signal: false,
        };
        let found = caller_registers(&mut target, (thread, &call), &cancelled);
        assert_eq!(found, None);
        assert!(target.callers.registers.is_empty());
        let found = caller_registers(&mut target, (thread, &call), &Cancel::default());
        assert!(found.is_some_and(|found| found.starts_with(',')));
    }
}
