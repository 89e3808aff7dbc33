//! Coverage of source files, added over all programs, for formats that list a file once.

use super::{Analysed, ExportError, lcov};
use crate::profile::{Coverage, FileCoverage};
use std::collections::BTreeMap;

/// The files of all programs, by path.
///
/// # Errors
///
/// If there are no source lines.
pub(super) fn files(
    analysed: &Analysed<'_>,
) -> Result<BTreeMap<String, FileCoverage>, ExportError> {
    Ok(merged(lcov::found(analysed)?))
}

fn merged(programs: Vec<Coverage>) -> BTreeMap<String, FileCoverage> {
    let mut all: BTreeMap<String, FileCoverage> = BTreeMap::new();
    for (path, file) in programs.into_iter().flat_map(|coverage| coverage.files) {
        let sum = all.entry(path).or_default();
        for (line, count) in file.lines {
            let known = sum.lines.entry(line).or_insert(0);
            *known = known.saturating_add(count);
        }
        sum.functions.extend(file.functions);
        sum.branches.extend(file.branches);
    }
    all
}

/// A directory and the files in it.
pub(super) fn by_directory(
    files: &BTreeMap<String, FileCoverage>,
) -> BTreeMap<&str, Vec<(&str, &str, &FileCoverage)>> {
    let mut directories: BTreeMap<&str, Vec<_>> = BTreeMap::new();
    for (path, file) in files {
        let (directory, name) = path.rsplit_once('/').unwrap_or((".", path));
        let files = directories.entry(directory).or_default();
        files.push((path.as_str(), name, file));
    }
    directories
}

/// How many parts were executed, and how many there are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Hit {
    pub covered: usize,
    pub all: usize,
}

impl Hit {
    /// Adds a part.
    pub fn add(&mut self, covered: bool) {
        self.covered += usize::from(covered);
        self.all += 1;
    }

    fn plus(self, other: Self) -> Self {
        Self {
            covered: self.covered + other.covered,
            all: self.all + other.all,
        }
    }

    /// The executed share, from 0 to 1; of nothing, 1.
    pub fn rate(self) -> f64 {
        match self.all {
            0 => 1.0,
            all => self.covered as f64 / all as f64,
        }
    }
}

/// The counts of files.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Sums {
    pub lines: Hit,
    pub functions: Hit,
    /// Outcomes of conditional branches: each has two.
    pub outcomes: Hit,
}

impl Sums {
    /// Those of a file.
    pub fn of(file: &FileCoverage) -> Self {
        let mut sums = Self::default();
        file.lines
            .values()
            .for_each(|count| sums.lines.add(*count > 0));
        let functions = file.functions.iter();
        functions.for_each(|function| sums.functions.add(function.entered > 0));
        for branch in &file.branches {
            let (taken, not_taken) = branch.outcomes.unwrap_or_default();
            sums.outcomes.add(taken > 0);
            sums.outcomes.add(not_taken > 0);
        }
        sums
    }

    /// Those of several files.
    pub fn sum<'f>(files: impl IntoIterator<Item = &'f FileCoverage>) -> Self {
        let all = files.into_iter().map(Self::of);
        all.fold(Self::default(), |sum, next| Self {
            lines: sum.lines.plus(next.lines),
            functions: sum.functions.plus(next.functions),
            outcomes: sum.outcomes.plus(next.outcomes),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_of_several_programs_is_one() {
        let program = |lines: &[(u32, u64)]| {
            let mut coverage = Coverage::default();
            let file = FileCoverage {
                lines: lines.iter().copied().collect(),
                ..FileCoverage::default()
            };
            coverage.files.insert("/a/b.c".to_owned(), file);
            coverage
        };
        let all = merged(vec![
            program(&[(1, 2), (3, 0)]),
            program(&[(1, 3), (4, u64::MAX)]),
        ]);
        assert_eq!(all.len(), 1);
        let file = &all["/a/b.c"];
        let lines: Vec<_> = file
            .lines
            .iter()
            .map(|(line, count)| (*line, *count))
            .collect();
        assert_eq!(lines, [(1, 5), (3, 0), (4, u64::MAX)]);
        let sums = Sums::sum(all.values());
        assert_eq!((sums.lines.covered, sums.lines.all), (2, 3));
        assert!((sums.outcomes.rate() - 1.0).abs() < f64::EPSILON);
        assert_eq!(by_directory(&all).keys().collect::<Vec<_>>(), [&"/a"]);
    }
}
