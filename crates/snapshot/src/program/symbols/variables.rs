//! Variables and parameters in the debug information (DWARF 5, 3.3 and 4.1).

use super::Symbols;
use super::debug_info::{DebugInfo, Die, EntryId};
pub use super::global_names::Ambiguous;
use super::locations::Scene;
pub use super::locations::{Machine, Placement};
use super::scopes::Local;
pub use super::types::{Encoding, Field, Layout, TypeId};
use std::ops::Range;

/// A variable or a parameter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Variable {
    /// Its name in the source.
    pub name: String,
    /// Its type, if it is known.
    pub kind: Option<TypeId>,
    file: usize,
    /// Its entry, and that of the function that contains it.
    entry: EntryId,
    function: Option<EntryId>,
    /// Outside of this block of the function, it does not exist.
    block: Option<EntryId>,
    /// The addresses of the prologue of the function in the file.
    prologue: Option<Range<u64>>,
}

impl Variable {
    /// Whether it is neither a parameter nor a variable of a call of a function.
    #[must_use]
    pub fn is_global(&self) -> bool {
        self.function.is_none()
    }
}

/// The parameters of a function, and the type that it returns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Signature {
    /// Its parameters, in the order of the source.
    pub parameters: Vec<Variable>,
    /// The type of what it returns; `None` for `void`.
    pub returns: Option<TypeId>,
}

impl Symbols {
    pub(super) fn debug_files(&self) -> impl Iterator<Item = &DebugInfo> {
        self.lines.iter().map(|lines| &lines.info)
    }

    pub(super) fn debug_file(&self, number: usize) -> Option<&DebugInfo> {
        Some(&self.lines.get(number)?.info)
    }

    /// Returns the parameters and the result of the function that contains an address; `None`
    /// without debug information for it.
    #[must_use]
    pub fn signature(&self, address: u64) -> Option<Signature> {
        self.debug_files().find_map(|file| {
            let function = file.function(address)?;
            let parameters = file.children(&function, gimli::DW_TAG_formal_parameter);
            let at = function.id();
            let parameters = parameters.iter();
            Some(Signature {
                parameters: parameters
                    .filter_map(|die| file.variable(die, Some(at)))
                    .collect(),
                returns: file.type_of(&function),
            })
        })
    }

    /// Returns the local variable or parameter that a name means in the source at an instruction: not
    /// one beyond a function that is inlined there.
    #[must_use]
    pub fn local(&self, name: &str, pc: u64) -> Option<Variable> {
        self.debug_files().find_map(|file| {
            let blocks = file.blocks(pc)?;
            let found = file.visible(&blocks, name)?;
            file.local(&found, &blocks.function)
        })
    }

    /// Returns the local variable with a name of a function around an inlined one at an instruction;
    /// otherwise the only one in the whole function, which is not visible there.
    #[must_use]
    pub fn local_elsewhere(&self, name: &str, pc: u64) -> Option<Variable> {
        self.debug_files().find_map(|file| {
            let blocks = file.blocks(pc)?;
            let found = file.elsewhere(&blocks, name)?;
            file.local(&found, &blocks.function)
        })
    }

    /// Returns the layout of a type; `None` if it has no size or is of a kind that is not read.
    #[must_use]
    pub fn layout(&self, kind: TypeId) -> Option<Layout> {
        self.debug_file(kind.file)?.layout(kind)
    }

    /// Returns the size of a type in bytes.
    #[must_use]
    pub fn size(&self, kind: TypeId) -> Option<u64> {
        self.debug_file(kind.file)?.size(kind)
    }

    /// Returns where a variable is at an instruction; `None` if it is nowhere there, in several
    /// pieces, or depends on what `machine` does not know.
    pub fn place(
        &self,
        variable: &Variable,
        pc: u64,
        machine: &mut dyn Machine,
    ) -> Option<Placement> {
        let file = self.debug_file(variable.file)?;
        let die = file.die(variable.entry)?;
        let function = variable.function.and_then(|function| file.die(function));
        let block = variable.block.and_then(|block| file.die(block));
        let pc = pc.wrapping_sub(file.moved);
        if block.is_some_and(|block| !file.contains(&block, pc)) {
            return None;
        }
        let scene = Scene {
            function: function.as_ref(),
            prologue: variable.prologue.as_ref(),
            pc,
        };
        file.place(&die, scene, machine)
    }

    /// Returns the address of a field of the object at an address.
    pub fn member(&self, field: &Field, object: u64, machine: &mut dyn Machine) -> Option<u64> {
        let Some(entry) = field.computed else {
            return Some(object.wrapping_add(field.offset));
        };
        let file = self.debug_file(field.kind.file)?;
        file.base_class(&file.die(entry)?, object, machine)
    }
}

impl DebugInfo {
    pub(super) fn variable(&self, die: &Die<'_>, function: Option<EntryId>) -> Option<Variable> {
        Some(Variable {
            name: self.name(die)?,
            kind: self.type_of(die),
            file: self.file,
            entry: die.id(),
            function,
            block: None,
            prologue: None,
        })
    }

    fn local(&self, local: &Local<'_>, function: &Die<'_>) -> Option<Variable> {
        if Self::is_declared(&local.die) {
            return None;
        }
        let variable = self.variable(&local.die, Some(function.id()))?;
        if self.is_static(&local.die) {
            return Some(Variable {
                function: None,
                ..variable
            });
        }
        Some(Variable {
            block: Some(local.block.id()),
            prologue: self.prologue(function),
            ..variable
        })
    }

    /// Whether a variable is at a fixed address.
    pub(super) fn is_static(&self, die: &Die<'_>) -> bool {
        use gimli::Operation;
        let Some((unit, location)) = self.attribute(die, gimli::DW_AT_location) else {
            return false;
        };
        let Some(expression) = location.exprloc_value() else {
            return false;
        };
        let mut operations = expression.operations(self.units()[unit].encoding());
        matches!(
            operations.next(),
            Ok(Some(
                Operation::Address { .. } | Operation::AddressIndex { .. }
            ))
        )
    }
}
