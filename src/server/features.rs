//! What a client and the server tell each other of their features and of the system.

use std::borrow::Cow;
use std::fmt::Write as _;

use super::btrace;
use super::endpoint::HistoryMode;
use super::target::SnapshotTarget;
use crate::remote_protocol::framing::MAX_PACKET;
use armsnap_arch::arch::pointer_auth::Masks;

/// `qSupported`: notes what the client is. gdbstub learns none of its features: threads have plain
/// numbers, because one endpoint is one process.
pub(super) fn request<'a>(target: &mut SnapshotTarget, packet: &'a [u8]) -> Option<Cow<'a, [u8]>> {
    // GDB sends this since version 11; LLDB does not read the masks that old versions of GDB fail on.
    let features = String::from_utf8_lossy(packet);
    target.is_gdb = features.contains("QThreadEvents+");
    target.is_old_gdb = target.is_gdb && !features.contains("memory-tagging+");
    Some(Cow::Borrowed(b"qSupported:swbreak+"))
}

/// Completes the reply to `qSupported`: the applicable features of gdbstub, and our own.
pub(super) fn completed(target: &SnapshotTarget, reply: Vec<u8>) -> Vec<u8> {
    let endpoint = &*target.endpoint;
    let text = String::from_utf8_lossy(&reply);
    let mut features = format!("PacketSize={MAX_PACKET:x}");
    for feature in text.split(';') {
        let ours = feature.starts_with("PacketSize=") || feature == "multiprocess+";
        if !(ours || feature.is_empty()) {
            let _ = write!(features, ";{feature}");
        }
    }
    features.push_str(";qXfer:threads:read+");
    let mut cores = endpoint.cores.iter();
    if cores.any(|core| endpoint.signal(core).is_some()) {
        features.push_str(";qXfer:siginfo:read+");
    }
    if endpoint.history == HistoryMode::Btrace {
        features.push_str(btrace::FEATURES);
    }
    if endpoint.traces.is_some() {
        features.push_str(";qXfer:traceframe-info:read+");
    }
    features.into_bytes()
}

/// `QThreadSuffixSupported`: only LLDB asks this. Not supported.
pub(super) fn is_lldb(target: &mut SnapshotTarget, _: &[u8]) -> Option<Vec<u8>> {
    target.takes_unknown_for_value = true;
    Some(Vec::new())
}

/// Adds the number of address bits in a pointer to a reply about the system (LLDB), if pointers have
/// authentication codes.
pub(super) fn with_address_bits(target: &SnapshotTarget, mut reply: Vec<u8>) -> Vec<u8> {
    let core = target.core(target.selection.read());
    if let Some(masks) = core.and_then(|core| Masks::of(&core.registers)) {
        let bits = format!("addressing_bits:{};", masks.address_bits());
        reply.extend_from_slice(bits.as_bytes());
    }
    reply
}
