//! Hexadecimal encoding of bytes, text and numbers in the remote protocol.

/// Appends bytes as pairs of lower-case digits.
pub fn write_hex(bytes: &[u8], out: &mut Vec<u8>) {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    for &byte in bytes {
        out.push(DIGITS[usize::from(byte >> 4)]);
        out.push(DIGITS[usize::from(byte & 15)]);
    }
}

/// Encodes bytes, or the UTF-8 bytes of text, as pairs of lower-case digits.
pub fn encode(bytes: impl AsRef<[u8]>) -> String {
    let bytes = bytes.as_ref();
    let mut out = Vec::with_capacity(2 * bytes.len());
    write_hex(bytes, &mut out);
    String::from_utf8(out).unwrap_or_default()
}

/// Decodes pairs of digits; `None` if malformed.
pub fn decode(text: &str) -> Option<Vec<u8>> {
    let (pairs, rest) = text.as_bytes().as_chunks::<2>();
    let bytes = pairs
        .iter()
        .map(|pair| parse_hex(pair).map(|byte| byte as u8));
    if rest.is_empty() {
        bytes.collect()
    } else {
        None
    }
}

/// Decodes text from pairs of digits; replaces invalid UTF-8. `None` if malformed.
pub fn decode_text(text: &str) -> Option<String> {
    decode(text).map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
}

/// Parses a hexadecimal number without prefix or sign, with at most 16 significant digits.
pub fn parse_hex(digits: &[u8]) -> Option<u64> {
    if digits.is_empty() {
        return None;
    }
    digits.iter().try_fold(0_u64, |value, digit| {
        let digit = (*digit as char).to_digit(16)?;
        (value >> 60 == 0).then_some(value << 4 | u64::from(digit))
    })
}

/// The same as [`parse_hex`], for text.
pub fn number(text: &str) -> Option<u64> {
    parse_hex(text.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers() {
        assert_eq!(parse_hex(b"fF"), Some(255));
        assert_eq!(parse_hex(b"ffffffffffffffff"), Some(u64::MAX));
        assert_eq!(parse_hex(b"000ffffffffffffffff"), Some(u64::MAX));
        assert_eq!(parse_hex(b"10000000000000000"), None);
        assert_eq!(parse_hex(b""), None);
        assert_eq!(parse_hex(b"+1"), None);
    }

    #[test]
    fn bytes_and_text() {
        assert_eq!(encode("\u{e9}\0"), "c3a900");
        assert_eq!(decode("c3A900"), Some(vec![0xc3, 0xa9, 0]));
        assert_eq!(decode_text("41c3a9"), Some("A\u{e9}".to_owned()));
        for malformed in ["c", "+1", "g0", "c3a"] {
            assert_eq!(decode(malformed), None, "{malformed}");
        }
    }
}
