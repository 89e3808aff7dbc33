//! ELF files that run in the emulator, programs and libraries: load addresses, symbols and
//! instruction sets.
//!
//! Reads files only, not the process that runs them.

use armsnap_arch::quantity::Isa;
use armsnap_snapshot::mapped::{self, Mapped};
use armsnap_snapshot::program::elf::soname;
use armsnap_snapshot::program::instruction_sets::Contents;
use object::read::elf::ElfFile;
use object::{Endianness, Object, ObjectSection, ObjectSegment, ObjectSymbol};
use object::{SectionKind, SegmentFlags, SymbolKind, elf, read};
use std::path::Path;

/// A program for the emulator, or one of its libraries.
#[derive(Debug)]
pub struct Program {
    /// Whether it is for AArch64; otherwise it is for AArch32.
    pub is_64bit: bool,
    /// The address of the first instruction; bit 0 is set for T32.
    pub entry: u64,
    /// The path of its dynamic linker (`PT_INTERP`).
    pub interpreter: Option<String>,
    /// The library's name for the dynamic linker (`DT_SONAME`).
    pub soname: Option<String>,
    /// Whether it is loaded at the addresses in the file (`ET_EXEC`).
    pub fixed: bool,
    segments: Vec<Segment>,
    /// What the file contains from each address on, ordered by address.
    marks: Vec<(u64, Contents)>,
    /// Functions and labels: name, address, and whether it is an indirect function
    /// (`STT_GNU_IFUNC`).
    symbols: Vec<(String, u64, bool)>,
}

/// A loaded segment of the file.
#[derive(Clone, Debug)]
struct Segment {
    address: u64,
    offset: u64,
    length: u64,
    executable: bool,
}

impl Program {
    /// Reads a little-endian ELF file for AArch64 or Arm. Fails with the reason.
    pub fn read(bytes: &[u8]) -> Result<Self, String> {
        match bytes.get(4) {
            Some(2) => Self::of(
                &ElfFile::<elf::FileHeader64<Endianness>>::parse(bytes)
                    .map_err(|error| error.to_string())?,
            ),
            _ => Self::of(
                &ElfFile::<elf::FileHeader32<Endianness>>::parse(bytes)
                    .map_err(|error| error.to_string())?,
            ),
        }
    }

    fn of<'d, E: read::elf::FileHeader<Endian = Endianness>>(
        file: &ElfFile<'d, E>,
    ) -> Result<Self, String> {
        let is_64bit = match file.architecture() {
            object::Architecture::Aarch64 => true,
            object::Architecture::Arm => false,
            _ => return Err(
                "expected a program for AArch64 or Arm: compile it with a cross compiler (armsnap \
                     doctor lists them)"
                    .to_owned(),
            ),
        };
        if !file.is_little_endian() {
            return Err("expected a little-endian program".to_owned());
        }
        let interpreter = file
            .section_by_name(".interp")
            .and_then(|section| section.data().ok())
            .map(|name| {
                let end = name.iter().position(|&b| b == 0).unwrap_or(name.len());
                String::from_utf8_lossy(&name[..end]).into_owned()
            });
        let segments = file
            .segments()
            .map(|segment| Segment {
                address: segment.address(),
                offset: segment.file_range().0,
                length: segment.file_range().1,
                executable: matches!(segment.flags(),
                    SegmentFlags::Elf { p_flags, .. } if p_flags.0 & elf::PF_X.0 != 0),
            })
            .collect();
        let in_code = |index: Option<object::SectionIndex>| {
            index
                .and_then(|index| file.section_by_index(index).ok())
                .is_some_and(|section| section.kind() == SectionKind::Text)
        };
        let mut marks = Vec::new();
        let mut symbols = Vec::new();
        for symbol in file.symbols().chain(file.dynamic_symbols()) {
            let Ok(name) = symbol.name() else { continue };
            if let Some(contents) = Contents::marked_by(name.as_bytes())
                && in_code(symbol.section_index())
            {
                marks.push((symbol.address(), contents));
            }
            if Contents::is_mark(name.as_bytes()) {
                continue;
            }
            let indirect = matches!(symbol.flags(),
                object::SymbolFlags::Elf { st_info, .. }
                    if st_info.st_type() == elf::STT_GNU_IFUNC);
            let code = match symbol.kind() {
                SymbolKind::Text => !symbol.is_undefined(),
                // A label of assembly code.
                SymbolKind::Unknown => in_code(symbol.section_index()),
                _ => false,
            };
            if code {
                symbols.push((name.to_owned(), symbol.address(), indirect));
            }
        }
        marks.sort_by_key(|mark| mark.0);
        Ok(Self {
            is_64bit,
            entry: file.entry(),
            interpreter,
            soname: soname(file),
            fixed: file.kind() == object::ObjectKind::Executable,
            segments,
            marks,
            symbols,
        })
    }

    /// Maps and reads the ELF file of a program. Fails with the reason.
    pub fn open(path: &Path) -> Result<(Self, Mapped), String> {
        let bytes = mapped::map(path).map_err(|error| error.to_string())?;
        if !bytes.starts_with(b"\x7fELF") {
            return Err(
                "expected an ELF file, as a linker writes it: no script and no raw image"
                    .to_owned(),
            );
        }
        Ok((Self::read(&bytes)?, bytes))
    }

    /// Returns the address in the file of each function or label of this name, and whether it is an
    /// indirect function (`STT_GNU_IFUNC`). Bit 0 is set for T32.
    pub fn symbols(&self, name: &str) -> impl Iterator<Item = (u64, bool)> {
        let symbols = self.symbols.iter().filter(move |symbol| symbol.0 == name);
        symbols.map(|&(_, address, indirect)| match self.isa(address & !1) {
            Some(Isa::T32) => (address | 1, indirect),
            _ => (address, indirect),
        })
    }

    /// Returns the instruction set at an address: that of the mapping symbol or, in a file without
    /// mapping symbols, that of the function.
    pub fn isa(&self, address: u64) -> Option<Isa> {
        if self.is_64bit {
            return Some(Isa::A64);
        }
        if let Some(marked) = self.mark(address) {
            return marked.isa();
        }
        let functions = self.symbols.iter().map(|symbol| symbol.1);
        let before = functions.filter(|function| function & !1 <= address);
        let function = before.max_by_key(|function| function & !1)?;
        Some(match function & 1 {
            1 => Isa::T32,
            _ => Isa::A32,
        })
    }

    /// Returns what the last mapping symbol up to an address marks.
    fn mark(&self, address: u64) -> Option<Contents> {
        let after = self.marks.partition_point(|mark| mark.0 <= address);
        Some(self.marks.get(after.checked_sub(1)?)?.1)
    }

    /// Returns whether an instruction may begin at an address: the address is aligned, and in an
    /// executable segment where no mapping symbol marks data.
    pub fn is_code(&self, address: u64, isa: Isa) -> bool {
        let alignment = if isa == Isa::T32 { 2 } else { 4 };
        let mut segments = self.segments.iter().filter(|segment| segment.executable);
        address.is_multiple_of(alignment)
            && segments.any(|segment| address.wrapping_sub(segment.address) < segment.length)
            && self.mark(address) != Some(Contents::Data)
    }

    /// Returns the load bias of the program if the file's byte at `offset` was loaded at `address`.
    pub fn moved(&self, offset: u64, address: u64) -> Option<u64> {
        const PAGE: u64 = 0xfff;
        let segment = self.segments.iter().find(|segment| {
            let end = segment.offset.saturating_add(segment.length);
            offset & !PAGE >= segment.offset & !PAGE && offset < end
        })?;
        let own = segment.address.wrapping_sub(segment.offset);
        Some(address.wrapping_sub(offset).wrapping_sub(own))
    }
}
