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
    /// An unsigned number, a character, or a truth value.
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
        /// Whether it is a reference: in the source, its name means what it refers to.
        is_reference: bool,
    },
    /// A pointer to a member of a class, other than a function: the offset of the member.
    MemberPointer {
        /// Its size.
        bytes: u64,
        /// The type of the member.
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
    /// Its offset in bytes; 0 for a virtual base class.
    pub offset: u64,
    /// For a bit field: the number of its first bit and its size. Bits are counted from the start of
    /// the structure; within a byte, the lowest one is the first in little-endian order, the highest
    /// one in big-endian order.
    pub bits: Option<(u64, u64)>,
    /// For a virtual base class: what computes its offset in an object.
    pub(super) computed: Option<EntryId>,
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
                | Layout::MemberPointer { bytes, .. }
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
                // The other byte order is not read.
                gimli::DW_TAG_base_type if die.entry.has_attr(gimli::DW_AT_endianity) => {
                    return None;
                }
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
                        encoding: self.encoding_of_constants(&die),
                    });
                }
                gimli::DW_TAG_pointer_type
                | gimli::DW_TAG_reference_type
                | gimli::DW_TAG_rvalue_reference_type => {
                    return Some(Layout::Pointer {
                        bytes: size().unwrap_or(address),
                        to: self.type_of(&die),
                        is_reference: die.entry.tag() != gimli::DW_TAG_pointer_type,
                    });
                }
                gimli::DW_TAG_ptr_to_member_type => {
                    let to = self.type_of(&die);
                    let member = to.and_then(|to| self.die(to.entry));
                    if member.is_some_and(|to| to.entry.tag() == gimli::DW_TAG_subroutine_type) {
                        return None;
                    }
                    let bytes = size().unwrap_or(address);
                    return Some(Layout::MemberPointer { bytes, to });
                }
                gimli::DW_TAG_structure_type
                | gimli::DW_TAG_class_type
                | gimli::DW_TAG_union_type
                    if Self::is_declared(&die) =>
                {
                    die = self.defined(&die)?;
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

    /// Returns how the values of an enumeration are encoded: as its type, otherwise as its constants need.
    fn encoding_of_constants(&self, enumeration: &Die<'_>) -> Encoding {
        let mut die = enumeration.clone();
        for _ in 0..CHAIN {
            let Some((unit, value)) = self.attribute(&die, gimli::DW_AT_type) else {
                break;
            };
            let Some(inner) = self.referred(unit, &value) else {
                break;
            };
            die = inner;
        }
        let is_signed = match die.entry.attr_value(gimli::DW_AT_encoding) {
            Some(AttributeValue::Encoding(encoding)) => {
                matches!(encoding, gimli::DW_ATE_signed | gimli::DW_ATE_signed_char)
            }
            _ => {
                let all = self.children(enumeration, gimli::DW_TAG_enumerator);
                all.iter().any(|constant| {
                    let value = constant.entry.attr_value(gimli::DW_AT_const_value);
                    matches!(value, Some(AttributeValue::Sdata(..0)))
                })
            }
        };
        if is_signed {
            Encoding::Signed
        } else {
            Encoding::Unsigned
        }
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
            let location = self.attribute(die, gimli::DW_AT_data_member_location);
            let offset = match &location {
                None => Some(0),
                Some((unit, location)) => self.offset(*unit, location),
            };
            let is_base = die.entry.tag() == gimli::DW_TAG_inheritance;
            let computed = (is_base && offset.is_none()).then(|| die.id());
            let offset = match computed {
                Some(_) => 0,
                None => offset?,
            };
            let kind = self.type_of(die)?;
            let bits = match self.number(die, gimli::DW_AT_bit_size) {
                None => None,
                Some(size @ 1..=128) => Some((self.first_bit(die, (offset, kind), size)?, size)),
                Some(_) => return None,
            };
            Some(Field {
                name: self.name(die),
                offset: bits.map_or(offset, |(first, _)| first / 8),
                bits,
                computed,
                kind,
            })
        };
        children.iter().filter_map(field).collect()
    }

    /// Returns the first bit of a bit field, as [`Field::bits`] counts them (DWARF 5, 5.7.6; DWARF 3,
    /// 5.6.6).
    fn first_bit(&self, die: &Die<'_>, (offset, kind): (u64, TypeId), size: u64) -> Option<u64> {
        if let Some(first) = self.number(die, gimli::DW_AT_data_bit_offset) {
            return Some(first);
        }
        let start = offset.checked_mul(8)?;
        let Some((_, value)) = self.attribute(die, gimli::DW_AT_bit_offset) else {
            return Some(start);
        };
        // From the highest bit of a unit of storage.
        let from_highest = value.sdata_value()?;
        if self.is_big_endian() {
            return start.checked_add_signed(from_highest);
        }
        let unit = self.number(die, gimli::DW_AT_byte_size);
        let unit = unit.or_else(|| self.size_of_number(kind))?.checked_mul(8)?;
        let end = start
            .checked_add(unit)?
            .checked_add_signed(from_highest.checked_neg()?)?;
        end.checked_sub(size)
    }

    /// Returns the size in bytes of a number that is not a pointer.
    fn size_of_number(&self, kind: TypeId) -> Option<u64> {
        let mut die = self.die(kind.entry)?;
        for _ in 0..CHAIN {
            if matches!(
                die.entry.tag(),
                gimli::DW_TAG_base_type | gimli::DW_TAG_enumeration_type
            ) {
                return self.number(&die, gimli::DW_AT_byte_size);
            }
            let (unit, value) = self.attribute(&die, gimli::DW_AT_type)?;
            die = self.referred(unit, &value)?;
        }
        None
    }

    /// Returns the layout of an array of which some outer dimensions are indexed.
    fn array(&self, die: &Die<'_>, dimensions: usize) -> Option<Layout> {
        let all = self.children(die, gimli::DW_TAG_subrange_type);
        let this = all.get(dimensions)?;
        if self.number(this, gimli::DW_AT_lower_bound).unwrap_or(0) != 0 {
            return None;
        }
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
