//! Writes an ELF file that contains only symbols and call frame information, for readers that take
//! names from ELF files (ELF-64 Object File Format, version 1.5).

use std::ops::Range;

/// A function.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Function {
    /// Its name.
    pub name: String,
    /// Its address.
    pub address: u64,
    /// Its size in bytes.
    pub size: u64,
}

const HEADER: u64 = 64;
const PROGRAM_HEADER: u64 = 56;
const SYMBOL: u64 = 24;

/// A section: its name, type, flags, address, offset in the file, size, and links to other
/// sections.
#[derive(Default)]
struct Section {
    name: String,
    kind: u32,
    flags: u64,
    address: u64,
    offset: u64,
    size: u64,
    link: [u32; 2],
    entry: u64,
}

/// A section of code: its name and its address range.
pub(crate) type Text = (String, Range<u64>);

/// Maximum number of sections of code.
pub(crate) const MAX_TEXTS: usize = 1 << 14;

/// Writes an ELF file for AArch64 with these functions, which are in the sections `texts`, and with
/// their `.debug_frame`. It contains no code.
pub(crate) fn write(functions: &[Function], texts: &[Text], frames: &[u8]) -> Vec<u8> {
    let texts = &texts[..texts.len().min(MAX_TEXTS)];
    // Section 0 is the undefined section.
    let within = |address: u64| {
        let text = texts.iter().position(|(_, range)| range.contains(&address));
        text.map(|index| index as u16 + 1)
    };
    let mut strings = vec![0];
    // The first symbol is the undefined symbol (figure 6).
    let mut symbols = vec![0; SYMBOL as usize];
    let mut last = (0..0, 0);
    for function in functions {
        if !last.0.contains(&function.address) {
            let Some(section) = within(function.address) else {
                continue;
            };
            last = (texts[usize::from(section) - 1].1.clone(), section);
        }
        symbols.extend((strings.len() as u32).to_le_bytes());
        // STB_GLOBAL, STT_FUNC.
        symbols.extend([0x12, 0]);
        symbols.extend(last.1.to_le_bytes());
        symbols.extend(function.address.to_le_bytes());
        symbols.extend(function.size.to_le_bytes());
        strings.extend(function.name.as_bytes());
        strings.push(0);
    }
    let first = texts.len() as u32 + 1;
    let names = [".symtab", ".strtab", ".shstrtab", ".debug_frame"].map(str::to_owned);
    let names: Vec<String> = texts
        .iter()
        .map(|text| text.0.clone())
        .chain(names)
        .collect();
    let section_names = format!("\0{}\0", names.join("\0"));
    let symbols_at = HEADER + PROGRAM_HEADER * texts.len() as u64;
    let strings_at = symbols_at + symbols.len() as u64;
    let names_at = strings_at + strings.len() as u64;
    let frames_at = (names_at + section_names.len() as u64).next_multiple_of(8);
    let sections_at = (frames_at + frames.len() as u64).next_multiple_of(8);
    let strtab = 3;
    let mut sections = vec![Section::default()];
    sections.extend(texts.iter().map(|(name, range)| Section {
        // SHT_NOBITS with SHF_ALLOC and SHF_EXECINSTR
        kind: 8,
        flags: 6,
        address: range.start,
        offset: symbols_at,
        size: range.end - range.start,
        ..Section::named(name)
    }));
    sections.extend([
        Section {
            // SHT_SYMTAB, with its strings in the next section; symbol 1 is the first global one
            kind: 2,
            offset: symbols_at,
            size: symbols.len() as u64,
            link: [first + 1, 1],
            entry: SYMBOL,
            ..Section::named(".symtab")
        },
        Section {
            kind: strtab,
            offset: strings_at,
            size: strings.len() as u64,
            ..Section::named(".strtab")
        },
        Section {
            kind: strtab,
            offset: names_at,
            size: section_names.len() as u64,
            ..Section::named(".shstrtab")
        },
        Section {
            // SHT_PROGBITS
            kind: 1,
            offset: frames_at,
            size: frames.len() as u64,
            ..Section::named(".debug_frame")
        },
    ]);

    let mut out = Vec::with_capacity(sections_at as usize + sections.len() * 64);
    // ELFCLASS64, ELFDATA2LSB, EV_CURRENT (figure 2).
    out.extend(b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0");
    let halves = |out: &mut Vec<u8>, values: &[u16]| {
        values.iter().for_each(|v| out.extend(v.to_le_bytes()));
    };
    let words = |out: &mut Vec<u8>, values: &[u32]| {
        values.iter().for_each(|v| out.extend(v.to_le_bytes()));
    };
    let longs = |out: &mut Vec<u8>, values: &[u64]| {
        values.iter().for_each(|v| out.extend(v.to_le_bytes()));
    };
    // ET_EXEC, EM_AARCH64.
    halves(&mut out, &[2, 183]);
    words(&mut out, &[1]);
    // No entry point, because debuggers end back traces in its function.
    longs(&mut out, &[0, HEADER, sections_at]);
    words(&mut out, &[0]);
    let names = first as u16 + 2;
    let (loads, count) = (texts.len() as u16, sections.len() as u16);
    halves(&mut out, &[64, 56, loads, 64, count, names]);
    for (_, Range { start, end }) in texts {
        // PT_LOAD, readable and executable, without contents.
        words(&mut out, &[1, 5]);
        longs(&mut out, &[0, *start, *start, 0, end - start, 4]);
    }
    out.extend(&symbols);
    out.extend(&strings);
    out.extend(section_names.as_bytes());
    out.resize(frames_at as usize, 0);
    out.extend(frames);
    out.resize(sections_at as usize, 0);
    for section in &sections {
        let name = section_names.find(&format!("\0{}\0", section.name));
        let name = name.filter(|_| !section.name.is_empty());
        words(
            &mut out,
            &[name.map_or(0, |at| at as u32 + 1), section.kind],
        );
        longs(&mut out, &[section.flags, section.address]);
        longs(&mut out, &[section.offset, section.size]);
        words(&mut out, &section.link);
        let align = if section.kind == 0 { 0 } else { 8 };
        longs(&mut out, &[align, section.entry]);
    }
    out
}

impl Section {
    fn named(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            ..Self::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use object::{Object, ObjectSection, ObjectSymbol};

    #[test]
    fn readers_find_the_functions() {
        let function = |name: &str, address| Function {
            name: name.to_owned(),
            address,
            size: 0x10,
        };
        let start = 0xffff_8000_0800_0000;
        let all = [function("_text", start), function("panic", start + 0x10)];
        let texts = [
            (".text.x".to_owned(), start - 0x1000..start),
            (".text".to_owned(), start..start + 0x1000),
        ];
        let bytes = write(&all, &texts, b"frames");
        let file = object::File::parse(&*bytes).unwrap();
        assert_eq!(file.architecture(), object::Architecture::Aarch64);
        let text = file.section_by_name(".text").unwrap();
        assert_eq!((text.address(), text.size()), (start, 0x1000));
        assert_eq!(file.entry(), 0);
        let sections = file.symbols().map(|symbol| symbol.section_index());
        assert!({ sections }.all(|section| section == Some(text.index())));
        assert_eq!(file.section_by_name(".text.x").unwrap().size(), 0x1000);
        assert_eq!(file.segments().count(), 2);
        let frames = file.section_by_name(".debug_frame").unwrap();
        assert_eq!(frames.data().unwrap(), b"frames");
        let found = file.symbols().map(|symbol| Function {
            name: symbol.name().unwrap().to_owned(),
            address: symbol.address(),
            size: symbol.size(),
        });
        assert!(found.eq(all));
    }
}
