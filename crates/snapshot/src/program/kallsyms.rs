//! The symbol table that a Linux kernel itself contains (kallsyms), read from its image or from
//! memory.
//!
//! The table has no header. It is found by its parts: 256 tokens with an index into them, names
//! made of tokens, markers (the offset of every 256th name), and the offset of each symbol from a
//! base, the address of the first symbol. In an image, the base is either a value of the table or
//! in a relocation (ELF for the Arm 64-bit Architecture, R_AARCH64_RELATIVE). Two layouts are
//! known: until Linux 6.3, offsets precede the names; since 6.4, they follow the token index.
//! Kernels before 4.20, and those without `KALLSYMS_BASE_RELATIVE`, are not supported. Bytes are
//! never trusted.

use std::fmt;

/// A symbol of the kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Symbol {
    /// Its name.
    pub name: String,
    /// The letter that nm(1) shows, such as `T` or `t` for code.
    pub kind: u8,
    /// Its offset from the first symbol.
    pub offset: u32,
}

impl Symbol {
    /// Returns whether it is a function.
    pub fn is_code(&self) -> bool {
        matches!(self.kind, b'T' | b't' | b'W' | b'w')
    }
}

/// The symbols of a kernel, sorted by offset.
#[derive(Clone, PartialEq, Eq)]
pub struct Kallsyms {
    symbols: Vec<Symbol>,
    base: Option<u64>,
}

impl fmt::Debug for Kallsyms {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Kallsyms({} symbols)", self.symbols.len())
    }
}

/// The number of tokens.
const TOKENS: usize = 256;
/// The number of names between two markers.
const MARKED: usize = 256;
/// The maximum number of symbols.
const MOST: usize = 1 << 20;
/// The maximum length of a name in bytes.
const LONGEST: usize = 512;
/// The maximum distance of a symbol from the first one.
const FARTHEST: u32 = 1 << 30;
/// The maximum number of locations that are tried for a part of the table.
const TRIED: usize = 16;
/// The maximum distance from the names to the tokens after them, in bytes.
const REACH: usize = 32 << 20;

/// The maximum number of compressed names that are examined to find the start of the names.
const SEARCHED: usize = 1 << 26;
/// The maximum size of all names in bytes; kernels have at most 10 MB.
const MAX_TEXT: usize = 64 << 20;

/// The alignment of a kernel's image in virtual memory (MIN_KIMG_ALIGN).
const ALIGNED: u64 = 2 << 20;

/// R_AARCH64_RELATIVE.
const RELATIVE: u64 = 0x403;

/// The tokens of the digits, which compression never replaces.
const DIGITS: &[u8] = b"0\x001\x002\x003\x004\x005\x006\x007\x008\x009\x00";

impl Kallsyms {
    /// Finds the symbol table in the bytes of a kernel, which begin with its image.
    pub fn find(bytes: &[u8]) -> Option<Self> {
        let mut digits = memchr::memmem::find_iter(bytes, DIGITS).take(TRIED);
        let mut searched = 0;
        digits.find_map(|place| {
            let tokens = Tokens::at(bytes, place)?;
            let names = Names::before(bytes, &tokens, &mut searched)?;
            let (offsets, base_at) = offsets(bytes, &tokens, &names)?;
            let symbols = read(&tokens, &names, &offsets)?;
            let base = base(bytes, base_at);
            Some(Self { symbols, base })
        })
    }

    /// Returns the addresses of the first symbol and of the image, if they are known: as linked, or
    /// as relocated if the bytes come from a running kernel.
    pub fn base(&self) -> Option<(u64, u64)> {
        let base = self.base?;
        Some((base, base & !(ALIGNED - 1)))
    }

    /// Returns all symbols.
    pub fn symbols(&self) -> &[Symbol] {
        &self.symbols
    }

    /// Returns the offsets of all symbols with this name from the first symbol.
    pub fn offsets<'a>(&'a self, name: &'a str) -> impl Iterator<Item = u32> + 'a {
        let symbols = self.symbols.iter();
        symbols
            .filter(move |symbol| symbol.name == name)
            .map(|symbol| symbol.offset)
    }
}

fn read(tokens: &Tokens<'_>, names: &Names<'_>, offsets: &[u32]) -> Option<Vec<Symbol>> {
    let mut symbols = Vec::with_capacity(offsets.len());
    let mut rest = names.bytes;
    let mut total = 0;
    for &offset in offsets {
        let name;
        (name, rest) = split_name(rest)?;
        let mut text = Vec::new();
        for &token in name {
            text.extend_from_slice(tokens.token(token)?);
            if text.len() > LONGEST {
                return None;
            }
        }
        let (&kind, name) = text.split_first()?;
        let printable = name.iter().all(|byte| byte.is_ascii_graphic());
        if !printable || name.is_empty() || !kind.is_ascii_alphabetic() {
            return None;
        }
        total += name.len();
        if total > MAX_TEXT {
            return None;
        }
        symbols.push(Symbol {
            name: String::from_utf8_lossy(name).into_owned(),
            kind,
            offset,
        });
    }
    Some(symbols)
}

/// Returns the address of the first symbol: the value at `place`, or the addend of the relocation
/// for it.
fn base(bytes: &[u8], place: usize) -> Option<u64> {
    let here = u64::from_le_bytes(*bytes.get(place..)?.first_chunk()?);
    if here != 0 {
        return Some(here);
    }
    let words = bytes.as_chunks::<8>().0;
    let mut entries = words.windows(3).map(|entry| {
        let [offset, kind, addend] = [entry[0], entry[1], entry[2]].map(u64::from_le_bytes);
        (offset, kind, addend)
    });
    let found = entries.find(|&(offset, kind, addend)| {
        let image = offset.wrapping_sub(place as u64);
        let inside = addend.wrapping_sub(image);
        kind == RELATIVE && image.is_multiple_of(ALIGNED) && image != 0 && inside < ALIGNED
    });
    found.map(|(_, _, addend)| addend)
}

fn word(bytes: &[u8], place: usize) -> Option<u32> {
    let word = bytes.get(place..)?.first_chunk()?;
    Some(u32::from_le_bytes(*word))
}

fn half(bytes: &[u8], place: usize) -> Option<usize> {
    let half = bytes.get(place..)?.first_chunk()?;
    Some(u16::from_le_bytes(*half).into())
}

/// The table of tokens and its index.
struct Tokens<'a> {
    /// The start of the table.
    start: usize,
    /// The end of its index.
    end: usize,
    table: &'a [u8],
    index: &'a [u8],
}

impl<'a> Tokens<'a> {
    /// Finds the table whose digit tokens are at `digits`.
    fn at(bytes: &'a [u8], digits: usize) -> Option<Self> {
        const ZERO: usize = b'0' as usize;
        /// The maximum size of the tokens starting with that of the digit 0, in bytes.
        const AFTER: usize = 16 << 10;
        let near = (digits..digits + AFTER).step_by(8);
        let mut near = near.map(|place| place.next_multiple_of(8));
        near.find_map(|place| {
            // The index starts with 0, and the token of a digit takes two bytes.
            let zero = half(bytes, place + 2 * ZERO)?;
            if half(bytes, place)? != 0 || half(bytes, place + 2 * ZERO + 2)? != zero + 2 {
                return None;
            }
            let start = digits.checked_sub(zero)?;
            let tokens = Self {
                start,
                end: place + 2 * TOKENS,
                table: bytes.get(start..place)?,
                index: bytes.get(place..place + 2 * TOKENS)?,
            };
            tokens.is_valid().then_some(tokens)
        })
    }

    /// Returns whether every token starts after the end of the previous one.
    fn is_valid(&self) -> bool {
        (1..TOKENS).all(|token| {
            let (before, here) = (half(self.index, 2 * token - 2), half(self.index, 2 * token));
            let (Some(before), Some(here)) = (before, here) else {
                return false;
            };
            let text = self.table.get(before..here);
            text.and_then(<[u8]>::split_last)
                .is_some_and(|(end, text)| *end == 0 && !text.contains(&0))
        })
    }

    fn token(&self, token: u8) -> Option<&'a [u8]> {
        let text = self
            .table
            .get(half(self.index, 2 * usize::from(token))?..)?;
        text.split(|byte| *byte == 0).next()
    }
}

/// The compressed names.
struct Names<'a> {
    bytes: &'a [u8],
    /// The offset of the number of names.
    count_at: usize,
    count: usize,
}

/// Splits off the first name: its length in one or two bytes (7 bits each), then its tokens.
fn split_name(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (&first, rest) = bytes.split_first()?;
    let (length, rest) = if first & 0x80 == 0 {
        (usize::from(first), rest)
    } else {
        let (&second, rest) = rest.split_first()?;
        (usize::from(first & 0x7f) | usize::from(second) << 7, rest)
    };
    rest.split_at_checked(length).filter(|_| length > 0)
}

impl<'a> Names<'a> {
    /// Finds the names by their markers, before the tokens. `searched` counts examined names.
    fn before(bytes: &'a [u8], tokens: &Tokens<'_>, searched: &mut usize) -> Option<Self> {
        let from = tokens.start.saturating_sub(REACH).next_multiple_of(8);
        let places = (from..tokens.start).step_by(8);
        let places = places.rev().filter(|&place| begins_markers(bytes, place));
        let mut places = places.take(TRIED);
        places.find_map(|markers| Self::marked(bytes, markers, searched))
    }

    /// Finds the names that end before their markers.
    fn marked(bytes: &'a [u8], markers: usize, searched: &mut usize) -> Option<Self> {
        let marker = |index: usize| word(bytes, markers + 4 * index).map(|at| at as usize);
        let mut last = 0;
        while last < MOST / MARKED && is_step(marker(last)?, marker(last + 1)?) {
            last += 1;
        }
        // At most one more group of names, and padding, follow the position of the last marker. The
        // bytes after the markers may look like further markers.
        (8..=last).rev().take(4).find_map(|last| {
            let newest = markers.checked_sub(marker(last)?)?;
            let oldest = newest.saturating_sub(MARKED * LONGEST).next_multiple_of(8);
            (oldest..newest).step_by(8).rev().find_map(|start| {
                let count_at = start.checked_sub(8)?;
                let count = word(bytes, count_at)? as usize;
                if !(last * MARKED + 1..=(last + 1) * MARKED).contains(&count) {
                    return None;
                }
                let names = bytes.get(start..markers)?;
                let mut rest = names;
                for index in 1..=last {
                    *searched += MARKED;
                    if *searched > SEARCHED {
                        return None;
                    }
                    for _ in 0..MARKED {
                        rest = split_name(rest)?.1;
                    }
                    if names.len() - rest.len() != marker(index)? {
                        return None;
                    }
                }
                Some(Self {
                    bytes: names,
                    count_at,
                    count,
                })
            })
        })
    }
}

/// Returns whether `next` may be the marker after `marker`.
fn is_step(marker: usize, next: usize) -> bool {
    let names = next.wrapping_sub(marker);
    (2 * MARKED..MARKED * 128).contains(&names)
}

fn begins_markers(bytes: &[u8], place: usize) -> bool {
    let marker = |index: usize| word(bytes, place + 4 * index).map(|at| at as usize);
    let steps = |index| Some(is_step(marker(index)?, marker(index + 1)?));
    marker(0) == Some(0) && (0..8).all(|index| steps(index) == Some(true))
}

/// Reads the offset of each symbol, and finds the position of their base.
fn offsets(bytes: &[u8], tokens: &Tokens<'_>, names: &Names<'_>) -> Option<(Vec<u32>, usize)> {
    let length = 4 * names.count;
    // Until Linux 6.3: offsets, base, number of names, names.
    let before = names.count_at.checked_sub(8 + length.next_multiple_of(8));
    // Since Linux 6.4: tokens, index, offsets, base.
    let after = tokens.end.next_multiple_of(8);
    [before, Some(after)].into_iter().flatten().find_map(|at| {
        let words = bytes.get(at..at + length)?.as_chunks::<4>().0;
        let offsets: Vec<u32> = words.iter().map(|word| u32::from_le_bytes(*word)).collect();
        let rises = offsets.is_sorted() && offsets.first() == Some(&0);
        let fits = rises
            && offsets
                .last()
                .is_some_and(|last| *last > 0 && *last < FARTHEST);
        fits.then_some((offsets, at + length.next_multiple_of(8)))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const IMAGE: u64 = 0xffff_8000_0800_0000;

    /// Returns a kernel image with these symbols, in the layout of Linux 6.1 or 6.4.
    fn image(symbols: &[(String, u32)], newer: bool) -> Vec<u8> {
        let mut table = Vec::new();
        let mut index = Vec::new();
        for token in 0..=255_u8 {
            index.extend((table.len() as u16).to_le_bytes());
            match token {
                b'!'..=b'~' => table.push(token),
                // A token of several letters.
                1 => table.extend(b"Tsys_"),
                other => table.extend(format!("<{other}>").bytes()),
            }
            table.push(0);
        }
        let (mut names, mut markers) = (Vec::new(), Vec::new());
        for (number, (name, _)) in symbols.iter().enumerate() {
            if number % MARKED == 0 {
                markers.extend((names.len() as u32).to_le_bytes());
            }
            let coded = match name.strip_prefix("sys_") {
                Some(rest) => [&[1], rest.as_bytes()].concat(),
                None => [b"t", name.as_bytes()].concat(),
            };
            if coded.len() < 128 {
                names.push(coded.len() as u8);
            } else {
                names.extend([coded.len() as u8 | 0x80, (coded.len() >> 7) as u8]);
            }
            names.extend(coded);
        }
        let mut base_at = 0;
        let mut out = vec![0xa5; 4096];
        let align = |out: &mut Vec<u8>| out.resize(out.len().next_multiple_of(8), 0);
        let offsets: Vec<u8> = symbols.iter().flat_map(|s| s.1.to_le_bytes()).collect();
        let place = |out: &mut Vec<u8>, bytes: &[u8]| {
            out.extend(bytes);
            align(out);
        };
        if !newer {
            place(&mut out, &offsets);
            base_at = out.len() as u64;
            place(&mut out, &[0; 8]);
        }
        place(&mut out, &(symbols.len() as u32).to_le_bytes());
        place(&mut out, &names);
        place(&mut out, &markers);
        place(&mut out, &table);
        place(&mut out, &index);
        if newer {
            place(&mut out, &offsets);
            base_at = out.len() as u64;
            place(&mut out, &[0; 8]);
        }
        // Relocations of another location and of the base.
        for (at, addend) in [(base_at + 8, 0x4_0000), (base_at, 0x1_0000)] {
            for word in [IMAGE + at, RELATIVE, IMAGE + addend] {
                place(&mut out, &word.to_le_bytes());
            }
        }
        out.extend([0x5a; 64]);
        out
    }

    fn symbols() -> Vec<(String, u32)> {
        let mut symbols = vec![("_text".to_owned(), 0)];
        symbols.extend((1..3000_u32).map(|n| {
            let name = match n % 7 {
                0 => format!("sys_call{n}"),
                1 => format!("f{n}{}", "x".repeat(150)),
                _ => format!("function_{n}"),
            };
            (name, 16 * n)
        }));
        symbols
    }

    #[test]
    fn symbols_of_both_layouts() {
        let wanted = symbols();
        for newer in [false, true] {
            let found = Kallsyms::find(&image(&wanted, newer)).unwrap();
            let names = found.symbols().iter().map(|s| (s.name.clone(), s.offset));
            assert!(names.eq(wanted.iter().cloned()), "newer: {newer}");
            assert!(found.offsets("sys_call7").eq([7 * 16]));
            assert_eq!(found.base(), Some((IMAGE + 0x1_0000, IMAGE)));
            assert_eq!(found.symbols()[7].kind, b'T');
            assert!(found.symbols()[8].is_code());
        }
    }

    #[test]
    fn damaged_tables_end_in_nothing_or_in_valid_symbols() {
        let whole = image(&symbols(), false);
        for place in (4096..whole.len()).step_by(9973) {
            let mut bytes = whole.clone();
            bytes[place] ^= 0xff;
            let found = Kallsyms::find(&bytes);
            assert!(found.is_none_or(|found| found.symbols().len() == 3000));
            assert_eq!(Kallsyms::find(&whole[..place]), None);
        }
        assert_eq!(Kallsyms::find(&[0; 100_000]), None);
        assert_eq!(Kallsyms::find(DIGITS), None);
    }

    /// Names of two bytes each, which seem to start anywhere; the last marker fits none of them.
    #[test]
    fn the_search_for_names_ends() {
        let mut bytes = [1, 0].repeat(1 << 18);
        let markers = bytes.len();
        bytes.extend((0..256_u32).flat_map(|group| (512 * group).to_le_bytes()));
        bytes.extend((512 * 256 + 2_u32).to_le_bytes());
        bytes.extend([0; 64]);
        let mut searched = 0;
        let found = Names::marked(&bytes, markers, &mut searched);
        assert!(found.is_none());
        assert!((SEARCHED..2 * SEARCHED).contains(&searched), "{searched}");
    }
}
