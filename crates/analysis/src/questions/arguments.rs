//! The arguments of a call, and what it returned.
//!
//! Where the debug information says where a parameter is at the first instruction of its function, it
//! is read there. Otherwise it is where the calling convention puts it (Procedure Call Standard for
//! the Arm 64-bit Architecture, 6.8; for the Arm Architecture, 6.5), which makes it inferred.

use super::answer::{Argument, Worth};
use super::core::Core;
use super::note::AskError;
use armsnap_arch::arch::Architecture;
use armsnap_arch::semantics::Location;
use armsnap_history::recover::{Known, Registers, Status};
use armsnap_history::timeline::Position;
use armsnap_snapshot::program::symbols::Symbols;
use armsnap_snapshot::program::symbols::variables::{
    Encoding, Layout, Machine, Placement, Signature, TypeId,
};
use armsnap_snapshot::stop::Cancel;

/// The deepest nesting of structures that is examined.
const DEEPEST: usize = 8;
/// The most types within a type that are examined.
const MOST_TYPES: usize = 1 << 8;
/// The most vector registers of a structure of floating-point numbers.
const MOST_FLOATS: usize = 4;

/// Where the calling convention puts a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Where {
    Register(Location),
    /// At this offset from the stack pointer.
    Stack(u64),
    /// In several places, or not known.
    Elsewhere,
}

/// Hands out places for arguments, from the first to the last.
struct Convention {
    architecture: Architecture,
    /// The next general and vector register, and the next offset on the stack.
    general: u8,
    vector: u8,
    stack: u64,
    /// Whether an argument went to a place that is not known: so do all after it.
    is_lost: bool,
}

impl Convention {
    fn new(architecture: Architecture) -> Self {
        Self {
            architecture,
            general: 0,
            vector: 0,
            stack: 0,
            is_lost: false,
        }
    }

    /// The size of a general register, and how many there are for arguments.
    fn general_registers(&self) -> (u64, u8) {
        match self.architecture {
            Architecture::AArch64 => (8, 8),
            Architecture::AArch32 | Architecture::MProfile => (4, 4),
        }
    }

    fn next(&mut self, symbols: &Symbols, kind: Option<TypeId>) -> Where {
        let layout = kind.and_then(|kind| symbols.layout(kind));
        let place = layout.and_then(|layout| match layout {
            Layout::Number {
                bytes,
                encoding: Encoding::Float,
            } => self.float(bytes),
            Layout::Number { bytes, .. }
            | Layout::Pointer { bytes, .. }
            | Layout::MemberPointer { bytes, .. } => self.integer(bytes),
            Layout::Record { bytes, .. } => self.record(symbols, kind?, bytes),
            Layout::Array { .. } => None,
        });
        self.is_lost |= place.is_none();
        match place {
            Some(place) if !self.is_lost => place,
            _ => Where::Elsewhere,
        }
    }

    fn integer(&mut self, bytes: u64) -> Option<Where> {
        let (size, count) = self.general_registers();
        let needed = u8::try_from(bytes.div_ceil(size)).ok()?;
        if needed > 1 {
            self.general += self.general % 2;
        }
        if needed == 0 || needed > 2 {
            return None;
        }
        if self.general + needed <= count {
            let first = Location::general(self.general);
            self.general += needed;
            return Some(match needed {
                1 => Where::Register(first),
                _ => Where::Elsewhere,
            });
        }
        self.general = count;
        Some(self.on_stack(bytes, if needed > 1 { bytes } else { size }))
    }

    fn float(&mut self, bytes: u64) -> Option<Where> {
        // With and without floating-point registers, they are in different places.
        if self.architecture != Architecture::AArch64 || bytes > 16 {
            return None;
        }
        if self.vector < 8 {
            let register = Location::vector(self.vector, 0);
            self.vector += 1;
            return Some(match bytes {
                ..=8 => Where::Register(register),
                _ => Where::Elsewhere,
            });
        }
        Some(self.on_stack(bytes, bytes.max(8)))
    }

    fn record(&mut self, symbols: &Symbols, kind: TypeId, bytes: u64) -> Option<Where> {
        if self.architecture != Architecture::AArch64 {
            return None;
        }
        let mut floats = Vec::new();
        let mut left = MOST_TYPES;
        if all_floats(symbols, kind, &mut floats, (DEEPEST, &mut left))
            && (1..=MOST_FLOATS).contains(&floats.len())
            && floats.iter().all(|size| *size == floats[0])
        {
            if usize::from(self.vector) + floats.len() <= 8 {
                self.vector += floats.len() as u8;
            } else if bytes <= 16 * MOST_FLOATS as u64 {
                self.vector = 8;
                self.on_stack(bytes, 8);
            } else {
                return None;
            }
            return Some(Where::Elsewhere);
        }
        match bytes {
            0 => return None,
            // A pointer to a copy.
            17.. => {
                self.integer(8);
            }
            _ => {
                let needed = bytes.div_ceil(8) as u8;
                if self.general + needed <= 8 {
                    self.general += needed;
                } else {
                    self.general = 8;
                    self.on_stack(bytes, 8);
                }
            }
        }
        Some(Where::Elsewhere)
    }

    fn on_stack(&mut self, bytes: u64, align: u64) -> Where {
        let (size, _) = self.general_registers();
        let at = self.stack.next_multiple_of(align.max(size));
        self.stack = at + bytes.next_multiple_of(size);
        Where::Stack(at)
    }
}

/// Collects the sizes of the floating-point numbers in a type; returns whether there is nothing
/// else, and not too many.
fn all_floats(
    symbols: &Symbols,
    kind: TypeId,
    sizes: &mut Vec<u64>,
    (depth, left): (usize, &mut usize),
) -> bool {
    if depth == 0 || *left == 0 || sizes.len() > MOST_FLOATS {
        return false;
    }
    *left -= 1;
    match symbols.layout(kind) {
        Some(Layout::Number {
            bytes,
            encoding: Encoding::Float,
        }) => {
            sizes.push(bytes);
            true
        }
        Some(Layout::Record { fields, .. }) => {
            let mut fields = fields.iter();
            fields.all(|field| all_floats(symbols, field.kind, sizes, (depth - 1, &mut *left)))
        }
        Some(Layout::Array {
            element,
            count: Some(count @ 1..=4),
        }) => (0..count).all(|_| all_floats(symbols, element, sizes, (depth - 1, &mut *left))),
        _ => false,
    }
}

/// The registers at the first instruction of a function. Memory is not read: parameters on the stack
/// are found by the calling convention.
struct AtEntry<'a> {
    core: &'a Core<'a>,
    known: &'a Registers,
    status: Status,
}

impl Machine for AtEntry<'_> {
    fn register(&mut self, number: u16) -> Option<u64> {
        let known = self.known.get(self.core.location(number)?)?;
        self.status = self.status.max(known.status);
        Some(known.value)
    }

    fn memory(&mut self, _: u64, _: u8) -> Option<u64> {
        None
    }

    fn frame(&mut self) -> Option<u64> {
        None
    }
}

/// Returns the arguments of the call whose first instruction is at a position.
pub(super) fn of_call(
    core: &mut Core<'_>,
    signature: Option<&Signature>,
    (at, function): (Position, u64),
    cancel: &Cancel,
) -> Result<Vec<Argument>, AskError> {
    let known = core.registers(at, cancel)?;
    let Some(signature) = signature else {
        return Ok(all_registers(core, &known));
    };
    let mut convention = Convention::new(core.architecture);
    if core.architecture != Architecture::AArch64
        && let Some(kind) = signature.returns
        && let Some(Layout::Record { bytes: 5.., .. }) = core.symbols.layout(kind)
    {
        // The first register is where the result goes.
        convention.general = 1;
    }
    let mut arguments = Vec::new();
    for parameter in &signature.parameters {
        let size = parameter.kind.and_then(|kind| core.symbols.size(kind));
        let is_number = parameter.kind.is_some_and(|kind| {
            let layout = core.symbols.layout(kind);
            matches!(layout, Some(Layout::Number { .. } | Layout::Pointer { .. }))
        });
        let by_convention = convention.next(core.symbols, parameter.kind);
        let mut machine = AtEntry {
            core,
            known: &known,
            status: Status::Proved,
        };
        let placed = core.symbols.place(parameter, function, &mut machine);
        let status = machine.status;
        let worth = match (placed, by_convention) {
            _ if !is_number => Worth::UNKNOWN,
            (Some(Placement::Register(number)), _) => {
                let location = core.location(number);
                part(location.and_then(|location| known.get(location)), size)
            }
            (Some(Placement::Value(value)), _) => part(Some(Known { value, status }), size),
            (_, Where::Register(location)) => part(known.get(location), size).assumed(),
            (_, Where::Stack(offset)) => match (stack_pointer(core, &known), size) {
                (Some(sp), Some(size @ 1..=16)) => {
                    let address = sp.wrapping_add(offset);
                    core.number(at, address, size as u8, cancel)?.assumed()
                }
                _ => Worth::UNKNOWN,
            },
            (_, Where::Elsewhere) => Worth::UNKNOWN,
        };
        let name = parameter.name.clone();
        arguments.push(Argument { name, worth });
    }
    Ok(arguments)
}

/// The registers for arguments, where it is not known which of them are used.
fn all_registers(core: &Core<'_>, known: &Registers) -> Vec<Argument> {
    let (prefix, count) = match core.architecture {
        Architecture::AArch64 => ('x', 8),
        Architecture::AArch32 | Architecture::MProfile => ('r', 4),
    };
    let register = |number| Argument {
        name: format!("{prefix}{number}"),
        worth: Worth::from(known.get(Location::general(number))).assumed(),
    };
    (0..count).map(register).collect()
}

fn stack_pointer(core: &Core<'_>, known: &Registers) -> Option<u64> {
    let location = match core.architecture {
        Architecture::AArch64 => Location::SP,
        Architecture::AArch32 | Architecture::MProfile => Location::general(13),
    };
    known.get(location).map(|known| known.value)
}

/// The lowest bytes of a register.
fn part(known: Option<Known<u64>>, size: Option<u64>) -> Worth {
    match (known, size) {
        (Some(known), Some(size @ 1..=8)) => {
            let value = known.value & u64::MAX >> (64 - 8 * size);
            Worth::known(value.into(), known.status)
        }
        _ => Worth::UNKNOWN,
    }
}

/// Returns what a function returned, given the position after its return; `None` if it returns
/// nothing.
pub(super) fn returned(
    core: &mut Core<'_>,
    signature: Option<&Signature>,
    after: Position,
    cancel: &Cancel,
) -> Result<Option<Worth>, AskError> {
    let known = core.registers(after, cancel)?;
    let first = Location::general(0);
    let Some(signature) = signature else {
        return Ok(Some(Worth::from(known.get(first)).assumed()));
    };
    let Some(kind) = signature.returns else {
        return Ok(None);
    };
    let is_long = core.architecture == Architecture::AArch64;
    let worth = match core.symbols.layout(kind) {
        Some(Layout::Number {
            bytes,
            encoding: Encoding::Float,
        }) if is_long => part(known.get(Location::vector(0, 0)), Some(bytes)),
        Some(
            Layout::Number {
                bytes,
                encoding: Encoding::Unsigned | Encoding::Signed,
            }
            | Layout::Pointer { bytes, .. },
        ) => match (bytes, known.get(first), known.get(Location::general(1))) {
            (5..=8, Some(low), Some(high)) if !is_long => {
                let value = u128::from(high.value << 32 | low.value & 0xffff_ffff);
                Worth::known(value, low.status.max(high.status))
            }
            (5..=8, _, _) if !is_long => Worth::UNKNOWN,
            (_, low, _) => part(low, Some(bytes)),
        },
        _ => Worth::UNKNOWN,
    };
    Ok(Some(worth.assumed()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::questions::Hex;

    #[test]
    fn integers_go_to_registers_then_to_the_stack() {
        let mut convention = Convention::new(Architecture::AArch64);
        let places: Vec<_> = (0..10).map(|_| convention.integer(4)).collect();
        assert_eq!(places[7], Some(Where::Register(Location::general(7))));
        assert_eq!(places[8..], [Some(Where::Stack(0)), Some(Where::Stack(8))]);
        assert_eq!(
            convention.float(8),
            Some(Where::Register(Location::vector(0, 0)))
        );
        let mut convention = Convention::new(Architecture::AArch32);
        assert_eq!(
            [4, 8, 4].map(|size| convention.integer(size)),
            [
                Some(Where::Register(Location::general(0))),
                Some(Where::Elsewhere),
                Some(Where::Stack(0))
            ]
        );
        assert_eq!(convention.float(4), None);
    }

    #[test]
    fn impossible_sizes_are_not_placed() {
        let mut convention = Convention::new(Architecture::AArch64);
        for _ in 0..10 {
            assert_eq!(convention.float(u64::MAX), None);
            assert_eq!(convention.integer(u64::MAX), None);
        }
    }

    #[test]
    fn the_lowest_bytes_are_shown() {
        let known = Some(Known {
            value: 0xffff_ffff_0000_0102,
            status: Status::Proved,
        });
        assert_eq!(part(known, Some(4)).value, Some(Hex(0x102)));
        assert_eq!(part(known, Some(1)).value, Some(Hex(2)));
        assert_eq!(part(known, Some(16)), Worth::UNKNOWN);
    }
}
