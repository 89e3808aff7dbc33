//! Lines of bounded length.

use std::io::{self, BufRead};

/// The longest line that is read, in bytes.
pub(super) const LONGEST: usize = 1 << 20;

/// A line of input.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Line {
    /// With these bytes.
    Whole(Vec<u8>),
    /// Longer than [`LONGEST`], and left out.
    TooLong,
}

/// Reads a line without its end; `None` at the end of the input.
pub(super) fn read(input: &mut impl BufRead) -> io::Result<Option<Line>> {
    let mut line = Vec::new();
    let (mut is_begun, mut is_too_long) = (false, false);
    loop {
        let part = match input.fill_buf() {
            Ok(part) => part,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        };
        if part.is_empty() {
            break;
        }
        is_begun = true;
        let end = memchr::memchr(b'\n', part);
        let text = &part[..end.unwrap_or(part.len())];
        is_too_long |= line.len() + text.len() > LONGEST;
        if is_too_long {
            line = Vec::new();
        } else {
            line.extend_from_slice(text);
        }
        let used = end.map_or(part.len(), |end| end + 1);
        input.consume(used);
        if end.is_some() {
            break;
        }
    }
    Ok(is_begun.then_some(match is_too_long {
        true => Line::TooLong,
        false => Line::Whole(line),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_have_a_bound() {
        let long = "x".repeat(LONGEST + 1);
        let fits = "y".repeat(LONGEST);
        let text = format!("one\n\n{long}\n{fits}\nlast");
        let mut input = io::BufReader::with_capacity(7, text.as_bytes());
        let mut next = || read(&mut input).unwrap();
        let whole = |text: &str| Some(Line::Whole(text.into()));
        assert_eq!(next(), whole("one"));
        assert_eq!(next(), whole(""));
        assert_eq!(next(), Some(Line::TooLong));
        assert_eq!(next(), whole(&fits));
        assert_eq!(next(), whole("last"));
        assert_eq!(next(), None);
    }
}
