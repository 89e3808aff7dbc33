//! Programs that the user names, as memory of cores.

use super::note::Note;
use super::options::NamedProgram;
use super::{ImportError, Imported};
use armsnap_snapshot::program::elf::{Elf, Segment};
use armsnap_snapshot::snapshot::model::{Dump, OtherSection};
use object::{Object, ObjectKind, ObjectSegment, SegmentFlags, elf::PF_X};
use std::ops::Range;

/// The page size that load addresses are aligned to. Linux on Arm has pages of up to 64 KiB, but a
/// program that was linked for smaller pages starts at a smaller page.
const PAGE: u64 = 4096;

/// Dumps of the parts of programs that are not writable or are executable, in the order of the
/// programs. The programs are recorded in `out` for their symbols.
///
/// # Errors
///
/// If a program cannot be read.
pub fn dumps(programs: &[NamedProgram], out: &mut Imported) -> Result<Vec<Dump>, ImportError> {
    let mut dumps: Vec<Dump> = Vec::new();
    for (index, named) in programs.iter().enumerate() {
        let elf = Elf::open(&named.path)?;
        let lowest = elf.segments.iter().map(|segment| segment.address).min();
        let Some(lowest) = lowest else {
            let text = "has no part that is loaded";
            return Err(ImportError::input(&named.path, text));
        };
        let linked = page(lowest);
        let bias = named
            .address
            .map_or(0, |address| address.wrapping_sub(linked));
        if named.address.is_none() && linked == 0 && is_dynamic(&elf) {
            let path = named.path.clone();
            out.notes.push(Note::AtZero { path });
        }
        let executable = executable(&elf);
        let name = elf.path.file_name().unwrap_or_default().to_string_lossy();
        let path = out.add("images", &name, elf.whole().clone(), elf.path.clone());
        for segment in &elf.segments {
            if segment.writable && !executable.contains(&segment.address) {
                continue;
            }
            dumps.push(Dump {
                section: format!("dump{}", dumps.len() + 1),
                file: path.clone(),
                address: segment.address.wrapping_add(bias),
                offset: Some(segment.file.start as u64),
                length: Some(segment.file.len() as u64),
                ..Dump::default()
            });
        }
        record(index, path, bias, out);
    }
    Ok(dumps)
}

/// The addresses of the code of those programs that can be read.
pub fn code(programs: &[NamedProgram]) -> Vec<Range<u64>> {
    let of = |named: &NamedProgram| {
        let elf = Elf::open(&named.path).ok()?;
        let lowest = elf.segments.iter().map(|segment| segment.address).min()?;
        let bias = named
            .address
            .map_or(0, |address| address.wrapping_sub(page(lowest)));
        let executable = executable(&elf);
        let segments = elf.segments.iter();
        let code = segments.filter(|segment| executable.contains(&segment.address));
        let range = |segment: &Segment| {
            let start = segment.address.wrapping_add(bias);
            start..start.saturating_add(segment.file.len() as u64)
        };
        Some(code.map(range).collect::<Vec<_>>())
    };
    programs.iter().filter_map(of).flatten().collect()
}

/// The start of the page that contains an address.
pub const fn page(address: u64) -> u64 {
    address & !(PAGE - 1)
}

/// Whether a file is a shared object (`ET_DYN`), as position-independent programs are.
pub fn is_dynamic(elf: &Elf) -> bool {
    object::File::parse(elf.bytes()).is_ok_and(|file| file.kind() == ObjectKind::Dynamic)
}

/// The addresses of executable segments; those of a bare-metal program may be writable too.
fn executable(elf: &Elf) -> Vec<u64> {
    let Ok(file) = object::File::parse(elf.bytes()) else {
        return Vec::new();
    };
    let executable =
        |flags| matches!(flags, SegmentFlags::Elf { p_flags, .. } if p_flags.0 & PF_X.0 != 0);
    let segments = file
        .segments()
        .filter(|segment| executable(segment.flags()));
    segments.map(|segment| segment.address()).collect()
}

/// Records a program for its symbols; its memory is in the dumps.
pub fn record(index: usize, file: String, bias: u64, out: &mut Imported) {
    let name = match index {
        0 => "program".to_owned(),
        _ => format!("program{}", index + 1),
    };
    let entries = [
        ("file", file),
        ("offset", format!("{bias:#x}")),
        ("memory", "none".to_owned()),
    ];
    out.snapshot.other_sections.push(OtherSection {
        name,
        entries: entries.map(|(key, value)| (key.to_owned(), value)).to_vec(),
        ..OtherSection::default()
    });
}

/// The offset of the load address of a file from the addresses in it, if a range of the file is
/// mapped at `address`. `code` is whether it is mapped executable.
///
/// Two segments may share a page of the file, which is then mapped for each of them.
pub fn bias(elf: &Elf, range: Range<u64>, address: u64, code: bool) -> Option<u64> {
    let executable = match code {
        true => executable(elf),
        false => Vec::new(),
    };
    let of_code = |segment: &&Segment| {
        let (start, end) = (segment.file.start as u64, segment.file.end as u64);
        executable.contains(&segment.address) && start < range.end && range.start < end
    };
    let at_start = |segment: &&Segment| {
        let (start, end) = (segment.file.start as u64, segment.file.end as u64);
        (page(start)..end).contains(&range.start)
    };
    let segment = elf.segments.iter().find(of_code);
    let segment = segment.or_else(|| elf.segments.iter().rfind(at_start))?;
    let at = segment
        .address
        .wrapping_sub(segment.file.start as u64)
        .wrapping_add(range.start);
    Some(address.wrapping_sub(at))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An ELF file with segments: their flags, offsets, addresses and sizes.
    fn linked(segments: &[(u32, u64, u64, u64)]) -> Elf {
        let mut bytes = b"\x7fELF\x02\x01\x01".to_vec();
        bytes.resize(64, 0);
        bytes[16..20].copy_from_slice(&[3, 0, 183, 0]);
        (bytes[20], bytes[32], bytes[52], bytes[54]) = (1, 64, 64, 56);
        bytes[56] = segments.len() as u8;
        for &(flags, offset, address, size) in segments {
            bytes.extend(1_u32.to_le_bytes());
            bytes.extend(flags.to_le_bytes());
            let words = [offset, address, address, size, size, 0x1_0000];
            bytes.extend(words.iter().flat_map(|word| word.to_le_bytes()));
        }
        bytes.resize(0x8_0000, 0);
        Elf::read("lib.so".into(), bytes.into()).unwrap()
    }

    #[test]
    fn pages_that_segments_share_are_those_of_the_mapped_one() {
        // As lld links: each segment begins in the page of the file in which the preceding one
        // ends.
        let elf = linked(&[
            (4, 0, 0, 0x3_B32C),
            (5, 0x3_B330, 0x4_B330, 0x2_0000),
            (6, 0x5_B330, 0x7_B330, 0x1000),
        ]);
        let base = 0x7000_0000;
        for (range, address, code) in [
            (0..0x3_C000, base, false),
            (0x3_B000..0x5_C000, base + 0x4_B000, true),
            // 64 KiB pages.
            (0x3_0000..0x6_0000, base + 0x4_0000, true),
            (0x5_B000..0x5_D000, base + 0x7_B000, false),
        ] {
            assert_eq!(bias(&elf, range, address, code), Some(base), "{address:#x}");
        }
        assert_eq!(bias(&elf, 0x7_0000..0x7_1000, base, true), None);
    }
}
