//! The argument of `--until`: an address, a function, or a source line.
//!
//! Resolved with ELF files and their debug information, not with the running program.

use super::guest_program::Program;
use armsnap_snapshot::program::symbols::Symbols;
use object::{Object, ObjectSection};
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// A location at which to stop, and how often it must be reached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Until {
    /// The argument as written.
    pub text: String,
    /// Stop at the N-th visit; the first one is 1.
    pub count: u64,
}

impl fmt::Display for Until {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.text)?;
        match self.count {
            0 | 1 => Ok(()),
            count => write!(f, " (visit {count})"),
        }
    }
}

impl Until {
    /// Returns the address if the argument is a number.
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

    /// Returns the matching addresses in a file, without load bias; bit 0 is set for T32 symbols.
    /// The set is empty if nothing matches. Fails with the reason if the location cannot be used.
    pub(super) fn addresses(&self, program: &Program, elf: &[u8]) -> Result<BTreeSet<u64>, String> {
        if let Some((file, line)) = file_and_line(&self.text) {
            return of_line(elf, file, line).map_err(|error| format!("{self}: {error}"));
        }
        // Several files of a program may have a static function of this name.
        let (resolvers, functions): (Vec<_>, Vec<_>) =
            program.symbols(&self.text).partition(|symbol| symbol.1);
        if !functions.is_empty() {
            return Ok(functions.into_iter().map(|symbol| symbol.0).collect());
        }
        // The symbol is the resolver (STT_GNU_IFUNC), which runs at load time.
        if !resolvers.is_empty() {
            return Err(format!(
                "{self}: the implementation is chosen when the program is loaded (IFUNC): \
                 name the chosen function, or its address"
            ));
        }
        // Source names (demangled). Symbols that cannot be read are skipped.
        let mut symbols = Symbols::default();
        let _ = symbols.add(elf);
        Ok(symbols.addresses(&self.text))
    }
}

/// `FILE:LINE`.
fn file_and_line(text: &str) -> Option<(&str, u64)> {
    let (file, line) = text.rsplit_once(':')?;
    let line = line.parse().ok().filter(|line| *line > 0)?;
    // `area::1` is not a file and line.
    (!file.is_empty() && !file.ends_with(':')).then_some((file, line))
}

/// Returns the first instruction of a line in each function that contains it. A line without code
/// stands for the next line with code, as in GDB.
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
                // Only the first of a line's rows is its start.
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
    // Keep the lowest address per function: a loop's line is stopped at where the loop starts.
    found.retain(|&address| {
        symbols
            .start(address)
            .is_none_or(|start| functions.insert(start))
    });
    Ok(found)
}

type Slice<'d> = gimli::EndianSlice<'d, gimli::LittleEndian>;

/// Returns whether the file's path ends with the components of `wanted`.
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
