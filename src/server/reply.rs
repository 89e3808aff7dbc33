//! Request arguments and reply formats that several packets share.

use gdbstub::common::Tid;

use crate::remote_protocol::framing::{MAX_PACKET, write_binary, write_runs};
use crate::remote_protocol::hex::{parse_hex, write_hex};

/// The reply to a malformed packet.
pub(super) const MALFORMED: &[u8] = b"E01";

/// `EFAULT`.
pub(super) const NO_MEMORY: &[u8] = b"E0e";

/// Parses a thread number.
pub(super) fn thread_id(digits: &[u8]) -> Option<Tid> {
    Tid::new(usize::try_from(parse_hex(digits)?).ok()?)
}

/// Parses two hexadecimal numbers with a separator.
pub(super) fn pair(bytes: &[u8], separator: u8) -> Option<(u64, u64)> {
    let at = bytes.iter().position(|byte| *byte == separator)?;
    Some((parse_hex(&bytes[..at])?, parse_hex(&bytes[at + 1..])?))
}

/// Formats registers, with `xx` for each unknown byte.
pub(super) fn known_or_not(bytes: &[Option<u8>]) -> Vec<u8> {
    let mut digits = Vec::with_capacity(2 * bytes.len());
    for byte in bytes {
        match byte {
            Some(byte) => write_hex(&[*byte], &mut digits),
            None => digits.extend_from_slice(b"xx"),
        }
    }
    let mut reply = Vec::new();
    write_runs(&digits, &mut reply);
    reply
}

/// Replies with a piece of a document: `:offset,length` after an empty annex.
pub(super) fn transfer(document: &[u8], arguments: &[u8]) -> Option<Vec<u8>> {
    let (offset, length) = pair(arguments.strip_prefix(b":")?, b',')?;
    let rest = document.get(usize::try_from(offset).ok()?..).unwrap_or(&[]);
    let length = usize::try_from(length).unwrap_or(usize::MAX);
    let piece = &rest[..rest.len().min(length).min(MAX_PACKET / 2)];
    let mut reply = vec![if piece.len() == rest.len() {
        b'l'
    } else {
        b'm'
    }];
    write_binary(piece, &mut reply);
    Some(reply)
}
