//! Questions of the scripts in `gdb/` about the files that are served.

use std::path::PathBuf;

use super::target::SnapshotTarget;
use crate::remote_protocol::hex;
use armsnap_snapshot::mapped;
use armsnap_snapshot::snapshot::inputs;

/// Asks whether a path, in hex, names a file or directory that is being served, on the server's system.
pub(super) const IS_INPUT: &str = "qArmsnap.is-input:";
/// Asks whether a file that is being served is private to its owner.
pub(super) const IS_PRIVATE: &str = "qArmsnap.is-private";

/// Answers [`IS_INPUT`].
pub(super) fn is_input(target: &mut SnapshotTarget, digits: &[u8]) -> Option<Vec<u8>> {
    let path = hex::decode_text(std::str::from_utf8(digits).ok()?)?;
    let is_input = inputs::is_input(&PathBuf::from(path), &target.endpoint.loaded);
    Some(flag(is_input))
}

/// Answers [`IS_PRIVATE`].
pub(super) fn is_private(_: &mut SnapshotTarget, _: &[u8]) -> Option<Vec<u8>> {
    Some(flag(mapped::is_private()))
}

fn flag(value: bool) -> Vec<u8> {
    vec![if value { b'1' } else { b'0' }]
}
