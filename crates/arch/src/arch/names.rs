//! Untrusted names, converted to characters that are harmless in commands, expressions and files.

use std::collections::HashMap;

/// Returns a name with each character other than ASCII letters, digits, `_`, `.` and `-` replaced by
/// `_`.
pub fn safe(name: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "_.-".contains(c);
    name.chars()
        .map(|c| if plain(c) { c } else { '_' })
        .collect()
}

/// Names in use, each with the number to append to the next equal name.
#[derive(Clone, Debug, Default)]
pub struct Names(HashMap<String, usize>);

/// The number appended to the first duplicate of a name.
const FIRST_NUMBER: usize = 2;

impl Names {
    /// Reserves the names that [`safe`] leaves unchanged.
    pub fn of<'a>(names: impl Iterator<Item = &'a str>) -> Self {
        let plain = names.filter(|name| safe(name) == *name);
        Self(plain.map(|name| (name.to_owned(), FIRST_NUMBER)).collect())
    }

    /// Returns the name if [`safe`] does not change it, or else a safe name that is not in use.
    pub fn safe(&mut self, name: &str) -> String {
        let plain = safe(name);
        if plain == name {
            return plain;
        }
        self.unique(plain)
    }

    /// Returns a name that is not in use, and reserves it: `name`, or `name` with a number. The
    /// time taken does not depend on the number of earlier equal names.
    pub fn unique(&mut self, name: String) -> String {
        let Some(&next) = self.0.get(&name) else {
            self.0.insert(name.clone(), FIRST_NUMBER);
            return name;
        };
        let numbered = |number: usize| format!("{name}_{number}");
        let free = (next..).find(|&number| !self.0.contains_key(&numbered(number)));
        let number = free.unwrap_or(next);
        let found = numbered(number);
        self.0.insert(found.clone(), FIRST_NUMBER);
        self.0.insert(name, number + 1);
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

    #[test]
    fn many_equal_names_take_time_in_proportion() {
        let mut names = Names::default();
        let all: HashMap<String, ()> = (0..200_000)
            .map(|_| (names.unique("_".to_owned()), ()))
            .collect();
        assert_eq!(all.len(), 200_000);
    }
}
