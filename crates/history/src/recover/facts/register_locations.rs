//! The locations of registers by their names in target descriptions.

use super::super::status::{Known, Registers};
use armsnap_arch::arch::registers::Bytes;
use armsnap_arch::arch::{Architecture, RegisterDescription};
use armsnap_arch::semantics::Location;

/// The locations of a register; a vector register has two, for its low and high half.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RegisterLocations {
    low: Location,
    high: Option<Location>,
}

impl RegisterLocations {
    /// Returns the locations of a register with this name.
    #[must_use]
    pub fn of(architecture: Architecture, name: &str) -> Option<Self> {
        let one = |low| Some(Self { low, high: None });
        let number = |prefix: &str, end: u8| -> Option<u8> {
            let digits = name.strip_prefix(prefix)?;
            let number: u8 = digits.parse().ok()?;
            (number < end && digits == number.to_string()).then_some(number)
        };
        if architecture == Architecture::AArch64 {
            if name == "sp" {
                return one(Location::SP);
            }
            if let Some(number) = number("v", 32) {
                return Some(Self {
                    low: Location::vector(number, 0),
                    high: Some(Location::vector(number, 1)),
                });
            }
            return one(Location::general(number("x", 31)?));
        }
        match name {
            "sp" => one(Location::general(13)),
            "lr" => one(Location::general(14)),
            _ => match (number("r", 13), number("d", 32)) {
                (Some(number), _) => one(Location::general(number)),
                (_, Some(number)) => one(Location::vector(number / 2, number % 2)),
                _ => None,
            },
        }
    }

    /// Returns the location; for a vector register, that of its low half.
    #[must_use]
    pub fn low(self) -> Location {
        self.low
    }

    /// Returns the bytes of the register as sent, if all of it is known.
    #[must_use]
    pub fn bytes(self, known: &Registers, register: &RegisterDescription) -> Option<Bytes> {
        let bytes = self.value(known)?.value.to_le_bytes().map(Some);
        Some(bytes.into_iter().take(register.bytes()).collect())
    }

    /// Returns the value of the register, if all of it is known.
    #[must_use]
    pub fn value(self, registers: &Registers) -> Option<Known<u128>> {
        let low = registers.get(self.low)?;
        let high = match self.high {
            Some(high) => registers.get(high)?,
            None => Known { value: 0, ..low },
        };
        Some(Known {
            value: u128::from(high.value) << 64 | u128::from(low.value),
            status: low.status.max(high.status),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::status::Status;
    use super::*;

    #[test]
    fn registers_have_locations() {
        let of =
            |architecture, name| RegisterLocations::of(architecture, name).map(|places| places.low);
        for (architecture, name, wanted) in [
            (Architecture::AArch64, "x0", Some(Location::general(0))),
            (Architecture::AArch64, "x30", Some(Location::general(30))),
            (Architecture::AArch64, "x31", None),
            (Architecture::AArch64, "x01", None),
            (Architecture::AArch64, "sp", Some(Location::SP)),
            (Architecture::AArch64, "v31", Some(Location::vector(31, 0))),
            (Architecture::AArch64, "pc", None),
            (Architecture::AArch64, "cpsr", None),
            (Architecture::AArch32, "sp", Some(Location::general(13))),
            (Architecture::AArch32, "lr", Some(Location::general(14))),
            (Architecture::AArch32, "r13", None),
            (Architecture::MProfile, "r12", Some(Location::general(12))),
            (Architecture::AArch32, "d3", Some(Location::vector(1, 1))),
        ] {
            assert_eq!(of(architecture, name), wanted, "{name}");
        }
    }

    #[test]
    fn half_of_a_register_is_not_shown() {
        let known = |value| {
            Some(Known {
                value,
                status: Status::Proved,
            })
        };
        let mut registers = Registers::unknown();
        let places = RegisterLocations::of(Architecture::AArch64, "v2").unwrap();
        registers.0[Location::vector(2, 0).index()] = known(1);
        assert_eq!(places.value(&registers), None);
        registers.0[Location::vector(2, 1).index()] = Some(Known {
            value: 2,
            status: Status::Inferred,
        });
        let value = places.value(&registers).unwrap();
        assert_eq!((value.value, value.status), (2 << 64 | 1, Status::Inferred));
    }
}
