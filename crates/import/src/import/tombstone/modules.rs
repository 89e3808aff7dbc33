//! The modules of a process: its program and libraries, by the memory map or, without one, by the
//! frames whose addresses are known.

use super::report::{Mapping, Report};
use crate::import::claims::Claims;
use crate::import::images::Images;
use crate::import::modules;
use crate::import::note::TombstoneNote;
use crate::import::wanted::Wanted;
use crate::import::{BuildId, Imported, programs};
use armsnap_snapshot::program::elf::Elf;
use armsnap_snapshot::snapshot::model::Dump;
use std::collections::HashMap;

/// Adds what the modules' files hold: the parts that the program could not change, where the
/// tombstone has no memory. `most` is the maximum number of dumps.
pub fn dumps(
    report: &Report,
    images: &mut Images<'_>,
    (claims, most): (&mut Claims, usize),
    dumps: &mut Vec<Dump>,
    out: &mut Imported,
) {
    let by_map = by_map(report, images);
    let placed = match report.mappings.is_empty() {
        false => by_map,
        true => by_frames(report, images, out),
    };
    let is_program = |path: &str| path == report.command || path.contains("/app_process");
    let (program, libraries): (Vec<_>, Vec<_>) =
        placed.into_iter().partition(|(path, ..)| is_program(path));
    let first = program.len();
    let all = program.into_iter().chain(libraries);
    for (index, (path, elf, bias)) in all.enumerate() {
        if dumps.len() >= most {
            break;
        }
        let place = modules::Place {
            index,
            is_program: index < first.min(1),
            path: &path,
            bias,
        };
        modules::add(&elf, &place, claims, dumps, out);
    }
}

/// A module: its path, its file, and the offset of its addresses in memory from those in the file.
type Module = (String, Elf, u64);

fn by_map(report: &Report, images: &mut Images<'_>) -> Vec<Module> {
    let has_ids = report
        .mappings
        .iter()
        .any(|mapping| !mapping.build_id.is_empty());
    // Names of libraries in packages, which old maps do not have.
    let frames = report.threads.iter().flat_map(|thread| &thread.frames);
    let frames = frames.filter(|frame| frame.path.contains('!'));
    let names: HashMap<&str, &str> = frames
        .map(|frame| (&*frame.build_id, &*frame.path))
        .collect();
    let is_same = |one: &Mapping, next: &Mapping| {
        (&one.path, &one.build_id) == (&next.path, &next.build_id) && one.offset <= next.offset
    };
    let mut out = Vec::new();
    for group in report.mappings.chunk_by(is_same) {
        let first = &group[0];
        let has_code = || group.iter().any(|mapping| mapping.code);
        let wanted = if has_ids {
            !first.build_id.is_empty()
        } else {
            has_code()
        };
        if !wanted {
            continue;
        }
        let named = names.get(&*first.build_id).filter(|_| has_ids);
        let path = named.copied().unwrap_or(&first.path);
        let wanted = wanted_of(path, &first.build_id);
        let Some(elf) = found(wanted, images) else {
            continue;
        };
        // In a package, the file begins where its first mapping does.
        let is_package = path.contains('!') || first.path.ends_with(".apk");
        let begin = if is_package { first.offset } else { 0 };
        let bias = group.iter().find_map(|mapping| {
            let from = mapping.offset.checked_sub(begin)?;
            let range = from..from.saturating_add(mapping.length);
            programs::bias(&elf, range, mapping.first, mapping.code)
        });
        out.extend(bias.map(|bias| (path.to_owned(), elf, bias)));
    }
    out
}

fn by_frames(report: &Report, images: &mut Images<'_>, out: &mut Imported) -> Vec<Module> {
    let mut placed: Vec<Module> = Vec::new();
    let frames = report.threads.iter().flat_map(|thread| &thread.frames);
    let mut seen = std::collections::HashSet::new();
    for frame in frames.filter(|frame| frame.path.starts_with('/')) {
        let Some(pc) = frame.pc else { continue };
        let bias = pc.wrapping_sub(frame.linked);
        // Frames of interpreted code have no addresses in a file.
        if !bias.is_multiple_of(0x1000) || !seen.insert((&frame.path, bias)) {
            continue;
        }
        if let Some(elf) = found(wanted_of(&frame.path, &frame.build_id), images) {
            placed.push((frame.path.clone(), elf, bias));
        }
    }
    out.notes.push(TombstoneNote::NoMap.into());
    placed
}

fn wanted_of(path: &str, build_id: &str) -> Wanted {
    Wanted {
        path: path.replace('!', "/"),
        build_id: bytes(build_id).and_then(|bytes| BuildId::new(&bytes)),
    }
}

/// The file of a module. One that is not found is reported as missing.
fn found(wanted: Wanted, images: &mut Images<'_>) -> Option<Elf> {
    let found = images.find(&wanted);
    if found.is_none() {
        images.missing.insert(wanted);
    }
    found
}

/// The bytes of a build-id in digits.
fn bytes(digits: &str) -> Option<Vec<u8>> {
    let digit = |byte: u8| char::from(byte).to_digit(16).map(|digit| digit as u8);
    let pairs = digits.as_bytes().chunks(2).map(|pair| match *pair {
        [high, low] => Some(digit(high)? << 4 | digit(low)?),
        _ => None,
    });
    pairs.collect()
}
