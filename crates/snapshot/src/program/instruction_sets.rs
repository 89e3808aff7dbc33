//! The instruction sets of the code in an ELF file, by address.

use super::elf::Elf;
use armsnap_arch::quantity::Isa;
use object::{Object, ObjectSymbol, SymbolKind};

/// The addresses where the instruction set of a file's code changes.
#[derive(Clone, Debug)]
pub struct InstructionSets<'e> {
    elf: &'e Elf,
    /// The contents from each address up to the next one.
    sets: Vec<(u64, Contents)>,
}

impl<'e> InstructionSets<'e> {
    /// Reads the instruction sets from the mapping symbols of a file or, if it has none, from its
    /// functions.
    pub fn of(elf: &'e Elf) -> Self {
        let file = object::File::parse(elf.bytes()).ok();
        let symbols = || file.iter().flat_map(|file| file.symbols());
        let moved = |address: u64| address.wrapping_add(elf.offset);
        let mapping = symbols().filter_map(|symbol| {
            let contents = Contents::marked_by(symbol.name_bytes().ok()?)?;
            Some((moved(symbol.address()), contents))
        });
        let mut sets: Vec<(u64, Contents)> = mapping.collect();
        if sets.is_empty() && !file.as_ref().is_some_and(Object::is_64) {
            let functions = symbols().filter(|symbol| symbol.kind() == SymbolKind::Text);
            // The low bit of an Arm function's address marks Thumb (AAELF32, 5.5.3).
            sets.extend(functions.map(|symbol| match symbol.address() & 1 {
                0 => (moved(symbol.address()), Contents::Code(Isa::A32)),
                _ => (moved(symbol.address() - 1), Contents::Code(Isa::T32)),
            }));
        }
        sets.sort_by_key(|set| set.0);
        Self { elf, sets }
    }

    /// Returns the instruction set at an address; `None` if the file has no code there or does not
    /// identify its instruction set.
    pub fn at(&self, address: u64) -> Option<Isa> {
        self.elf.slice(address)?;
        let after = self.sets.partition_point(|set| set.0 <= address);
        self.sets[after.checked_sub(1)?].1.isa()
    }
}

/// What a mapping symbol marks, up to the next one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Contents {
    /// Code of this instruction set.
    Code(Isa),
    /// Data.
    Data,
}

impl Contents {
    /// Returns what a symbol of this name marks (AAELF64, 5.5.4, and AAELF32, 5.5.5); `None` if it
    /// is not a mapping symbol.
    pub fn marked_by(name: &[u8]) -> Option<Self> {
        let ([b'$', kind] | [b'$', kind, b'.', ..]) = name else {
            return None;
        };
        match kind {
            b'x' => Some(Self::Code(Isa::A64)),
            b'a' => Some(Self::Code(Isa::A32)),
            b't' => Some(Self::Code(Isa::T32)),
            b'd' => Some(Self::Data),
            _ => None,
        }
    }

    /// Whether this is the name of a mapping symbol, including the obsolete ones (AAELF32, 5.5.5): those
    /// are no names of code or data. Compilers accept `$` in other names.
    pub fn is_mark(name: &[u8]) -> bool {
        let kind = match name {
            [b'$', kind] | [b'$', kind, b'.', ..] => kind,
            _ => return false,
        };
        matches!(kind, b'a' | b'b' | b'd' | b'f' | b'm' | b'p' | b't' | b'x')
    }

    /// Returns the instruction set; `None` for data.
    pub const fn isa(self) -> Option<Isa> {
        match self {
            Self::Code(isa) => Some(isa),
            Self::Data => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Contents;

    #[test]
    fn names_with_a_dollar_are_not_all_marks() {
        let marks = ["$x", "$a", "$t.12", "$d.realdata", "$p", "$b", "$f", "$m.1"];
        assert!(marks.iter().all(|name| Contents::is_mark(name.as_bytes())));
        let names = ["$", "$xyz", "$total", "x", "$.x", "$v"];
        assert!(!names.iter().any(|name| Contents::is_mark(name.as_bytes())));
    }
}
