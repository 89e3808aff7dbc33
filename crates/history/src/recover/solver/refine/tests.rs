//! Whichever part of random values is known, what [`refine`] adds is true.

use super::*;
use proptest::prelude::*;

fn operations() -> Vec<Operation> {
    use Operation::*;
    let mut all = vec![
        Copy,
        And,
        Or,
        Xor,
        MultiplyHighSigned,
        MultiplyHighUnsigned,
        Select,
        Equal,
        LessUnsigned,
        LessSigned,
    ];
    for w in [Width::W32, Width::W64] {
        all.extend([
            Add(w),
            Subtract(w),
            AddWithCarry(w),
            CarryOf(w),
            OverflowOf(w),
            CarryOfDifference(w),
            OverflowOfDifference(w),
            Not(w),
            ShiftLeft(w),
            ShiftRight(w),
            ShiftRightSigned(w),
            RotateRight(w),
            Multiply(w),
            DivideUnsigned(w),
            DivideSigned(w),
            CountLeadingZeros(w),
            ReverseBits(w),
        ]);
    }
    for (low, count) in [(0, 64), (0, 1), (63, 1), (3, 17), (8, 32), (0, 32)] {
        all.extend([
            Extract { low, count },
            ExtractSigned { low, count },
            Insert { low, count },
        ]);
    }
    all.extend([2, 4, 8].map(|group| ReverseBytes { group }));
    for lanes in [Lanes::B8, Lanes::H16, Lanes::S32, Lanes::D64] {
        for operation in [
            LaneOperation::Add,
            LaneOperation::Subtract,
            LaneOperation::Equal,
            LaneOperation::CountOnes,
            LaneOperation::GreaterSigned,
        ] {
            all.push(Lane(operation, lanes));
        }
    }
    all
}

/// Typical values of programs: small ones, negative ones, and any.
fn value() -> impl Strategy<Value = u64> {
    prop_oneof![
        0..4_u64,
        any::<u64>(),
        (0..100_u64).prop_map(u64::wrapping_neg),
        any::<u32>().prop_map(u64::from)
    ]
}

fn mask() -> impl Strategy<Value = u64> {
    prop_oneof![
        Just(0),
        Just(!0),
        any::<u64>(),
        Just(0xffff_ffff),
        Just(!0 << 1)
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4000))]
    /// Whichever part of the true values is known, what is added is true, and nothing conflicts.
    #[test]
    fn what_is_added_is_true(
        number in 0..operations().len(),
        (a, b, c) in (value(), value(), value()),
        (ma, mb, mc, md) in (mask(), mask(), mask(), mask()),
    ) {
        let operation = operations()[number];
        let (a, b, c) = match operation {
            // Operands as in instructions.
            Operation::AddWithCarry(_) | Operation::CarryOf(_) | Operation::OverflowOf(_) => (a, b, c & 1),
            _ => (a, b, c),
        };
        let Some(d) = operation.eval(a, b, c) else { return Ok(()) };
        let mut values = Values {
            d: Bits::new(md, d),
            a: Bits::new(ma, a),
            b: Bits::new(mb, b),
            c: Bits::new(mc, c),
        };
        for _ in 0..3 {
            prop_assert_eq!(refine(operation, &mut values), Ok(()), "{:?} {:x} {:x} {:x}", operation, a, b, c);
            for (bits, real) in [(values.d, d), (values.a, a), (values.b, b), (values.c, c)] {
                prop_assert_eq!(bits.value, real & bits.mask, "{:?} {:x} {:x} {:x}", operation, a, b, c);
            }
        }
        if [ma, mb, mc] == [!0; 3] {
            prop_assert_eq!(values.d, Bits::known(d), "{:?}", operation);
        }
    }
}
