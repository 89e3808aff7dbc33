//! Formatter frames that do not begin with the first byte, because a logic analyser may start
//! anywhere.

use super::form::is_special;
use armsnap_arch::quantity::TraceId;
use armsnap_trace::formatter::{FRAME_BYTES, ID_NULL, ID_TRIGGER};

/// The maximum number of sources in a system, and the percentage of the IDs in frames that must be
/// theirs.
const SOURCES: usize = 8;
const THEIRS: usize = 95;

/// The offsets other than 0 at which a first frame may begin: the IDs in the frames are those of a
/// few sources. Frames that begin at another even offset have the same IDs; their trace tells them
/// apart.
pub fn shifts(bytes: &[u8]) -> Vec<usize> {
    let shifts = 1..FRAME_BYTES.min(bytes.len());
    shifts.filter(|&shift| is_one(&bytes[shift..])).collect()
}

/// Whether bytes may contain a synchronisation packet, in frames or not: each contains a run of
/// zeros or ones.
pub fn may_synchronise(bytes: &[u8]) -> bool {
    const LEAST: usize = 5;
    let equal = |byte: &&u8| matches!(byte, 0 | 0xfe | 0xff);
    bytes
        .chunks(2 * FRAME_BYTES)
        .any(|part| part.iter().filter(equal).count() >= LEAST)
}

fn is_one(bytes: &[u8]) -> bool {
    let (frames, _) = bytes.as_chunks::<FRAME_BYTES>();
    let mut counts = [0_usize; 128];
    for frame in frames {
        // The ID is in bits 7:1 of even bytes whose bit 0 is set.
        let even = frame[..FRAME_BYTES - 1].iter().step_by(2);
        for &byte in even.filter(|&&byte| byte & 1 != 0) {
            counts[usize::from(byte >> 1)] += 1;
        }
    }
    let all: usize = counts.iter().sum();
    let mut known: Vec<usize> = (0..128)
        .filter(|&id| matches!(id, ID_NULL | ID_TRIGGER) || !is_special(TraceId(id)))
        .map(|id| counts[usize::from(id)])
        .collect();
    known.sort_unstable_by(|one, other| other.cmp(one));
    let theirs: usize = known.iter().take(SOURCES).sum();
    all > 0 && theirs * 100 >= all * THEIRS
}
