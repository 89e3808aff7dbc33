//! Locates the pieces of a buffer: each file is divided into pieces of the same size.

use armsnap_snapshot::capture::CaptureBuffer;
use std::ops::Range;

/// Returns the end of the piece at offset `at` of the buffer; `piece` is the size of pieces.
pub(super) fn piece_end(buffer: &CaptureBuffer, at: u64, piece: usize) -> u64 {
    let piece = piece.max(1) as u64;
    let mut begin = 0;
    for file in &buffer.parts {
        let end = begin + file.len() as u64;
        if at < end {
            let next = ((at - begin) / piece + 1) * piece;
            return end.min(begin + next);
        }
        begin = end;
    }
    begin
}

/// Returns the first end of a piece at or after `at`.
pub(super) fn next_end(buffer: &CaptureBuffer, at: u64, piece: usize) -> u64 {
    match at.checked_sub(1) {
        None => 0,
        Some(before) => piece_end(buffer, before, piece),
    }
}

/// Returns the bytes of a range of the buffer, file by file, each with its offset.
pub(super) fn slices(
    buffer: &CaptureBuffer,
    range: Range<u64>,
) -> impl Iterator<Item = (u64, &[u8])> {
    let mut begin = 0;
    buffer.parts.iter().filter_map(move |file| {
        let start = begin;
        begin += file.len() as u64;
        let first = range.start.clamp(start, begin);
        let end = range.end.clamp(first, begin);
        // Both are within the file, whose length is a `usize`.
        let bytes = &file[(first - start) as usize..(end - start) as usize];
        (!bytes.is_empty()).then_some((first, bytes))
    })
}

/// Releases the mapped memory of a range of the buffer.
pub(super) fn release(buffer: &CaptureBuffer, range: Range<u64>) {
    let mut begin = 0;
    for file in &buffer.parts {
        let end = begin + file.len() as u64;
        let within = range.start.clamp(begin, end) - begin..range.end.clamp(begin, end) - begin;
        if !within.is_empty() {
            file.release(within.start as usize..within.end as usize);
        }
        begin = end;
    }
}
