//! `--history btrace`: the branch trace that GDB fetches and replays by itself (GDB manual,
//! "Branch Trace Format").
//!
//! GDB is slow for many blocks: it receives only the last ones before the position of a core.

use std::collections::HashMap;
use std::fmt::Write as _;

use gdbstub::common::Tid;

use super::client_state::BranchTrace;
use super::reply::transfer;
use super::target::SnapshotTarget;
use armsnap_arch::quantity::{Address, Isa};
use armsnap_history::timeline::{Direction, EndAgrees, Entry, PointKind, Position};

/// Maximum number of blocks sent; GDB takes some 6 s to process them.
const BLOCKS: usize = 100_000;

/// Features in the reply to `qSupported`.
pub(super) const FEATURES: &str =
    ";Qbtrace:bts+;Qbtrace:off+;qXfer:btrace:read+;qXfer:btrace-conf:read+";

const CONFIGURATION: &str = "<btrace-conf version=\"1.0\"><bts size=\"0x10000\"/></btrace-conf>";
const NO_CONFIGURATION: &str = "<btrace-conf version=\"1.0\"></btrace-conf>";
const NOTHING_NEW: &str = "<btrace version=\"1.0\"></btrace>";
/// A block with an end before its start is a gap.
const GAP: &str = "<block begin=\"0x1\" end=\"0x0\"/>\n";

/// `Qbtrace:bts`.
pub(super) fn start(target: &mut SnapshotTarget, _: &[u8]) -> Option<Vec<u8>> {
    let thread = target.selection.read();
    Some(match target.positions.history(thread) {
        Some(_) => b"OK".to_vec(),
        None => b"E.no trace of this core can be followed".to_vec(),
    })
}

/// `Qbtrace:off`.
pub(super) fn stop(_: &mut SnapshotTarget, _: &[u8]) -> Option<Vec<u8>> {
    Some(b"OK".to_vec())
}

/// `qXfer:btrace-conf:read`.
pub(super) fn configuration(target: &mut SnapshotTarget, arguments: &[u8]) -> Option<Vec<u8>> {
    let thread = target.selection.read();
    let document = match target.positions.history(thread) {
        Some(_) => CONFIGURATION,
        None => NO_CONFIGURATION,
    };
    transfer(document.as_bytes(), arguments)
}

/// What has been executed since the last request: a snapshot does not run.
pub(super) fn nothing_new(_: &mut SnapshotTarget, arguments: &[u8]) -> Option<Vec<u8>> {
    transfer(NOTHING_NEW.as_bytes(), arguments)
}

/// Returns a piece of the trace up to the position of the selected core. GDB requests small pieces,
/// so the document is cached.
pub(super) fn whole(target: &mut SnapshotTarget, arguments: &[u8]) -> Option<Vec<u8>> {
    let thread = target.selection.read();
    let position = target.positions.position(thread)?;
    let kept = target.btrace.take();
    let kept = kept.filter(|kept| kept.thread == thread && kept.position == position);
    let document = match kept {
        Some(document) => document,
        None => BranchTrace {
            thread,
            position,
            text: write(target, thread, position)?,
        },
    };
    let reply = transfer(document.text.as_bytes(), arguments);
    target.btrace = Some(document);
    reply
}

/// Formats the blocks up to a position, newest first.
fn write(target: &mut SnapshotTarget, thread: Tid, position: Position) -> Option<String> {
    let rests = target.positions.rests(thread);
    let end = target.positions.end_of_trace(thread);
    let halted = end.map(|end| end.0).or(target.core(thread)?.registers.pc());
    let history = target.positions.history(thread)?;
    let here = history.place(position)?;
    let mut text = String::from("<btrace version=\"1.0\">\n");
    // The newest block ends at the program counter, which is not executed yet.
    let (mut last, agrees) = match (here.kind, here.pc()) {
        (PointKind::Halted, _) => (None, rests || history.end_agrees() == EndAgrees::Yes),
        (_, pc) => (pc, true),
    };
    if let Some(pc) = halted.filter(|_| here.kind == PointKind::Halted) {
        let _ = writeln!(text, "<block begin=\"{pc:#x}\" end=\"{pc:#x}\"/>");
        if !agrees {
            text.push_str(GAP);
        }
    }
    let mut blocks = Vec::new();
    for event in history.entries(position, Direction::Backward) {
        match event.entry {
            Entry::Run { range, .. } => blocks.push(Some((event.position, range))),
            Entry::Gap(_) => blocks.push(None),
            Entry::Exception(_) | Entry::Mark(_) | Entry::Halted => {}
        }
        if blocks.len() >= BLOCKS {
            break;
        }
    }
    // T32 instructions have two sizes.
    let mut ends: HashMap<(Address, Address), Option<Address>> = HashMap::new();
    for block in blocks {
        let Some((run, range)) = block else {
            text.push_str(GAP);
            continue;
        };
        let end = last.take().or_else(|| match range.isa {
            Isa::T32 => *ends
                .entry((range.start, range.end))
                .or_insert_with(|| history.instructions(run).last().map(|last| last.0)),
            _ => range.end.0.checked_sub(4).map(Address),
        });
        if let Some(end) = end {
            let begin = range.start;
            let _ = writeln!(text, "<block begin=\"{begin}\" end=\"{end}\"/>");
        }
    }
    text.push_str("</btrace>\n");
    Some(text)
}
