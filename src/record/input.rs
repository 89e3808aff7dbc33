//! Input of the ground-truth logs: a first line that identifies the format, followed by numbers.

use std::io::{self, BufRead};

/// A log that is being read.
#[derive(Debug)]
pub(super) struct Input<R> {
    input: R,
    /// The kind of log, for error messages.
    what: &'static str,
}

impl<R: BufRead> Input<R> {
    /// Reads the first line, which must equal `first`.
    pub fn new(mut input: R, what: &'static str, first: &str) -> io::Result<Self> {
        let mut found = vec![0; first.len()];
        input.read_exact(&mut found)?;
        let input = Self { input, what };
        if found != first.as_bytes() {
            return Err(input.bad(&format!(
                "expected {:?} in the first line",
                first.trim_end()
            )));
        }
        Ok(input)
    }

    /// Returns an error for malformed contents.
    pub fn bad(&self, text: &str) -> io::Error {
        io::Error::new(io::ErrorKind::InvalidData, format!("{}: {text}", self.what))
    }

    /// Reads an unsigned LEB128 number.
    pub fn number(&mut self) -> io::Result<u64> {
        let mut number = 0;
        for shift in (0..64).step_by(7) {
            let mut byte = [0];
            self.input.read_exact(&mut byte)?;
            let bits = u64::from(byte[0] & 0x7f);
            if bits << shift >> shift != bits {
                break;
            }
            number |= bits << shift;
            if byte[0] & 0x80 == 0 {
                return Ok(number);
            }
        }
        Err(self.bad("a number of more than 64 bits"))
    }

    /// Reads `count` bytes.
    pub fn bytes(&mut self, count: usize) -> io::Result<Vec<u8>> {
        let mut bytes = vec![0; count];
        self.input.read_exact(&mut bytes)?;
        Ok(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use armsnap_trace::protocol::number::leb128;

    #[test]
    fn numbers_have_at_most_64_bits() {
        let number = |bytes: &[u8]| Input::new(bytes, "test", "").unwrap().number();
        for value in [0, 0x7f, 0x80, u64::from(u32::MAX), u64::MAX - 1, u64::MAX] {
            let mut bytes = Vec::new();
            leb128(value, &mut bytes);
            assert_eq!(number(&bytes).unwrap(), value);
            assert!(number(&bytes[..bytes.len() - 1]).is_err());
        }
        let mut long = vec![0xff; 9];
        long.push(0x03);
        assert!(number(&long).is_err());
        assert!(number(&[0x80; 11]).is_err());
        let error = Input::new(&b"other"[..], "test", "this\n").unwrap_err();
        assert_eq!(
            error.to_string(),
            "test: expected \"this\" in the first line"
        );
    }
}
