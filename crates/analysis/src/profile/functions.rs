//! The functions that were executed.
//!
//! A function is identified by its first instruction. Code without a symbol belongs to the function
//! that was entered last.

use armsnap_arch::hash::NumberMap;
use armsnap_arch::quantity::{Address, ExceptionLevel};
use armsnap_snapshot::program::symbols::Symbols;
use std::collections::HashMap;

/// A function in [`Functions`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FunctionId(pub(super) u32);

impl FunctionId {
    /// Stands for code in no known function.
    pub const UNKNOWN: Self = Self(0);

    /// Returns its number, for use as an index.
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// How a function is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FunctionKind {
    /// No function is known.
    Unknown,
    /// By a symbol.
    Symbol,
    /// It was called or reached by an exception; no symbol names it.
    Target,
    /// Not a function: stands for an exception of this name, which calls its handler.
    Exception(&'static str),
}

/// A function.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Function {
    /// How it is known.
    pub kind: FunctionKind,
    /// Its name in the source; without a symbol, the name of the file and the address in it, or
    /// only the address.
    pub name: String,
    /// Its first instruction; `None` for exceptions and unknown code.
    pub start: Option<Address>,
    /// The address after it, if a symbol names it.
    pub end: Option<Address>,
    /// The exception level at which it was first executed, if traced.
    pub el: Option<ExceptionLevel>,
    /// How often it was called or jumped to, or the exception was taken.
    pub calls: u64,
}

/// The functions of one core's execution.
#[derive(Clone, Debug)]
pub struct Functions {
    rows: Vec<Function>,
    starts: NumberMap<u64, FunctionId>,
    exceptions: HashMap<&'static str, FunctionId>,
}

impl Default for Functions {
    fn default() -> Self {
        let mut functions = Self {
            rows: Vec::new(),
            starts: NumberMap::default(),
            exceptions: HashMap::new(),
        };
        functions.add(FunctionKind::Unknown, "[unknown]".to_owned(), None, None);
        functions
    }
}

impl Functions {
    fn add(
        &mut self,
        kind: FunctionKind,
        name: String,
        start: Option<Address>,
        end: Option<Address>,
    ) -> FunctionId {
        let id = FunctionId(self.rows.len() as u32);
        self.rows.push(Function {
            kind,
            name,
            start,
            end,
            el: None,
            calls: 0,
        });
        id
    }

    /// Returns a function.
    pub fn get(&self, id: FunctionId) -> &Function {
        &self.rows[id.index()]
    }

    pub(super) fn get_mut(&mut self, id: FunctionId) -> &mut Function {
        &mut self.rows[id.index()]
    }

    /// Returns all functions, the unknown one first.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (FunctionId, &Function)> {
        let rows = self.rows.iter().enumerate();
        rows.map(|(index, row)| (FunctionId(index as u32), row))
    }

    /// Returns the function whose symbol contains an address, or that was entered there.
    pub(super) fn at(&mut self, symbols: Option<&Symbols>, address: Address) -> Option<FunctionId> {
        if let Some(&known) = self.starts.get(&address.0) {
            return Some(known);
        }
        let extent = symbols.and_then(|symbols| symbols.extent(address.0))?;
        if let Some(&known) = self.starts.get(&extent.start)
            && self.get(known).kind == FunctionKind::Symbol
        {
            return Some(known);
        }
        let name = symbols.and_then(|symbols| symbols.function(address.0));
        let name = name.map_or_else(String::new, |(name, _)| name.to_owned());
        let start = Address(extent.start);
        let id = self.add(
            FunctionKind::Symbol,
            name,
            Some(start),
            Some(Address(extent.end)),
        );
        self.starts.insert(start.0, id);
        Some(id)
    }

    /// Returns the function entered at an address.
    pub(super) fn entered(&mut self, symbols: Option<&Symbols>, address: Address) -> FunctionId {
        if let Some(known) = self.at(symbols, address) {
            return known;
        }
        let file = symbols.and_then(|symbols| symbols.file(address.0));
        let name = file.map_or_else(
            || address.to_string(),
            |(name, address)| format!("{name}+{address:#x}"),
        );
        let id = self.add(FunctionKind::Target, name, Some(address), None);
        self.starts.insert(address.0, id);
        id
    }

    /// Returns the pseudo-function of an exception.
    pub(crate) fn exception(&mut self, name: &'static str) -> FunctionId {
        if let Some(&known) = self.exceptions.get(name) {
            return known;
        }
        let kind = FunctionKind::Exception(name);
        let id = self.add(kind, format!("[{name}]"), None, None);
        self.exceptions.insert(name, id);
        id
    }
}
