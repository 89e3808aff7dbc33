//! Programs that the user names, as memory of cores.

use super::note::Note;
use super::options::NamedProgram;
use super::{ImportError, Imported};
use crate::program::elf::Elf;
use crate::snapshot::model::{Dump, OtherSection};
use object::{Object, ObjectKind, ObjectSegment, SegmentFlags, elf::PF_X};

/// Programs are mapped from the starts of pages; the largest pages of Linux on Arm have 64 KiB, but
/// a program that was linked for smaller ones starts on such a page.
const PAGE: u64 = 4096;

/// Dumps of the parts of programs that are not writable, or executable, in the order of the programs.
/// The programs are recorded in `out`, for their symbols.
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

/// The start of the page of an address.
pub const fn page(address: u64) -> u64 {
    address & !(PAGE - 1)
}

/// Whether a file is a shared object (`ET_DYN`), as position-independent programs are.
fn is_dynamic(elf: &Elf) -> bool {
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

/// The offset of the load address of a file from the addresses in it, if the byte at `offset` of it
/// lies at `address`.
pub fn bias(elf: &Elf, offset: u64, address: u64) -> Option<u64> {
    let segment = elf.segments.iter().find(|segment| {
        let start = segment.file.start as u64;
        (start & !(PAGE - 1)..segment.file.end as u64).contains(&offset)
    })?;
    let at = segment
        .address
        .wrapping_sub(segment.file.start as u64)
        .wrapping_add(offset);
    Some(address.wrapping_sub(at))
}
