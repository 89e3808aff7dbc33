//! Untrusted names, converted to characters that are harmless in commands, expressions and files.

use std::collections::HashSet;

/// A name in ASCII letters, digits, `_`, `.` and `-`: each other character becomes `_`.
pub fn safe(name: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "_.-".contains(c);
    name.chars()
        .map(|c| if plain(c) { c } else { '_' })
        .collect()
}

/// Names that are in use.
#[derive(Clone, Debug, Default)]
pub struct Names(HashSet<String>);

impl Names {
    /// Reserves the names that [`safe`] leaves unchanged.
    pub fn of<'a>(names: impl Iterator<Item = &'a str>) -> Self {
        let plain = names.filter(|name| safe(name) == *name);
        Self(plain.map(str::to_owned).collect())
    }

    /// Returns the name if [`safe`] does not change it, or else a safe name that is not in use.
    pub fn safe(&mut self, name: &str) -> String {
        let plain = safe(name);
        if plain == name {
            return plain;
        }
        let mut found = plain.clone();
        // Of many names that become equal, most then get a free number at the first try.
        let mut n = self.0.len();
        while !self.0.insert(found.clone()) {
            found = format!("{plain}_{n}");
            n += 1;
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn renamed_names_stay_distinct() {
        let all = ["x_y", "x\ny", "x`y", "a.b-c", "é", "a b"];
        let mut names = Names::of(all.iter().copied());
        let safe: Vec<String> = all.iter().map(|name| names.safe(name)).collect();
        assert_eq!(safe, ["x_y", "x_y_2", "x_y_3", "a.b-c", "_", "a_b"]);
    }
}
