//! Finds the other files of a split core file, which makedumpfile writes with `--split`.

use super::file::File;
use super::header::Header;
use super::is_kdump;
use crate::import::imported;
use crate::import::note::{CoreFileNote, Note};
use armsnap_snapshot::mapped;
use std::fs;
use std::path::Path;

/// The maximum number of files in a directory among which the others are looked for.
const MOST_BESIDE: usize = 1 << 12;

/// The file at `path`, and the others of the same split core file that are in its directory, in the order of
/// their pages.
pub fn with_others(path: &Path, first: File, notes: &mut Vec<Note>) -> Vec<File> {
    if !first.header.is_split {
        return vec![first];
    }
    let parent = path.parent().filter(|it| !it.as_os_str().is_empty());
    let beside = fs::read_dir(parent.unwrap_or(Path::new(".")));
    let mut beside = beside.into_iter().flatten().flatten();
    let itself = fs::canonicalize(path).ok();
    let others = beside.by_ref().take(MOST_BESIDE).map(|entry| entry.path());
    let others = others.filter(|other| fs::canonicalize(other).ok() != itself);
    let others: Vec<File> = others.filter_map(|other| like(&first, &other)).collect();
    // Of files with the same pages, one may be of another crash.
    let has_own_pages = |index: usize| {
        let before = others[..index].iter().chain([&first]);
        let mut rest = before.chain(&others[index + 1..]);
        !rest.any(|other| overlap(&others[index], other))
    };
    let own: Vec<bool> = (0..others.len()).map(has_own_pages).collect();
    let count = others.len();
    let kept = others.into_iter().zip(own).filter(|(_, own)| *own);
    let mut files: Vec<File> = kept.map(|(file, _)| file).chain([first]).collect();
    let left_out = count + 1 - files.len();
    files.sort_by_key(|file| file.header.pages.start);
    notes.push(CoreFileNote::SplitFiles { files: files.len() }.into());
    if left_out > 0 {
        notes.push(CoreFileNote::SplitOverlap { files: left_out }.into());
    }
    if beside.next().is_some() {
        notes.push(CoreFileNote::SplitBeside { limit: MOST_BESIDE }.into());
    }
    files
}

/// The file at `path` if it is of the same crash as `first`: its VMCOREINFO has the time of the crash and where
/// the kernel was, its notes the registers.
fn like(first: &File, path: &Path) -> Option<File> {
    let is_one = path.is_file() && mapped::head(path, 8).is_ok_and(|head| is_kdump(&head));
    let bytes = is_one.then(|| imported::map(path).ok()).flatten()?;
    let header = Header::read(&bytes)?;
    let file = File { bytes, header };
    let same = first.header.is_like(&file.header)
        && first.vmcoreinfo() == file.vmcoreinfo()
        && first.notes() == file.notes();
    same.then_some(file)
}

fn overlap(one: &File, other: &File) -> bool {
    let (one, other) = (&one.header.pages, &other.header.pages);
    one.start.max(other.start) < one.end.min(other.end)
}
