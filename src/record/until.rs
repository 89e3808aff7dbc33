//! Where a recording should stop, as the user says it: at an address, a function, or a source line.
//!
//! Knows ELF files and their debug information, not the program that runs.

use super::sites::Program;
use crate::program::symbols::Symbols;
use object::{Object, ObjectSection};
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// Where, and how often that is reached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Until {
    /// As the user wrote it.
    pub text: String,
    /// It stops there for the so-manieth time: 1 is the first.
    pub count: u64,
}

impl fmt::Display for Until {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.text)?;
        match self.count {
            0 | 1 => Ok(()),
            count => write!(f, " for the {count}. time"),
        }
    }
}

impl Until {
    /// The address that the text is, if it is a number.
    pub fn number(&self) -> Option<u64> {
        match self
            .text
            .strip_prefix("0x")
            .or(self.text.strip_prefix("0X"))
        {
            Some(hex) => u64::from_str_radix(hex, 16).ok(),
            None => self.text.parse().ok(),
        }
    }

    /// Its addresses in a file, before that is moved; bit 0 is set where the symbol says T32. None
    /// if the file has no such thing. Fails with the reason why it cannot be used.
    pub(super) fn addresses(&self, program: &Program, elf: &[u8]) -> Result<BTreeSet<u64>, String> {
        if let Some((file, line)) = file_and_line(&self.text) {
            return of_line(elf, file, line).map_err(|error| format!("{self}: {error}"));
        }
        if let Some((address, indirect)) = program.symbol(&self.text) {
            return match indirect {
                false => Ok(BTreeSet::from([address])),
                // The resolver is there (STT_GNU_IFUNC), which runs when the program is loaded.
                true => Err(format!(
                    "{self}: which function this is, is only decided when the program is loaded \
                     (IFUNC): name the one it is, or its address"
                )),
            };
        }
        // Names as the source has them. What cannot be read has none.
        let mut symbols = Symbols::default();
        let _ = symbols.add(elf);
        Ok(symbols.addresses(&self.text))
    }
}

/// `FILE:LINE`.
fn file_and_line(text: &str) -> Option<(&str, u64)> {
    let (file, line) = text.rsplit_once(':')?;
    let line = line.parse().ok().filter(|line| *line > 0)?;
    // `area::1` is no file.
    (!file.is_empty() && !file.ends_with(':')).then_some((file, line))
}

/// The first instruction of a line in each function that has it. A line without code means the
/// next one with code, as GDB has it.
fn of_line(elf: &[u8], file: &str, line: u64) -> Result<BTreeSet<u64>, String> {
    let object = object::File::parse(elf).map_err(|error| error.to_string())?;
    let sections = gimli::DwarfSections::load(|id| {
        let section = object.section_by_name(id.name());
        let data = section.map(|section| section.uncompressed_data());
        data.unwrap_or(Ok(Cow::Borrowed(&[])))
            .map_err(|error| error.to_string())
    })?;
    let dwarf = sections.borrow(|data| gimli::EndianSlice::new(data, gimli::LittleEndian));
    let mut best = u64::MAX;
    let mut found = BTreeSet::new();
    let mut read = || -> gimli::Result<()> {
        let mut units = dwarf.units();
        while let Some(header) = units.next()? {
            let unit = dwarf.unit(header)?;
            let Some(lines) = unit.line_program.clone() else {
                continue;
            };
            let mut files = BTreeMap::new();
            let mut inside = None;
            let mut rows = lines.rows();
            while let Some((header, row)) = rows.next_row()? {
                let at = row.line().map(std::num::NonZero::get);
                let wanted = at.filter(|at| !row.end_sequence() && (line..=best).contains(at));
                let wanted = wanted.filter(|_| {
                    *files.entry(row.file_index()).or_insert_with(|| {
                        let entry = row.file(header);
                        entry.is_some_and(|entry| is_file(&dwarf, &unit, header, entry, file))
                    })
                });
                // A line may have several rows; it begins with the first.
                if let Some(at) = wanted.filter(|at| row.is_stmt() && inside != Some(*at)) {
                    if at < best {
                        best = at;
                        found.clear();
                    }
                    found.insert(row.address());
                }
                inside = wanted;
            }
        }
        Ok(())
    };
    read().map_err(|error| format!("debug information: {error}"))?;
    let mut symbols = Symbols::default();
    let _ = symbols.add(elf);
    let mut functions = BTreeSet::new();
    // A line that is reached again and again, as that of a loop, is stopped at where it begins.
    found.retain(|&address| {
        symbols
            .start(address)
            .is_none_or(|start| functions.insert(start))
    });
    Ok(found)
}

type Slice<'d> = gimli::EndianSlice<'d, gimli::LittleEndian>;

/// Whether the file's path ends with the components of `wanted`.
fn is_file(
    dwarf: &gimli::Dwarf<Slice<'_>>,
    unit: &gimli::Unit<Slice<'_>>,
    header: &gimli::LineProgramHeader<Slice<'_>>,
    entry: &gimli::FileEntry<Slice<'_>>,
    wanted: &str,
) -> bool {
    let text = |value| {
        let text = dwarf.attr_string(unit, value).ok();
        text.map(|text| text.to_string_lossy().into_owned())
    };
    let name = text(entry.path_name()).unwrap_or_default();
    let directory = entry.directory(header).and_then(text).unwrap_or_default();
    std::path::Path::new(&directory)
        .join(name)
        .ends_with(wanted)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_and_lines() {
        assert_eq!(file_and_line("main.c:12"), Some(("main.c", 12)));
        assert_eq!(file_and_line("src/a b.c:1"), Some(("src/a b.c", 1)));
        for none in ["main", "area::3", "a:0", ":7", "a.c:", "a.c:x", "a.c:-1"] {
            assert_eq!(file_and_line(none), None, "{none}");
        }
    }

    #[test]
    fn lines_of_a_saved_program() {
        let elf = concat!(env!("CARGO_MANIFEST_DIR"), "/testdata/virt-a57/program.elf");
        let elf = std::fs::read(elf).unwrap();
        let all = |file, line| of_line(&elf, file, line).unwrap();
        let halt = all("main.c", 36);
        assert_eq!(halt, all("src/main.c", 36));
        assert_eq!(halt.len(), 1, "{halt:x?}");
        let mut symbols = Symbols::default();
        symbols.add(&elf).unwrap();
        for address in halt {
            assert_eq!(symbols.line(address).unwrap().line, 36);
        }
        assert!(all("ain.c", 36).is_empty());
        assert!(all("main.c", 100_000).is_empty());
    }
}
