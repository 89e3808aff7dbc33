//! A text buffer to which numbers are formatted by hand.
//!
//! Formatting with `write!` takes several times as long as decoding; these few functions do not.

use super::stretches::{Stretch, Stretches};
use armsnap_arch::quantity::BufferOffset;
use armsnap_trace::element::Mark;

const HEX: &[u8; 16] = b"0123456789abcdef";

/// Text to be written out in one piece.
#[derive(Clone, Debug, Default)]
pub struct TextBuffer {
    text: Vec<u8>,
    /// Kept for a listing by time.
    stretches: Option<Box<Stretches>>,
}

impl TextBuffer {
    /// The text so far.
    pub fn bytes(&self) -> &[u8] {
        &self.text
    }

    /// Takes the text, leaving the buffer empty.
    pub fn take(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.text)
    }

    /// Takes the text and continues in `empty`, reusing its memory.
    pub fn replace(&mut self, mut empty: Vec<u8>) -> Vec<u8> {
        empty.clear();
        std::mem::replace(&mut self.text, empty)
    }

    /// Keeps the times of the lines from here on.
    pub fn keep_stretches(&mut self) {
        self.stretches = Some(Box::default());
    }

    /// The text ends: its last lines do not wait for a timestamp.
    pub fn end(&mut self) {
        if let Some(stretches) = &mut self.stretches {
            stretches.end();
        }
    }

    /// Takes the text with its stretches, if these are kept; lines may stay that wait for a timestamp.
    pub fn take_stretches(&mut self) -> (Vec<u8>, Vec<Stretch>) {
        let Some(stretches) = &mut self.stretches else {
            return (self.take(), Vec::new());
        };
        let (stretches, length) = stretches.take(self.text.len());
        let rest = self.text.split_off(length);
        (std::mem::replace(&mut self.text, rest), stretches)
    }

    /// A line starts.
    #[inline]
    pub(super) fn line(&mut self, at: BufferOffset) {
        if let Some(stretches) = &mut self.stretches {
            stretches.line(self.text.len(), at);
        }
    }

    /// The line of a mark starts next.
    #[inline]
    pub(super) fn mark(&mut self, at: BufferOffset, mark: &Mark) {
        if let Some(stretches) = &mut self.stretches {
            stretches.mark(self.text.len(), at, mark);
        }
    }

    /// The length of the text in bytes.
    pub fn len(&self) -> usize {
        self.text.len()
    }

    /// Whether there is no text.
    pub fn is_empty(&self) -> bool {
        self.text.is_empty()
    }

    /// Clears the text but keeps the memory.
    pub fn clear(&mut self) {
        self.text.clear();
    }

    /// Appends text.
    #[inline]
    pub fn text(&mut self, text: &str) {
        self.text.extend_from_slice(text.as_bytes());
    }

    /// Appends text, and returns the appended copy.
    #[inline]
    pub fn copy(&mut self, text: &[u8]) -> &mut [u8] {
        let start = self.text.len();
        self.text.extend_from_slice(text);
        &mut self.text[start..]
    }

    /// Appends one ASCII byte.
    #[inline]
    pub fn byte(&mut self, byte: u8) {
        self.text.push(byte);
    }

    /// Appends spaces until the line that began at `start` has `column` characters.
    #[inline]
    pub fn pad(&mut self, start: usize, column: usize) {
        let to = start + column;
        if self.text.len() < to {
            self.text.resize(to, b' ');
        } else {
            self.byte(b' ');
        }
    }

    /// Turns the text from `start` on into a single word for a column: `, ` becomes `,` and any
    /// other blank `_`.
    pub fn join_words(&mut self, start: usize) {
        let text = self.text.split_off(start.min(self.text.len()));
        for (at, &byte) in text.iter().enumerate() {
            match byte {
                b' ' if at > 0 && text[at - 1] == b',' => {}
                b' ' => self.text.push(b'_'),
                byte => self.text.push(byte),
            }
        }
    }

    /// Appends a number in decimal.
    #[inline]
    pub fn decimal(&mut self, mut value: u64) {
        let mut digits = [0u8; 20];
        let mut at = digits.len();
        loop {
            at -= 1;
            digits[at] = b'0' + (value % 10) as u8;
            value /= 10;
            if value == 0 {
                break;
            }
        }
        self.text.extend_from_slice(&digits[at..]);
    }

    /// Appends a number as `0x` and lower-case hex without leading zeros.
    #[inline]
    pub fn hex(&mut self, value: u64) {
        let count = (67 - value.leading_zeros().min(63) as usize) / 4;
        let mut digits = *b"0x0000000000000000";
        for (i, digit) in digits[2..2 + count].iter_mut().enumerate() {
            *digit = HEX[(value >> (4 * (count - 1 - i)) & 15) as usize];
        }
        self.text.extend_from_slice(&digits[..2 + count]);
    }

    /// Appends bytes as two hex digits each.
    #[inline]
    pub fn hex_bytes(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.text
                .extend_from_slice(&[HEX[usize::from(byte >> 4)], HEX[usize::from(byte & 15)]]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn made(write: impl FnOnce(&mut TextBuffer)) -> String {
        let mut buffer = TextBuffer::default();
        write(&mut buffer);
        String::from_utf8(buffer.take()).unwrap()
    }

    proptest! {
        #[test]
        fn numbers_are_written_as_by_std(value: u64, shift in 0u32..64) {
            let value = value >> shift;
            prop_assert_eq!(made(|b| b.decimal(value)), value.to_string());
            prop_assert_eq!(made(|b| b.hex(value)), format!("{value:#x}"));
        }
    }

    #[test]
    fn zero_is_written() {
        assert_eq!(made(|b| b.decimal(0)), "0");
        assert_eq!(made(|b| b.hex(0)), "0x0");
        assert_eq!(made(|b| b.hex(u64::MAX)), "0xffffffffffffffff");
    }

    #[test]
    fn words_are_joined() {
        assert_eq!(
            made(|b| {
                b.text("Ex  ");
                b.text("data abort, number 4, at 0x8");
                b.join_words(4);
            }),
            "Ex  data_abort,number_4,at_0x8"
        );
    }

    #[test]
    fn padding_separates_what_does_not_fit() {
        assert_eq!(
            made(|b| {
                b.text("abc");
                b.pad(0, 5);
                b.text("d");
                b.pad(0, 3);
                b.text("e");
            }),
            "abc  d e"
        );
    }
}
