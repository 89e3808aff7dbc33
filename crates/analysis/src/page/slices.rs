//! The slices of a track's timeline: nested calls, in as much detail as fits on the page.
//!
//! Slices are added as they end. When there are too many, neighbours that together span less than a
//! limit are merged, and the limit doubles. This bounds memory use and the size of the page however
//! long the trace is, and long slices are never lost.

use super::pack::Packer;
use std::mem;

/// The slice is the handling of an exception. The flags have the same values in `unpack.js`.
pub const EXCEPTION: u8 = 1;
/// Several short slices merged into one.
const MERGED: u8 = 2;
/// The trace does not contain the entry.
pub const ENTRY_UNSEEN: u8 = 4;
/// The trace does not contain the return.
pub const EXIT_UNSEEN: u8 = 8;
const FLAG_BITS: u64 = 16;

/// Maximum number of rows of a track; more deeply nested calls are only counted.
const DEEPEST: usize = 400;

/// A call, from its first instruction to its last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slice {
    /// Instructions of the track before it.
    pub start: u64,
    /// Instructions of the track up to its end.
    pub end: u64,
    /// The function, by its number on this track.
    pub function: u32,
    /// Its special properties.
    pub flags: u8,
}

#[derive(Clone, Copy, Debug)]
struct Kept {
    /// The longest slice, with the bounds of all merged ones.
    slice: Slice,
    longest: u64,
    count: u64,
}

impl Kept {
    fn absorb(&mut self, other: &Self) {
        let start = self.slice.start;
        if other.longest > self.longest {
            self.slice = other.slice;
            self.longest = other.longest;
        }
        self.slice.start = start;
        self.slice.end = other.slice.end;
        self.count += other.count;
    }
}

/// The slices of a track.
#[derive(Debug)]
pub struct Slices {
    rows: Vec<Vec<Kept>>,
    /// Callers discovered later: depth -1, -2 and so on.
    outside: Vec<Vec<Kept>>,
    kept: usize,
    most: usize,
    /// Neighbours that together span less than this are merged.
    resolution: u64,
    deeper: u64,
}

impl Slices {
    /// Keeps at most about `most` slices.
    pub fn new(most: usize) -> Self {
        Self {
            rows: Vec::new(),
            outside: Vec::new(),
            kept: 0,
            most: most.max(16),
            resolution: 1,
            deeper: 0,
        }
    }

    /// Adds a slice. Slices of the same depth must be added in order. Depths are negative for the
    /// callers of the function in which the trace starts.
    pub fn add(&mut self, depth: i64, slice: Slice) {
        let (rows, index) = match usize::try_from(depth) {
            Ok(index) => (&mut self.rows, index),
            Err(_) => (&mut self.outside, (-1 - depth) as usize),
        };
        if index >= DEEPEST {
            self.deeper += 1;
            return;
        }
        if rows.len() <= index {
            rows.resize_with(index + 1, Vec::new);
        }
        let one = Kept {
            slice,
            longest: slice.end.saturating_sub(slice.start),
            count: 1,
        };
        if append(&mut rows[index], one, self.resolution) {
            self.kept += 1;
        }
        while self.kept > self.most && self.resolution < u64::MAX / 2 {
            self.coarsen();
        }
    }

    fn coarsen(&mut self) {
        self.resolution *= 2;
        self.kept = 0;
        for row in self.rows.iter_mut().chain(&mut self.outside) {
            let finer = mem::take(row);
            for kept in finer {
                append(row, kept, self.resolution);
            }
            self.kept += row.len();
        }
    }

    /// Neighbours that together span less than this many instructions are merged; 1 if none are.
    pub fn resolution(&self) -> u64 {
        self.resolution
    }

    /// The number of slices nested too deeply to be shown, and the maximum depth.
    pub fn deeper(&self) -> (u64, usize) {
        (self.deeper, DEEPEST)
    }

    /// The rows as text, outermost first. `function` returns the page's index of a function.
    pub fn pack(&self, function: impl Fn(u32) -> Option<u32>) -> Vec<String> {
        let rows = self.outside.iter().rev().chain(&self.rows);
        rows.map(|row| pack(row, &function)).collect()
    }
}

/// Returns whether it was added as a separate slice.
fn append(row: &mut Vec<Kept>, kept: Kept, resolution: u64) -> bool {
    if let Some(last) = row.last_mut()
        && kept.slice.end.saturating_sub(last.slice.start) < resolution
    {
        last.absorb(&kept);
        return false;
    }
    row.push(kept);
    true
}

fn pack(row: &[Kept], function: impl Fn(u32) -> Option<u32>) -> String {
    let mut packer = Packer::default();
    packer.number(row.len() as u64);
    let mut at = 0;
    for Kept { slice, count, .. } in row {
        let start = slice.start.max(at);
        let end = slice.end.max(start);
        packer.number(start - at);
        packer.number(end - start);
        at = end;
        let merged = if *count > 1 { MERGED } else { 0 };
        let flags = slice.flags | merged;
        let function = function(slice.function).map_or(0, |index| u64::from(index) + 1);
        packer.number(function * FLAG_BITS + u64::from(flags));
        if merged != 0 {
            packer.number(*count);
        }
    }
    packer.text()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slice(start: u64, end: u64, function: u32) -> Slice {
        Slice {
            start,
            end,
            function,
            flags: 0,
        }
    }

    #[test]
    fn few_slices_stay_as_they_are() {
        let mut slices = Slices::new(100);
        for index in 0..20 {
            slices.add(1, slice(index * 3, index * 3 + 3, 0));
        }
        slices.add(0, slice(0, 60, 1));
        assert_eq!(slices.resolution(), 1);
        assert_eq!((slices.rows[0].len(), slices.rows[1].len()), (1, 20));
    }

    #[test]
    fn many_slices_are_merged_and_long_ones_remain() {
        let mut slices = Slices::new(1000);
        let mut at = 0;
        for index in 0..1_000_000 {
            let length = if index == 500_000 { 1_000_000 } else { 2 };
            slices.add(0, slice(at, at + length, index));
            at += length;
        }
        let row = &slices.rows[0];
        assert!(slices.kept <= 1000 && row.len() == slices.kept);
        assert_eq!(row.iter().map(|kept| kept.count).sum::<u64>(), 1_000_000);
        let long = row.iter().find(|kept| kept.longest == 1_000_000).unwrap();
        assert_eq!(long.slice.function, 500_000);
        assert_eq!(long.count, 1);
        let ends = row
            .windows(2)
            .all(|pair| pair[0].slice.end <= pair[1].slice.start);
        assert!(ends && row.last().unwrap().slice.end == at);
        // At least half of the capacity is used.
        assert!(slices.kept > 300, "{}", slices.kept);
    }

    #[test]
    fn deep_recursion_is_counted() {
        let mut slices = Slices::new(100_000);
        for depth in (0..100_000).rev() {
            slices.add(depth, slice(depth as u64, 200_000 - depth as u64, 0));
        }
        assert_eq!(slices.deeper(), (100_000 - DEEPEST as u64, DEEPEST));
        assert_eq!(slices.pack(Some).len(), DEEPEST);
    }
}
