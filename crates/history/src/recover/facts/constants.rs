//! Memory that keeps its contents, according to programs.

use armsnap_snapshot::program::elf::{Elf, Machine};
use object::{Object, ObjectSection, ObjectSymbol, SectionFlags, SectionKind, SymbolKind};
use std::collections::HashSet;
use std::ops::Range;

/// The memory of programs, as their files describe it.
#[derive(Debug, Default)]
pub struct Constants {
    /// Memory that is never written, by address, without overlaps.
    constant: Vec<Range<u64>>,
    /// Code and read-only data that is loaded together with writable data, each with the number of
    /// its program. By address, without overlaps.
    kept: Vec<(Range<u64>, usize)>,
    /// Writable sections without code, by address, without overlaps.
    data: Vec<Range<u64>>,
    programs: Vec<Elf>,
}

impl Constants {
    /// The memory of programs.
    pub fn of<'a>(programs: impl IntoIterator<Item = &'a Elf>) -> Self {
        let mut all = Self::default();
        for (number, elf) in programs.into_iter().enumerate() {
            all.add(elf, number);
        }
        all.constant = joined(std::mem::take(&mut all.constant));
        all.data = joined(std::mem::take(&mut all.data));
        all.kept.sort_by_key(|(range, _)| range.start);
        let mut end = 0;
        all.kept.retain_mut(|(range, _)| {
            range.start = range.start.max(end);
            end = end.max(range.end);
            !range.is_empty()
        });
        all
    }

    fn add(&mut self, elf: &Elf, number: usize) {
        self.programs.push(elf.clone());
        let Ok(file) = object::File::parse(elf.bytes()) else {
            return;
        };
        let moved = |start: u64, size: u64| {
            let start = start.wrapping_add(elf.offset);
            start..start.saturating_add(size)
        };
        let (mut read_only, mut written) = (Vec::new(), Vec::new());
        let mut mixed = HashSet::new();
        for section in file.sections() {
            let SectionFlags::Elf { sh_flags, .. } = section.flags() else {
                continue;
            };
            let flags = sh_flags.0;
            if flags & object::elf::SHF_ALLOC.0 == 0 || section.size() == 0 {
                continue;
            }
            let range = moved(section.address(), section.size());
            let is_code = flags & object::elf::SHF_EXECINSTR.0 != 0;
            if flags & object::elf::SHF_WRITE.0 == 0 {
                let is_loaded = section.kind() != SectionKind::UninitializedData;
                read_only.push((range, is_loaded));
                continue;
            }
            match is_code {
                true => drop(mixed.insert(section.index())),
                false => self.data.push(range.clone()),
            }
            written.push(range);
        }
        let has_sections = !read_only.is_empty() || !written.is_empty();
        // Sections may lie in a segment that is writable as a whole, as in bare-metal images.
        for segment in &elf.segments {
            let range = segment.address..segment.end();
            if segment.writable {
                written.push(range);
            } else if !has_sections {
                read_only.push((range, true));
            }
        }
        let written = joined(written);
        for (range, is_loaded) in read_only {
            let next = written.partition_point(|other| other.end <= range.start);
            let is_written = written.get(next).is_some_and(|it| it.start < range.end);
            match is_written {
                false => self.constant.push(range),
                true if is_loaded => self.kept.push((range, number)),
                true => {}
            }
        }
        if mixed.is_empty() {
            return;
        }
        // Bit 0 of a function's address indicates T32.
        let even = match elf.machine {
            Machine::Arm => !1,
            Machine::AArch64 | Machine::Other => !0,
        };
        for symbol in file.symbols() {
            let is_in_mixed = |index: object::SectionIndex| mixed.contains(&index);
            if symbol.kind() == SymbolKind::Text && symbol.section_index().is_some_and(is_in_mixed)
            {
                let range = moved(symbol.address() & even, symbol.size());
                self.kept.push((range, number));
            }
        }
    }

    /// Adds memory that is never written.
    pub fn add_constant(&mut self, range: Range<u64>) {
        self.constant.push(range);
        self.constant = joined(std::mem::take(&mut self.constant));
    }

    /// The number of bytes from an address on that are never written.
    pub fn length_at(&self, address: u64) -> u64 {
        find(&self.constant, address).map_or(0, |range| range.end - address)
    }

    /// The byte of a program's file at an address, if it is in a function or a read-only section
    /// that is loaded together with writable data: as good as constant if memory holds the same at
    /// the end.
    pub fn kept(&self, address: u64) -> Option<u8> {
        let next = self
            .kept
            .partition_point(|(range, _)| range.start <= address);
        let (range, number) = self.kept[..next].last()?;
        let program = self.programs.get(*number).filter(|_| address < range.end)?;
        program.slice(address)?.first().copied()
    }

    /// Whether an address is in a writable section without code.
    pub fn is_data(&self, address: u64) -> bool {
        find(&self.data, address).is_some()
    }
}

/// The range that contains an address.
fn find(ranges: &[Range<u64>], address: u64) -> Option<&Range<u64>> {
    let next = ranges.partition_point(|range| range.start <= address);
    ranges[..next].last().filter(|range| address < range.end)
}

/// Sorts ranges by address, and merges those that overlap or touch.
fn joined(mut ranges: Vec<Range<u64>>) -> Vec<Range<u64>> {
    ranges.sort_by_key(|range| range.start);
    ranges.dedup_by(|next, range| {
        let touches = next.start <= range.end;
        if touches {
            range.end = range.end.max(next.end);
        }
        touches
    });
    ranges
}
