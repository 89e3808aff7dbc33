//! Random changes of files, the same in each run.

#![allow(dead_code, reason = "each test uses a part of it")]

/// Texts likely to cause errors: separators, limits, paths, odd characters.
const PIECES: &[&[u8]] = &[
    b"=",
    b":",
    b"[",
    b"]",
    b"(",
    b")",
    b",",
    b";",
    b"#",
    b"\\",
    b"\n",
    b"\r",
    b"\0",
    b" ",
    b"@",
    b"0x",
    b"-1",
    b"0xFFFFFFFFFFFFFFFF",
    b"18446744073709551616",
    b"99999999999999999999999999999",
    b"..",
    b"/",
    b"C:\\",
    b"../../../etc/passwd",
    b"(size:4294967295)",
    b"(size:0)",
    b"(id:)",
    b"(stream:99999999999)",
    b"\xEF\xBB\xBF",
    b"\xFF\xFE",
    b"\xEE\x80\x80",
    b"\xEE\x80\x81",
    b"\"",
    b"'",
    b"[device]\n",
    b"[regs]\n",
    b"[dump]\n",
    b"[trace_buffers]\n",
    b"[device_list]\n",
    b"dump",
    b"snapshot.ini",
    b"trace.ini",
    b"length=0\n",
    b"offset=0xFFFFFFFFFFFFFFFF\n",
    b"space=P\n",
    "ü\u{2028}".as_bytes(),
];

/// xorshift64*: the same mutations every time.
pub struct Dice(pub u64);

impl Dice {
    /// A number below `end`, or 0.
    pub fn below(&mut self, end: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        let high = self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 33;
        high as usize % end.max(1)
    }
}

/// Changes a text in one place.
pub fn mutate(text: &mut Vec<u8>, dice: &mut Dice) {
    let at = dice.below(text.len() + 1);
    let end = (at + dice.below(20)).min(text.len());
    match dice.below(7) {
        0 if at < text.len() => text[at] ^= 1 << dice.below(8),
        1 => drop(text.drain(at..end)),
        2 => {
            let piece = PIECES[dice.below(PIECES.len())];
            text.splice(at..at, piece.iter().copied());
        }
        3 => {
            let piece = PIECES[dice.below(PIECES.len())];
            text.splice(at..end, piece.iter().copied());
        }
        4 => {
            let mut lines: Vec<Vec<u8>> = text.split(|&b| b == b'\n').map(<[u8]>::to_vec).collect();
            let (a, b) = (dice.below(lines.len()), dice.below(lines.len()));
            match dice.below(3) {
                0 => lines.swap(a, b),
                1 => lines.insert(a, lines[b].clone()),
                _ => drop(lines.remove(a)),
            }
            *text = lines.join(&b'\n');
        }
        5 => text.truncate(at),
        _ => {
            let copy = text[at..end].to_vec();
            let to = dice.below(text.len() + 1);
            text.splice(to..to, copy);
        }
    }
}

/// Changes bytes in one place.
pub fn mutate_bytes(bytes: &mut Vec<u8>, dice: &mut Dice) {
    let at = dice.below(bytes.len() + 1);
    let end = (at + dice.below(64)).min(bytes.len());
    match dice.below(7) {
        0 if at < bytes.len() => bytes[at] ^= 1 << dice.below(8),
        1 => drop(bytes.drain(at..end)),
        2 => {
            let byte = [0x00, 0xff, 0x80, 0x7f][dice.below(4)];
            bytes.splice(at..at, std::iter::repeat_n(byte, dice.below(40)));
        }
        3 => bytes[at..end].fill_with(|| dice.below(256) as u8),
        4 => bytes.truncate(at),
        _ => {
            let copy = bytes[at..end].to_vec();
            let to = dice.below(bytes.len() + 1);
            bytes.splice(to..to, copy);
        }
    }
}

/// Changes bytes with headers in one place: a number more often than other bytes, and half of the time near the
/// start.
pub fn damage(bytes: &mut Vec<u8>, dice: &mut Dice) {
    const EXTREMES: [u64; 8] = [
        0,
        1,
        u64::MAX,
        u64::MAX - 7,
        1 << 63,
        0x7FFF_FFFF,
        0xFFFF_FFF8,
        1 << 20,
    ];
    let at = match dice.below(2) {
        0 => dice.below(bytes.len().min(600)),
        _ => dice.below(bytes.len()),
    };
    // Most numbers of binary formats are aligned.
    let at = at / 2 * 2;
    let size = (1 << (1 + dice.below(3))).min(bytes.len() - at.min(bytes.len()));
    let number = |bytes: &[u8]| {
        let mut value = [0; 8];
        value[..size].copy_from_slice(&bytes[at..at + size]);
        u64::from_le_bytes(value)
    };
    let new = match dice.below(12) {
        0..4 => EXTREMES[dice.below(EXTREMES.len())],
        4 => dice.below(256) as u64,
        // Lengths and counts that are larger than what is there.
        5 => number(bytes).wrapping_add(1 + dice.below(16) as u64),
        6 => number(bytes).wrapping_mul(2 + dice.below(255) as u64),
        7 => {
            // The same records many times.
            let end = (at + 8 + dice.below(256)).min(bytes.len());
            let copy = bytes[at..end].repeat(1 + dice.below(200));
            bytes.splice(at..at, copy);
            return;
        }
        _ => return mutate_bytes(bytes, dice),
    };
    bytes[at..at + size].copy_from_slice(&new.to_le_bytes()[..size]);
}
