//! Finds the trace IDs in pieces of trace, which identify the CPUs that wrote it.
//!
//! CPUs that share a sink may start writing at any time, so a piece is read until all of them are
//! found. Pieces beyond a limit are only sampled, so that a file of several gigabytes opens
//! quickly.

use super::aux_traces::AuxTrace;
use super::bytes::Bytes;
use armsnap_arch::quantity::{BufferOffset, TraceId};
use armsnap_trace::formatter::{Deformatter, Demux, FrameKind};
use std::collections::BTreeSet;

/// The number of bytes that are read at once: whole frames.
const WINDOW: u64 = 64 << 10;
/// For pieces beyond the limit, one window out of this many is read.
const SPARSE: u64 = 16;
/// The total size of pieces that are read completely.
const LIMIT: u64 = 256 << 20;

/// Looks for trace IDs.
#[derive(Debug)]
pub struct TraceIds {
    left: u64,
}

impl Default for TraceIds {
    fn default() -> Self {
        Self { left: LIMIT }
    }
}

impl TraceIds {
    /// Returns the wanted trace IDs that occur in a piece with formatter frames.
    pub fn present(
        &mut self,
        wanted: &BTreeSet<u8>,
        piece: &AuxTrace,
        file: &Bytes,
    ) -> BTreeSet<u8> {
        let bytes = piece.bytes();
        let is_whole = bytes <= self.left;
        let mut demux = Demux::only(&[]);
        let mut frames = Deformatter::new(FrameKind::Memory);
        let mut at = 0;
        for part in &piece.parts {
            let mut begin = part.start;
            while begin < part.end {
                let window = at / WINDOW;
                let length = ((window + 1) * WINDOW - at).min((part.end - begin) as u64);
                let end = begin + length as usize;
                if is_whole || window.is_multiple_of(SPARSE) {
                    let bytes = file.get(begin..end).unwrap_or(&[]);
                    frames.feed(BufferOffset(at), bytes, false, &mut demux);
                    file.release(begin..end);
                    self.left = self.left.saturating_sub(length);
                }
                at += length;
                begin = end;
                let found = |id: &u8| demux.stream(TraceId(*id)).total() > 0;
                if at % WINDOW == 0 && wanted.iter().all(found) {
                    return wanted.clone();
                }
            }
        }
        let ids = demux.ids().map(|TraceId(id)| id);
        ids.filter(|id| wanted.contains(id)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use armsnap_trace::formatter::encode::Encoder;

    /// Trace with ID 1, in which some bytes with ID 2 follow the first `before`.
    fn trace(before: usize, after: usize) -> Vec<u8> {
        let (mut encoder, mut out) = (Encoder::new(), Vec::new());
        for (id, count) in [(1, before), (2, 100), (1, after)] {
            encoder.write(TraceId(id), &vec![0; count], &mut out);
        }
        encoder.finish(&mut out);
        out
    }

    fn present(ids: &mut TraceIds, trace: &[u8], wanted: &[u8]) -> Vec<u8> {
        let mut file = Bytes::default();
        file.add(trace.to_vec().into());
        // The parts of a piece need not be whole windows.
        let piece = AuxTrace {
            cpu: Some(0),
            of_cpu: true,
            tid: None,
            image: None,
            time: None,
            parts: vec![0..1000, 1000..trace.len()],
            raw: false,
        };
        let wanted = wanted.iter().copied().collect();
        ids.present(&wanted, &piece, &file).into_iter().collect()
    }

    #[test]
    fn a_cpu_may_begin_late() {
        let late = trace(5 << 20, 1000);
        assert_eq!(present(&mut TraceIds::default(), &late, &[1, 2, 3]), [1, 2]);
        assert_eq!(present(&mut TraceIds::default(), &late, &[2]), [2]);
        let mut few = TraceIds { left: 1 << 20 };
        assert_eq!(present(&mut few, &late, &[1, 2]), [1]);
        assert!(few.left > 1 << 19, "{}", few.left);
        // Once all are found, the rest is not read.
        let mut ids = TraceIds::default();
        assert_eq!(present(&mut ids, &trace(1000, 5 << 20), &[1, 2]), [1, 2]);
        assert_eq!(ids.left, LIMIT - WINDOW);
    }
}
