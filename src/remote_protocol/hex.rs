//! Text and numbers in hex, as the remote protocol writes them.

/// Bytes as two lower-case digits each.
pub fn encode(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The bytes of pairs of digits.
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

/// Text in pairs of digits; what is no UTF-8 is replaced.
pub fn decode_text(text: &str) -> Option<String> {
    decode(text).map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
}

/// A number in hex, without a prefix or a sign.
pub fn number(text: &str) -> Option<u64> {
    let digits = text.bytes().all(|digit| digit.is_ascii_hexdigit());
    (digits && !text.is_empty())
        .then(|| u64::from_str_radix(text, 16).ok())
        .flatten()
}
