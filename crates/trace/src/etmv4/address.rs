//! The history of traced addresses that later addresses are compressed against (IHI 0064,
//! "Address packets": `address_regs`).

use super::packet::{AddressBits, InstructionSet};

/// A traced address in full.
pub(super) type Traced = (u64, InstructionSet);

/// The last three traced addresses.
#[derive(Clone, Copy, Debug, Default, PartialEq, serde::Serialize, serde::Deserialize)]
pub(super) struct AddressHistory {
    /// Newest first.
    last: [Traced; 3],
}

impl AddressHistory {
    /// The address that `bits` stands for, which becomes the newest. 32 bits are the whole address
    /// in AArch32 and the low half in AArch64.
    #[inline]
    pub(super) fn resolve(&mut self, bits: AddressBits, is_64bit: bool) -> Traced {
        let traced = match bits {
            AddressBits::Match(index) => self.last[usize::from(index).min(2)],
            AddressBits::Low { value, bits, is } => {
                let known = if bits >= 64 || bits == 32 && !is_64bit {
                    0
                } else {
                    self.last[0].0 & (u64::MAX << bits)
                };
                (known | value, is)
            }
        };
        self.push(traced);
        traced
    }

    /// Makes an address the newest.
    #[inline]
    pub(super) fn push(&mut self, traced: Traced) {
        self.last = [traced, self.last[0], self.last[1]];
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn low(value: u64, bits: u8) -> AddressBits {
        AddressBits::Low {
            value,
            bits,
            is: InstructionSet::Is0,
        }
    }

    #[test]
    fn addresses_are_completed_from_the_last_one() {
        let mut history = AddressHistory::default();
        let mut next = |bits, is_64bit| history.resolve(bits, is_64bit).0;
        let long = 0xffff_ff80_1234_5678;
        assert_eq!(next(low(long, 64), true), long);
        assert_eq!(next(low(0x1fc, 9), true), 0xffff_ff80_1234_57fc);
        assert_eq!(next(low(4, 17), true), 0xffff_ff80_1234_0004);
        assert_eq!(next(low(0x8000, 32), true), 0xffff_ff80_0000_8000);
        // The history: 8000, 12340004, 123457fc.
        assert_eq!(next(AddressBits::Match(2), true), 0xffff_ff80_1234_57fc);
        assert_eq!(next(AddressBits::Match(1), true), 0xffff_ff80_0000_8000);
        assert_eq!(next(AddressBits::Match(0), true), 0xffff_ff80_0000_8000);
        assert_eq!(next(low(0x1000, 32), false), 0x1000);
    }

    #[test]
    fn a_match_restores_the_instruction_set_too() {
        let mut history = AddressHistory::default();
        history.push((0x100, InstructionSet::Is1));
        history.push((0x200, InstructionSet::Is0));
        let first = history.resolve(AddressBits::Match(1), false);
        assert_eq!(first, (0x100, InstructionSet::Is1));
    }
}
