//! Finds the functions and source lines of addresses, from ELF files.
//!
//! Independent of snapshots and trace.

pub(super) mod debug_info;
mod global_names;
mod globals;
mod lines;
pub(super) mod locations;
mod scopes;
pub(super) mod types;
pub mod variables;

use super::elf::Elf;
use super::instruction_sets::Contents;
use super::names;
use crate::budget::Budget;
use gimli::{EndianArcSlice, RunTimeEndian};
use object::{Object, ObjectSection, ObjectSegment, ObjectSymbol, SymbolKind};
use std::borrow::Cow;
use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use crate::text::one_line;
use debug_info::DebugInfo;

pub(super) type Slice = EndianArcSlice<RunTimeEndian>;

/// The largest accepted expansion ratio; debug information typically expands three to ten times.
const EXPANSION: u64 = 100;

/// The size of the names that every file may have, and the number of further bytes for each of its
/// bytes, both mangled and demangled. Symbols may share the bytes of their names, and short names
/// may expand.
const LEAST_NAMES: u64 = 1 << 20;
const NAMES: u64 = 16;

/// Maximum number of functions inlined in each other that are named; compilers nest a few dozen.
const MAX_INLINED: usize = 256;

/// An error that prevents reading names or source lines from an ELF file.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SymbolsError {
    /// It is malformed.
    #[error(transparent)]
    Elf(#[from] object::Error),
    /// Its debug information is malformed.
    #[error(transparent)]
    Dwarf(#[from] gimli::Error),
    /// A compressed section claims an implausible size.
    #[error(
        "section {section}: its {bytes} bytes claim to hold {claimed}: expected at most {} times as many",
        EXPANSION
    )]
    Expansion {
        /// The section.
        section: String,
        /// Its compressed size.
        bytes: usize,
        /// The size that it claims.
        claimed: u64,
    },
    /// Units share line programs, or files share directory names: their copies do not fit in
    /// memory.
    #[error(
        "its debug information needs more than {most} bytes of memory: units share line programs, ranges or names"
    )]
    Lines {
        /// The amount of memory that it may need.
        most: u64,
    },
}

/// A function of the program.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Function {
    start: u64,
    /// The address after its end.
    end: u64,
    /// The name in the file.
    name: Box<str>,
    /// The name in the source, computed on first use.
    shown: OnceLock<Box<str>>,
}

impl Function {
    /// Returns its name in the source, or its name in the file if the names of all functions would
    /// need too much memory.
    fn shown(&self, names: &Budget) -> &str {
        self.shown.get_or_init(|| {
            let own = || one_line(&self.name).into();
            if names.left() == 0 {
                return own();
            }
            let shown = shown(&self.name);
            match names.take(shown.len() as u64) {
                true => shown.into(),
                false => {
                    names.take(names.left());
                    own()
                }
            }
        })
    }
}

/// Returns the name of a symbol in the source. A name that is not mangled or takes too long to read
/// stays as it is.
pub fn shown(name: &str) -> String {
    let shown = names::demangled(name).unwrap_or_else(|| name.to_owned());
    one_line(&shown).into_owned()
}

/// A source location.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct SourceLine {
    /// The file, as named in the debug information.
    pub file: String,
    /// Line, from 1.
    pub line: u32,
}

/// The symbols and debug information of some ELF files.
#[derive(Default)]
pub struct Symbols {
    /// Sorted by start; functions with the same start are in the order of the files.
    functions: Vec<Function>,
    /// The functions that an address can belong to, by start and end: of several functions that
    /// contain the address and have the same start, the last one. Indices into `functions`.
    found: Vec<usize>,
    /// Debug information.
    lines: Vec<Lines>,
    /// The budget for demangled names in bytes.
    names: Budget,
    /// The addresses of files in memory.
    files: Vec<FileRange>,
}

/// The debug information of a file.
struct Lines {
    /// The lock is needed because the information is read on first use.
    context: Mutex<addr2line::Context<Slice>>,
    info: DebugInfo,
    /// The size of the file.
    size: usize,
    /// Whether its functions fit in memory.
    fit: OnceLock<bool>,
}

/// Addresses that belong to a file.
struct FileRange {
    addresses: Range<u64>,
    /// The name of the file, without directories.
    name: Arc<str>,
    /// The offset from the addresses in the file.
    offset: u64,
}

impl Symbols {
    /// Reads the symbols and the debug information of an ELF file, in addition to the existing
    /// ones. Missing or unreadable parts contribute no names.
    ///
    /// # Errors
    ///
    /// Returns an error if `elf` is not an ELF file, or its debug information cannot be read.
    pub fn add(&mut self, elf: &[u8]) -> Result<(), SymbolsError> {
        self.add_moved(elf, 0)
    }

    /// Same as [`add`](Self::add), for a program loaded `offset` bytes after the addresses in its
    /// file.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`add`](Self::add).
    fn add_moved(&mut self, elf: &[u8], offset: u64) -> Result<(), SymbolsError> {
        let file = object::File::parse(elf)?;
        let mut functions = functions(&file, elf.len());
        self.names.grant(
            NAMES
                .saturating_mul(elf.len() as u64)
                .saturating_add(LEAST_NAMES),
        );
        for function in &mut functions {
            function.start = function.start.wrapping_add(offset);
            function.end = function.end.wrapping_add(offset);
        }
        self.functions.append(&mut functions);
        self.functions.sort_by_key(|function| function.start);
        self.found = findable(&self.functions);

        let mut dwarf = debug_information(&file, elf.len())?;
        dwarf.populate_abbreviations_cache(gimli::AbbreviationsCacheStrategy::Duplicates);
        let dwarf = Arc::new(dwarf);
        let context = addr2line::Context::from_arc_dwarf(Arc::clone(&dwarf))?;
        let mut info = DebugInfo::new(dwarf, self.lines.len(), offset);
        info.first = first_data(&file);
        self.lines.push(Lines {
            context: Mutex::new(context),
            info,
            size: elf.len(),
            fit: OnceLock::new(),
        });
        Ok(())
    }

    /// Same as [`add`](Self::add), for a program or a library; its name is used for code without
    /// symbols.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`add`](Self::add).
    pub fn add_file(&mut self, elf: &Elf) -> Result<(), SymbolsError> {
        let name = elf.path.file_name().unwrap_or(elf.path.as_os_str());
        let name: Arc<str> = one_line(&name.to_string_lossy()).into();
        let ranges = elf.segments.iter().map(|segment| FileRange {
            addresses: segment.address..segment.end(),
            name: Arc::clone(&name),
            offset: elf.offset,
        });
        self.files.extend(ranges);
        self.add_moved(elf.bytes(), elf.offset)
    }

    /// Returns the name of the file that an address belongs to, and the address in that file.
    pub fn file(&self, address: u64) -> Option<(&str, u64)> {
        let mut files = self.files.iter();
        let found = files.find(|file| file.addresses.contains(&address))?;
        Some((&found.name, address.wrapping_sub(found.offset)))
    }

    /// Returns whether there are no functions.
    pub fn is_empty(&self) -> bool {
        self.functions.is_empty()
    }

    /// Returns the name in the source of the function that contains an address, and the offset of
    /// the address in bytes.
    pub fn function(&self, address: u64) -> Option<(&str, u64)> {
        let found = self.around(address)?;
        Some((found.shown(&self.names), address - found.start))
    }

    /// Returns the first instruction of the function that contains an address.
    pub fn start(&self, address: u64) -> Option<u64> {
        self.around(address).map(|function| function.start)
    }

    /// Returns the address range of the function that contains an address.
    pub fn extent(&self, address: u64) -> Option<Range<u64>> {
        let function = self.around(address)?;
        Some(function.start..function.end)
    }

    /// Returns the functions by address, with their names in the source and in the file. A function
    /// with several names is listed with each of them.
    pub fn functions(&self) -> impl Iterator<Item = (Range<u64>, &str, &str)> {
        let functions = self.functions.iter();
        functions.map(|function| {
            let extent = function.start..function.end;
            (extent, function.shown(&self.names), &*function.name)
        })
    }

    fn around(&self, address: u64) -> Option<&Function> {
        let function = |index: &usize| &self.functions[*index];
        let before = |index: &usize| function(index).start <= address;
        let candidates = &self.found[..self.found.partition_point(before)];
        let start = function(candidates.last()?).start;
        let first = candidates.partition_point(|index| function(index).start < start);
        let candidates = &candidates[first..];
        let found = candidates.partition_point(|index| function(index).end <= address);
        candidates.get(found).map(function)
    }

    /// Returns the first instructions of the functions that match a name: the name in the file, in
    /// the source with or without parameters, or the last part of the latter (GDB manual, "Linespec
    /// Locations"). Only the best matches count; if there are several, they are overloaded
    /// functions.
    pub fn addresses(&self, name: &str) -> BTreeSet<u64> {
        let mut best = None;
        let mut found = BTreeSet::new();
        for function in &self.functions {
            let Some(quality) = names::matches(name, &function.name) else {
                continue;
            };
            if best.is_none_or(|best| quality < best) {
                best = Some(quality);
                found.clear();
            }
            if best == Some(quality) {
                found.insert(function.start);
            }
        }
        found
    }

    /// Returns the source lines of an address range: their addresses, in ascending order.
    pub fn lines_of(&self, range: Range<u64>) -> Vec<(Range<u64>, SourceLine)> {
        let mut found = Vec::new();
        for Lines { context, info, .. } in &self.lines {
            let offset = info.moved;
            let context = context.lock().unwrap_or_else(PoisonError::into_inner);
            let (low, high) = (
                range.start.wrapping_sub(offset),
                range.end.wrapping_sub(offset),
            );
            if low >= high {
                continue;
            }
            let Ok(locations) = context.find_location_range(low, high) else {
                continue;
            };
            for (start, size, location) in locations {
                let (Some(file), Some(line)) = (location.file, location.line) else {
                    continue;
                };
                let start = start.wrapping_add(offset);
                let from = start.max(range.start);
                let to = start.saturating_add(size).min(range.end);
                if from < to {
                    let file = one_line(file).into_owned();
                    found.push((from..to, SourceLine { file, line }));
                }
            }
        }
        found.sort_by_key(|(range, _)| range.start);
        found
    }

    /// Returns the names in the source of the functions inlined at an address according to the
    /// debug information, outermost first, without the function that contains them all.
    pub fn inlined(&self, address: u64) -> Vec<String> {
        let found = self.lines.iter().find_map(|one| {
            let fit = || lines::functions_fit(&one.info.dwarf, one.size);
            if !one.fit.get_or_init(fit) {
                return None;
            }
            let context = one.context.lock().unwrap_or_else(PoisonError::into_inner);
            let frames = context.find_frames(address.wrapping_sub(one.info.moved));
            let mut frames = frames.skip_all_loads().ok()?;
            let mut all = Vec::new();
            // The last frame belongs to the function that contains the others.
            let mut frame = frames.next().ok()??;
            while all.len() < MAX_INLINED
                && let Ok(Some(outer)) = frames.next()
            {
                let name = std::mem::replace(&mut frame, outer).function?;
                let name = name.raw_name().ok()?;
                all.push(shown(&name));
            }
            all.reverse();
            Some(all)
        });
        found.unwrap_or_default()
    }

    /// Returns the source line that an address belongs to.
    pub fn line(&self, address: u64) -> Option<SourceLine> {
        self.lines.iter().find_map(|Lines { context, info, .. }| {
            let context = context.lock().unwrap_or_else(PoisonError::into_inner);
            let location = context
                .find_location(address.wrapping_sub(info.moved))
                .ok()??;
            Some(SourceLine {
                file: one_line(location.file?).into_owned(),
                line: location.line?,
            })
        })
    }
}

/// Returns the indices of the functions that an address can belong to, by start and end.
fn findable(functions: &[Function]) -> Vec<usize> {
    let mut found = Vec::new();
    let mut first = 0;
    for same_start in functions.chunk_by(|a, b| a.start == b.start) {
        let mut end = 0;
        for (index, function) in same_start.iter().enumerate().rev() {
            if function.end > end {
                end = function.end;
                found.push(first + index);
            }
        }
        first += same_start.len();
    }
    found
}

/// Returns the functions of a file, by address. A stripped file has only its exported functions.
fn functions(file: &object::File<'_>, size: usize) -> Vec<Function> {
    // Symbols may share the bytes of their names.
    let names = Budget::of(size, NAMES, LEAST_NAMES);
    let arm = file.architecture() == object::Architecture::Arm;
    let limits = limits(file);
    let mut functions: Vec<Function> = Vec::new();
    let mut read = |symbol: object::Symbol<'_, '_>| {
        if !names_code(&symbol) || names.left() == 0 {
            return;
        }
        let name = symbol.name().unwrap_or_default();
        let name = names::unversioned(name);
        if name.is_empty() || Contents::is_mark(name.as_bytes()) {
            return;
        }
        if !names.take(name.len() as u64) {
            // Reading more names would be too much work.
            names.take(names.left());
            return;
        }
        // The low bit of an Arm function's address marks Thumb (AAELF32, 5.5.3).
        let start = symbol.address() & !u64::from(arm);
        // The surrounding section; a symbol outside of sections does not name code.
        let around = limits.partition_point(|limit| limit.0 <= start);
        let around = around.checked_sub(1).map(|index| limits[index]);
        let Some((_, limit)) = around.filter(|(_, end)| start < *end) else {
            return;
        };
        functions.push(Function {
            start,
            end: match symbol.size() {
                0 => limit,
                size => start.saturating_add(size).min(limit),
            },
            name: name.into(),
            shown: OnceLock::new(),
        });
    };
    file.symbols().for_each(&mut read);
    if file.symbols().next().is_none() {
        file.dynamic_symbols().for_each(&mut read);
    }
    functions.sort_by_key(|function| function.start);
    // A function without a size ends where the next one starts; others end there at the latest.
    let mut next = u64::MAX;
    let mut after = u64::MAX;
    for function in functions.iter_mut().rev() {
        if function.start < next {
            after = next;
            next = function.start;
        }
        function.end = function.end.min(after);
    }
    functions
}

/// Returns the names of the data at address 0.
fn first_data(file: &object::File<'_>) -> Vec<String> {
    /// The most of them.
    const MOST: usize = 256;
    let is_first = |symbol: &object::Symbol<'_, '_>| {
        symbol.address() == 0
            && !symbol.is_undefined()
            && matches!(symbol.kind(), SymbolKind::Data | SymbolKind::Unknown)
    };
    let names = file.symbols().filter(is_first);
    let names = names.filter_map(|symbol| Some(symbol.name().ok()?.to_owned()));
    names.filter(|name| !name.is_empty()).take(MOST).collect()
}

/// Returns whether a symbol is that of a function or of an IFUNC, whose value is the address of its
/// resolver.
fn names_code(symbol: &object::Symbol<'_, '_>) -> bool {
    let chosen = match symbol.flags() {
        object::SymbolFlags::Elf { st_info, .. } => {
            st_info.st_type() == object::elf::STT_GNU_IFUNC && !symbol.is_undefined()
        }
        _ => false,
    };
    chosen || symbol.kind() == SymbolKind::Text && symbol.is_definition()
}

/// Returns the limits of functions: the loaded sections, by address, or the segments if the file
/// has no sections.
fn limits(file: &object::File<'_>) -> Vec<(u64, u64)> {
    let loaded = |section: &object::Section<'_, '_>| match section.flags() {
        object::SectionFlags::Elf { sh_flags, .. } => sh_flags.0 & object::elf::SHF_ALLOC.0 != 0,
        _ => false,
    };
    let range = |address: u64, size: u64| (address, address.saturating_add(size));
    let sections = file.sections().filter(loaded);
    let sections = sections.map(|section| range(section.address(), section.size()));
    let mut limits: Vec<(u64, u64)> = sections.filter(|(start, end)| start < end).collect();
    if limits.is_empty() {
        let segments = file.segments();
        limits.extend(segments.map(|segment| range(segment.address(), segment.size())));
    }
    limits.sort_unstable();
    limits
}

/// Returns the debug information of a file of this size, if it fits in memory.
pub(super) fn debug_information(
    file: &object::File<'_>,
    size: usize,
) -> Result<gimli::Dwarf<Slice>, SymbolsError> {
    let endian = if file.is_little_endian() {
        RunTimeEndian::Little
    } else {
        RunTimeEndian::Big
    };
    let dwarf = gimli::Dwarf::load(|id| {
        let data = match file.section_by_name(id.name()) {
            Some(section) => uncompressed(&section)?,
            None => Cow::Borrowed(&[][..]),
        };
        Ok::<_, SymbolsError>(Slice::new(Arc::from(&*data), endian))
    })?;
    lines::check(&dwarf, size)?;
    Ok(dwarf)
}

/// Returns the bytes of a section, unless they expand disproportionately.
fn uncompressed<'d>(section: &object::Section<'d, '_>) -> Result<Cow<'d, [u8]>, SymbolsError> {
    let data = section.compressed_data()?;
    let most = (data.data.len() as u64).saturating_mul(EXPANSION);
    if data.format != object::CompressionFormat::None && data.uncompressed_size > most {
        return Err(SymbolsError::Expansion {
            section: section.name().unwrap_or_default().to_owned(),
            bytes: data.data.len(),
            claimed: data.uncompressed_size,
        });
    }
    Ok(data.decompress()?)
}

impl Symbols {
    /// Creates symbols from functions by address: start, end, name.
    pub fn of(functions: &[(u64, u64, &str)]) -> Self {
        let functions = functions.iter().map(|&(start, end, name)| Function {
            start,
            end,
            name: name.into(),
            shown: OnceLock::new(),
        });
        let functions: Vec<Function> = functions.collect();
        Self {
            found: findable(&functions),
            functions,
            lines: Vec::new(),
            names: Budget::new(u64::MAX),
            files: Vec::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn symbols(functions: &[(u64, u64, &str)]) -> Symbols {
        Symbols::of(functions)
    }

    #[test]
    fn an_address_belongs_to_the_function_around_it() {
        let s = symbols(&[(0x10, 0x20, "a"), (0x30, 0x40, "b"), (0x40, 0x44, "c")]);
        assert_eq!(s.function(0xf), None);
        assert_eq!(s.function(0x10), Some(("a", 0)));
        assert_eq!(s.function(0x1f), Some(("a", 15)));
        assert_eq!(s.function(0x20), None);
        assert_eq!(s.function(0x3f), Some(("b", 15)));
        assert_eq!(s.function(0x43), Some(("c", 3)));
        assert_eq!(s.function(0x44), None);
        assert_eq!(s.start(0x3f), Some(0x30));
        assert_eq!(s.addresses("b"), [0x30].into());
        assert_eq!(s.addresses("d"), [].into());
    }

    #[test]
    fn of_functions_with_the_same_start_the_last_that_reaches_an_address_is_found() {
        let s = symbols(&[
            (0x10, 0x40, "long"),
            (0x10, 0x30, "alias"),
            (0x10, 0x20, "hidden"),
            (0x10, 0x20, "short"),
            (0x50, 0x54, "other"),
        ]);
        for (address, wanted) in [
            (0x10, Some("short")),
            (0x1f, Some("short")),
            (0x20, Some("alias")),
            (0x3f, Some("long")),
            (0x40, None),
        ] {
            let found = s.function(address).map(|(name, _)| name);
            assert_eq!(found, wanted, "{address:#x}");
        }
        // Looking up an address takes no longer with many functions.
        let mut many = vec![(0x10, 0x1000, "long")];
        many.resize(200_000, (0x10, 0x11, "short"));
        let s = symbols(&many);
        for _ in 0..200_000 {
            assert_eq!(s.start(0x20), Some(0x10));
        }
    }

    #[test]
    fn the_best_match_of_a_name_counts() {
        let s = symbols(&[
            (0x10, 0x20, "_Z4areai"),
            (0x20, 0x30, "_Z4areaj"),
            (0x30, 0x40, "_ZN2Sq4areaEv"),
        ]);
        assert_eq!(s.addresses("area"), [0x10, 0x20].into());
        assert_eq!(s.addresses("area(int)"), [0x10].into());
        assert_eq!(s.addresses("Sq::area"), [0x30].into());
        assert_eq!(s.addresses("_Z4areaj"), [0x20].into());
        assert_eq!(s.function(0x34), Some(("Sq::area()", 4)));
    }

    #[test]
    fn invalid_elf_files_are_errors() {
        assert!(Symbols::default().add(b"not an ELF").is_err());
    }

    /// `_fini` has no size and fills its section.
    #[test]
    fn a_function_ends_with_its_section() {
        let exe = std::fs::read(std::env::current_exe().unwrap()).unwrap();
        let mut s = Symbols::default();
        s.add(&exe).unwrap();
        let file = object::File::parse(&*exe).unwrap();
        let section = file.section_by_name(".fini").unwrap();
        let start = section.address();
        assert_eq!(s.function(start), Some(("_fini", 0)));
        let last = section.size() - 1;
        assert_eq!(s.function(start + last), Some(("_fini", last)));
        assert_eq!(s.function(start + section.size()), None);
        assert_eq!(s.function(u64::MAX / 2), None);
    }

    /// Symbols that share the bytes of a long name, in an ELF file whose symbols point into one
    /// string.
    #[test]
    fn names_that_share_their_bytes_are_limited() {
        let name = format!("{}x", "_Z1fIJ".to_owned() + &"i".repeat(60_000));
        let count = 20_000;
        let functions: Vec<_> = (0..count)
            .map(|index| super::super::symbol_file::Function {
                name: if index == 0 {
                    name.clone()
                } else {
                    String::new()
                },
                address: 0x1000 + index * 4,
                size: 4,
            })
            .collect();
        let texts = [(".text".to_owned(), 0x1000..0x1000 + count * 4)];
        let mut file = super::super::symbol_file::write(&functions, &texts, &[]);
        // All have the name of the first function. The symbols begin after two headers and have 24
        // bytes each.
        let first = (64 + 56 + 24_usize..)
            .find(|at| file[*at + 4] == 0x12)
            .unwrap();
        let string = file[first..first + 4].to_vec();
        for index in 0..count as usize {
            file[first + index * 24..][..4].copy_from_slice(&string);
        }
        let mut symbols = Symbols::default();
        symbols.add(&file).unwrap();
        let bytes: usize = symbols.functions.iter().map(|one| one.name.len()).sum();
        assert!(bytes > name.len(), "{bytes}");
        assert!(bytes <= 16 * file.len() + (1 << 20), "{bytes}");
        let shown: usize = symbols.functions().map(|(_, shown, _)| shown.len()).sum();
        assert!(shown <= 32 * file.len() + (2 << 20), "{shown}");
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
