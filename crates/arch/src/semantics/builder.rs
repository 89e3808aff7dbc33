//! Collects the relations of one instruction.

use super::operation::{Operation, Width};
use super::{Control, Location, Operand, Relation, Semantics};

pub(super) const ONE: Operand = Operand::Constant(1);

/// The semantics of an instruction that is being decoded.
pub(super) struct Builder {
    relations: Vec<Relation>,
    temporaries: u8,
    pub(super) control: Control,
    pub(super) may_store_anywhere: bool,
    pub(super) clears_block: Option<Location>,
    pub(super) changes_space: bool,
}

/// Computed flags that are not written yet, in temporaries or constants.
#[derive(Clone, Copy)]
pub(super) struct Flags {
    pub(super) n: Operand,
    pub(super) z: Operand,
    pub(super) c: Operand,
    pub(super) v: Operand,
}

impl Builder {
    pub(super) fn new() -> Self {
        Self {
            relations: Vec::with_capacity(4),
            temporaries: 0,
            control: Control::Next,
            may_store_anywhere: false,
            clears_block: None,
            changes_space: false,
        }
    }

    pub(super) fn finish(self, size: u8) -> Semantics {
        Semantics {
            relations: self.relations,
            control: self.control,
            size,
            may_store_anywhere: self.may_store_anywhere,
            clears_block: self.clears_block,
            changes_space: self.changes_space,
        }
    }

    /// Discards what has been collected.
    pub(super) fn restart(&mut self) {
        *self = Self::new();
    }

    /// Discards what has been collected, and makes everything unknown after the instruction.
    pub(super) fn everything_unknown(&mut self) {
        *self = Self::new();
        self.may_store_anywhere = true;
        for location in Location::kept() {
            self.unknown(location);
        }
    }

    /// `destination = operation(a, b, c)`; nothing if the result is dropped.
    pub(super) fn set(
        &mut self,
        destination: Location,
        operation: Operation,
        a: Operand,
        b: Operand,
        c: Operand,
    ) {
        if destination != Location::NOWHERE {
            self.relations.push(Relation {
                operation,
                destination,
                a,
                b,
                c,
            });
        }
    }

    pub(super) fn set1(&mut self, destination: Location, operation: Operation, a: Operand) {
        self.set(destination, operation, a, Operand::ZERO, Operand::ZERO);
    }

    pub(super) fn set2(
        &mut self,
        destination: Location,
        operation: Operation,
        a: Operand,
        b: Operand,
    ) {
        self.set(destination, operation, a, b, Operand::ZERO);
    }

    pub(super) fn copy(&mut self, destination: Location, a: Operand) {
        if a != Operand::Location(destination) {
            self.set1(destination, Operation::Copy, a);
        }
    }

    /// Writes a value that is not used again. If it is the newest temporary, the relation that
    /// computes it writes the destination instead, without a copy.
    pub(super) fn move_to(&mut self, destination: Location, a: Operand) {
        match self.relations.last_mut() {
            Some(last)
                if Operand::Location(last.destination) == a && !last.destination.is_kept() =>
            {
                last.destination = destination;
            }
            _ => self.copy(destination, a),
        }
    }

    pub(super) fn unknown(&mut self, destination: Location) {
        self.set1(destination, Operation::Unknown, Operand::ZERO);
    }

    pub(super) fn temporary(&mut self) -> Location {
        let location = Location::temporary(self.temporaries);
        self.temporaries += 1;
        location
    }

    /// Computes a result in a new temporary.
    pub(super) fn op(
        &mut self,
        operation: Operation,
        a: Operand,
        b: Operand,
        c: Operand,
    ) -> Operand {
        let location = self.temporary();
        self.set(location, operation, a, b, c);
        Operand::Location(location)
    }

    pub(super) fn op1(&mut self, operation: Operation, a: Operand) -> Operand {
        self.op(operation, a, Operand::ZERO, Operand::ZERO)
    }

    pub(super) fn op2(&mut self, operation: Operation, a: Operand, b: Operand) -> Operand {
        self.op(operation, a, b, Operand::ZERO)
    }

    /// Returns the current value as an operand that later writes to its location do not change.
    pub(super) fn kept(&mut self, a: Operand) -> Operand {
        match a {
            Operand::Location(location) if location.is_kept() => self.op1(Operation::Copy, a),
            _ => a,
        }
    }

    pub(super) fn add(&mut self, a: Operand, offset: u64) -> Operand {
        match (a, offset) {
            (_, 0) => a,
            (Operand::Constant(a), _) => Operand::Constant(a.wrapping_add(offset)),
            _ => self.op2(Operation::Add(Width::W64), a, Operand::Constant(offset)),
        }
    }

    /// Returns 1 if `a` is 0, and 0 if it is 1.
    pub(super) fn inverted(&mut self, a: Operand) -> Operand {
        match a {
            Operand::Constant(a) => Operand::Constant(a ^ 1),
            Operand::Location(_) => self.op2(Operation::Xor, a, ONE),
        }
    }

    /// Loads a value, zero-extended, into a new temporary.
    pub(super) fn load(&mut self, size: u8, address: Operand) -> Operand {
        self.op(Operation::Load { size }, address, Operand::ZERO, ONE)
    }

    /// Loads a value, zero-extended, into `destination`.
    pub(super) fn load_to(&mut self, destination: Location, size: u8, address: Operand) {
        self.set(
            destination,
            Operation::Load { size },
            address,
            Operand::ZERO,
            ONE,
        );
    }

    pub(super) fn store(&mut self, size: u8, address: Operand, value: Operand) {
        self.store_where(size, address, value, ONE);
    }

    pub(super) fn store_where(&mut self, size: u8, a: Operand, b: Operand, c: Operand) {
        let (operation, destination) = (Operation::Store { size }, Location::NOWHERE);
        self.relations.push(Relation {
            operation,
            destination,
            a,
            b,
            c,
        });
    }

    /// Returns whether the condition holds for the current flags, as 0 or 1.
    pub(super) fn holds(&mut self, condition: u8) -> Operand {
        let flag = Operand::Location;
        let (n, z, c, v) = (
            flag(Location::N),
            flag(Location::Z),
            flag(Location::C),
            flag(Location::V),
        );
        let inverse = condition & 1 == 1;
        match condition >> 1 {
            0 => self.inverted_if(inverse, z),
            1 => self.inverted_if(inverse, c),
            2 => self.inverted_if(inverse, n),
            3 => self.inverted_if(inverse, v),
            4 => {
                let not_zero = self.inverted(z);
                let higher = self.op2(Operation::And, c, not_zero);
                self.inverted_if(inverse, higher)
            }
            5 if inverse => self.op2(Operation::Xor, n, v),
            5 => self.op2(Operation::Equal, n, v),
            6 => {
                let less = self.op2(Operation::Xor, n, v);
                let less_or_equal = self.op2(Operation::Or, z, less);
                self.inverted_if(!inverse, less_or_equal)
            }
            _ => ONE,
        }
    }

    fn inverted_if(&mut self, inverse: bool, a: Operand) -> Operand {
        if inverse { self.inverted(a) } else { a }
    }

    pub(super) fn unknown_flags(&mut self) {
        for flag in [Location::N, Location::Z, Location::C, Location::V] {
            self.unknown(flag);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::semantics::{Machine, Values, execute};

    /// A machine without memory.
    struct Nothing;

    impl Machine for Nothing {
        fn load(&mut self, _: u64, _: u8) -> Option<u64> {
            None
        }

        fn store(&mut self, _: Option<u64>, _: u8, _: Option<u64>) {}

        fn may_store_anywhere(&mut self) {}
    }

    #[test]
    fn conditions_hold_as_the_manual_lists_them() {
        type Holds = fn(bool, bool, bool, bool) -> bool;
        // N, Z, C, V from the bits; the flags for which each condition holds.
        let holding: [Holds; 16] = [
            |_, z, _, _| z,
            |_, z, _, _| !z,
            |_, _, c, _| c,
            |_, _, c, _| !c,
            |n, _, _, _| n,
            |n, _, _, _| !n,
            |_, _, _, v| v,
            |_, _, _, v| !v,
            |_, z, c, _| c && !z,
            |_, z, c, _| !c || z,
            |n, _, _, v| n == v,
            |n, _, _, v| n != v,
            |n, z, _, v| !z && n == v,
            |n, z, _, v| z || n != v,
            |_, _, _, _| true,
            |_, _, _, _| true,
        ];
        for (code, holds) in (0..).zip(holding) {
            for flags in 0..16 {
                let wanted = holds(
                    flags & 8 != 0,
                    flags & 4 != 0,
                    flags & 2 != 0,
                    flags & 1 != 0,
                );
                let mut values: Values = [Some(0); Location::KEPT];
                for (flag, bit) in [
                    (Location::N, 3),
                    (Location::Z, 2),
                    (Location::C, 1),
                    (Location::V, 0),
                ] {
                    values[flag.index()] = Some(flags >> bit & 1);
                }
                let mut builder = Builder::new();
                let holds_now = builder.holds(code);
                builder.copy(Location::general(0), holds_now);
                execute(&builder.finish(4), 0, &mut values, &mut Nothing);
                let is = values[0].unwrap();
                assert_eq!(is, u64::from(wanted), "condition {code}, flags {flags:04b}");
            }
        }
    }
}
