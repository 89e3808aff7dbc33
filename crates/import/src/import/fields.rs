//! Reads numbers and text from untrusted bytes, in either byte order.

/// The bytes that are still to be read. A read beyond their end returns `None`.
#[derive(Clone, Copy, Debug)]
pub struct Fields<'a> {
    rest: &'a [u8],
    big: bool,
}

impl<'a> Fields<'a> {
    /// A reader of `bytes`; `big` is the byte order.
    pub const fn new(bytes: &'a [u8], big: bool) -> Self {
        Self { rest: bytes, big }
    }

    /// The bytes that have not been read yet.
    pub const fn rest(&self) -> &'a [u8] {
        self.rest
    }

    /// Whether the byte order is big-endian.
    pub const fn is_big(&self) -> bool {
        self.big
    }

    /// A reader of other bytes in the same byte order.
    pub const fn again<'b>(&self, bytes: &'b [u8]) -> Fields<'b> {
        Fields::new(bytes, self.big)
    }

    /// The next `count` bytes.
    pub fn bytes(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.rest.split_at_checked(count)?;
        self.rest = rest;
        Some(taken)
    }

    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        self.bytes(N)?.try_into().ok()
    }

    /// A 16-bit number.
    pub fn u16(&mut self) -> Option<u16> {
        let bytes = self.array()?;
        let read = if self.big {
            u16::from_be_bytes
        } else {
            u16::from_le_bytes
        };
        Some(read(bytes))
    }

    /// A 32-bit number.
    pub fn u32(&mut self) -> Option<u32> {
        let bytes = self.array()?;
        let read = if self.big {
            u32::from_be_bytes
        } else {
            u32::from_le_bytes
        };
        Some(read(bytes))
    }

    /// A 64-bit number.
    pub fn u64(&mut self) -> Option<u64> {
        let bytes = self.array()?;
        let read = if self.big {
            u64::from_be_bytes
        } else {
            u64::from_le_bytes
        };
        Some(read(bytes))
    }

    /// The text up to a zero byte, or up to the end.
    pub fn text(&mut self) -> String {
        let length = self.rest.iter().position(|&byte| byte == 0);
        let (text, rest) = match length {
            Some(length) => (&self.rest[..length], &self.rest[length + 1..]),
            None => (self.rest, &[][..]),
        };
        self.rest = rest;
        String::from_utf8_lossy(text).into_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_are_bounded_and_in_the_order_of_the_file() {
        let bytes = [1, 2, 3, 4, b'a', b'b', 0, 9];
        let mut little = Fields::new(&bytes, false);
        assert_eq!(little.u32(), Some(0x0403_0201));
        assert_eq!(little.text(), "ab");
        assert_eq!(little.u16(), None);
        assert_eq!(little.bytes(1), Some(&[9][..]));
        assert_eq!(little.text(), "");
        let mut big = Fields::new(&bytes, true);
        assert_eq!((big.u16(), big.u16()), (Some(0x0102), Some(0x0304)));
        assert_eq!(big.u64(), None);
        assert_eq!(big.bytes(5), None);
        assert_eq!(big.rest(), b"ab\0\x09");
    }
}
