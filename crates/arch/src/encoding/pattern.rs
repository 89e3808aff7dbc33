//! Bit patterns, and the index that finds the row of a table that matches a word.

/// A part of an encoding.
#[derive(Clone, Copy)]
pub(super) enum Part {
    /// Fixed bits: `0`, `1`, or `x` for any.
    Bits(&'static str),
    /// A field: its width.
    Field(u32),
}

/// The fixed bits of an encoding of 16 or 32 bits.
#[derive(Clone, Copy)]
pub(super) struct Pattern {
    mask: u32,
    value: u32,
}

impl Pattern {
    /// The pattern with these parts, from the highest bit down.
    pub(super) const fn new(parts: &[Part]) -> Self {
        let (mut mask, mut value, mut width) = (0_u64, 0_u64, 0);
        let mut at = 0;
        while at < parts.len() {
            match parts[at] {
                Part::Field(bits) => {
                    mask <<= bits;
                    value <<= bits;
                    width += bits;
                }
                Part::Bits(text) => {
                    let mut bit = 0;
                    while bit < text.len() {
                        let (fixed, set) = match text.as_bytes()[bit] {
                            b'0' => (1, 0),
                            b'1' => (1, 1),
                            b'x' => (0, 0),
                            _ => panic!("a bit is 0, 1 or x"),
                        };
                        mask = mask << 1 | fixed;
                        value = value << 1 | set;
                        bit += 1;
                    }
                    width += text.len() as u32;
                }
            }
            at += 1;
        }
        assert!(width == 16 || width == 32, "an encoding has 16 or 32 bits");
        Self {
            mask: mask as u32,
            value: value as u32,
        }
    }

    const fn matches(self, word: u32) -> bool {
        word & self.mask == self.value
    }
}

/// For each value of eight bits of a word, the rows of a table that may match: one bit each.
pub(super) struct Index {
    low: u32,
    rows: [u64; 256],
}

impl Index {
    /// The index by the bits from `low` up.
    pub(super) const fn new(table: &[Pattern], low: u32) -> Self {
        assert!(table.len() <= 64, "a table has at most 64 rows");
        let mut rows = [0; 256];
        let mut key = 0;
        while key < 256 {
            let mut at = 0;
            while at < table.len() {
                let differs = (table[at].value ^ (key as u32) << low) & table[at].mask;
                if differs & 0xff << low == 0 {
                    rows[key] |= 1 << at;
                }
                at += 1;
            }
            key += 1;
        }
        Self { low, rows }
    }

    /// Returns the first row that matches.
    #[inline]
    pub(super) fn find(&self, table: &[Pattern], word: u32) -> Option<usize> {
        let mut rows = self.rows[(word >> self.low & 0xff) as usize];
        while rows != 0 {
            let row = rows.trailing_zeros() as usize;
            if table[row].matches(word) {
                return Some(row);
            }
            rows &= rows - 1;
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_have_fixed_bits() {
        let pattern = Pattern::new(&[Part::Field(1), Part::Bits("10x"), Part::Field(28)]);
        assert!(pattern.matches(0xc000_0000) && pattern.matches(0x5fff_ffff));
        assert!(!pattern.matches(0x8000_0000) && !pattern.matches(0xe000_0000));
    }

    #[test]
    fn the_first_row_that_matches_is_found() {
        let rows = [
            Pattern::new(&[Part::Bits("00000001"), Part::Field(24)]),
            Pattern::new(&[Part::Bits("0000000"), Part::Field(25)]),
            Pattern::new(&[Part::Field(31), Part::Bits("1")]),
        ];
        let index = Index::new(&rows, 24);
        assert_eq!(index.find(&rows, 0x0100_0001), Some(0));
        assert_eq!(index.find(&rows, 0x0000_0001), Some(1));
        assert_eq!(index.find(&rows, 0xff00_0001), Some(2));
        assert_eq!(index.find(&rows, 0xff00_0000), None);
    }
}
