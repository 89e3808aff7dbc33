//! Decompresses LZO1X, in which makedumpfile and QEMU compress pages.

/// Decompresses `input`, which must give exactly as many bytes as `out` has.
pub fn decompress(input: &[u8], out: &mut [u8]) -> Option<()> {
    let mut reader = Reader {
        input,
        out,
        filled: 0,
    };
    reader.run()?;
    (reader.filled == reader.out.len() && reader.input.is_empty()).then_some(())
}

struct Reader<'i, 'o> {
    input: &'i [u8],
    out: &'o mut [u8],
    /// The number of bytes of `out` that have their values.
    filled: usize,
}

impl Reader<'_, '_> {
    /// Executes the instructions up to the one that ends the stream.
    fn run(&mut self) -> Option<()> {
        // The number of literals before this instruction, in which 4 stands for more, too.
        let mut before = 0;
        if let Some(first @ 18..) = self.input.first() {
            let count = usize::from(first - 17);
            self.input = &self.input[1..];
            self.literals(count)?;
            before = count.min(4);
        }
        loop {
            let code = usize::from(self.byte()?);
            let (length, distance, literals) = match code {
                0..=15 if before == 0 => {
                    let count = 3 + self.length(code, 15)?;
                    self.literals(count)?;
                    before = 4;
                    continue;
                }
                0..=15 => {
                    let (length, nearest) = if before == 4 { (3, 2049) } else { (2, 1) };
                    let far = usize::from(self.byte()?) << 2;
                    (length, nearest + far + (code >> 2), code & 3)
                }
                16..=31 => {
                    let length = 2 + self.length(code & 7, 7)?;
                    let (far, literals) = self.far()?;
                    let far = far + ((code & 8) << 11);
                    if far == 0 {
                        return (length == 3).then_some(());
                    }
                    (length, (1 << 14) + far, literals)
                }
                32..=63 => {
                    let length = 2 + self.length(code & 31, 31)?;
                    let (far, literals) = self.far()?;
                    (length, 1 + far, literals)
                }
                _ => {
                    let far = usize::from(self.byte()?) << 3;
                    (1 + (code >> 5), 1 + far + (code >> 2 & 7), code & 3)
                }
            };
            self.again(distance, length)?;
            self.literals(literals)?;
            before = literals;
        }
    }

    fn byte(&mut self) -> Option<u8> {
        let (first, rest) = self.input.split_first()?;
        self.input = rest;
        Some(*first)
    }

    /// A length: that in the instruction, or, if it is 0, `most` and what the next bytes add.
    fn length(&mut self, coded: usize, most: usize) -> Option<usize> {
        if coded > 0 {
            return Some(coded);
        }
        let mut length = most;
        loop {
            match self.byte()? {
                0 => length += 255,
                last => return Some(length + usize::from(last)),
            }
        }
    }

    /// A distance of 14 bits, and the number of literals that follow the copy.
    fn far(&mut self) -> Option<(usize, usize)> {
        let word = usize::from(self.byte()?) | usize::from(self.byte()?) << 8;
        Some((word >> 2, word & 3))
    }

    /// Copies bytes of the input.
    fn literals(&mut self, count: usize) -> Option<()> {
        let (bytes, rest) = self.input.split_at_checked(count)?;
        let end = self.filled.checked_add(count)?;
        self.out.get_mut(self.filled..end)?.copy_from_slice(bytes);
        (self.input, self.filled) = (rest, end);
        Some(())
    }

    /// Copies bytes of the output, which may include those that the copy itself writes.
    fn again(&mut self, distance: usize, length: usize) -> Option<()> {
        let from = self.filled.checked_sub(distance)?;
        let end = self.filled.checked_add(length)?;
        if end > self.out.len() {
            return None;
        }
        for at in from..from + length {
            self.out[at + distance] = self.out[at];
        }
        self.filled = end;
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decompressed(input: &[u8], length: usize) -> Option<Vec<u8>> {
        let mut out = vec![0; length];
        decompress(input, &mut out)?;
        Some(out)
    }

    #[test]
    fn each_instruction() {
        let end = [0x11, 0, 0];
        let stream = |code: &[u8]| [code, &end].concat();
        // Literals at the start, one copy near them, with a literal after it.
        let near = stream(&[17 + 4, b'a', b'b', b'c', b'd', 0x40 | 3 << 2 | 1, 0, b'x']);
        assert_eq!(decompressed(&near, 8).unwrap(), b"abcdabcx");
        // A copy of what it writes.
        let same = stream(&[17 + 1, b'a', 32 | 2, 0, 0]);
        assert_eq!(decompressed(&same, 5).unwrap(), b"aaaaa");
        // A long run of literals, then 3 bytes at a distance of 2049 and more.
        let mut long = vec![0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
        long[9] = 100;
        let count = 3 + 15 + 8 * 255 + 100;
        let bytes: Vec<u8> = (0..count).map(|at| at as u8).collect();
        long.extend(&bytes);
        long.extend([1 << 2, 0]);
        let out = decompressed(&stream(&long), count + 3).unwrap();
        assert_eq!(out[count..], bytes[count - 2050..count - 2047]);
        // Two bytes after one literal, and a copy of a length in further bytes.
        let two = stream(&[17 + 2, b'a', b'b', 1 << 2, 0, 32, 5, 1 << 2, 0]);
        assert_eq!(decompressed(&two, 4 + 38).unwrap()[..8], *b"abababab");
        for damaged in [
            &near[..near.len() - 1],
            &[0x11, 0, 0, 0],
            &[0xff, 0xff],
            &[0],
        ] {
            assert_eq!(decompressed(damaged, 8), None);
        }
        assert_eq!(decompressed(&near, 9), None);
        assert_eq!(decompressed(&near, 7), None);
    }
}
