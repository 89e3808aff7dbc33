//! Code of the Go compiler, which does not follow any procedure call standard of Arm.
//!
//! Its functions preserve only SP, x29 and the pointer to the goroutine (x28). Goroutines have
//! stacks of their own, and a stack that is too small is moved.

use super::elf::Elf;
use object::{Object, ObjectSection};
use std::ops::Range;

/// The tables of functions that the runtime needs; position-independent programs use the second
/// name.
const TABLES: [&str; 2] = [".gopclntab", ".data.rel.ro.gopclntab"];
/// The start of the linker's build information, which `go version` looks for, and its alignment.
const BUILD: &[u8; 14] = b"\xff Go buildinf:";
const BUILD_ALIGNMENT: usize = 16;
/// The number of bytes of a segment that are searched for it.
const SEARCHED: usize = 64 << 10;

/// The address ranges of Go code.
#[derive(Clone, Debug, Default)]
pub struct GoCode {
    ranges: Vec<Range<u64>>,
}

impl GoCode {
    /// Finds the code of programs made by the Go linker, at the addresses where they are loaded.
    /// All code of such a program counts, even C code.
    pub fn new<'e>(programs: impl IntoIterator<Item = &'e Elf>) -> Self {
        let programs = programs.into_iter().filter(|elf| is_go(elf));
        let segments = programs.flat_map(|elf| &elf.segments);
        let code = segments.filter(|segment| !segment.writable);
        Self {
            ranges: code.map(|segment| segment.address..segment.end()).collect(),
        }
    }

    /// Creates a single address range of Go code.
    pub fn at(range: Range<u64>) -> Self {
        Self {
            ranges: std::iter::once(range).collect(),
        }
    }

    /// Returns whether the code at an address is Go code.
    pub fn contains(&self, address: u64) -> bool {
        self.ranges.iter().any(|range| range.contains(&address))
    }
}

/// Whether the Go linker made a program, even one without symbols and sections.
fn is_go(elf: &Elf) -> bool {
    let has_table = object::File::parse(elf.bytes()).is_ok_and(|file| {
        file.sections()
            .any(|section| section.name().is_ok_and(|name| TABLES.contains(&name)))
    });
    let mut data = elf.segments.iter().filter(|segment| segment.writable);
    has_table
        || data.any(|segment| {
            let bytes = elf.segment_bytes(segment);
            let bytes = &bytes[..bytes.len().min(SEARCHED)];
            bytes
                .chunks(BUILD_ALIGNMENT)
                .any(|at| at.starts_with(BUILD))
        })
}
