//! Variables, parameters and types in the debug information (DWARF 5, 3.3, 4.1 and 5).

use super::{Slice, Symbols, shown};
use gimli::{AttributeValue, DebuggingInformationEntry, DwAt, DwTag, Reader, Unit, UnitOffset};
use std::collections::HashSet;
use std::sync::Arc;

type Entry = DebuggingInformationEntry<Slice>;

/// The longest chain of entries that refer to each other, such as types of types.
const CHAIN: usize = 32;
/// The most children of an entry that are read: fields, parameters, variables.
const MOST_CHILDREN: usize = 1 << 14;
/// The deepest nesting of blocks and namespaces in which variables are searched for.
const DEEPEST: usize = 64;
/// The most entries that a search for a variable reads.
const MOST_ENTRIES: usize = 1 << 24;

/// A type in the debug information of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TypeId {
    file: usize,
    entry: usize,
    /// For an array: the number of outer dimensions that are already indexed.
    dimensions: usize,
}

/// How a number is encoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Encoding {
    /// An unsigned number, a character, a truth value, or an enumeration.
    Unsigned,
    /// A number that may be negative.
    Signed,
    /// A floating-point number.
    Float,
}

/// How values of a type are laid out in memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Layout {
    /// A number.
    Number {
        /// Its size.
        bytes: u64,
        /// Its encoding.
        encoding: Encoding,
    },
    /// A pointer or a reference.
    Pointer {
        /// Its size.
        bytes: u64,
        /// The type that it points to; `None` for `void`.
        to: Option<TypeId>,
    },
    /// A structure, a class or a union.
    Record {
        /// Its size.
        bytes: u64,
        /// Its fields.
        fields: Vec<Field>,
    },
    /// An array.
    Array {
        /// The type of its elements.
        element: TypeId,
        /// The number of elements, if it is constant.
        count: Option<u64>,
    },
}

/// A field of a structure, a class or a union.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Field {
    /// Its name; `None` for an unnamed structure or union, or a base class.
    pub name: Option<String>,
    /// Its offset in bytes.
    pub offset: u64,
    /// For a bit field: the number of its first bit, counted from the start of the structure in
    /// little-endian order, and its size in bits.
    pub bits: Option<(u64, u64)>,
    /// Its type.
    pub kind: TypeId,
}

/// A variable or a parameter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Variable {
    /// Its name in the source.
    pub name: String,
    /// Its type, if it is known.
    pub kind: Option<TypeId>,
    file: usize,
    /// Its entry, and that of the function that contains it.
    entry: usize,
    function: Option<usize>,
}

impl Variable {
    /// Whether it is not a variable or a parameter of a function.
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

/// Where a variable is at an instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Placement {
    /// In the register with this DWARF number.
    Register(u16),
    /// In memory, from this address on.
    Memory(u64),
    /// Nowhere, but it has this value.
    Value(u64),
}

/// Registers and memory that the location of a variable depends on.
pub trait Machine {
    /// Returns the value of the register with a DWARF number.
    fn register(&mut self, number: u16) -> Option<u64>;
    /// Returns a number of some bytes in memory.
    fn memory(&mut self, address: u64, bytes: u8) -> Option<u64>;
    /// Returns the canonical frame address of the function.
    fn frame(&mut self) -> Option<u64>;
}

/// An entry with its unit.
#[derive(Clone)]
struct Die {
    unit: Arc<Unit<Slice>>,
    entry: Entry,
}

/// The debug information of a file.
struct File<'a> {
    dwarf: &'a gimli::Dwarf<Slice>,
    number: usize,
    /// The offset from the addresses in the file.
    moved: u64,
}

impl Symbols {
    fn debug_files(&self) -> impl Iterator<Item = File<'_>> {
        (0..self.lines.len()).filter_map(|number| self.debug_file(number))
    }

    fn debug_file(&self, number: usize) -> Option<File<'_>> {
        let lines = self.lines.get(number)?;
        Some(File {
            dwarf: &lines.dwarf,
            number,
            moved: lines.offset,
        })
    }

    /// Returns the parameters and the result of the function that contains an address; `None`
    /// without debug information for it.
    #[must_use]
    pub fn signature(&self, address: u64) -> Option<Signature> {
        self.debug_files().find_map(|file| {
            let function = file.function(address)?;
            let parameters = file.children(&function, gimli::DW_TAG_formal_parameter);
            let at = function.offset()?;
            let parameters = parameters.iter();
            Some(Signature {
                parameters: parameters
                    .filter_map(|die| file.variable(die, Some(at)))
                    .collect(),
                returns: file.type_of(&function),
            })
        })
    }

    /// Returns the variable that a name means at an instruction: the innermost local variable or
    /// parameter with this name there, otherwise a global variable.
    #[must_use]
    pub fn variable(&self, name: &str, pc: Option<u64>) -> Option<Variable> {
        let local = pc.and_then(|pc| {
            self.debug_files().find_map(|file| {
                let function = file.function(pc)?;
                let found = file.local(&function, name, pc.wrapping_sub(file.moved), DEEPEST)?;
                file.variable(&found, function.offset())
            })
        });
        local.or_else(|| {
            let mut files = self.debug_files();
            files.find_map(|file| file.variable(&file.global(name)?, None))
        })
    }

    /// Returns the layout of a type; `None` if it has no size or is of a kind that is not read.
    #[must_use]
    pub fn layout(&self, kind: TypeId) -> Option<Layout> {
        let file = self.debug_file(kind.file)?;
        file.layout(file.die(kind.entry)?, kind.dimensions)
    }

    /// Returns the size of a type in bytes.
    #[must_use]
    pub fn size(&self, kind: TypeId) -> Option<u64> {
        let mut kind = kind;
        let mut times = 1_u64;
        for _ in 0..CHAIN {
            match self.layout(kind)? {
                Layout::Number { bytes, .. }
                | Layout::Pointer { bytes, .. }
                | Layout::Record { bytes, .. } => return times.checked_mul(bytes),
                Layout::Array { element, count } => {
                    times = times.checked_mul(count?)?;
                    kind = element;
                }
            }
        }
        None
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
        if let Some((_, value)) = file.attribute(&die, gimli::DW_AT_const_value) {
            let number = value.udata_value();
            return number
                .or_else(|| Some(value.sdata_value()?.cast_unsigned()))
                .map(Placement::Value);
        }
        let function = variable.function.and_then(|function| file.die(function));
        let (unit, value) = file.attribute(&die, gimli::DW_AT_location)?;
        let pc = pc.wrapping_sub(file.moved);
        let expression = file.expression(&unit, value, pc)?;
        file.evaluate(&unit, expression, (function.as_ref(), pc), machine)
    }
}

impl Die {
    /// Returns its offset in `.debug_info`.
    fn offset(&self) -> Option<usize> {
        let offset = self.entry.offset();
        Some(offset.to_debug_info_offset(&self.unit.header)?.0)
    }
}

impl File<'_> {
    fn units(&self) -> impl Iterator<Item = Arc<Unit<Slice>>> {
        let mut units = self.dwarf.units();
        std::iter::from_fn(move || units.next().ok().flatten())
            .filter_map(|header| self.dwarf.unit(header).ok().map(Arc::new))
    }

    /// Returns the entry at an offset in `.debug_info`.
    fn die(&self, offset: usize) -> Option<Die> {
        let at = gimli::DebugInfoOffset(offset);
        let mut units = self.dwarf.units();
        while let Ok(Some(header)) = units.next() {
            if let Some(inside) = at.to_unit_offset(&header) {
                let unit = Arc::new(self.dwarf.unit(header).ok()?);
                return Self::entry(unit, inside);
            }
        }
        None
    }

    fn entry(unit: Arc<Unit<Slice>>, offset: UnitOffset) -> Option<Die> {
        let entry = unit.entry(offset).ok()?;
        Some(Die { unit, entry })
    }

    /// Returns the entry that an attribute refers to.
    fn referred(&self, unit: &Arc<Unit<Slice>>, value: &AttributeValue<Slice>) -> Option<Die> {
        match value {
            AttributeValue::UnitRef(offset) => Self::entry(Arc::clone(unit), *offset),
            AttributeValue::DebugInfoRef(offset) => match offset.to_unit_offset(&unit.header) {
                Some(inside) => Self::entry(Arc::clone(unit), inside),
                None => self.die(offset.0),
            },
            _ => None,
        }
    }

    /// Returns an attribute of an entry, or of the entry that it completes, with its unit.
    fn attribute(
        &self,
        die: &Die,
        name: DwAt,
    ) -> Option<(Arc<Unit<Slice>>, AttributeValue<Slice>)> {
        let mut die = die.clone();
        for _ in 0..CHAIN {
            if let Some(value) = die.entry.attr_value(name) {
                return Some((die.unit, value));
            }
            let origin = die.entry.attr_value(gimli::DW_AT_abstract_origin);
            let origin = origin.or_else(|| die.entry.attr_value(gimli::DW_AT_specification))?;
            die = self.referred(&die.unit, &origin)?;
        }
        None
    }

    fn number(&self, die: &Die, name: DwAt) -> Option<u64> {
        self.attribute(die, name)?.1.udata_value()
    }

    fn name(&self, die: &Die) -> Option<String> {
        let (unit, value) = self.attribute(die, gimli::DW_AT_name)?;
        let name = self.dwarf.attr_string(&unit, value).ok()?;
        Some(shown(&name.to_string_lossy().ok()?))
    }

    fn type_of(&self, die: &Die) -> Option<TypeId> {
        let (unit, value) = self.attribute(die, gimli::DW_AT_type)?;
        Some(TypeId {
            file: self.number,
            entry: self.referred(&unit, &value)?.offset()?,
            dimensions: 0,
        })
    }

    /// Returns the children of an entry with a tag.
    fn children(&self, die: &Die, tag: DwTag) -> Vec<Die> {
        let mut all = self.all_children(die);
        all.retain(|child| child.entry.tag() == tag);
        all
    }

    fn all_children(&self, die: &Die) -> Vec<Die> {
        let mut found = Vec::new();
        let Ok(mut tree) = die.unit.entries_tree(Some(die.entry.offset())) else {
            return found;
        };
        let Ok(root) = tree.root() else {
            return found;
        };
        let mut children = root.children();
        while found.len() < MOST_CHILDREN
            && let Ok(Some(child)) = children.next()
        {
            found.push(Die {
                unit: Arc::clone(&die.unit),
                entry: child.entry().clone(),
            });
        }
        found
    }

    fn variable(&self, die: &Die, function: Option<usize>) -> Option<Variable> {
        Some(Variable {
            name: self.name(die)?,
            kind: self.type_of(die),
            file: self.number,
            entry: die.offset()?,
            function,
        })
    }

    fn contains(&self, die: &Die, pc: u64) -> bool {
        let Ok(mut ranges) = self.dwarf.die_ranges(&die.unit, &die.entry) else {
            return false;
        };
        while let Ok(Some(range)) = ranges.next() {
            if (range.begin..range.end).contains(&pc) {
                return true;
            }
        }
        false
    }

    /// Returns the function that contains an address in memory.
    fn function(&self, address: u64) -> Option<Die> {
        let pc = address.wrapping_sub(self.moved);
        let mut units = self.units().filter(|unit| {
            let Ok(mut ranges) = self.dwarf.unit_ranges(unit) else {
                return false;
            };
            std::iter::from_fn(|| ranges.next().ok().flatten())
                .any(|range| (range.begin..range.end).contains(&pc))
        });
        let unit = units.next()?;
        let mut entries = unit.entries();
        while let Ok(Some(entry)) = entries.next_dfs() {
            if entry.tag() != gimli::DW_TAG_subprogram {
                continue;
            }
            let die = Die {
                unit: Arc::clone(&unit),
                entry: entry.clone(),
            };
            if self.contains(&die, pc) {
                return Some(die);
            }
        }
        None
    }

    /// Returns the innermost variable with a name in the blocks that contain an instruction.
    fn local(&self, block: &Die, name: &str, pc: u64, depth: usize) -> Option<Die> {
        let children = self.all_children(block);
        let within = children.iter().filter(|child| {
            child.entry.tag() == gimli::DW_TAG_lexical_block && self.contains(child, pc)
        });
        let mut within = within.take_while(|_| depth > 0);
        within
            .find_map(|block| self.local(block, name, pc, depth - 1))
            .or_else(|| {
                let is_wanted = |die: &&Die| {
                    let is_variable = matches!(
                        die.entry.tag(),
                        gimli::DW_TAG_variable | gimli::DW_TAG_formal_parameter
                    );
                    is_variable && self.name(die).as_deref() == Some(name)
                };
                children.iter().find(is_wanted).cloned()
            })
    }

    /// Returns the global variable with a name, which may begin with namespaces: all of them, or the
    /// innermost ones.
    fn global(&self, name: &str) -> Option<Die> {
        let mut path: Vec<&str> = name.split("::").collect();
        let last = path.pop()?;
        let mut left = MOST_ENTRIES;
        for unit in self.units() {
            let mut entries = unit.entries();
            // The entries around the current one: their depths, and their names if they are not
            // functions.
            let mut around: Vec<(isize, Option<String>)> = Vec::new();
            // What is declared in the wanted namespaces, and may be defined outside.
            let mut declared = HashSet::new();
            while let Ok(Some(entry)) = entries.next_dfs() {
                left = left.checked_sub(1)?;
                let depth = entry.depth();
                around.truncate(around.partition_point(|(outer, _)| *outer < depth));
                let die = Die {
                    unit: Arc::clone(&unit),
                    entry: entry.clone(),
                };
                match entry.tag() {
                    gimli::DW_TAG_subprogram => around.push((depth, None)),
                    gimli::DW_TAG_namespace
                    | gimli::DW_TAG_structure_type
                    | gimli::DW_TAG_class_type
                    | gimli::DW_TAG_union_type => {
                        around.push((depth, Some(self.name(&die).unwrap_or_default())));
                    }
                    gimli::DW_TAG_variable | gimli::DW_TAG_member
                        if around.iter().all(|(_, name)| name.is_some())
                            && self.name(&die).as_deref() == Some(last) =>
                    {
                        let outer = around.iter().filter_map(|(_, name)| name.as_deref());
                        // As in C++, unnamed namespaces are not written.
                        let outer: Vec<&str> = outer.filter(|name| !name.is_empty()).collect();
                        let completes = entry.attr_value(gimli::DW_AT_specification);
                        let is_wanted = outer.ends_with(&path)
                            || matches!(completes, Some(AttributeValue::UnitRef(declaration))
                                if declared.contains(&declaration));
                        if is_wanted && entry.has_attr(gimli::DW_AT_location) {
                            return Some(die);
                        }
                        if is_wanted {
                            declared.insert(entry.offset());
                        }
                    }
                    _ => {}
                }
            }
        }
        None
    }

    /// Returns the layout of a type, behind names and qualifiers.
    fn layout(&self, die: Die, dimensions: usize) -> Option<Layout> {
        let mut die = die;
        for _ in 0..CHAIN {
            let size = || self.number(&die, gimli::DW_AT_byte_size);
            let address = u64::from(die.unit.encoding().address_size);
            match die.entry.tag() {
                gimli::DW_TAG_base_type => {
                    let encoding = match die.entry.attr_value(gimli::DW_AT_encoding)? {
                        AttributeValue::Encoding(gimli::DW_ATE_float) => Encoding::Float,
                        AttributeValue::Encoding(
                            gimli::DW_ATE_signed | gimli::DW_ATE_signed_char,
                        ) => Encoding::Signed,
                        AttributeValue::Encoding(
                            gimli::DW_ATE_unsigned
                            | gimli::DW_ATE_unsigned_char
                            | gimli::DW_ATE_boolean
                            | gimli::DW_ATE_UTF
                            | gimli::DW_ATE_ASCII
                            | gimli::DW_ATE_address,
                        ) => Encoding::Unsigned,
                        _ => return None,
                    };
                    let bytes = size()?;
                    return Some(Layout::Number { bytes, encoding });
                }
                gimli::DW_TAG_enumeration_type => {
                    return Some(Layout::Number {
                        bytes: size()?,
                        encoding: Encoding::Unsigned,
                    });
                }
                gimli::DW_TAG_pointer_type
                | gimli::DW_TAG_reference_type
                | gimli::DW_TAG_rvalue_reference_type => {
                    return Some(Layout::Pointer {
                        bytes: size().unwrap_or(address),
                        to: self.type_of(&die),
                    });
                }
                gimli::DW_TAG_structure_type
                | gimli::DW_TAG_class_type
                | gimli::DW_TAG_union_type => {
                    return Some(Layout::Record {
                        bytes: size()?,
                        fields: self.fields(&die),
                    });
                }
                gimli::DW_TAG_array_type => return self.array(&die, dimensions),
                gimli::DW_TAG_typedef
                | gimli::DW_TAG_const_type
                | gimli::DW_TAG_volatile_type
                | gimli::DW_TAG_restrict_type
                | gimli::DW_TAG_atomic_type => {
                    let (unit, value) = self.attribute(&die, gimli::DW_AT_type)?;
                    die = self.referred(&unit, &value)?;
                }
                _ => return None,
            }
        }
        None
    }

    fn fields(&self, die: &Die) -> Vec<Field> {
        let children = self.all_children(die);
        let field = |die: &Die| {
            let is_field = matches!(
                die.entry.tag(),
                gimli::DW_TAG_member | gimli::DW_TAG_inheritance
            );
            // A static member of a class is not in it.
            if !is_field || die.entry.has_attr(gimli::DW_AT_external) {
                return None;
            }
            let bits = self.number(die, gimli::DW_AT_bit_size);
            let first = self.number(die, gimli::DW_AT_data_bit_offset);
            let (offset, bits) = match (first, bits) {
                (Some(first), Some(size @ 1..=128)) => (first / 8, Some((first, size))),
                (_, Some(_)) => return None,
                _ => {
                    let at = self.attribute(die, gimli::DW_AT_data_member_location);
                    (at.map_or(Some(0), |(_, at)| at.udata_value())?, None)
                }
            };
            Some(Field {
                name: self.name(die),
                offset,
                bits,
                kind: self.type_of(die)?,
            })
        };
        children.iter().filter_map(field).collect()
    }

    /// Returns the layout of an array of which some outer dimensions are indexed.
    fn array(&self, die: &Die, dimensions: usize) -> Option<Layout> {
        let all = self.children(die, gimli::DW_TAG_subrange_type);
        let this = all.get(dimensions)?;
        let count = self.number(this, gimli::DW_AT_count).or_else(|| {
            let last = self.number(this, gimli::DW_AT_upper_bound)?;
            last.checked_add(1)
        });
        let element = match all.len() - dimensions {
            1 => self.type_of(die)?,
            _ => TypeId {
                file: self.number,
                entry: die.offset()?,
                dimensions: dimensions + 1,
            },
        };
        Some(Layout::Array { element, count })
    }

    /// Returns the expression of a location at an instruction.
    fn expression(
        &self,
        unit: &Unit<Slice>,
        value: AttributeValue<Slice>,
        pc: u64,
    ) -> Option<gimli::Expression<Slice>> {
        if let Some(expression) = value.exprloc_value() {
            return Some(expression);
        }
        let mut list = self.dwarf.attr_locations(unit, value).ok()??;
        while let Ok(Some(entry)) = list.next() {
            if (entry.range.begin..entry.range.end).contains(&pc) {
                return Some(entry.data);
            }
        }
        None
    }

    fn evaluate(
        &self,
        unit: &Unit<Slice>,
        expression: gimli::Expression<Slice>,
        (function, pc): (Option<&Die>, u64),
        machine: &mut dyn Machine,
    ) -> Option<Placement> {
        use gimli::{EvaluationResult, Location, Value};
        /// The most operations of an expression.
        const MOST: u32 = 1000;
        let mask = u64::MAX >> (64 - 8 * u32::from(unit.encoding().address_size).clamp(1, 8));
        let mut evaluation = expression.evaluation(unit.encoding());
        evaluation.set_max_iterations(MOST);
        let mut state = evaluation.evaluate().ok()?;
        loop {
            let next = match state {
                EvaluationResult::Complete => break,
                EvaluationResult::RequiresRegister { register, .. } => {
                    let value = machine.register(register.0)?;
                    evaluation.resume_with_register(Value::Generic(value))
                }
                EvaluationResult::RequiresMemory { address, size, .. } => {
                    let value = machine.memory(address, size)?;
                    evaluation.resume_with_memory(Value::Generic(value))
                }
                EvaluationResult::RequiresCallFrameCfa => {
                    evaluation.resume_with_call_frame_cfa(machine.frame()?)
                }
                EvaluationResult::RequiresFrameBase => {
                    let function = function?;
                    let (unit, value) = self.attribute(function, gimli::DW_AT_frame_base)?;
                    let expression = self.expression(&unit, value, pc)?;
                    let base = match self.evaluate(&unit, expression, (None, pc), machine)? {
                        Placement::Register(number) => machine.register(number)?,
                        Placement::Memory(address) | Placement::Value(address) => address,
                    };
                    evaluation.resume_with_frame_base(base)
                }
                EvaluationResult::RequiresRelocatedAddress(address) => {
                    evaluation.resume_with_relocated_address(address.wrapping_add(self.moved))
                }
                EvaluationResult::RequiresIndexedAddress { index, relocate } => {
                    let address = self.dwarf.address(unit, index).ok()?;
                    let moved = if relocate { self.moved } else { 0 };
                    evaluation.resume_with_indexed_address(address.wrapping_add(moved))
                }
                _ => return None,
            };
            state = next.ok()?;
        }
        let [piece] = evaluation.as_result() else {
            return None;
        };
        if piece.bit_offset.is_some_and(|offset| offset != 0) {
            return None;
        }
        match &piece.location {
            Location::Register { register } => Some(Placement::Register(register.0)),
            Location::Address { address } => Some(Placement::Memory(*address)),
            Location::Value { value } => value.to_u64(mask).ok().map(Placement::Value),
            _ => None,
        }
    }
}
