//! Hexadecimal encoding of bytes, text and numbers in the remote protocol.

/// Encodes bytes as two lower-case digits each.
pub fn encode(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Decodes pairs of digits; `None` if malformed.
pub fn decode(text: &str) -> Option<Vec<u8>> {
    let digits = text.as_bytes();
    if !digits.len().is_multiple_of(2) {
        return None;
    }
    digits
        .chunks_exact(2)
        .map(|pair| {
            let pair = std::str::from_utf8(pair).ok()?;
            pair.bytes()
                .all(|digit| digit.is_ascii_hexdigit())
                .then(|| u8::from_str_radix(pair, 16).ok())?
        })
        .collect()
}

/// Decodes text from pairs of digits; replaces invalid UTF-8. `None` if malformed.
pub fn decode_text(text: &str) -> Option<String> {
    decode(text).map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
}

/// Parses a hexadecimal number without prefix or sign.
pub fn number(text: &str) -> Option<u64> {
    let digits = text.bytes().all(|digit| digit.is_ascii_hexdigit());
    (digits && !text.is_empty())
        .then(|| u64::from_str_radix(text, 16).ok())
        .flatten()
}
