//! The operations of relations, on 64-bit values.

/// Width of an operation on general registers; the result is zero-extended.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Width {
    /// 32 bits.
    W32,
    /// 64 bits.
    W64,
}

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
    /// The difference of the larger and the smaller, signed.
    DistanceSigned,
    /// The difference of the larger and the smaller, unsigned.
    DistanceUnsigned,
    /// `a + b`, limited to the range of a signed lane.
    AddSaturatingSigned,
    /// `a + b`, limited to the range of an unsigned lane.
    AddSaturatingUnsigned,
    /// `a - b`, limited to the range of a signed lane.
    SubtractSaturatingSigned,
    /// `a - b`, at least 0.
    SubtractSaturatingUnsigned,
    /// `a` shifted by the lowest byte of `b`, a signed number: left if positive, right if negative.
    Shift,
    /// Like `Shift`, but right shifts move in copies of the sign.
    ShiftSigned,
    /// The number of set bits of `a`.
    CountOnes,
    /// Leading zeros of `a`.
    CountLeadingZeros,
    /// Bits of `a` in reverse order.
    ReverseBits,
}

/// The floating-point numbers in the operands of an operation.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum FloatShape {
    /// One single-precision number in bits 31:0; the result is zero-extended.
    Single,
    /// Two single-precision numbers.
    Singles,
    /// One double-precision number.
    Double,
}

/// How a number is rounded to an integer.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Rounding {
    /// To the nearest; ties to the even one.
    TiesToEven,
    /// To the nearest; ties to the one farther from zero.
    TiesAway,
    /// Up.
    Up,
    /// Down.
    Down,
    /// Towards zero.
    Zero,
}

/// An operation on floating-point numbers, according to IEEE 754, rounding to nearest even.
///
/// The third operand of all but [`FloatOperation::FusedMultiplyAdd`] is FPCR (in AArch32 the
/// control bits of FPSCR): a result is known only if they select that rounding and nothing else. A
/// NaN result is never known, because its bits depend on more than the operands.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum FloatOperation {
    /// `a + b`
    Add,
    /// `a - b`
    Subtract,
    /// `a * b`
    Multiply,
    /// `a / b`
    Divide,
    /// The square root of `a`.
    SquareRoot,
    /// The smaller; -0 is below +0.
    Minimum,
    /// The larger; -0 is below +0.
    Maximum,
    /// `a * b + c`, rounded once. Its relation is followed by one with [`FloatOperation::Checked`].
    FusedMultiplyAdd,
    /// `a`, if the third operand selects neither another rounding mode nor flushing of subnormal
    /// numbers.
    Checked,
    /// `a` rounded to a number without a fraction.
    Round(Rounding),
    /// `a` converted from single to double precision; the shape is `Double`.
    Widen,
    /// `a` converted from double to single precision; the shape is `Single`.
    Narrow,
    /// The signed 64-bit integer `a`; for shape `Singles` two of 32 bits.
    FromSigned,
    /// The unsigned 64-bit integer `a`; for shape `Singles` two of 32 bits.
    FromUnsigned,
    /// `a` as a signed integer of the width, saturated; NaNs give 0.
    ToSigned(Rounding, Width),
    /// `a` as an unsigned integer of the width, saturated; NaNs give 0.
    ToUnsigned(Rounding, Width),
    /// All ones where `a == b`.
    Equal,
    /// All ones where `a >= b`.
    GreaterEqual,
    /// All ones where `a > b`.
    Greater,
    /// The flags of comparing `a` with `b`, N:Z:C:V in bits 3:0.
    Flags,
}

/// A step of AES (FIPS 197), on the low half of its state, `a`, and the high one, `b`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum AesStep {
    /// ShiftRows and SubBytes.
    Encrypt {
        /// Whether the result is the high half.
        high: bool,
    },
    /// InvShiftRows and InvSubBytes.
    Decrypt {
        /// Whether the result is the high half.
        high: bool,
    },
    /// MixColumns of the half `a`.
    Mix,
    /// InvMixColumns of the half `a`.
    Unmix,
}

/// What a relation computes from its operands `a`, `b`, `c`.
///
/// Shifts and rotations take amounts modulo the width. `low` and `count` are a bit position and a
/// number of bits, with `low + count <= 64`.
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
    /// The carry out of `a - b` at the width: 1 if nothing is borrowed (`a >= b`, unsigned).
    CarryOfDifference(Width),
    /// The signed overflow of `a - b` at the width, 0 or 1.
    OverflowOfDifference(Width),
    /// `a & b`
    And,
    /// `a | b`
    Or,
    /// `a ^ b`
    Xor,
    /// `!a` at the width, zero-extended.
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
    /// `a / b` unsigned; 0 if `b` is 0.
    DivideUnsigned(Width),
    /// `a / b` signed, rounded towards zero; 0 if `b` is 0.
    DivideSigned(Width),
    /// `a` if `c` is not 0, else `b`.
    Select,
    /// 1 if `a == b`, else 0.
    Equal,
    /// 1 if `a < b` unsigned, else 0.
    LessUnsigned,
    /// 1 if `a < b` signed, else 0.
    LessSigned,
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
    /// A step of AES.
    Aes(AesStep),
    /// An operation on each lane.
    Lane(LaneOperation, Lanes),
    /// The bits of `a` where those of `c` are set, else those of `b`.
    SelectBits,
    /// Bytes of the 16 bytes `b:a`: bits `4i + 3 : 4i` of `c` are the index of byte `i` of the result.
    ShuffleBytes,
    /// Bytes of the 16 bytes `b:a`: byte `i` of `c` is the index of byte `i` of the result, which is 0 if
    /// the index is above 15.
    LookUpBytes,
    /// An operation on floating-point numbers.
    Float(FloatOperation, FloatShape),
    /// The `size` bytes (1, 2, 4, 8) at address `a`, little-endian, zero-extended; undefined if the
    /// predicate `c` is 0.
    Load {
        /// 1, 2, 4 or 8 bytes.
        size: u8,
    },
    /// Writes the lowest `size` bytes of `b` to address `a`, little-endian, if the predicate `c` is
    /// not 0. Has no destination.
    Store {
        /// 1, 2, 4 or 8 bytes.
        size: u8,
    },
    /// Any value: the result is not modelled.
    Unknown,
}
