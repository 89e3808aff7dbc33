//! `qArmsnap.callers`: the frames of a stack at a past position, for an unwinder in the client.
//!
//! Registers and stacks of the past are not known; which calls are open is. The request names a
//! thread and how many frames the client has: `qArmsnap.callers:1,0`. The reply has the next ones,
//! innermost first, as `STACK,CALL,FUNCTION,PC;`, by the first three of which the client can tell
//! frames apart, and a letter: `+` where there are more, `.` where nothing is
//! known of who called the last one. At the halted state and in trace frames it is `-`: the
//! client unwinds by itself. It is `~` alone where that takes long: the client asks again, and its
//! user can interrupt it in between (GDB sends no Ctrl-C while it waits for a packet).

use std::fmt::Write as _;
use std::time::{Duration, Instant};

use gdbstub::common::Tid;

use super::endpoint::Endpoint;
use super::memory::MemoryView;
use super::positions::{GAPS, Positions};
use super::reply::thread_id;
use super::target::SnapshotTarget;
use crate::arch::Architecture;
use crate::timeline::{Direction, Gap, OpenCall, Outside, PointKind, Position};

pub(super) const PACKET: &str = "qArmsnap.callers:";
/// How long calls are looked for before a reply.
const PATIENCE: Duration = Duration::from_millis(300);
/// Frames in a reply.
const FRAMES: usize = 64;
/// Where the frames of a 64-bit core are said to be. Of bits 55 to 52 of an address that a program
/// can use all are the same, whatever its top byte (DDI 0487, D8.1: VA ranges of up to 52 bits).
const NOWHERE: u64 = 0b0110 << 52;
/// Of the addresses of a 32-bit core some may be free: so much before and behind the frames.
const FREE: u64 = 1 << 20;

/// Answers a request; `None` where it is malformed.
pub(super) fn answer(target: &mut SnapshotTarget, request: &[u8]) -> Option<Vec<u8>> {
    let comma = request.iter().position(|byte| *byte == b',')?;
    let thread = thread_id(&request[..comma])?;
    let skip = crate::remote_protocol::framing::parse_hex(&request[comma + 1..])?;
    let skip = usize::try_from(skip).ok()?;
    target.core(thread)?;
    if target.trace.frame.is_some() {
        return Some(b"-".to_vec());
    }
    let Some(pc) = target.positions.past(thread).and_then(|past| past.pc) else {
        return Some(b"-".to_vec());
    };
    let position = told_at(&mut target.positions, thread)?;
    let symbols = target.symbols();
    let stack = target.callers.stack;
    let stack = *target
        .callers
        .stack
        .insert(stack.unwrap_or_else(|| nowhere(&target.endpoint)));
    let history = target.positions.history(thread)?;
    let calls = target.callers.calls.entry(thread).or_default();
    // Of a frame the call tells who it is, and the one within it where it stands.
    let (first, count) = match skip.checked_sub(1) {
        Some(before) => (before, FRAMES + 1),
        None => (0, FRAMES),
    };
    let began = Instant::now();
    let mut goes_on = || began.elapsed() < PATIENCE;
    let (calls, outside) = calls.at(history, position, first, count, &mut goes_on);
    if outside == Outside::Unfinished {
        return Some(b"~".to_vec());
    }
    let mut calls = calls.as_slice();
    let mut stands = Some((pc.0, pc.0));
    if skip > 0 {
        let Some((within, outer)) = calls.split_first() else {
            return Some(b".".to_vec());
        };
        stands = behind(within);
        calls = outer;
    }
    let mut text = String::new();
    let frame = |text: &mut String, call: Option<&OpenCall>, (pc, inside): (u64, u64)| {
        let function = symbols.function(inside).map(|(_, offset)| inside - offset);
        let function = function.or_else(|| call.map(|call| call.function.0));
        let function = function.unwrap_or(0);
        let call = call.map_or(0, |call| call.entry.rank() + 1);
        let _ = write!(text, "{stack:x},{call:x},{function:x},{pc:x};");
    };
    for call in calls {
        let Some(at) = stands else { break };
        frame(&mut text, Some(call), at);
        stands = behind(call);
    }
    let end = match (outside, stands) {
        (Outside::More, Some(_)) => '+',
        (Outside::Unknown | Outside::Unfinished, Some(at)) => {
            frame(&mut text, None, at);
            '.'
        }
        (_, None) => '.',
    };
    text.push(end);
    Some(text.into_bytes())
}

/// Where the caller of a call stands, and an address within the function that it stands in. Of code
/// that was interrupted nothing is told: it is no caller.
fn behind(call: &OpenCall) -> Option<(u64, u64)> {
    let to = call.returns_to.filter(|_| !call.exception)?;
    Some((to.0, to.0.wrapping_sub(1)))
}

/// An address without memory, as far as is known.
fn nowhere(endpoint: &Endpoint) -> u64 {
    if endpoint.architecture() == Architecture::AArch64 {
        return NOWHERE;
    }
    let free = |at: &u64| {
        let mut stretches = endpoint.cores.iter();
        stretches.all(|core| {
            let stretch = endpoint.range_at(core, MemoryView::Current, *at);
            !stretch.known && stretch.size >= 2 * FREE
        })
    };
    let last = (1 << 32) - 2 * FREE;
    let mut places = (0..=last).rev().step_by(2 * FREE as usize);
    places.find(free).unwrap_or(last) + FREE
}

/// The position whose open calls are those of where a core is shown to stand: behind a gap in which
/// it is not known.
fn told_at(positions: &mut Positions, thread: Tid) -> Option<Position> {
    let past = positions.past(thread)?;
    let mut at = past.place.position;
    let mut kind = past.place.kind;
    let history = positions.history(thread)?;
    for _ in 0..GAPS {
        match kind {
            PointKind::Instruction { .. } | PointKind::Halted | PointKind::Gap(Gap::Flow(_)) => {
                break;
            }
            PointKind::Gap(_) => {}
        }
        let Some(next) = history.step(at, Direction::Forward) else {
            break;
        };
        at = next;
        kind = history.place(next)?.kind;
    }
    Some(at)
}
