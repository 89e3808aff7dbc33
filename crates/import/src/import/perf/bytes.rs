//! The bytes of a recording: one file, or the concatenated files of a directory.

use armsnap_snapshot::mapped::Mapped;
use std::ops::Range;

/// The files; positions count from the start of the first one.
#[derive(Clone, Debug, Default)]
pub struct Bytes {
    /// Each with the position of its first byte.
    files: Vec<(usize, Mapped)>,
}

impl Bytes {
    /// Adds a file. Returns the position of its first byte.
    pub fn add(&mut self, file: Mapped) -> usize {
        let begin = self.files.last();
        let begin = begin.map_or(0, |(begin, last)| begin.saturating_add(last.len()));
        self.files.push((begin, file));
        begin
    }

    /// The file that contains a range, and the range within that file.
    fn file(&self, range: &Range<usize>) -> Option<(&Mapped, Range<usize>)> {
        let after = self
            .files
            .partition_point(|(begin, _)| *begin <= range.start);
        let (begin, file) = self.files.get(after.checked_sub(1)?)?;
        let range = range.start - begin..range.end.saturating_sub(*begin);
        Some((file, range))
    }

    /// The total number of bytes of all files.
    pub fn len(&self) -> usize {
        let last = self.files.last();
        last.map_or(0, |(begin, last)| begin.saturating_add(last.len()))
    }

    /// A range of bytes within one file.
    pub fn get(&self, range: Range<usize>) -> Option<&[u8]> {
        let (file, range) = self.file(&range)?;
        file.get(range)
    }

    /// A range of bytes within one file, shared.
    pub fn part(&self, range: Range<usize>) -> Mapped {
        match self.file(&range) {
            Some((file, range)) => file.part(range),
            None => Vec::new().into(),
        }
    }

    /// Releases the memory of bytes that are not needed for now.
    pub fn release(&self, range: Range<usize>) {
        if let Some((file, range)) = self.file(&range) {
            file.release(range);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_counted_through_all_files() {
        let mut bytes = Bytes::default();
        assert_eq!(bytes.add(b"first".to_vec().into()), 0);
        assert_eq!(bytes.add(b"second".to_vec().into()), 5);
        assert_eq!(bytes.get(1..3), Some(&b"ir"[..]));
        assert_eq!(bytes.get(5..11), Some(&b"second"[..]));
        assert_eq!(&*bytes.part(7..9), b"co");
        assert_eq!(bytes.get(3..7), None, "of one file");
        assert_eq!(bytes.get(11..12), None);
    }
}
