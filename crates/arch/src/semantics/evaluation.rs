//! Evaluates operations whose operands are known.

use super::operation::{Operation, Width};
use super::{aes, floating, lanes};

impl Operation {
    /// The result for known operands; `None` if it is not a function of them
    /// ([`Operation::Unknown`], loads and stores) or if the architecture does not define it.
    #[must_use]
    pub fn eval(self, a: u64, b: u64, c: u64) -> Option<u64> {
        Some(match self {
            Self::Copy => a,
            Self::Add(width) => width.truncate(a.wrapping_add(b)),
            Self::Subtract(width) => width.truncate(a.wrapping_sub(b)),
            Self::AddWithCarry(width) => width.truncate(a.wrapping_add(b).wrapping_add(c)),
            Self::CarryOf(width) => u64::from(carry(width, a, b, c)),
            Self::OverflowOf(width) => u64::from(overflow(width, a, b, c)),
            Self::CarryOfDifference(width) => u64::from(carry(width, a, !b, 1)),
            Self::OverflowOfDifference(width) => u64::from(overflow(width, a, !b, 1)),
            Self::And => a & b,
            Self::Or => a | b,
            Self::Xor => a ^ b,
            Self::Not(width) => width.truncate(!a),
            Self::ShiftLeft(width) => width.truncate(a << amount(width, b)),
            Self::ShiftRight(width) => width.truncate(a) >> amount(width, b),
            Self::ShiftRightSigned(width) => {
                width.truncate((width.signed(a) >> amount(width, b)).cast_unsigned())
            }
            Self::RotateRight(Width::W32) => u64::from((a as u32).rotate_right(b as u32 % 32)),
            Self::RotateRight(Width::W64) => a.rotate_right(b as u32 % 64),
            Self::Extract { low, count } => (a >> low) & mask(count),
            Self::ExtractSigned { low, count } => sign_extended(a >> low, count),
            Self::Insert { low, count } => (a & !(mask(count) << low)) | ((b & mask(count)) << low),
            Self::Multiply(width) => width.truncate(a.wrapping_mul(b)),
            Self::MultiplyHighSigned => {
                ((i128::from(a.cast_signed()) * i128::from(b.cast_signed())) >> 64) as u64
            }
            Self::MultiplyHighUnsigned => ((u128::from(a) * u128::from(b)) >> 64) as u64,
            Self::DivideUnsigned(width) => width
                .truncate(a)
                .checked_div(width.truncate(b))
                .unwrap_or(0),
            Self::DivideSigned(width) => {
                let (a, b) = (width.signed(a), width.signed(b));
                // The smallest number divided by -1 gives itself.
                let quotient = if b == 0 { 0 } else { a.wrapping_div(b) };
                width.truncate(quotient.cast_unsigned())
            }
            Self::Select => {
                if c != 0 {
                    a
                } else {
                    b
                }
            }
            Self::Equal => u64::from(a == b),
            Self::LessUnsigned => u64::from(a < b),
            Self::LessSigned => u64::from(a.cast_signed() < b.cast_signed()),
            Self::CountLeadingZeros(Width::W32) => u64::from((a as u32).leading_zeros()),
            Self::CountLeadingZeros(Width::W64) => u64::from(a.leading_zeros()),
            Self::ReverseBits(Width::W32) => u64::from((a as u32).reverse_bits()),
            Self::ReverseBits(Width::W64) => a.reverse_bits(),
            Self::ReverseBytes { group } => reverse_bytes(a, group)?,
            Self::Aes(step) => aes::step(step, a, b),
            Self::Crc32 { bytes, castagnoli } => u64::from(crc32(a as u32, b, bytes, castagnoli)),
            Self::Lane(operation, size) => lanes::each(operation, size, a, b),
            Self::SelectBits => a & c | b & !c,
            Self::ShuffleBytes => lanes::shuffle(a, b, c),
            Self::LookUpBytes => lanes::look_up(a, b, c),
            Self::Float(operation, shape) => floating::eval(operation, shape, a, b, c)?,
            Self::Load { .. } | Self::Store { .. } | Self::Unknown => return None,
        })
    }
}

impl Width {
    /// The value's low bits, zero-extended.
    const fn truncate(self, value: u64) -> u64 {
        match self {
            Self::W32 => value & 0xffff_ffff,
            Self::W64 => value,
        }
    }

    /// The value's low bits, sign-extended.
    const fn signed(self, value: u64) -> i64 {
        match self {
            Self::W32 => value as i32 as i64,
            Self::W64 => value.cast_signed(),
        }
    }
}

/// The lowest `count` bits, 1 to 64.
const fn mask(count: u8) -> u64 {
    u64::MAX >> ((64 - count as u32) & 63)
}

const fn sign_extended(value: u64, count: u8) -> u64 {
    let unused = (64 - count as u32) & 63;
    ((value << unused).cast_signed() >> unused).cast_unsigned()
}

const fn amount(width: Width, amount: u64) -> u32 {
    match width {
        Width::W32 => (amount % 32) as u32,
        Width::W64 => (amount % 64) as u32,
    }
}

fn carry(width: Width, a: u64, b: u64, c: u64) -> bool {
    let sum = u128::from(width.truncate(a)) + u128::from(width.truncate(b)) + u128::from(c & 1);
    match width {
        Width::W32 => sum >> 32 != 0,
        Width::W64 => sum >> 64 != 0,
    }
}

fn overflow(width: Width, a: u64, b: u64, c: u64) -> bool {
    let sum = i128::from(width.signed(a)) + i128::from(width.signed(b)) + i128::from(c & 1);
    sum != i128::from(width.signed(sum as u64))
}

fn reverse_bytes(value: u64, group: u8) -> Option<u64> {
    Some(match group {
        2 => (value & 0x00ff_00ff_00ff_00ff) << 8 | (value >> 8) & 0x00ff_00ff_00ff_00ff,
        4 => value.swap_bytes().rotate_left(32),
        8 => value.swap_bytes(),
        _ => return None,
    })
}

/// The CRC of `data`. Both polynomials have their bits in reverse order, as the checksum does.
fn crc32(mut checksum: u32, data: u64, bytes: u8, castagnoli: bool) -> u32 {
    let polynomial = if castagnoli { 0x82f6_3b78 } else { 0xedb8_8320 };
    for byte in data.to_le_bytes().into_iter().take(usize::from(bytes)) {
        checksum ^= u32::from(byte);
        for _ in 0..8 {
            let carried = checksum & 1 != 0;
            checksum >>= 1;
            if carried {
                checksum ^= polynomial;
            }
        }
    }
    checksum
}

#[cfg(test)]
mod tests {
    use super::*;
    use Width::{W32, W64};

    fn eval(operation: Operation, a: u64, b: u64, c: u64) -> u64 {
        operation.eval(a, b, c).unwrap()
    }

    #[test]
    fn arithmetic_is_of_its_width() {
        assert_eq!(eval(Operation::Add(W32), 0xffff_ffff, 1, 0), 0);
        assert_eq!(eval(Operation::Add(W64), 0xffff_ffff, 1, 0), 1 << 32);
        assert_eq!(eval(Operation::Subtract(W32), 0, 1, 0), 0xffff_ffff);
        assert_eq!(eval(Operation::AddWithCarry(W64), u64::MAX, 0, 1), 0);
        assert_eq!(eval(Operation::Not(W32), 0, 0, 0), 0xffff_ffff);
        assert_eq!(
            eval(Operation::Multiply(W32), 0x1_0000, 0x1_0001, 0),
            0x1_0000
        );
        assert_eq!(
            eval(Operation::MultiplyHighSigned, u64::MAX, 2, 0),
            u64::MAX
        );
        assert_eq!(eval(Operation::MultiplyHighUnsigned, u64::MAX, 2, 0), 1);
    }

    #[test]
    fn carry_and_overflow_follow_the_width() {
        assert_eq!(eval(Operation::CarryOf(W32), 0xffff_ffff, 0, 1), 1);
        assert_eq!(eval(Operation::CarryOf(W64), 0xffff_ffff, 0, 1), 0);
        assert_eq!(eval(Operation::OverflowOf(W32), 0x7fff_ffff, 0, 1), 1);
        assert_eq!(eval(Operation::OverflowOf(W64), 1 << 63, 1 << 63, 1), 1);
        assert_eq!(eval(Operation::CarryOfDifference(W32), 5, 5, 0), 1);
        assert_eq!(eval(Operation::CarryOfDifference(W32), 4, 5, 0), 0);
        assert_eq!(eval(Operation::OverflowOfDifference(W32), 1 << 31, 1, 0), 1);
        assert_eq!(eval(Operation::OverflowOfDifference(W64), 1 << 31, 1, 0), 0);
    }

    #[test]
    fn division_by_zero_is_zero_and_the_smallest_number_stays() {
        assert_eq!(eval(Operation::DivideUnsigned(W64), 7, 0, 0), 0);
        assert_eq!(eval(Operation::DivideSigned(W64), 7, 0, 0), 0);
        assert_eq!(
            eval(Operation::DivideSigned(W32), 1 << 31, 0xffff_ffff, 0),
            1 << 31
        );
        assert_eq!(
            eval(Operation::DivideSigned(W64), 1 << 63, u64::MAX, 0),
            1 << 63
        );
        assert_eq!(
            eval(Operation::DivideSigned(W32), 0xffff_fff9, 2, 0),
            0xffff_fffd
        );
    }

    #[test]
    fn shifts_take_amounts_modulo_the_width() {
        assert_eq!(eval(Operation::ShiftLeft(W32), 1, 33, 0), 2);
        assert_eq!(
            eval(Operation::ShiftRight(W32), u64::MAX, 4, 0),
            0x0fff_ffff
        );
        assert_eq!(
            eval(Operation::ShiftRightSigned(W32), 1 << 31, 31, 0),
            0xffff_ffff
        );
        assert_eq!(eval(Operation::RotateRight(W32), 1, 1, 0), 1 << 31);
        assert_eq!(eval(Operation::RotateRight(W64), 1, 65, 0), 1 << 63);
    }

    #[test]
    fn fields_reach_to_all_64_bits() {
        let whole = Operation::Extract { low: 0, count: 64 };
        assert_eq!(eval(whole, u64::MAX, 0, 0), u64::MAX);
        let signed = Operation::ExtractSigned { low: 4, count: 4 };
        assert_eq!(eval(signed, 0x80, 0, 0), u64::MAX << 3);
        let insert = Operation::Insert { low: 60, count: 4 };
        assert_eq!(eval(insert, u64::MAX, 0x10, 0), u64::MAX >> 4);
    }

    #[test]
    fn bytes_and_bits_are_reversed() {
        let value = 0x0102_0304_0506_0708;
        assert_eq!(
            eval(Operation::ReverseBytes { group: 2 }, value, 0, 0),
            0x0201_0403_0605_0807
        );
        assert_eq!(
            eval(Operation::ReverseBytes { group: 4 }, value, 0, 0),
            0x0403_0201_0807_0605
        );
        assert_eq!(
            eval(Operation::ReverseBytes { group: 8 }, value, 0, 0),
            0x0807_0605_0403_0201
        );
        assert_eq!(eval(Operation::ReverseBits(W32), 1, 0, 0), 1 << 31);
        assert_eq!(eval(Operation::CountLeadingZeros(W32), 0, 0, 0), 32);
        assert_eq!(eval(Operation::CountLeadingZeros(W64), 1, 0, 0), 63);
    }

    #[test]
    fn checksums_are_the_well_known_ones() {
        // "123456789" has the check values 0xcbf43926 (CRC-32) and 0xe3069283 (CRC-32C).
        for (castagnoli, wanted) in [(false, 0xcbf4_3926), (true, 0xe306_9283)] {
            let eight = u64::from_le_bytes(*b"12345678");
            let crc = Operation::Crc32 {
                bytes: 8,
                castagnoli,
            };
            let last = Operation::Crc32 {
                bytes: 1,
                castagnoli,
            };
            let checksum = eval(crc, 0xffff_ffff, eight, 0);
            assert_eq!(!eval(last, checksum, u64::from(b'9'), 0) as u32, wanted);
        }
    }

    #[test]
    fn memory_and_the_unknown_have_no_value() {
        assert_eq!(Operation::Unknown.eval(0, 0, 0), None);
        assert_eq!(Operation::Load { size: 8 }.eval(0, 0, 1), None);
        assert_eq!(Operation::Store { size: 8 }.eval(0, 0, 1), None);
    }
}
