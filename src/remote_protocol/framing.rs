//! Packet encoding of the remote protocol: framing, checksums, escapes (GDB manual, E.1 "Overview").
//!
//! Independent of the meaning of packets.

use super::hex::{parse_hex, write_hex};

/// Maximum length of an accepted packet, in bytes between `$` and `#`.
pub const MAX_PACKET: usize = 0x1_0000;

/// A unit of input from a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Incoming {
    /// The payload of a packet with a correct checksum, as sent.
    Packet(Vec<u8>),
    /// A packet with a wrong or malformed checksum.
    BadChecksum,
    /// A packet longer than [`MAX_PACKET`].
    TooLong,
    /// `+`: a reply has arrived.
    Acknowledge,
    /// `-`: requests the last reply again.
    Resend,
    /// The byte 0x03: Ctrl-C.
    Interrupt,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Between,
    Payload,
    Checksum,
    LastDigit(u8),
}

/// Splits a client's bytes into packets.
#[derive(Debug)]
pub struct Framer {
    state: State,
    payload: Vec<u8>,
    sum: u8,
    too_long: bool,
}

impl Default for Framer {
    fn default() -> Self {
        Self {
            state: State::Between,
            payload: Vec::new(),
            sum: 0,
            too_long: false,
        }
    }
}

impl Framer {
    /// Processes one byte. Returns the unit that it completes.
    pub fn push(&mut self, byte: u8) -> Option<Incoming> {
        match (self.state, byte) {
            (State::Between, b'+') => return Some(Incoming::Acknowledge),
            (State::Between, b'-') => return Some(Incoming::Resend),
            (State::Between, 0x03) => return Some(Incoming::Interrupt),
            // A `$` within a packet is always escaped: an unescaped one starts a new packet.
            (State::Between | State::Payload, b'$') => {
                self.state = State::Payload;
                self.payload.clear();
                self.sum = 0;
                self.too_long = false;
            }
            // Noise between packets.
            (State::Between, _) => {}
            (State::Payload, b'#') => self.state = State::Checksum,
            (State::Payload, _) => {
                self.sum = self.sum.wrapping_add(byte);
                if self.payload.len() < MAX_PACKET {
                    self.payload.push(byte);
                } else {
                    self.too_long = true;
                }
            }
            (State::Checksum, _) => self.state = State::LastDigit(byte),
            (State::LastDigit(first), _) => {
                self.state = State::Between;
                let payload = std::mem::take(&mut self.payload);
                let sum = parse_hex(&[first, byte]);
                return Some(if sum != Some(u64::from(self.sum)) {
                    Incoming::BadChecksum
                } else if self.too_long {
                    Incoming::TooLong
                } else {
                    Incoming::Packet(payload)
                });
            }
        }
        None
    }
}

/// Appends a packet with its checksum. The payload is already escaped.
pub fn write_packet(payload: &[u8], out: &mut Vec<u8>) {
    let sum = payload
        .iter()
        .fold(0_u8, |sum, byte| sum.wrapping_add(*byte));
    out.reserve(payload.len() + 4);
    out.push(b'$');
    out.extend_from_slice(payload);
    out.push(b'#');
    write_hex(&[sum], out);
}

/// Appends bytes as binary data: `#`, `$`, `}` and `*` are escaped.
pub fn write_binary(bytes: &[u8], out: &mut Vec<u8>) {
    for &byte in bytes {
        if matches!(byte, b'#' | b'$' | b'}' | b'*') {
            out.extend_from_slice(&[b'}', byte ^ 0x20]);
        } else {
            out.push(byte);
        }
    }
}

/// Appends bytes as pairs of hexadecimal digits, run-length encoded.
pub fn write_hex_runs(bytes: &[u8], out: &mut Vec<u8>) {
    let mut digits = Vec::with_capacity(2 * bytes.len());
    write_hex(bytes, &mut digits);
    write_runs(&digits, out);
}

/// Appends digits (or `x`), run-length encoded (GDB manual, E.1 "Overview", "run length
/// encoding"): the digit, `*`, and a character with the value of the repeat count plus 29.
pub fn write_runs(digits: &[u8], out: &mut Vec<u8>) {
    /// Shorter runs gain nothing; the character of a longer one would not be printable.
    const REPETITIONS: std::ops::RangeInclusive<usize> = 3..=97;
    for run in digits.chunk_by(|a, b| a == b) {
        let mut rest = run;
        while let Some((digit, repeated)) = rest.split_first() {
            out.push(*digit);
            let mut count = repeated.len().min(*REPETITIONS.end());
            // `#`, `$`, `+` and `-` have other meanings.
            while matches!(count + 29, 0x23 | 0x24 | 0x2B | 0x2D) {
                count -= 1;
            }
            if REPETITIONS.contains(&count) {
                out.extend_from_slice(&[b'*', (count + 29) as u8]);
                rest = &repeated[count..];
            } else {
                rest = repeated;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn push_all(framer: &mut Framer, bytes: &[u8]) -> Vec<Incoming> {
        bytes.iter().filter_map(|byte| framer.push(*byte)).collect()
    }

    /// Expands runs as a client does.
    fn expand(encoded: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        let mut bytes = encoded.iter();
        while let Some(&byte) = bytes.next() {
            if byte == b'*' {
                let (digit, count) = (*out.last().unwrap(), *bytes.next().unwrap());
                assert!((b' '..=b'~').contains(&count) && !b"#$+-".contains(&count));
                out.extend(std::iter::repeat_n(digit, usize::from(count) - 29));
            } else {
                out.push(byte);
            }
        }
        out
    }

    #[test]
    fn runs_of_a_digit_are_encoded() {
        let mut out = Vec::new();
        write_hex_runs(&[0, 0, 0x12, 0x33, 0x33, 0x34], &mut out);
        assert_eq!(out, b"0* 123*!4");
        // Every run length, including those with a forbidden character.
        for length in 0..400 {
            let bytes = [vec![0x1F; 1], vec![0xFF; length], vec![0x12; 1]].concat();
            let (mut plain, mut runs) = (Vec::new(), Vec::new());
            write_hex(&bytes, &mut plain);
            write_hex_runs(&bytes, &mut runs);
            assert_eq!(expand(&runs), plain, "{length}");
            assert!(runs.len() <= 8 + length / 12, "{length}: {}", runs.len());
        }
    }

    #[test]
    fn packets_and_noise() {
        let mut framer = Framer::default();
        assert_eq!(
            push_all(&mut framer, b"+$?#3f-\x03xx$g#67"),
            [
                Incoming::Acknowledge,
                Incoming::Packet(b"?".to_vec()),
                Incoming::Resend,
                Incoming::Interrupt,
                Incoming::Packet(b"g".to_vec()),
            ]
        );
    }

    #[test]
    fn wrong_checksums_and_broken_packets() {
        let mut framer = Framer::default();
        assert_eq!(push_all(&mut framer, b"$g#68"), [Incoming::BadChecksum]);
        assert_eq!(push_all(&mut framer, b"$g#zz"), [Incoming::BadChecksum]);
        assert_eq!(
            push_all(&mut framer, b"$qSupp$g#67"),
            [Incoming::Packet(b"g".to_vec())]
        );
    }

    #[test]
    fn long_packets_use_bounded_memory() {
        let mut framer = Framer::default();
        framer.push(b'$');
        for _ in 0..10 * MAX_PACKET {
            assert_eq!(framer.push(b'\0'), None);
        }
        assert!(framer.payload.capacity() <= 2 * MAX_PACKET);
        assert_eq!(push_all(&mut framer, b"#00"), [Incoming::TooLong]);
        assert_eq!(
            push_all(&mut framer, b"$g#67"),
            [Incoming::Packet(b"g".to_vec())]
        );
    }

    #[test]
    fn written_packets_are_read_back() {
        let mut payload = Vec::new();
        write_binary(&(0..=255).collect::<Vec<u8>>(), &mut payload);
        let mut bytes = Vec::new();
        write_packet(&payload, &mut bytes);
        assert_eq!(
            push_all(&mut Framer::default(), &bytes),
            [Incoming::Packet(payload)]
        );
    }
}
