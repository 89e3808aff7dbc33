//! BTF: the types of a kernel, from its memory (Linux, Documentation/bpf/btf.rst).

/// The first bytes of a kernel's type information: magic number, version, flags, length of the
/// header, offset of the types.
pub const START: &[u8] = &[0x9f, 0xeb, 1, 0, 24, 0, 0, 0, 0, 0, 0, 0];
/// The length of the header.
pub const HEADER: usize = 24;
/// The maximum number of types.
const MOST: usize = 1 << 22;
/// The maximum number of typedefs and qualifiers around a structure, and of nested anonymous
/// structures.
const DEPTH: usize = 16;
/// The maximum number of members that are examined for a path.
const MEMBERS: usize = 1 << 16;

const ARRAY: u32 = 3;
const STRUCT: u32 = 4;
const UNION: u32 = 5;

/// The types of a kernel.
#[derive(Debug)]
pub struct Btf<'b> {
    types: &'b [u8],
    strings: &'b [u8],
    /// The offset of each type in `types`, starting with type 1.
    places: Vec<u32>,
}

/// Returns the length of BTF that starts with [`START`], from its header.
pub fn length(header: &[u8]) -> Option<usize> {
    let field = |at: usize| Some(u32::from_le_bytes(*header.get(at..)?.first_chunk()?) as usize);
    let (types, strings_at, strings) = (field(12)?, field(16)?, field(20)?);
    header.starts_with(START).then_some(())?;
    (strings_at >= types).then_some(HEADER + strings_at + strings)
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}

impl<'b> Btf<'b> {
    /// Reads types; `None` if they are damaged.
    pub fn read(bytes: &'b [u8]) -> Option<Self> {
        let whole = bytes.get(..length(bytes)?)?;
        let types = whole.get(HEADER..HEADER + word(whole, 12)? as usize)?;
        let strings = whole.get(HEADER + word(whole, 16)? as usize..)?;
        let mut places = Vec::new();
        let mut at = 0;
        while at < types.len() {
            if places.len() == MOST {
                return None;
            }
            places.push(at as u32);
            let info = word(types, at + 4)?;
            let count = (info & 0xffff) as usize;
            at += 12
                + match info >> 24 & 0x1f {
                    // integer; variable; tag of a declaration
                    1 | 14 | 17 => 4,
                    ARRAY => 12,
                    STRUCT | UNION => 12 * count,
                    // enumeration; prototype
                    6 | 13 => 8 * count,
                    // section; 64-bit enumeration
                    15 | 19 => 12 * count,
                    2 | 7..=12 | 16 | 18 => 0,
                    _ => return None,
                };
        }
        Some(Self {
            types,
            strings,
            places,
        })
    }

    /// Returns whether the string at an offset is `name`. Does not search for the end of a longer
    /// string.
    fn is_named(&self, offset: u32, name: &[u8]) -> bool {
        let rest = self.strings.get(offset as usize..).unwrap_or_default();
        rest.strip_prefix(name)
            .is_some_and(|rest| matches!(rest, [] | [0, ..]))
    }

    /// Returns the kind of a type (with bit 8 set if members have bit sizes), its number of
    /// members, its size or referenced type, and the offset of its members.
    fn fields(&self, number: u32) -> Option<(u32, usize, u32, usize)> {
        let index = (number as usize).checked_sub(1)?;
        let at = *self.places.get(index)? as usize;
        let info = word(self.types, at + 4)?;
        let kind = info >> 24 & 0x1f;
        let kind_and_flag = kind | info >> 31 << 8;
        let count = (info & 0xffff) as usize;
        Some((kind_and_flag, count, word(self.types, at + 8)?, at + 12))
    }

    /// Returns the type number of the structure with a name.
    fn structure(&self, name: &str) -> Option<u32> {
        let mut numbers = 1..=self.places.len() as u32;
        numbers.find(|number| {
            let at = self.places[*number as usize - 1] as usize;
            let is_struct = word(self.types, at + 4).is_some_and(|i| i >> 24 & 0x1f == STRUCT);
            is_struct && word(self.types, at).is_some_and(|n| self.is_named(n, name.as_bytes()))
        })
    }

    /// Returns the size of a structure in bytes.
    pub fn size(&self, structure: &str) -> Option<u64> {
        let (_, _, size, _) = self.fields(self.structure(structure)?)?;
        Some(size.into())
    }

    /// Returns the offset in bytes of a member of a structure, given by a path such as
    /// `thread.cpu_context.sp`.
    pub fn offset(&self, structure: &str, path: &str) -> Option<u64> {
        Some(self.place(structure, path)?.0)
    }

    /// Returns the offset in bytes of a member that is an array, and the number of its elements.
    pub fn array(&self, structure: &str, path: &str) -> Option<(u64, u32)> {
        let (offset, number) = self.place(structure, path)?;
        let (kind, _, _, at) = self.fields(number)?;
        // Types of the elements and of the index, then the number of elements.
        let count = (kind & 0xff == ARRAY).then(|| word(self.types, at + 8))??;
        Some((offset, count))
    }

    /// Returns the offset in bytes and the type of a member.
    fn place(&self, structure: &str, path: &str) -> Option<(u64, u32)> {
        let mut number = self.structure(structure)?;
        let mut offset = 0_u64;
        let mut left = MEMBERS;
        for name in path.split('.') {
            let (at, kind) = self.member(number, name.as_bytes(), &mut left, DEPTH)?;
            offset = offset.checked_add(at)?;
            number = kind;
        }
        offset.is_multiple_of(8).then_some((offset / 8, number))
    }

    /// Returns the offset in bits and the type of a member, which may be in an anonymous structure.
    fn member(
        &self,
        mut number: u32,
        name: &[u8],
        left: &mut usize,
        depth: usize,
    ) -> Option<(u64, u32)> {
        let (mut kind, mut count, mut size, mut at) = self.fields(number)?;
        // Typedefs and qualifiers.
        for _ in 0..DEPTH {
            if !matches!(kind & 0xff, 8..=11 | 18) {
                break;
            }
            number = size;
            (kind, count, size, at) = self.fields(number)?;
        }
        if !matches!(kind & 0xff, STRUCT | UNION) {
            return None;
        }
        for index in 0..count {
            *left = left.checked_sub(1)?;
            let at = at + 12 * index;
            let (own, of, mut offset) = (
                word(self.types, at)?,
                word(self.types, at + 4)?,
                word(self.types, at + 8)?,
            );
            if kind >> 8 != 0 {
                // The size of a bit field; 0 for others.
                if offset >> 24 != 0 {
                    continue;
                }
                offset &= 0xff_ffff;
            }
            if self.is_named(own, name) {
                return Some((offset.into(), of));
            }
            if self.is_named(own, b"")
                && depth > 0
                && let Some((inner, of)) = self.member(of, name, left, depth - 1)
            {
                return Some((u64::from(offset) + inner, of));
            }
        }
        None
    }
}
