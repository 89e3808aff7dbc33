//! Encodings of numbers that several protocols share.

/// Appends a number, 7 bits per byte, the lowest first. Bit 7 is set if another byte follows.
pub fn leb128(value: impl Into<u64>, out: &mut Vec<u8>) {
    let mut value = value.into();
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Decodes a Gray code: each bit is the parity of the code's bits from its index up.
pub(crate) const fn from_gray(code: u64) -> u64 {
    let mut value = code;
    let mut shift = 1;
    while shift < 64 {
        value ^= value >> shift;
        shift *= 2;
    }
    value
}

/// Encodes a number as Gray code.
pub(crate) const fn to_gray(value: u64) -> u64 {
    value ^ value >> 1
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn neighbours_in_gray_code_differ_in_one_bit(value in any::<u64>()) {
            let differs = to_gray(value) ^ to_gray(value.wrapping_add(1));
            prop_assert_eq!(differs.count_ones(), 1);
            prop_assert_eq!(from_gray(to_gray(value)), value);
        }
    }

    #[test]
    fn bytes_of_numbers() {
        let bytes = |value: u32| {
            let mut out = Vec::new();
            leb128(value, &mut out);
            out
        };
        assert_eq!(bytes(0), [0]);
        assert_eq!(bytes(0x7f), [0x7f]);
        assert_eq!(bytes(0x80), [0x80, 0x01]);
        assert_eq!(bytes(u32::MAX), [0xff, 0xff, 0xff, 0xff, 0x0f]);
    }
}
