//! An ELF file that only has symbols, for readers that take names from ELF files (ELF-64 Object File
//! Format, version 1.5).

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

/// Writes an ELF file for AArch64 with these functions, which are in `start..end`. It has no code.
pub fn write(functions: &[Function], start: u64, end: u64) -> Vec<u8> {
    let mut strings = vec![0];
    // The first symbol is the undefined one (figure 6).
    let mut symbols = vec![0; SYMBOL as usize];
    for function in functions {
        symbols.extend((strings.len() as u32).to_le_bytes());
        // STB_GLOBAL, STT_FUNC; the section .text is number 1.
        symbols.extend([0x12, 0, 1, 0]);
        symbols.extend(function.address.to_le_bytes());
        symbols.extend(function.size.to_le_bytes());
        strings.extend(function.name.as_bytes());
        strings.push(0);
    }
    let section_names = b"\0.text\0.symtab\0.strtab\0.shstrtab\0";
    let symbols_at = HEADER + PROGRAM_HEADER;
    let strings_at = symbols_at + symbols.len() as u64;
    let names_at = strings_at + strings.len() as u64;
    let sections_at = (names_at + section_names.len() as u64).next_multiple_of(8);

    let mut out = Vec::with_capacity(sections_at as usize + 5 * 64);
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
    longs(&mut out, &[start, HEADER, sections_at]);
    words(&mut out, &[0]);
    halves(&mut out, &[64, 56, 1, 64, 5, 4]);
    // PT_LOAD, readable and executable, without contents.
    words(&mut out, &[1, 5]);
    longs(&mut out, &[0, start, start, 0, end - start, 4]);
    out.extend(&symbols);
    out.extend(&strings);
    out.extend(section_names);
    out.resize(sections_at as usize, 0);
    out.resize(out.len() + 64, 0);
    let mut section =
        |name: u32, kind: u32, flags: u64, fields: [u64; 3], link: [u32; 2], entry| {
            words(&mut out, &[name, kind]);
            longs(&mut out, &[flags, fields[0], fields[1], fields[2]]);
            words(&mut out, &link);
            longs(&mut out, &[8, entry]);
        };
    // SHT_NOBITS with SHF_ALLOC and SHF_EXECINSTR; SHT_SYMTAB; SHT_STRTAB.
    section(1, 8, 6, [start, symbols_at, end - start], [0, 0], 0);
    section(
        7,
        2,
        0,
        [0, symbols_at, symbols.len() as u64],
        [3, 1],
        SYMBOL,
    );
    section(15, 3, 0, [0, strings_at, strings.len() as u64], [0, 0], 0);
    section(
        23,
        3,
        0,
        [0, names_at, section_names.len() as u64],
        [0, 0],
        0,
    );
    out
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
        let bytes = write(&all, start, start + 0x1000);
        let file = object::File::parse(&*bytes).unwrap();
        assert_eq!(file.architecture(), object::Architecture::Aarch64);
        let text = file.section_by_name(".text").unwrap();
        assert_eq!((text.address(), text.size()), (start, 0x1000));
        let found = file.symbols().map(|symbol| Function {
            name: symbol.name().unwrap().to_owned(),
            address: symbol.address(),
            size: symbol.size(),
        });
        assert!(found.eq(all));
    }
}
