//! The wire format of protocol buffers (protobuf.dev, "Encoding"): the fields of a message.
//!
//! A message that is cut off or damaged has the fields before the damage.

/// The value of a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Value<'a> {
    /// A number.
    Number(u64),
    /// Text, bytes, or a message.
    Bytes(&'a [u8]),
}

impl<'a> Value<'a> {
    /// The number; 0 if the field is not a number.
    pub const fn number(self) -> u64 {
        match self {
            Self::Number(number) => number,
            Self::Bytes(_) => 0,
        }
    }

    /// The bytes; none if it is a number.
    pub const fn bytes(self) -> &'a [u8] {
        match self {
            Self::Number(_) => &[],
            Self::Bytes(bytes) => bytes,
        }
    }

    /// The text, of which at most `most` bytes are used.
    pub fn text(self, most: usize) -> String {
        let bytes = self.bytes();
        String::from_utf8_lossy(&bytes[..bytes.len().min(most)]).into_owned()
    }
}

/// The fields of a message: number, and value.
#[derive(Clone, Debug)]
pub struct Message<'a> {
    rest: &'a [u8],
}

impl<'a> Message<'a> {
    /// Reads the fields of a message.
    pub const fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    /// The bytes that are not read: those after the last field, or from the damage on.
    pub const fn rest(&self) -> &'a [u8] {
        self.rest
    }

    fn field(bytes: &mut &'a [u8]) -> Option<(u64, Value<'a>)> {
        let key = number(bytes)?;
        let fixed = |bytes: &mut &'a [u8], count| {
            let taken = bytes.split_off(..count)?;
            let mut all = [0; 8];
            all[..count].copy_from_slice(taken);
            Some(Value::Number(u64::from_le_bytes(all)))
        };
        let value = match key & 7 {
            0 => Value::Number(number(bytes)?),
            1 => fixed(bytes, 8)?,
            2 => {
                let length = usize::try_from(number(bytes)?).ok()?;
                Value::Bytes(bytes.split_off(..length)?)
            }
            5 => fixed(bytes, 4)?,
            _ => return None,
        };
        Some((key >> 3, value))
    }
}

impl<'a> Iterator for Message<'a> {
    type Item = (u64, Value<'a>);

    fn next(&mut self) -> Option<Self::Item> {
        let mut rest = self.rest;
        let field = Self::field(&mut rest)?;
        self.rest = rest;
        Some(field)
    }
}

/// A number in groups of 7 bits, the lowest first.
fn number(bytes: &mut &[u8]) -> Option<u64> {
    let mut out = 0;
    for shift in (0..64).step_by(7) {
        let byte = *bytes.split_off_first()?;
        out |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Some(out);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_up_to_the_damage() {
        let bytes = b"\x08\x96\x01\x12\x03abc\x1d\x01\0\0\0\x21\x02\0\0\0\0\0\0\0";
        let all: Vec<_> = Message::new(bytes).collect();
        let wanted = [
            (1, Value::Number(150)),
            (2, Value::Bytes(b"abc")),
            (3, Value::Number(1)),
            (4, Value::Number(2)),
        ];
        assert_eq!(all, wanted);
        for length in 0..bytes.len() {
            let mut message = Message::new(&bytes[..length]);
            let found: Vec<_> = message.by_ref().collect();
            assert_eq!(found, wanted[..found.len()]);
            assert_eq!(message.rest().is_empty(), [0, 3, 8, 13].contains(&length));
        }
        assert_eq!(Message::new(&[0xff; 20]).count(), 0);
        assert_eq!(Message::new(b"\x0b\x0c").count(), 0);
    }
}
