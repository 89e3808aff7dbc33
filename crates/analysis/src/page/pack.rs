//! Columns of numbers as text: unsigned LEB128 (DWARF 5, section 7.6) in base64 (RFC 4648,
//! section 4).

/// Appends numbers.
#[derive(Clone, Debug, Default)]
pub struct Packer(Vec<u8>);

impl Packer {
    /// Appends a number.
    pub fn number(&mut self, mut value: u64) {
        loop {
            let low = (value & 0x7f) as u8;
            value >>= 7;
            if value == 0 {
                self.0.push(low);
                return;
            }
            self.0.push(low | 0x80);
        }
    }

    /// The numbers as text.
    pub fn text(&self) -> String {
        const DIGITS: &[u8; 64] =
            b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
        let mut out = String::with_capacity(self.0.len().div_ceil(3) * 4);
        for three in self.0.chunks(3) {
            let byte = |index: usize| u32::from(three.get(index).copied().unwrap_or(0));
            let bits = byte(0) << 16 | byte(1) << 8 | byte(2);
            for digit in 0..4 {
                let value = bits >> (18 - 6 * digit) & 0x3f;
                out.push(if digit <= three.len() {
                    char::from(DIGITS[value as usize])
                } else {
                    '='
                });
            }
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_that_of_the_specifications() {
        for (numbers, text) in [
            (&[][..], ""),
            // "fo", "foo", "foob" (RFC 4648, section 10), and DWARF's example 12857.
            (&[0x66, 0x6f], "Zm8="),
            (&[0x66, 0x6f, 0x6f], "Zm9v"),
            (&[0x66, 0x6f, 0x6f, 0x62], "Zm9vYg=="),
            (&[12857], "uWQ="),
        ] {
            let mut packer = Packer::default();
            numbers.iter().for_each(|number| packer.number(*number));
            assert_eq!(packer.text(), text);
        }
    }
}
