//! The operations of relations, on 64-bit values.

/// Width of an operation on general registers; the result is zero-extended.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Width {
    /// 32 bits.
    W32,
    /// 64 bits.
    W64,
}

/// Condition codes of A64, A32 and T32 by their encoding, 0 (EQ) to 13 (LE); 14 and 15 are always.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Condition(pub u8);

/// Lanes of a vector operation on 64 bits: 8, 16, 32 or 64 bits each.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Lanes {
    /// Eight lanes of 8 bits.
    B8,
    /// Four lanes of 16 bits.
    H16,
    /// Two lanes of 32 bits.
    S32,
    /// One lane of 64 bits.
    D64,
}

/// An operation on each lane of `a` and `b`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum LaneOperation {
    /// `a + b`
    Add,
    /// `a - b`
    Subtract,
    /// `a * b`
    Multiply,
    /// All ones where `a == b`.
    Equal,
    /// All ones where `a > b`, signed.
    GreaterSigned,
    /// All ones where `a >= b`, signed.
    GreaterEqualSigned,
    /// All ones where `a > b`, unsigned.
    GreaterUnsigned,
    /// All ones where `a >= b`, unsigned.
    GreaterEqualUnsigned,
    /// All ones where `a & b != 0`.
    Test,
    /// The smaller, signed.
    MinSigned,
    /// The larger, signed.
    MaxSigned,
    /// The smaller, unsigned.
    MinUnsigned,
    /// The larger, unsigned.
    MaxUnsigned,
    /// The number of set bits (of `a`).
    CountOnes,
}

/// What a relation computes from its operands `a`, `b`, `c`.
///
/// Shifts and rotations take amounts modulo the width. `low` and `count` are bit positions and numbers of bits, with
/// `low + count <= 64`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Operation {
    /// `a`, all 64 bits.
    Copy,
    /// `a + b`
    Add(Width),
    /// `a - b`
    Subtract(Width),
    /// `a + b + c`, `c` 0 or 1. (Subtraction with carry: `b` inverted.)
    AddWithCarry(Width),
    /// The carry out of `a + b + c` at the width, 0 or 1.
    CarryOf(Width),
    /// The signed overflow of `a + b + c` at the width, 0 or 1.
    OverflowOf(Width),
    /// The carry out of `a - b` at the width: 1 where nothing is borrowed (`a >= b`, unsigned).
    CarryOfDifference(Width),
    /// The signed overflow of `a - b` at the width, 0 or 1.
    OverflowOfDifference(Width),
    /// `a & b`
    And,
    /// `a | b`
    Or,
    /// `a ^ b`
    Xor,
    /// `!a`, of a width of 32 bits zero-extended.
    Not(Width),
    /// `a << b`
    ShiftLeft(Width),
    /// `a >> b`, unsigned.
    ShiftRight(Width),
    /// `a >> b`, signed.
    ShiftRightSigned(Width),
    /// `a` rotated right by `b`.
    RotateRight(Width),
    /// Bits `low + count - 1 : low` of `a`, zero-extended.
    Extract {
        /// Lowest bit.
        low: u8,
        /// Number of bits, 1 to 64.
        count: u8,
    },
    /// Bits `low + count - 1 : low` of `a`, sign-extended to 64 bits.
    ExtractSigned {
        /// Lowest bit.
        low: u8,
        /// Number of bits, 1 to 64.
        count: u8,
    },
    /// `a` with its bits `low + count - 1 : low` replaced by the lowest `count` bits of `b`.
    Insert {
        /// Lowest bit.
        low: u8,
        /// Number of bits, 1 to 64.
        count: u8,
    },
    /// `a * b`
    Multiply(Width),
    /// Bits 127:64 of the product of signed `a` and `b`.
    MultiplyHighSigned,
    /// Bits 127:64 of the product of unsigned `a` and `b`.
    MultiplyHighUnsigned,
    /// `a / b` unsigned; 0 where `b` is 0.
    DivideUnsigned(Width),
    /// `a / b` signed, towards zero; 0 where `b` is 0.
    DivideSigned(Width),
    /// `a` where `c` is not 0, else `b`.
    Select,
    /// 1 where `a == b`, else 0.
    Equal,
    /// 1 where `a < b` unsigned, else 0.
    LessUnsigned,
    /// 1 where `a < b` signed, else 0.
    LessSigned,
    /// 1 where the condition holds for flags packed in `a` as N:Z:C:V (bits 3:0), else 0.
    Holds(Condition),
    /// Flags packed: `a` (N) << 3 | `b` (Z) << 2 | `c`, where `c` holds C << 1 | V.
    PackFlags,
    /// Leading zeros of `a` at the width.
    CountLeadingZeros(Width),
    /// Bits of `a` in reverse order at the width.
    ReverseBits(Width),
    /// Bytes reversed within each group of 2, 4 or 8 bytes of the 64 bits of `a`.
    ReverseBytes {
        /// 2, 4 or 8.
        group: u8,
    },
    /// The checksum `a` (32 bits) continued over the lowest `bytes` bytes of `b`.
    Crc32 {
        /// 1, 2, 4 or 8.
        bytes: u8,
        /// The polynomial 0x1edc6f41 instead of 0x04c11db7.
        castagnoli: bool,
    },
    /// Lane by lane.
    Lane(LaneOperation, Lanes),
    /// The value at address `a`, `size` bytes (1, 2, 4, 8), little-endian, zero-extended; undefined
    /// where the predicate `c` is 0.
    Load {
        /// 1, 2, 4 or 8 bytes.
        size: u8,
    },
    /// Writes the lowest `size` bytes of `b` to address `a`, little-endian, where the predicate
    /// `c` is not 0. Has no destination.
    Store {
        /// 1, 2, 4 or 8 bytes.
        size: u8,
    },
    /// A value that has no model: anything.
    Unknown,
}
