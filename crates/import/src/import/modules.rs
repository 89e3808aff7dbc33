//! Programs and libraries of a process that failed: what their files hold becomes memory.

use super::claims::Claims;
use super::{Imported, programs};
use armsnap_snapshot::program::elf::Elf;
use armsnap_snapshot::snapshot::libraries::LIBRARIES;
use armsnap_snapshot::snapshot::model::Dump;

/// Where a module was loaded.
#[derive(Clone, Copy, Debug)]
pub struct Place<'a> {
    /// Its number among those that are found.
    pub index: usize,
    /// Whether it is the program, and not a library.
    pub is_program: bool,
    /// Its path.
    pub path: &'a str,
    /// The offset of its addresses in memory from those in its file.
    pub bias: u64,
}

/// Adds the parts of a module that the process could not change, where nothing else is known.
pub fn add(
    elf: &Elf,
    place: &Place<'_>,
    claims: &mut Claims,
    dumps: &mut Vec<Dump>,
    out: &mut Imported,
) {
    let folder = if place.is_program {
        "images"
    } else {
        LIBRARIES
    };
    let name = place.path.rsplit(['/', '!']).next().unwrap_or_default();
    let path = out.add(folder, name, elf.whole().clone(), elf.path.clone());
    programs::record(place.index, path.clone(), place.bias, out);
    for segment in elf.segments.iter().filter(|segment| !segment.writable) {
        let first = segment.address.wrapping_add(place.bias);
        let last = first.saturating_add(segment.file.len() as u64);
        for range in claims.take(first..last) {
            dumps.push(Dump {
                file: path.clone(),
                address: range.start,
                offset: Some(segment.file.start as u64 + (range.start - first)),
                length: Some(range.end - range.start),
                ..Dump::default()
            });
        }
    }
}
