//! Estimates the memory and time that the debug information of a file would need.
//!
//! Units may share a line program, a list of ranges, or abbreviations, and files may share a
//! directory with a long name: each unit has its own copies in memory, however small the file is.

use super::{Slice, SymbolsError};
use crate::budget::Budget;
use gimli::{AttributeValue, Reader, Section, UnitRef};
use std::collections::{BTreeSet, HashMap};

/// The size of a row, a file and a range in memory, in bytes; a row takes at least one byte of the
/// line program.
const ROW: u64 = 24;
const FILE: u64 = 160;
const RANGE: u64 = 48;
/// The memory that the debug information of every file may need, and the number of further bytes
/// for each of its bytes. Compressed debug information of large programs needs ten times its size.
const LEAST: u64 = 32 << 20;
const TIMES: u64 = 48;
/// The deepest accepted nesting of debug information entries.
const DEEPEST: isize = 512;

/// Checks that the lines and the units in the debug information of a file of this size fit in
/// memory.
pub(super) fn check(dwarf: &gimli::Dwarf<Slice>, size: usize) -> Result<(), SymbolsError> {
    let budget = Budget::of(size, TIMES, LEAST);
    let fits = abbreviations_fit(dwarf, &budget) && units_fit(dwarf, &budget);
    let most = TIMES.saturating_mul(size as u64).saturating_add(LEAST);
    fits.then_some(()).ok_or(SymbolsError::Lines { most })
}

fn units_fit(dwarf: &gimli::Dwarf<Slice>, budget: &Budget) -> bool {
    let mut units = dwarf.units();
    while let Ok(Some(header)) = units.next() {
        let Ok(unit) = dwarf.unit(header) else {
            continue;
        };
        let unit = UnitRef::new(dwarf, &unit);
        if !ranges_fit(unit, budget) {
            return false;
        }
        let Some(program) = &unit.line_program else {
            continue;
        };
        let header = program.header();
        let rows = header.raw_program_buf().len() as u64;
        let directories = header.include_directories().len() as u64;
        let length = |value: AttributeValue<Slice>| {
            let text = unit.attr_string(value);
            text.map_or(0, |text| text.len() as u64)
        };
        let base = unit.comp_dir.as_ref().map_or(0, |name| name.len() as u64);
        let mut files = header.file_names().iter();
        let fit = budget.take(rows.saturating_mul(ROW) + directories * FILE)
            && files.all(|file| {
                let directory = file.directory(header).map_or(0, length);
                budget.take(FILE + base + directory + length(file.path_name()))
            });
        if !fit {
            return false;
        }
    }
    true
}

/// Whether the ranges of a unit itself fit.
fn ranges_fit(unit: UnitRef<'_, Slice>, budget: &Budget) -> bool {
    let Ok(mut ranges) = unit.unit_ranges() else {
        return true;
    };
    while let Ok(Some(_)) = ranges.next() {
        if !budget.take(RANGE) {
            return false;
        }
    }
    true
}

/// Whether the abbreviations of all units fit: each list is read to its end.
fn abbreviations_fit(dwarf: &gimli::Dwarf<Slice>, budget: &Budget) -> bool {
    let mut offsets: BTreeSet<usize> = BTreeSet::new();
    let mut units = dwarf.units();
    while let Ok(Some(header)) = units.next() {
        offsets.insert(header.debug_abbrev_offset().0);
    }
    let all = dwarf.debug_abbrev.reader();
    offsets.into_iter().all(|offset| {
        let mut list = all.clone();
        list.skip(offset).is_err() || budget.take(16 * length_of_list(list, budget.left()))
    })
}

/// Returns the length of a list of abbreviations in bytes, or a little more than `most` if it is
/// longer than this.
fn length_of_list(mut list: Slice, most: u64) -> u64 {
    let whole = list.len();
    // Code, tag, whether there are children, and pairs of attribute and form (DWARF 5, 7.5.3).
    let mut abbreviation = || -> gimli::Result<bool> {
        if list.read_uleb128()? == 0 {
            return Ok(false);
        }
        list.read_uleb128()?;
        list.read_u8()?;
        loop {
            let (name, form) = (list.read_uleb128()?, list.read_uleb128()?);
            if form == u64::from(gimli::DW_FORM_implicit_const.0) {
                list.read_sleb128()?;
            }
            if name == 0 && form == 0 || (whole - list.len()) as u64 > most {
                return Ok((whole - list.len()) as u64 <= most);
            }
        }
    };
    while let Ok(true) = abbreviation() {}
    (whole - list.len()) as u64
}

/// Whether the functions in the debug information of a file of this size fit in memory: they may
/// share lists of ranges and be nested in each other.
pub(super) fn functions_fit(dwarf: &gimli::Dwarf<Slice>, size: usize) -> bool {
    let budget = Budget::of(size, TIMES, LEAST);
    // The lengths of range lists, by unit and offset.
    let mut lengths: HashMap<(usize, usize), u64> = HashMap::new();
    let mut units = dwarf.units();
    let mut number = 0;
    while let Ok(Some(header)) = units.next() {
        number += 1;
        let Ok(unit) = dwarf.unit(header) else {
            continue;
        };
        let unit = UnitRef::new(dwarf, &unit);
        let Ok(mut entries) = unit.entries_raw(None) else {
            continue;
        };
        'entries: while !entries.is_empty() {
            if entries.next_depth() > DEEPEST {
                return false;
            }
            let abbreviation = match entries.read_abbreviation() {
                Ok(Some(abbreviation)) => abbreviation,
                // The end of a list of children.
                Ok(None) => continue,
                Err(_) => break,
            };
            let is_function = matches!(
                abbreviation.tag(),
                gimli::DW_TAG_subprogram | gimli::DW_TAG_inlined_subroutine
            );
            for specification in abbreviation.attributes() {
                let Ok(attribute) = entries.read_attribute(*specification) else {
                    break 'entries;
                };
                if !is_function || attribute.name() != gimli::DW_AT_ranges {
                    continue;
                }
                let Ok(Some(offset)) = unit.attr_ranges_offset(attribute.value()) else {
                    continue;
                };
                let length = lengths.entry((number, offset.0)).or_insert_with(|| {
                    let Ok(mut ranges) = unit.ranges(offset) else {
                        return 0;
                    };
                    let mut count = 0;
                    while let Ok(Some(_)) = ranges.next() {
                        count += 1;
                        if !budget.take(1) {
                            break;
                        }
                    }
                    count
                });
                if !budget.take(length.saturating_mul(RANGE)) {
                    return false;
                }
            }
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;
    use gimli::{RunTimeEndian, SectionId};
    use std::sync::Arc;

    /// Returns a number in LEB128, with one or two bytes.
    fn leb(number: u32) -> Vec<u8> {
        match number < 128 {
            true => vec![number as u8],
            false => vec![number as u8 | 0x80, (number >> 7) as u8],
        }
    }

    fn dwarf(sections: &[(SectionId, &[u8])]) -> gimli::Dwarf<Slice> {
        let load = |id| {
            let found = sections.iter().find(|(section, _)| *section == id);
            let bytes = found.map_or(&[][..], |(_, bytes)| bytes);
            Ok::<_, ()>(Slice::new(Arc::from(bytes), RunTimeEndian::Little))
        };
        gimli::Dwarf::load(load).unwrap()
    }

    /// Returns a unit of DWARF 4 with the abbreviations at an offset, and its entries.
    fn unit(abbreviations: u32, entries: &[u8]) -> Vec<u8> {
        let mut body = 4_u16.to_le_bytes().to_vec();
        body.extend(abbreviations.to_le_bytes());
        body.push(8);
        body.extend(entries);
        [&(body.len() as u32).to_le_bytes()[..], &body].concat()
    }

    /// Returns an abbreviation: its code, its tag, whether it has children, its attributes.
    fn abbreviation(code: u32, tag: u32, children: bool, attributes: &[(u32, u32)]) -> Vec<u8> {
        let mut out = [leb(code), leb(tag), vec![children.into()]].concat();
        for (name, form) in attributes {
            out.extend([leb(*name), leb(*form)].concat());
        }
        out.extend([0, 0]);
        out
    }

    const STMT_LIST: (u32, u32) = (0x10, 0x17);
    const RANGES: (u32, u32) = (0x55, 0x17);

    /// Returns a line program of DWARF 4 with rows, and files in one directory.
    fn lines(rows: usize, directory: &str, files: usize) -> Vec<u8> {
        let mut header = vec![1, 1, 1, 0xFB, 14, 13, 0, 1, 1, 1, 1, 0, 0, 0, 1, 0, 0, 1];
        header.extend(directory.as_bytes());
        header.extend([0, 0]);
        header.extend(b"a\0\x01\0\0".repeat(files));
        header.push(0);
        let mut program = vec![0, 9, 2];
        program.extend(0x1000_0000_u64.to_le_bytes());
        program.extend(vec![33; rows]);
        program.extend([0, 1, 1]);
        let mut body = 4_u16.to_le_bytes().to_vec();
        body.extend((header.len() as u32).to_le_bytes());
        body.extend(header);
        body.extend(program);
        [&(body.len() as u32).to_le_bytes()[..], &body].concat()
    }

    fn fits(units: usize, lines: &[u8]) -> bool {
        let abbreviations = [abbreviation(1, 0x11, false, &[STMT_LIST]), vec![0]].concat();
        let units = unit(0, &[1, 0, 0, 0, 0]).repeat(units);
        let size = abbreviations.len() + units.len() + lines.len();
        let dwarf = dwarf(&[
            (SectionId::DebugAbbrev, &abbreviations),
            (SectionId::DebugInfo, &units),
            (SectionId::DebugLine, lines),
        ]);
        check(&dwarf, size).is_ok()
    }

    #[test]
    fn units_that_share_a_line_program_are_refused() {
        assert!(fits(1, &lines(400_000, "d", 1)));
        assert!(fits(3, &lines(400_000, "d", 1)));
        assert!(!fits(300, &lines(400_000, "d", 1)));
        // The name of a directory in the path of each file.
        assert!(fits(1, &lines(1, &"d".repeat(100_000), 10)));
        assert!(!fits(1, &lines(1, &"d".repeat(100_000), 20_000)));
        assert!(!fits(1000, &lines(1, "d", 10_000)));
    }

    #[test]
    fn units_that_share_ranges_are_refused() {
        let abbreviations = [
            abbreviation(1, 0x11, true, &[RANGES]),
            abbreviation(2, 0x2E, false, &[RANGES]),
            abbreviation(3, 0x1D, true, &[]),
            vec![0],
        ]
        .concat();
        let range = [0x10_u64.to_le_bytes(), 0x20_u64.to_le_bytes()].concat();
        let mut ranges = range.repeat(20_000);
        ranges.extend([0; 16]);
        let of = |units: Vec<u8>| {
            let size = abbreviations.len() + units.len() + ranges.len();
            let dwarf = dwarf(&[
                (SectionId::DebugAbbrev, &abbreviations),
                (SectionId::DebugInfo, &units),
                (SectionId::DebugRanges, &ranges),
            ]);
            (check(&dwarf, size).is_ok(), functions_fit(&dwarf, size))
        };
        let zero = [0, 0, 0, 0];
        let alone = unit(0, &[&[1], &zero[..]].concat());
        assert_eq!(of(alone.clone()), (true, true));
        assert!(!of(alone.repeat(2000)).0);
        let function = [&[2], &zero[..]].concat();
        let of_functions = |count| {
            unit(
                0,
                &[&[1], &zero[..], &function.repeat(count), &[0]].concat(),
            )
        };
        assert_eq!(of(of_functions(3)), (true, true));
        assert_eq!(of(of_functions(3000)), (true, false));
        // Deeply nested functions.
        let nested = unit(0, &[&[1], &zero[..], &vec![3; 100_000]].concat());
        assert_eq!(of(nested), (true, false));
    }

    #[test]
    fn units_with_overlapping_abbreviations_are_refused() {
        let one = abbreviation(1, 0x34, false, &[]);
        let count = 50_000;
        let abbreviations = [one.repeat(count), vec![0]].concat();
        let units: Vec<u8> = (0..count)
            .flat_map(|number| unit((number * one.len()) as u32, &[1]))
            .collect();
        let size = abbreviations.len() + units.len();
        let dwarf = dwarf(&[
            (SectionId::DebugAbbrev, &abbreviations),
            (SectionId::DebugInfo, &units),
        ]);
        let start = std::time::Instant::now();
        assert!(check(&dwarf, size).is_err());
        assert!(start.elapsed().as_secs() < 20);
    }
}
