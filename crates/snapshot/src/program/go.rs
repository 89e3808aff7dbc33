//! Code of the Go compiler, which does not follow any procedure call standard of Arm.
//!
//! Its functions preserve only SP, x29 and the pointer to the goroutine (x28). Goroutines have
//! stacks of their own, and a stack that is too small is moved.

use super::elf::Elf;
use memchr::memmem;
use object::{Object, ObjectSection};
use std::ops::Range;
use std::sync::Arc;

/// Sections of the Go linker: the tables of functions that the runtime needs (position-independent
/// programs use the second name, unless another linker merged it), build information, and the build
/// ID.
const SECTIONS: [&str; 4] = [
    ".gopclntab",
    ".data.rel.ro.gopclntab",
    ".go.buildinfo",
    ".note.go.buildid",
];
/// The start of the linker's build information, which `go version` looks for, and its alignment.
const BUILD: &[u8; 14] = b"\xff Go buildinf:";
const BUILD_ALIGNMENT: u64 = 16;

/// The address ranges of Go code.
#[derive(Clone, Debug, Default)]
pub struct GoCode {
    /// By address, without overlaps.
    ranges: Arc<[Range<u64>]>,
}

impl GoCode {
    /// Finds the code of programs made by the Go linker, at the addresses where they are loaded.
    /// All code of such a program counts, even C code.
    pub fn new<'e>(programs: impl IntoIterator<Item = &'e Elf>) -> Self {
        let programs = programs.into_iter().filter(|elf| is_go(elf));
        let segments = programs.flat_map(|elf| &elf.segments);
        let code = segments.filter(|segment| !segment.writable);
        let mut found: Vec<_> = code.map(|segment| segment.address..segment.end()).collect();
        found.sort_by_key(|range| range.start);
        let mut ranges: Vec<Range<u64>> = Vec::new();
        for range in found {
            match ranges.last_mut().filter(|last| range.start <= last.end) {
                Some(last) => last.end = last.end.max(range.end),
                None => ranges.push(range),
            }
        }
        Self {
            ranges: ranges.into(),
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
        let after = self.ranges.partition_point(|range| range.start <= address);
        self.ranges[..after]
            .last()
            .is_some_and(|range| address < range.end)
    }
}

/// Whether the Go linker made a program, even one without symbols and sections.
fn is_go(elf: &Elf) -> bool {
    let has_section = object::File::parse(elf.bytes()).is_ok_and(|file| {
        file.sections()
            .any(|section| section.name().is_ok_and(|name| SECTIONS.contains(&name)))
    });
    let mut data = elf.segments.iter().filter(|segment| segment.writable);
    has_section
        || data.any(|segment| {
            let mut found = memmem::find_iter(elf.segment_bytes(segment), BUILD);
            found.any(|offset| (segment.address + offset as u64).is_multiple_of(BUILD_ALIGNMENT))
        })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::program::elf::small_elf::small_elf;
    use std::io::Write;

    #[test]
    fn a_stripped_program_is_recognised_by_its_build_information() {
        let is_go = |data: &[u8]| {
            let mut file = tempfile::NamedTempFile::new().unwrap();
            file.write_all(&small_elf(b"code", data)).unwrap();
            let elf = Elf::open(file.path()).unwrap();
            GoCode::new([&elf]).contains(0x1000)
        };
        let after = |zeros: usize| [&vec![0; zeros][..], BUILD, b"\x08\x02"].concat();
        assert!(is_go(&after(0)));
        assert!(is_go(&after(16 << 16)), "a linker put tables before it");
        assert!(!is_go(&after(8)), "it is aligned");
        assert!(!is_go(&after(0)[1..]));
    }
}
