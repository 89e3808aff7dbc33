//! A core's history in words.
//!
//! Independent of debuggers and of where the text is shown.

use armsnap_arch::quantity::Address;
use armsnap_history::timeline::Gap;
use armsnap_snapshot::program::symbols::Symbols;
use armsnap_trace::element::{Context, Exception, NoSyncReason, TraceOnReason};
use armsnap_trace::flow;

/// The reason for a gap, as the end of a sentence.
pub fn gap(gap: &Gap) -> String {
    match gap {
        Gap::Flow(flow::Gap::MemoryMissing(address)) => {
            format!("execution continued at {address}, where no code is known")
        }
        Gap::Flow(flow::Gap::NotFollowed { address, isa }) => {
            format!(
                "execution continued at {address} in {}, which is not supported",
                isa.name()
            )
        }
        Gap::Flow(flow::Gap::ReturnStackEmpty) => {
            "a return without a traced call: trace is lost, or the code is not what ran".to_owned()
        }
        Gap::Flow(flow::Gap::TargetNotTraced { after }) => {
            format!("the target of the branch before {after} is not in the trace")
        }
        Gap::Flow(flow::Gap::NotReached { from, to }) => format!(
            "the trace contains {to}, which the code at {from} does not lead to: the code is not \
             what ran, or the trace is damaged"
        ),
        Gap::NoSync(NoSyncReason::Start) => "the trace restarts".to_owned(),
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
        Gap::Buffer => "another trace buffer starts".to_owned(),
    }
}

/// A warning that the trace does not end where the core halted.
pub fn end_disagrees(trace_end: Address, halted: Address) -> String {
    format!(
        "the trace ends before {trace_end}, and the core halted at {halted}: what it executed in \
         between is not known\n"
    )
}

/// An exception that was taken, in words.
pub fn exception(exception: &Exception) -> String {
    let mut text = format!("{} (number {})", exception.name, exception.number);
    if let Some(address) = exception.return_address {
        text += &format!(", returns to {address}");
    }
    text
}

/// The core's state as reported in the trace; empty if nothing is reported.
pub fn context(context: &Context) -> String {
    let mut parts = Vec::new();
    if let Some(level) = context.el {
        parts.push(format!("EL{}", level.0));
    }
    if let Some(security) = context.security {
        parts.push(security.name().to_owned());
    }
    if let Some(wide) = context.is_64bit {
        parts.push(if wide { "AArch64" } else { "AArch32" }.to_owned());
    }
    if let Some(vmid) = context.vmid {
        parts.push(format!("VMID {vmid:#x}"));
    }
    if let Some(id) = context.context_id {
        parts.push(format!("context ID {id:#x}"));
    }
    parts.join(", ")
}

/// An address with the function that contains it, if known.
pub fn address(address: Address, symbols: &Symbols) -> String {
    match symbols.function(address.0) {
        Some((name, 0)) => format!("{address} <{name}>"),
        Some((name, offset)) => format!("{address} <{name}+{offset}>"),
        None => address.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use armsnap_arch::quantity::{ExceptionLevel, Isa, Security};

    #[test]
    fn state_lists_the_reported_values() {
        assert_eq!(context(&Context::default()), "");
        let full = Context {
            isa: Isa::A64,
            el: Some(ExceptionLevel(1)),
            security: Some(Security::NonSecure),
            is_64bit: Some(true),
            vmid: None,
            context_id: Some(0x2a),
        };
        assert_eq!(context(&full), "EL1, non-secure, AArch64, context ID 0x2a");
    }

    #[test]
    fn each_gap_has_its_reason() {
        let lost = gap(&Gap::NoSync(NoSyncReason::Overflow));
        assert_eq!(lost, "trace was lost in an overflow");
        let missing = Gap::Flow(flow::Gap::MemoryMissing(Address(0x8000)));
        assert!(gap(&missing).contains("0x8000"));
    }
}
