//! The value of a timestamp packet.
//!
//! ARM IHI 0014Q 7.7.4 and ARM IHI 0035B 4.5.9 "Timestamp packet".

use crate::etm::config::TimestampEncoding;
use crate::protocol::number::from_gray;

/// Completes timestamps: a packet contains only the bits up to the highest one that changed.
#[derive(Clone, Copy, Debug, Default, PartialEq, serde::Serialize, serde::Deserialize)]
pub(crate) struct Timestamps {
    /// As traced, before Gray decoding.
    traced: u64,
}

impl Timestamps {
    /// Reads the value at the start of `bytes`; returns it with its length in bytes. `None` if `bytes` ends
    /// inside it.
    #[inline]
    pub(crate) fn next(
        &mut self,
        bytes: &[u8],
        encoding: TimestampEncoding,
    ) -> Option<(u64, usize)> {
        let max = encoding.max_bytes();
        let (mut value, mut bits) = (0u64, 0u32);
        for (i, &byte) in bytes.iter().take(max).enumerate() {
            let (kept, width) = match (i + 1 == max, encoding.wide) {
                (false, _) => (byte & 0x7f, 7),
                (true, true) => (byte, 8),
                (true, false) => (byte & 0x3f, 6),
            };
            value |= u64::from(kept) << bits;
            bits += width;
            if byte & 0x80 == 0 || i + 1 == max {
                let mask = u64::MAX >> (64 - bits);
                self.traced = self.traced & !mask | value;
                // Gray code (ARM IHI 0014Q 7.7.3).
                let value = if encoding.gray {
                    from_gray(self.traced)
                } else {
                    self.traced
                };
                return Some((value, i + 1));
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bits_missing_in_the_packet_are_kept() {
        let mut stamps = Timestamps::default();
        let narrow = TimestampEncoding::default();
        assert_eq!(
            stamps.next(&[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x3f], narrow),
            Some((0xffff_ffff_ffff, 7))
        );
        assert_eq!(
            stamps.next(&[0x81, 0x02, 0x55], narrow),
            Some((0xffff_ffff_c101, 2))
        );
        assert_eq!(stamps.next(&[0x80, 0x80], narrow), None);
    }

    #[test]
    fn the_last_byte_has_no_continuation_bit() {
        let mut stamps = Timestamps::default();
        let wide = TimestampEncoding {
            wide: true,
            gray: false,
        };
        let bytes = [0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0xff, 0x01];
        assert_eq!(stamps.next(&bytes, wide), Some((0xff00_0000_0000_0000, 9)));
    }

    #[test]
    fn gray_codes_are_decoded_over_the_whole_value() {
        let mut stamps = Timestamps::default();
        let gray = TimestampEncoding {
            wide: false,
            gray: true,
        };
        // 0b1000 is 0b1100 in Gray code, 0b1001 is 0b1101.
        assert_eq!(stamps.next(&[0b1100], gray), Some((8, 1)));
        assert_eq!(stamps.next(&[0b1101], gray), Some((9, 1)));
    }
}
