//! Types in the debug information: how their values are laid out (DWARF 5, 5).

use super::debug_info::{CHAIN, DebugInfo, Die, EntryId};
use gimli::AttributeValue;

/// A type in the debug information of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TypeId {
    pub(super) file: usize,
    entry: EntryId,
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

impl DebugInfo {
    /// Returns the type that an entry itself describes.
    pub(crate) fn type_at(&self, entry: EntryId) -> TypeId {
        TypeId {
            file: self.file,
            entry,
            dimensions: 0,
        }
    }

    /// Returns the type of a variable, of a field, or of what a function returns.
    pub(crate) fn type_of(&self, die: &Die<'_>) -> Option<TypeId> {
        let (unit, value) = self.attribute(die, gimli::DW_AT_type)?;
        Some(self.type_at(self.referred(unit, &value)?.id()))
    }

    /// Returns the size of a type in bytes.
    pub(crate) fn size(&self, kind: TypeId) -> Option<u64> {
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

    /// Returns the layout of a type, without names and qualifiers.
    pub(crate) fn layout(&self, kind: TypeId) -> Option<Layout> {
        let mut die = self.die(kind.entry)?;
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
                gimli::DW_TAG_array_type => return self.array(&die, kind.dimensions),
                gimli::DW_TAG_typedef
                | gimli::DW_TAG_const_type
                | gimli::DW_TAG_volatile_type
                | gimli::DW_TAG_restrict_type
                | gimli::DW_TAG_atomic_type => {
                    let (unit, value) = self.attribute(&die, gimli::DW_AT_type)?;
                    die = self.referred(unit, &value)?;
                }
                _ => return None,
            }
        }
        None
    }

    /// Returns the name of the constant of an enumeration with a value.
    pub(crate) fn constant(&self, kind: TypeId, value: u64) -> Option<String> {
        let mut die = self.die(kind.entry)?;
        for _ in 0..CHAIN {
            if die.entry.tag() == gimli::DW_TAG_enumeration_type {
                let constants = self.children(&die, gimli::DW_TAG_enumerator);
                let has_value = |constant: &&Die<'_>| {
                    self.number(constant, gimli::DW_AT_const_value) == Some(value)
                };
                return self.name(constants.iter().find(has_value)?);
            }
            let (unit, value) = self.attribute(&die, gimli::DW_AT_type)?;
            die = self.referred(unit, &value)?;
        }
        None
    }

    fn fields(&self, die: &Die<'_>) -> Vec<Field> {
        let children = self.all_children(die);
        let field = |die: &Die<'_>| {
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
    fn array(&self, die: &Die<'_>, dimensions: usize) -> Option<Layout> {
        let all = self.children(die, gimli::DW_TAG_subrange_type);
        let this = all.get(dimensions)?;
        let count = self.number(this, gimli::DW_AT_count).or_else(|| {
            let last = self.number(this, gimli::DW_AT_upper_bound)?;
            last.checked_add(1)
        });
        let element = match all.len() - dimensions {
            1 => self.type_of(die)?,
            _ => TypeId {
                file: self.file,
                entry: die.id(),
                dimensions: dimensions + 1,
            },
        };
        Some(Layout::Array { element, count })
    }
}
