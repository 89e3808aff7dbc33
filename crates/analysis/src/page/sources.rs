//! The text of source files.
//!
//! Names of source files come from the program, which is not trusted. Only files below the
//! directories that the user names, or that contain the snapshot, are read.

use super::data::FileRow;
use crate::profile::{Coverage, FileCoverage};
use armsnap_snapshot::mapped;
use armsnap_snapshot::text::one_line;
use std::collections::{BTreeMap, HashMap};
use std::io;
use std::path::{Path, PathBuf};

/// The size of the largest file that is read.
const LARGEST: u64 = 8 << 20;
/// The maximum amount of text of all files together.
const MOST: usize = 3 << 20;
/// Files with more lines are shown only around their code.
const LONG: usize = 3_000;
/// The number of lines shown around code.
const AROUND: u32 = 12;
/// The maximum length of a line.
const LONGEST_LINE: usize = 400;
/// The maximum number of components of a path that is looked up.
const PARTS: usize = 64;
/// Maximum number of files on the page.
const FILES: usize = 10_000;
/// Maximum number of lines with counts on the page.
const LINES: usize = 250_000;

/// The remaining capacity of the page.
#[derive(Debug)]
struct Room {
    text: usize,
    lines: usize,
}

impl Default for Room {
    fn default() -> Self {
        Self {
            text: MOST,
            lines: LINES,
        }
    }
}

/// The source files of a page.
#[derive(Debug, Default)]
pub struct Sources {
    rows: Vec<FileRow>,
    indexes: HashMap<String, u32>,
    /// Lines of code without a symbol, by the index of their file.
    others: BTreeMap<u32, (String, FileCoverage)>,
    room: Room,
    roots: Vec<PathBuf>,
    left_out: usize,
}

impl Sources {
    /// The files in a program's coverage, those with the most executed lines first, with the text
    /// of files found below `directories`.
    pub fn of(coverage: &Coverage, directories: &[PathBuf]) -> Self {
        let mut files: Vec<(&String, &FileCoverage)> = coverage.files.iter().collect();
        files.retain(|(_, file)| !file.lines.is_empty());
        files.sort_by_key(|(name, file)| (std::cmp::Reverse(covered(file)), name.as_str()));
        let roots: Vec<PathBuf> = directories
            .iter()
            .filter_map(|directory| directory.canonicalize().ok())
            .collect();
        let mut sources = Self {
            left_out: files.len().saturating_sub(FILES),
            roots,
            ..Self::default()
        };
        for (name, file) in files.into_iter().take(FILES) {
            let row = row(name, file, &sources.roots, &mut sources.room);
            let index = sources.rows.len() as u32;
            sources.indexes.insert(name.clone(), index);
            sources.rows.push(row);
        }
        sources
    }

    /// The index of a file.
    pub fn index(&self, name: &str) -> Option<u32> {
        self.indexes.get(name).copied()
    }

    /// The index of the file of an instruction that was executed `times` times. Files of code
    /// without symbols are not in the coverage; their lines are added here.
    pub fn executed(&mut self, name: &str, line: u32, times: u64) -> Option<u32> {
        let index = match self.indexes.get(name) {
            Some(&known) => known,
            None if self.rows.len() + self.others.len() >= FILES => return None,
            None => {
                let new = (self.rows.len() + self.others.len()) as u32;
                self.indexes.insert(name.to_owned(), new);
                self.others
                    .insert(new, (name.to_owned(), FileCoverage::default()));
                new
            }
        };
        if let Some((_, file)) = self.others.get_mut(&index) {
            let count = file.lines.entry(line).or_default();
            *count = times.max(*count);
        }
        Some(index)
    }

    /// The number of files that did not fit.
    pub fn left_out(&self) -> usize {
        self.left_out
    }

    /// The rows.
    pub fn into_rows(mut self) -> Vec<FileRow> {
        for (name, file) in self.others.values() {
            self.rows.push(row(name, file, &self.roots, &mut self.room));
        }
        self.rows
    }
}

fn covered(file: &FileCoverage) -> u64 {
    file.lines.values().filter(|count| **count > 0).count() as u64
}

fn row(name: &str, file: &FileCoverage, roots: &[PathBuf], room: &mut Room) -> FileRow {
    let mut row = FileRow {
        name: one_line(name).into_owned(),
        covered: covered(file),
        known: file.lines.len() as u64,
        ..FileRow::default()
    };
    // Files of which nothing was executed are listed without their text.
    if row.covered == 0 {
        row.note = Some("not executed".to_owned());
        return row;
    }
    if file.lines.len() > room.lines {
        row.note = Some("the page has no room for this file".to_owned());
        return row;
    }
    room.lines -= file.lines.len();
    let lines = file.lines.iter();
    row.lines = lines
        .flat_map(|(line, count)| [u64::from(*line), *count])
        .collect();
    match text(name, roots) {
        Ok(Some(text)) => {
            let pieces = pieces(&text, file);
            let size: usize = pieces.iter().map(|(_, text)| text.len()).sum();
            if size <= room.text {
                room.text -= size;
                row.text = Some(pieces);
            } else {
                row.note = Some("the page has no room for the text of this file".to_owned());
            }
        }
        Ok(None) => row.note = Some("the source file was not found".to_owned()),
        Err(error) => row.note = Some(format!("the source file cannot be read: {error}")),
    }
    row
}

/// The text of a file below the roots: the longest suffix of its path that exists, of at most
/// [`PARTS`] components.
fn text(name: &str, roots: &[PathBuf]) -> io::Result<Option<String>> {
    let name = name.replace('\\', "/");
    let parts: Vec<&str> = name
        .split('/')
        .filter(|part| !matches!(*part, "" | "."))
        .collect();
    let parents = parts.iter().rposition(|part| *part == "..");
    let shortest = parts.len().saturating_sub(PARTS);
    for first in shortest.max(parents.map_or(0, |last| last + 1))..parts.len() {
        let relative: PathBuf = parts[first..].iter().collect();
        for root in roots {
            if let Some(text) = read(root, &relative)? {
                return Ok(Some(text));
            }
        }
    }
    Ok(None)
}

fn read(root: &Path, relative: &Path) -> io::Result<Option<String>> {
    // Canonical paths resolve symbolic links, which may lead outside.
    let Ok(path) = root.join(relative).canonicalize() else {
        return Ok(None);
    };
    if !path.starts_with(root) || !path.metadata()?.is_file() {
        return Ok(None);
    }
    let bytes = mapped::head(&path, LARGEST + 1)?;
    if bytes.len() as u64 > LARGEST {
        return Err(io::Error::other("it is larger than 8 MiB"));
    }
    Ok(Some(String::from_utf8_lossy(&bytes).into_owned()))
}

/// The lines of a file, in pieces with the number of their first line.
fn pieces(text: &str, file: &FileCoverage) -> Vec<(u32, String)> {
    let lines: Vec<&str> = text.lines().collect();
    let all = lines.len() <= LONG;
    let mut pieces: Vec<(u32, String)> = Vec::new();
    let mut last = 0;
    for (index, content) in lines.iter().enumerate() {
        let number = index as u32 + 1;
        let around = number.saturating_sub(AROUND)..=number.saturating_add(AROUND);
        if !all && file.lines.range(around).next().is_none() {
            continue;
        }
        let shown = shown(content);
        match pieces.last_mut() {
            Some((_, piece)) if last + 1 == number => {
                piece.push('\n');
                piece.push_str(&shown);
            }
            _ => pieces.push((number, shown)),
        }
        last = number;
    }
    pieces
}

/// A line of source in which control characters other than tabs are made visible.
fn shown(line: &str) -> String {
    let cut = line.char_indices().nth(LONGEST_LINE);
    let line = cut.map_or(line, |(at, _)| &line[..at]);
    let parts: Vec<_> = line.split('\t').map(one_line).collect();
    parts.join("\t")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg(unix)]
    fn only_files_below_the_directories_are_read() {
        let parent = tempfile::tempdir().unwrap();
        let root = parent.path().join("root");
        std::fs::create_dir_all(root.join("src")).unwrap();
        std::fs::write(parent.path().join("secret"), "s").unwrap();
        std::fs::write(root.join("src/main.c"), "int main;").unwrap();
        std::os::unix::fs::symlink(parent.path().join("secret"), root.join("link")).unwrap();
        let roots = [root.canonicalize().unwrap()];
        let find = |name: &str| text(name, &roots).unwrap();
        for name in [
            "src/main.c",
            "./src/main.c",
            "/build/somewhere/src/main.c",
            "C:\\work\\src\\main.c",
            "../src/main.c",
        ] {
            assert_eq!(find(name).as_deref(), Some("int main;"), "{name}");
        }
        let secret = parent.path().join("secret");
        let long = "x/".repeat(1 << 20);
        assert_eq!(
            find(&format!("{long}src/main.c")).as_deref(),
            Some("int main;")
        );
        for name in [
            long.as_str(),
            "../secret",
            "secret",
            "link",
            "src",
            "",
            secret.to_str().unwrap(),
        ] {
            assert_eq!(find(name), None, "{name}");
        }
    }

    #[test]
    fn long_files_are_shown_around_their_code() {
        let mut file = FileCoverage::default();
        file.lines.insert(5000, 1);
        let text = "x\u{202e}\ty\n".repeat(10_000);
        let pieces = pieces(&text, &file);
        assert_eq!(pieces.len(), 1);
        assert_eq!(pieces[0].0, 5000 - AROUND);
        let lines: Vec<&str> = pieces[0].1.split('\n').collect();
        assert_eq!(lines.len(), 2 * AROUND as usize + 1);
        assert_eq!(lines[0], "x\\u{202e}\ty");
    }
}
