//! Expressions over variables, as in C: names, fields, elements, pointers.

use super::note::AskError;

/// The deepest nesting of an expression.
const DEEPEST: usize = 64;

/// An expression.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Expression {
    /// A variable, after its source file if that is given (`file.c:name`), or a register that no
    /// variable is named like.
    Name(String),
    /// A register: its name after `$`.
    Register(String),
    /// A number: an index, or an address.
    Number(u64),
    /// What a pointer points to.
    Target(Box<Self>),
    /// The address of something.
    Address(Box<Self>),
    /// A field of a structure, or of the structure that a pointer points to.
    Field(Box<Self>, String),
    /// An element of an array, or after a pointer.
    Element(Box<Self>, Box<Self>),
    /// The member of an object, or of the object that a pointer points to, to which a pointer to a
    /// member points.
    Member(Box<Self>, Box<Self>),
}

impl Expression {
    /// Reads an expression.
    ///
    /// # Errors
    ///
    /// If it is not one.
    pub fn parse(text: &str) -> Result<Self, AskError> {
        let mut reader = Reader { text, at: 0 };
        let found = reader.unary(DEEPEST).filter(|_| reader.peek().is_none());
        found.ok_or_else(|| AskError::NoExpression(text.to_owned()))
    }
}

/// Reads an expression from left to right.
struct Reader<'t> {
    text: &'t str,
    at: usize,
}

impl Reader<'_> {
    /// The rest after white space.
    fn rest(&mut self) -> &str {
        let rest = &self.text[self.at..];
        self.at += rest.len() - rest.trim_start().len();
        &self.text[self.at..]
    }

    fn peek(&mut self) -> Option<char> {
        self.rest().chars().next()
    }

    fn takes(&mut self, wanted: &str) -> bool {
        let is_there = self.rest().starts_with(wanted);
        if is_there {
            self.at += wanted.len();
        }
        is_there
    }

    /// Letters, digits and `_`.
    fn word(&mut self) -> Option<String> {
        let rest = self.rest();
        let is_part = |c: char| c.is_alphanumeric() || c == '_';
        let end = rest.find(|c| !is_part(c)).unwrap_or(rest.len());
        let word = rest[..end].to_owned();
        self.at += end;
        (!word.is_empty()).then_some(word)
    }

    fn unary(&mut self, depth: usize) -> Option<Expression> {
        let depth = depth.checked_sub(1)?;
        if self.takes("*") {
            return Some(Expression::Target(Box::new(self.unary(depth)?)));
        }
        if self.takes("&") {
            return Some(Expression::Address(Box::new(self.unary(depth)?)));
        }
        let mut found = self.primary(depth)?;
        for _ in 0..DEEPEST {
            if self.takes("[") {
                let index = self.unary(depth)?;
                if !self.takes("]") {
                    return None;
                }
                found = Expression::Element(Box::new(found), Box::new(index));
            } else if self.takes("->*") || self.takes(".*") {
                let member = self.unary(depth)?;
                found = Expression::Member(Box::new(found), Box::new(member));
            } else if self.takes("->") || self.takes(".") {
                found = Expression::Field(Box::new(found), self.word()?);
            } else {
                return Some(found);
            }
        }
        None
    }

    fn primary(&mut self, depth: usize) -> Option<Expression> {
        if self.takes("(") {
            let inside = self.unary(depth)?;
            return self.takes(")").then_some(inside);
        }
        if self.takes("$") {
            return Some(Expression::Register(self.word()?.to_ascii_lowercase()));
        }
        if self.takes("-") {
            let Expression::Number(number) = self.primary(depth)? else {
                return None;
            };
            return Some(Expression::Number(number.wrapping_neg()));
        }
        let file = self.file();
        let is_global = self.takes("::");
        let mut name = self.word()?;
        if !is_global && name.starts_with(|first: char| first.is_ascii_digit()) {
            let number = match name.strip_prefix("0x").or(name.strip_prefix("0X")) {
                Some(hex) => u64::from_str_radix(hex, 16),
                None => name.parse(),
            };
            return number.ok().map(Expression::Number);
        }
        while self.takes("::") {
            name = format!("{name}::{}", self.word()?);
        }
        Some(Expression::Name(match file {
            Some(file) => format!("{file}:{name}"),
            None => name,
        }))
    }

    /// The name of a source file, up to the `:` before the name of a variable: `file.c:` or
    /// `'file.c'::`.
    fn file(&mut self) -> Option<String> {
        let rest = self.rest();
        let (file, taken) = match rest.strip_prefix('\'') {
            Some(quoted) => {
                let (file, _) = quoted.split_once("'::")?;
                (file, file.len() + 4)
            }
            None => {
                let (file, after) = rest.split_once(':')?;
                let is_part = |c: char| c.is_alphanumeric() || "_./+-".contains(c);
                let is_file = file.contains('.') && file.chars().all(is_part);
                if !is_file || file.contains("->") || after.starts_with(':') {
                    return None;
                }
                (file, file.len() + 1)
            }
        };
        let file = file.to_owned();
        self.at += taken;
        Some(file)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expressions_are_read_as_in_c() {
        let name = |name: &str| Box::new(Expression::Name(name.to_owned()));
        let field = |of, name: &str| Expression::Field(of, name.to_owned());
        for (text, wanted) in [
            ("total", *name("total")),
            ("ns::total", *name("ns::total")),
            ("$X0", Expression::Register("x0".to_owned())),
            ("a.b", field(name("a"), "b")),
            (" a -> b ", field(name("a"), "b")),
            ("*a.b", Expression::Target(Box::new(field(name("a"), "b")))),
            (
                "(*a).b",
                field(Box::new(Expression::Target(name("a"))), "b"),
            ),
            ("a.c:b", *name("a.c:b")),
            ("'x/a-b.c'::b", *name("x/a-b.c:b")),
            ("x/a.cc:n::b.d", field(name("x/a.cc:n::b"), "d")),
            ("a->*b", Expression::Member(name("a"), name("b"))),
            (
                "a[-1]",
                Expression::Element(name("a"), Box::new(Expression::Number(u64::MAX))),
            ),
            (
                "&a[0x10]",
                Expression::Address(Box::new(Expression::Element(
                    name("a"),
                    Box::new(Expression::Number(16)),
                ))),
            ),
        ] {
            assert_eq!(Expression::parse(text).unwrap(), wanted, "{text}");
        }
        let deep = "*".repeat(10_000) + "a";
        for text in [
            "", "a.", "a[1", "a b", "(a", "1x", "a + 1", "$", &deep, "é.", "a->*", "-a", "a.c:",
            "'a.c'b",
        ] {
            assert!(Expression::parse(text).is_err(), "{text}");
        }
    }
}
