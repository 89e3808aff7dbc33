//! Converts names in an input to names of files that armsnap looks for or writes.

use armsnap_snapshot::snapshot::paths;
use armsnap_snapshot::text::is_plain;
use std::collections::hash_map::{Entry, HashMap};
use std::path::PathBuf;

/// A recorded absolute path as a path relative to another directory; `None` if it points outside
/// that directory.
pub fn inside(recorded: &str) -> Option<PathBuf> {
    let path = paths::normal(recorded.trim_start_matches('/'))?;
    (!path.is_empty()).then(|| path.into())
}

/// A name that is valid in .ini files, as a file name, and in debuggers; never empty.
pub fn plain(name: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | '+');
    let name: String = name
        .chars()
        .take(64)
        .map(|c| if plain(c) { c } else { '_' })
        .collect();
    match name.trim_matches(['.', '-']) {
        "" => "unnamed".to_owned(),
        name => name.to_owned(),
    }
}

/// Text for a value in an .ini file: one line, of at most 400 characters, that reads back unchanged.
pub fn one_line(text: &str) -> String {
    let fits = |c: char| is_plain(c) && !matches!(c, ';' | '#' | '"');
    let line: String = text
        .chars()
        .take(400)
        .map(|c| if fits(c) { c } else { '_' })
        .collect();
    line.trim().to_owned()
}

/// The names in use: each is used only once, ignoring case.
#[derive(Debug, Default)]
pub struct Names(HashMap<String, usize>);

impl Names {
    /// Returns `name`, or `name` followed by a number.
    pub fn unique(&mut self, name: &str) -> String {
        loop {
            let count = self.0.entry(name.to_ascii_lowercase()).or_insert(0);
            *count += 1;
            if *count == 1 {
                return name.to_owned();
            }
            let numbered = format!("{name}-{count}");
            if let Entry::Vacant(free) = self.0.entry(numbered.to_ascii_lowercase()) {
                free.insert(1);
                return numbered;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_harmless_and_unique() {
        assert_eq!(plain("../../etc/pass wd\n"), "_.._etc_pass_wd_");
        assert_eq!(plain("..."), "unnamed");
        assert_eq!(plain(""), "unnamed");
        assert_eq!(
            one_line("\u{FEFF} perf\trecord; # x "),
            "_ perf_record_ _ x"
        );
        assert_eq!(one_line("record --filter  "), "record --filter");
        let mut names = Names::default();
        assert_eq!(names.unique("a"), "a");
        assert_eq!(names.unique("A"), "A-2");
        assert_eq!(names.unique("a"), "a-3");
        assert_eq!(names.unique("a-4"), "a-4");
        assert_eq!(names.unique("a"), "a-5");
    }
}
