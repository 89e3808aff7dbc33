//! A core's history in words.
//!
//! Knows no debugger: where a text is shown is up to others.

use crate::element::{NoSyncReason, TraceOnReason};
use crate::flow;
use crate::quantity::Address;
use crate::timeline::Gap;

/// Why history is not known, as the end of a sentence.
pub fn gap(gap: &Gap) -> String {
    match gap {
        Gap::Flow(flow::Gap::MemoryMissing(address)) => {
            format!("it went on at {address}, where no code is known")
        }
        Gap::Flow(flow::Gap::NotFollowed { address, isa }) => {
            format!(
                "it went on at {address} in {}, which is not followed",
                isa.name()
            )
        }
        Gap::Flow(flow::Gap::ReturnStackEmpty) => {
            "the trace takes a return address that it never stacked: trace is lost, or the code is \
             not what ran"
                .to_owned()
        }
        Gap::Flow(flow::Gap::NotReached { from, to }) => format!(
            "the trace tells of {to}, which the code at {from} does not lead to: the code is not \
             what ran, or the trace is damaged"
        ),
        Gap::NoSync(NoSyncReason::Start) => "the trace begins again".to_owned(),
        Gap::NoSync(NoSyncReason::Overflow) | Gap::TraceOff(TraceOnReason::Overflow) => {
            "trace was lost in an overflow".to_owned()
        }
        Gap::NoSync(NoSyncReason::Discard) => "the trace unit discarded trace".to_owned(),
        Gap::NoSync(NoSyncReason::BadPacket) => "the trace is damaged".to_owned(),
        Gap::NoSync(NoSyncReason::BadImage) => "the code contradicts the trace".to_owned(),
        Gap::TraceOff(TraceOnReason::BeginOrFilter) => "tracing was off".to_owned(),
        Gap::TraceOff(TraceOnReason::DebugRestart) => "the core was in debug state".to_owned(),
        Gap::UnknownPath(path) => {
            let count = match path.instructions {
                Some(count) => count.to_string(),
                None => "an unknown number of".to_owned(),
            };
            format!("{count} instructions on a path that was not traced")
        }
        Gap::Buffer => "another trace buffer begins".to_owned(),
    }
}

/// That the trace does not end where the core halted.
pub fn end_disagrees(trace_end: Address, halted: Address) -> String {
    format!(
        "the trace ends before {trace_end}, and the core halted at {halted}: what it executed in \
         between is not known\n"
    )
}
