//! The packets that gdbstub does not answer as a snapshot needs: one table. All others go to gdbstub.
//!
//! No two rows apply to the same packet, so their order does not matter. A packet that gdbstub
//! rejects as malformed needs no row: the session answers it with an error.

use std::borrow::Cow;

use super::btrace;
use super::callers;
use super::features;
use super::inputs;
use super::registers;
use super::shown_memory;
use super::stops;
use super::stub;
use super::target::SnapshotTarget;
use super::threads;
use super::tracepoints;

/// Which packets a row is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Packet {
    /// This packet.
    Is(&'static str),
    /// All packets that start like this.
    Starts(&'static str),
}

/// Returns a reply to a packet, of which it receives what follows the part in the table; `None` if the
/// packet is malformed.
type Replies = fn(&mut SnapshotTarget, &[u8]) -> Option<Vec<u8>>;
/// Returns the form of a packet that gdbstub answers as needed; `None` if the packet is malformed.
type Requests = for<'a> fn(&mut SnapshotTarget, &'a [u8]) -> Option<Cow<'a, [u8]>>;
/// Completes gdbstub's reply.
type Completes = fn(&SnapshotTarget, Vec<u8>) -> Vec<u8>;

/// How a packet is answered.
#[derive(Clone, Copy)]
pub(super) enum Handler {
    /// Without gdbstub.
    Reply(Replies),
    /// Without gdbstub; not supported by an endpoint without trace frames.
    Frames(Replies),
    /// Without gdbstub; not supported by an endpoint without branch traces.
    Branches(Replies),
    /// By gdbstub, in another form.
    Request(Requests),
    /// By gdbstub, in another form; its reply is completed.
    Both(Requests, Completes),
    /// By the session, which acknowledges packets.
    NoAckMode,
    /// By the session, which ends.
    Kill,
}

use Handler::{Both, Branches, Frames, Kill, NoAckMode, Reply, Request};
use Packet::{Is, Starts};

/// Packet, handler, and why gdbstub does not answer the packet by itself.
#[rustfmt::skip]
const TABLE: &[(Packet, Handler, &str)] = &[
    (Starts("qSupported"), Both(features::request, features::completed), "it lists none of the features below; threads would get process numbers"),
    (Is("QStartNoAckMode"), NoAckMode, "the session acknowledges packets"),
    (Starts("vKill"), Kill, "it ends the session without a reply"),
    (Is("?"), Reply(stops::standing), "it reports the first thread with SIGTRAP, without a name"),
    (Is("qC"), Reply(threads::current), "only with its extended mode"),
    (Starts("H"), Request(threads::select), "`bc` has no thread, so the target must know that of `Hc`"),
    (Starts("c"), Request(stub::resume::legacy), "it does not know that `Hc` selected all threads"),
    (Starts("s"), Request(stub::resume::legacy), "it does not know that `Hc` selected all threads"),
    (Starts("C"), Request(stub::resume::legacy), "not supported"),
    (Starts("S"), Request(stub::resume::legacy), "not supported"),
    (Starts("vCont;"), Request(stub::resume::default_step), "it rejects a step of all threads"),
    (Is("g"), Both(unchanged, registers::run_lengths), "it encodes runs in all replies or in none"),
    (Starts("p"), Reply(registers::single), "it marks unknown bytes only in registers of sizes known at compile time, and only all of them"),
    (Starts("P"), Reply(registers::read_only), "its errors have no text"),
    (Starts("G"), Reply(registers::read_only), "its errors have no text"),
    (Starts("m"), Reply(shown_memory::answer), "it takes three times as long, and joins pieces of a long request over unknown bytes"),
    (Starts("M"), Reply(shown_memory::read_only), "its errors have no text"),
    (Starts("X"), Reply(shown_memory::read_only), "its errors have no text"),
    (Starts("Z"), Request(stub::breakpoints::well_formed), "it takes `x` for a digit, and nothing for 0"),
    (Starts("z"), Request(stub::breakpoints::well_formed), "it takes `x` for a digit, and nothing for 0"),
    (Starts("qRcmd,"), Request(stub::monitor::well_formed), "it takes a digit for a byte"),
    (Starts("qXfer:threads:read:"), Reply(threads::list), "not supported"),
    (Starts("qXfer:siginfo:read:"), Reply(stops::signal_information), "not supported"),
    // Trace frames: its trait has no state variables and no contents of frames, and it cannot reply
    // that a trace is not decoded yet.
    (Is("qTStatus"), Frames(tracepoints::status), "no notes"),
    (Is("qTfP"), Frames(tracepoints::first_tracepoint), "no definitions as they are saved"),
    (Is("qTsP"), Frames(tracepoints::next_tracepoint), "no definitions as they are saved"),
    (Is("qTfV"), Frames(tracepoints::first_variable), "no state variables"),
    (Is("qTsV"), Frames(tracepoints::next_variable), "no state variables"),
    (Starts("qTV:"), Frames(tracepoints::value), "not supported"),
    (Starts("qTP:"), Frames(tracepoints::hits), "its errors have no text"),
    (Starts("QTFrame:"), Frames(tracepoints::select), "its errors have no text"),
    (Starts("qTBuffer:"), Frames(tracepoints::buffer), "its errors have no text"),
    (Starts("qXfer:traceframe-info:read:"), Frames(tracepoints::contents), "not supported"),
    // Branch traces.
    (Is("Qbtrace:bts"), Branches(btrace::start), "not supported"),
    (Is("Qbtrace:off"), Branches(btrace::stop), "not supported"),
    (Starts("qXfer:btrace-conf:read:"), Branches(btrace::configuration), "not supported"),
    (Starts("qXfer:btrace:read:all"), Branches(btrace::whole), "not supported"),
    (Starts("qXfer:btrace:read:new"), Branches(btrace::nothing_new), "not supported"),
    (Starts("qXfer:btrace:read:delta"), Branches(btrace::nothing_new), "not supported"),
    // LLDB's.
    (Is("QThreadSuffixSupported"), Reply(features::is_lldb), "not supported: it tells that the client is LLDB"),
    (Is("qHostInfo"), Both(unchanged, features::with_address_bits), "it has no field for the address bits"),
    (Starts("qThreadStopInfo"), Reply(stops::of_thread), "not supported"),
    (Starts("qMemoryRegionInfo:"), Reply(shown_memory::region), "not supported"),
    // Those of the scripts in `gdb/`.
    (Starts(callers::PACKET), Reply(callers::answer), "not supported"),
    (Starts(callers::POSITION), Reply(callers::position), "not supported"),
    (Starts(inputs::IS_INPUT), Reply(inputs::is_input), "not supported"),
    (Starts(inputs::IS_PRIVATE), Reply(inputs::is_private), "not supported"),
];

/// A packet that gdbstub answers as it is.
fn unchanged<'a>(_: &mut SnapshotTarget, packet: &'a [u8]) -> Option<Cow<'a, [u8]>> {
    Some(Cow::Borrowed(packet))
}

impl Packet {
    /// Returns what follows this in a packet that it is for.
    fn rest(self, packet: &[u8]) -> Option<&[u8]> {
        match self {
            Self::Is(name) => packet
                .strip_prefix(name.as_bytes())
                .filter(|rest| rest.is_empty()),
            Self::Starts(name) => packet.strip_prefix(name.as_bytes()),
        }
    }
}

/// Returns the handler of a packet that does not simply go to gdbstub, and what follows the part of
/// the packet that is in the table.
pub(super) fn find(packet: &[u8]) -> Option<(Handler, &[u8])> {
    let mut rows = TABLE.iter();
    rows.find_map(|(name, handler, _)| Some((*handler, name.rest(packet)?)))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn at_most_one_row_is_for_a_packet() {
        for (number, (row, _, reason)) in TABLE.iter().enumerate() {
            let (Is(name) | Starts(name)) = *row;
            assert!(!reason.is_empty(), "{name}");
            for (other, _, _) in TABLE[..number].iter().chain(&TABLE[number + 1..]) {
                let applies = other.rest(name.as_bytes()).is_some();
                assert!(!applies, "{other:?} is for {name} too");
            }
        }
    }
}
