//! Functions and source lines of addresses, from ELF files.
//!
//! Knows nothing of snapshots or trace.

use gimli::{EndianArcSlice, RunTimeEndian};
use object::{Object, ObjectSection, ObjectSymbol, SymbolKind};
use std::borrow::Cow;
use std::sync::{Arc, Mutex, PoisonError};

type Slice = EndianArcSlice<RunTimeEndian>;

/// A function of the program.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Function {
    start: u64,
    /// First address behind it; equals `start` where the symbol has no size.
    end: u64,
    name: Box<str>,
}

/// Where an address lies in the source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceLine {
    /// The file, as the debug information names it.
    pub file: String,
    /// Line, from 1.
    pub line: u32,
}

/// The symbols and debug information of some ELF files.
#[derive(Default)]
pub struct Symbols {
    functions: Vec<Function>,
    /// Each with the offset of its addresses. It reads its debug information when it is first
    /// asked, hence the lock.
    lines: Vec<(u64, Mutex<addr2line::Context<Slice>>)>,
}

impl Symbols {
    /// Reads the symbols and the debug information of an ELF file, in addition to those there
    /// are. What is not there or cannot be read gives no names; the reason comes back as text.
    pub fn add(&mut self, elf: &[u8]) -> Result<(), String> {
        self.add_moved(elf, 0)
    }

    /// The same for a program that lies `offset` bytes behind the addresses of its file.
    pub fn add_moved(&mut self, elf: &[u8], offset: u64) -> Result<(), String> {
        let file = object::File::parse(elf).map_err(|error| error.to_string())?;
        let arm = file.architecture() == object::Architecture::Arm;
        self.functions.extend(
            file.symbols()
                .filter(|symbol| symbol.kind() == SymbolKind::Text && symbol.is_definition())
                .filter_map(|symbol| {
                    let name = symbol.name().ok().filter(|name| !name.starts_with('$'))?;
                    // The low bit of an Arm function's address says Thumb (AAELF32, 5.5.3).
                    let start = symbol.address() & !u64::from(arm);
                    let start = start.wrapping_add(offset);
                    Some(Function {
                        start,
                        end: start.saturating_add(symbol.size()),
                        name: name.into(),
                    })
                }),
        );
        self.functions.sort_by_key(|function| function.start);

        let endian = if file.is_little_endian() {
            RunTimeEndian::Little
        } else {
            RunTimeEndian::Big
        };
        let dwarf = gimli::Dwarf::load(|id| {
            let data = match file.section_by_name(id.name()) {
                Some(section) => section.uncompressed_data().map_err(|e| e.to_string())?,
                None => Cow::Borrowed(&[][..]),
            };
            Ok::<_, String>(Slice::new(Arc::from(&*data), endian))
        })?;
        let context = addr2line::Context::from_dwarf(dwarf).map_err(|e| e.to_string())?;
        self.lines.push((offset, Mutex::new(context)));
        Ok(())
    }

    /// Whether there are no functions.
    pub fn is_empty(&self) -> bool {
        self.functions.is_empty()
    }

    /// The function that an address lies in, and how many bytes behind its begin.
    pub fn function(&self, address: u64) -> Option<(&str, u64)> {
        let after = self.functions.partition_point(|f| f.start <= address);
        let next = self.functions.get(after).map_or(u64::MAX, |f| f.start);
        let start = self.functions[..after].last()?.start;
        self.functions[..after]
            .iter()
            .rev()
            .take_while(|f| f.start == start)
            .find(|f| address < if f.end == f.start { next } else { f.end })
            .map(|f| (&*f.name, address - f.start))
    }

    /// The begin of a function, by its name.
    pub fn address(&self, name: &str) -> Option<u64> {
        let mut functions = self.functions.iter();
        functions.find(|f| &*f.name == name).map(|f| f.start)
    }

    /// The source line that an address belongs to.
    pub fn line(&self, address: u64) -> Option<SourceLine> {
        self.lines.iter().find_map(|(offset, context)| {
            let context = context.lock().unwrap_or_else(PoisonError::into_inner);
            let location = context
                .find_location(address.wrapping_sub(*offset))
                .ok()??;
            Some(SourceLine {
                file: location.file?.to_owned(),
                line: location.line?,
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn symbols(functions: &[(u64, u64, &str)]) -> Symbols {
        Symbols {
            functions: functions
                .iter()
                .map(|&(start, end, name)| Function {
                    start,
                    end,
                    name: name.into(),
                })
                .collect(),
            lines: Vec::new(),
        }
    }

    #[test]
    fn an_address_belongs_to_the_function_around_it() {
        let s = symbols(&[(0x10, 0x20, "a"), (0x30, 0x30, "b"), (0x40, 0x44, "c")]);
        assert_eq!(s.function(0xf), None);
        assert_eq!(s.function(0x10), Some(("a", 0)));
        assert_eq!(s.function(0x1f), Some(("a", 15)));
        assert_eq!(s.function(0x20), None);
        assert_eq!(s.function(0x3f), Some(("b", 15)), "a symbol without size");
        assert_eq!(s.function(0x43), Some(("c", 3)));
        assert_eq!(s.function(0x44), None);
        assert_eq!(s.address("b"), Some(0x30));
        assert_eq!(s.address("d"), None);
    }

    #[test]
    fn what_is_no_elf_is_told() {
        assert!(Symbols::default().add(b"not an ELF").is_err());
    }

    #[test]
    fn our_own_program_has_functions_and_lines() {
        let exe = std::fs::read(std::env::current_exe().unwrap()).unwrap();
        let mut s = Symbols::default();
        s.add(&exe).unwrap();
        let function = s
            .functions
            .iter()
            .find(|f| f.name.contains("our_own_program_has_functions_and_lines"))
            .unwrap();
        let line = s.line(function.start).unwrap();
        assert!(line.file.ends_with("symbols.rs"), "{line:?}");
        let mut moved = Symbols::default();
        moved.add_moved(&exe, 0x1000).unwrap();
        let there = function.start + 0x1000;
        assert_eq!(moved.line(there), Some(line));
        assert_eq!(moved.function(there), s.function(function.start));
    }
}
