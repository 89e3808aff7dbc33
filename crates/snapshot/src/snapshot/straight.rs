//! Instructions whose bytes are not in the dumps but that are known not to change the flow, so that
//! trace can be followed across them.
//!
//! A core's entry `straight_code=FILE` names the file. Each of its lines contains the address of
//! the first instruction and the address after the last one, in hexadecimal:
//! `ffff800008001000-ffff800008001008`. Other readers ignore the entry.

use super::model::Device;
use std::fmt::Write;
use std::ops::Range;

/// The key of a core's entry.
pub const ENTRY: &str = "straight_code";

/// The largest file that is read.
const LARGEST: usize = 64 << 20;

/// The addresses of such instructions.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Straight(Vec<Range<u64>>);

/// Returns the file that a core names.
pub fn file(device: &Device) -> Option<&str> {
    let mut entries = device.other.iter();
    let file = entries.find(|(key, _)| key.eq_ignore_ascii_case(ENTRY));
    file.map(|(_, file)| &**file)
}

impl Straight {
    /// Creates the set of instructions in these address ranges.
    pub fn new(mut ranges: Vec<Range<u64>>) -> Self {
        ranges.retain(|range| range.start < range.end);
        ranges.sort_unstable_by_key(|range| range.start);
        ranges.dedup_by(|next, range| {
            let touches = next.start <= range.end;
            if touches {
                range.end = range.end.max(next.end);
            }
            touches
        });
        Self(ranges)
    }

    /// Reads a file. Lines in other formats are ignored.
    pub fn read(bytes: &[u8]) -> Self {
        let bytes = &bytes[..bytes.len().min(LARGEST)];
        let ranges = bytes.split(|byte| *byte == b'\n').filter_map(|line| {
            let (start, end) = std::str::from_utf8(line).ok()?.trim().split_once('-')?;
            let number = |text| u64::from_str_radix(text, 16).ok();
            Some(number(start)?..number(end)?)
        });
        Self::new(ranges.collect())
    }

    /// Returns the text of the file; `None` if there are no such instructions.
    pub fn text(&self) -> Option<String> {
        let mut out = String::new();
        for range in &self.0 {
            _ = writeln!(out, "{:x}-{:x}", range.start, range.end);
        }
        (!out.is_empty()).then_some(out)
    }

    /// Returns whether an instruction is one of them.
    pub fn contains(&self, address: u64) -> bool {
        let after = self.0.partition_point(|range| range.start <= address);
        let last = after.checked_sub(1).map(|index| &self.0[index]);
        last.is_some_and(|range| address < range.end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[allow(
        clippy::reversed_empty_ranges,
        clippy::single_range_in_vec_init,
        reason = "what a file may have, and lists of ranges"
    )]
    fn ranges_are_written_and_read() {
        let straight = Straight::new(vec![0x20..0x28, 0x10..0x18, 0x18..0x1c, 9..5]);
        let text = straight.text().unwrap();
        assert_eq!(text, "10-1c\n20-28\n");
        assert_eq!(Straight::read(text.as_bytes()), straight);
        let known = [0xf, 0x10, 0x1b, 0x1c, 0x27, 0x28].map(|at| straight.contains(at));
        assert_eq!(known, [false, true, true, false, true, false]);
        let odd = b"10-\n-\nx-y\n\xff\nffffffffffffffff0-1\n30-34\r\n";
        assert_eq!(Straight::read(odd), Straight::new(vec![0x30..0x34]));
        assert_eq!(Straight::default().text(), None);
    }
}
