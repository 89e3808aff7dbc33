//! Executes relations on values, each of which is known or unknown.

use super::{Control, Location, Operand, Operation, Relation, Semantics};

/// The values of the locations that are kept between instructions, by [`Location::index`].
pub type Values = [Option<u64>; Location::KEPT];

/// The memory that [`execute`] reads and writes.
pub trait Machine {
    /// The `size` bytes (1, 2, 4, 8) at an address, zero-extended, if they are known.
    fn load(&mut self, address: u64, size: u8) -> Option<u64>;

    /// Receives a load that may happen, or whose address is not known.
    fn load_unknown(&mut self) {}

    /// Receives a store that happens: the lowest `size` bytes of `value` to `address`; either may
    /// be unknown.
    fn store(&mut self, address: Option<u64>, size: u8, value: Option<u64>);

    /// Receives a store that may not happen; its bytes become unknown.
    fn may_store(&mut self, address: Option<u64>, size: u8, _value: Option<u64>) {
        self.store(address, size, None);
    }

    /// Receives an instruction that may have written any memory.
    fn may_store_anywhere(&mut self);
}

/// The temporaries of one instruction.
#[derive(Clone, Debug)]
pub struct Temporaries([Option<u64>; 128]);

impl Default for Temporaries {
    fn default() -> Self {
        Self([None; 128])
    }
}

/// Executes the instruction at `address`: changes `values` from those before it to those after it.
/// Returns the address of the next instruction (bit 0 cleared where it selects the instruction set), if
/// it is known.
pub fn execute(
    semantics: &Semantics,
    address: u64,
    values: &mut Values,
    machine: &mut impl Machine,
) -> Option<u64> {
    let mut temporaries = Temporaries::default();
    let relations = semantics.relations.iter().map(|relation| (*relation, 0));
    execute_relations(relations, values, &mut temporaries, machine);
    if semantics.may_store_anywhere || semantics.clears_block.is_some() {
        machine.may_store_anywhere();
    }
    let next = address.wrapping_add(u64::from(semantics.size));
    semantics.control.leads_to(next, values, &temporaries)
}

/// Executes the relations of one instruction, each with what is added to its first operand, the
/// base of an address.
#[inline]
pub fn execute_relations(
    relations: impl Iterator<Item = (Relation, u64)>,
    values: &mut Values,
    temporaries: &mut Temporaries,
    machine: &mut impl Machine,
) {
    for (relation, displacement) in relations {
        let value = |operand| read(operand, values, temporaries);
        let (a, b, c) = (value(relation.a), value(relation.b), value(relation.c));
        let a = a.map(|a| a.wrapping_add(displacement));
        let result = match (relation.operation, a, b, c) {
            (_, _, _, Some(0)) if relation.operation.is_access() => None,
            (Operation::Load { size }, Some(address), _, Some(_)) => machine.load(address, size),
            (Operation::Load { .. }, ..) => {
                machine.load_unknown();
                None
            }
            (Operation::Store { size }, _, _, Some(_)) => {
                machine.store(a, size, b);
                continue;
            }
            (Operation::Store { size }, ..) => {
                machine.may_store(a, size, b);
                continue;
            }
            (Operation::Select, _, _, Some(0)) => b,
            (Operation::Select, _, _, Some(_)) => a,
            (operation, Some(a), Some(b), Some(c)) => operation.eval(a, b, c),
            _ => None,
        };
        let index = relation.destination.index();
        if relation.destination.is_kept() {
            values[index] = result;
        } else if relation.destination != Location::NOWHERE {
            temporaries.0[index - Location::KEPT] = result;
        }
    }
}

impl Control {
    /// The address at which execution continues, if it is known; `next` is that after the
    /// instruction, whose relations have left these values.
    #[must_use]
    pub fn leads_to(self, next: u64, values: &Values, temporaries: &Temporaries) -> Option<u64> {
        let value = |operand| read(operand, values, temporaries);
        match self {
            Self::Next | Self::SystemCall => Some(next),
            Self::Jump(target) => Some(target),
            Self::Conditional { condition, target } => {
                Some(if value(condition)? != 0 { target } else { next })
            }
            Self::Indirect {
                target,
                condition,
                interworking,
            } => {
                if value(condition)? == 0 {
                    Some(next)
                } else {
                    Some(value(target)? & !u64::from(interworking))
                }
            }
            Self::ExceptionReturn => None,
        }
    }
}

impl Operation {
    const fn is_access(self) -> bool {
        matches!(self, Self::Load { .. } | Self::Store { .. })
    }
}

fn read(operand: Operand, values: &Values, temporaries: &Temporaries) -> Option<u64> {
    match operand {
        Operand::Constant(value) => Some(value),
        Operand::Location(location) if location.is_kept() => values[location.index()],
        Operand::Location(location) => temporaries
            .0
            .get(location.index() - Location::KEPT)
            .copied()
            .flatten(),
    }
}
