//! Floating-point arithmetic, computed by the host, which also follows IEEE 754.

use super::operation::{FloatOperation, FloatShape, Rounding, Width};

/// The result, if it is known. See [`FloatOperation`].
pub(super) fn eval(
    operation: FloatOperation,
    shape: FloatShape,
    a: u64,
    b: u64,
    c: u64,
) -> Option<u64> {
    let control = if operation == FloatOperation::FusedMultiplyAdd {
        Control::DEFAULT
    } else {
        Control::of(c)?
    };
    match (operation, shape) {
        (FloatOperation::Widen, _) => {
            let number = single(a);
            control.allows_single(number)?;
            known(f64::from(number)).map(f64::to_bits)
        }
        (FloatOperation::Narrow, _) => {
            let number = double(a);
            control.allows_double(number)?;
            let narrow = number as f32;
            control.allows_single(narrow)?;
            known_single(narrow).map(|narrow| u64::from(narrow.to_bits()))
        }
        (FloatOperation::FromSigned, FloatShape::Single) => {
            Some(u64::from((a.cast_signed() as f32).to_bits()))
        }
        (FloatOperation::FromUnsigned, FloatShape::Single) => Some(u64::from((a as f32).to_bits())),
        (_, FloatShape::Single) => on_singles(operation, control, a as u32, b as u32, c as u32),
        (_, FloatShape::Double) => on_doubles(operation, control, a, b, c),
        (_, FloatShape::Singles) => {
            let low = on_singles(operation, control, a as u32, b as u32, c as u32)?;
            let high = |value: u64| (value >> 32) as u32;
            let high = on_singles(operation, control, high(a), high(b), high(c))?;
            Some(high << 32 | low)
        }
    }
}

/// The settings of FPCR (DDI 0487, C5.2, FPCR). Results are known only with rounding to nearest and
/// without alternate handling, and, if subnormal numbers are flushed, only if none occur.
#[derive(Clone, Copy)]
struct Control {
    flushes: bool,
}

impl Control {
    const DEFAULT: Self = Self { flushes: false };

    fn of(fpcr: u64) -> Option<Self> {
        const ROUNDING: u64 = 3 << 22;
        const FLUSH: u64 = 1 << 24;
        const ALTERNATE: u64 = 7;
        // In AArch32, the length and stride of short vectors.
        const LENGTH_AND_STRIDE: u64 = 0x0037_0000;
        (fpcr & (ROUNDING | ALTERNATE | LENGTH_AND_STRIDE) == 0).then_some(Self {
            flushes: fpcr & FLUSH != 0,
        })
    }

    fn allows_double(self, number: f64) -> Option<()> {
        // A result is flushed if it is subnormal before rounding, which may give the smallest normal
        // number.
        let tiny = number != 0.0 && number.abs() <= f64::MIN_POSITIVE;
        (!self.flushes || !tiny).then_some(())
    }

    fn allows_single(self, number: f32) -> Option<()> {
        let tiny = number != 0.0 && number.abs() <= f32::MIN_POSITIVE;
        (!self.flushes || !tiny).then_some(())
    }
}

fn single(bits: u64) -> f32 {
    f32::from_bits(bits as u32)
}

fn double(bits: u64) -> f64 {
    f64::from_bits(bits)
}

fn known(number: f64) -> Option<f64> {
    (!number.is_nan()).then_some(number)
}

fn known_single(number: f32) -> Option<f32> {
    (!number.is_nan()).then_some(number)
}

/// The operations of one precision; `$bits` is the type that holds the bits of a number.
macro_rules! on_numbers {
    ($name:ident, $float:ty, $bits:ty, $allows:ident) => {
        fn $name(
            operation: FloatOperation,
            control: Control,
            a_bits: $bits,
            b_bits: $bits,
            c_bits: $bits,
        ) -> Option<u64> {
            let (a, b) = (<$float>::from_bits(a_bits), <$float>::from_bits(b_bits));
            let all_if = |holds: bool| u64::from(if holds { <$bits>::MAX } else { 0 });
            if !matches!(
                operation,
                FloatOperation::FromSigned | FloatOperation::FromUnsigned
            ) {
                control.$allows(a)?;
                control.$allows(b)?;
            }
            let number = match operation {
                FloatOperation::Add => a + b,
                FloatOperation::Subtract => a - b,
                FloatOperation::Multiply => a * b,
                FloatOperation::Divide => a / b,
                FloatOperation::SquareRoot => a.sqrt(),
                FloatOperation::Minimum | FloatOperation::Maximum if a.is_nan() || b.is_nan() => {
                    return None;
                }
                // If both are zeros, the sign decides.
                FloatOperation::Minimum if a == b => <$float>::from_bits(a_bits | b_bits),
                FloatOperation::Maximum if a == b => <$float>::from_bits(a_bits & b_bits),
                FloatOperation::Minimum => a.min(b),
                FloatOperation::Maximum => a.max(b),
                FloatOperation::FusedMultiplyAdd => a.mul_add(b, <$float>::from_bits(c_bits)),
                // The sum that is checked may have been flushed.
                FloatOperation::Checked if control.flushes => return None,
                FloatOperation::Checked => a,
                FloatOperation::Round(rounding) => match rounding {
                    Rounding::TiesToEven => a.round_ties_even(),
                    Rounding::TiesAway => a.round(),
                    Rounding::Up => a.ceil(),
                    Rounding::Down => a.floor(),
                    Rounding::Zero => a.trunc(),
                },
                FloatOperation::FromSigned => a_bits.cast_signed() as $float,
                FloatOperation::FromUnsigned => a_bits as $float,
                FloatOperation::ToSigned(rounding, width) => {
                    let number = f64::from(a);
                    return Some(to_signed(rounding, width, number));
                }
                FloatOperation::ToUnsigned(rounding, width) => {
                    let number = f64::from(a);
                    return Some(to_unsigned(rounding, width, number));
                }
                FloatOperation::Equal => return Some(all_if(a == b)),
                FloatOperation::GreaterEqual => return Some(all_if(a >= b)),
                FloatOperation::Greater => return Some(all_if(a > b)),
                FloatOperation::Flags => {
                    return Some(match a.partial_cmp(&b) {
                        Some(std::cmp::Ordering::Less) => 0b1000,
                        Some(std::cmp::Ordering::Equal) => 0b0110,
                        Some(std::cmp::Ordering::Greater) => 0b0010,
                        None => 0b0011,
                    });
                }
                FloatOperation::Widen | FloatOperation::Narrow => return None,
            };
            control.$allows(number)?;
            (!number.is_nan()).then(|| u64::from(number.to_bits()))
        }
    };
}

on_numbers!(on_singles, f32, u32, allows_single);
on_numbers!(on_doubles, f64, u64, allows_double);

fn rounded(rounding: Rounding, number: f64) -> f64 {
    match rounding {
        Rounding::TiesToEven => number.round_ties_even(),
        Rounding::TiesAway => number.round(),
        Rounding::Up => number.ceil(),
        Rounding::Down => number.floor(),
        Rounding::Zero => number.trunc(),
    }
}

// Conversions in Rust saturate as these do, and also turn NaN into 0.

fn to_signed(rounding: Rounding, width: Width, number: f64) -> u64 {
    let number = rounded(rounding, number);
    match width {
        Width::W32 => u64::from((number as i32).cast_unsigned()),
        Width::W64 => (number as i64).cast_unsigned(),
    }
}

fn to_unsigned(rounding: Rounding, width: Width, number: f64) -> u64 {
    let number = rounded(rounding, number);
    match width {
        Width::W32 => u64::from(number as u32),
        Width::W64 => number as u64,
    }
}

/// The double-precision number of an immediate, by its bits (DDI 0487, J1, `VFPExpandImm`): a sign, 3
/// bits of exponent, 4 of fraction.
pub(super) const fn immediate_double(byte: u64) -> u64 {
    let exponent = if byte & 0x40 == 0 { 0x400 } else { 0x3fc };
    byte >> 7 << 63 | (exponent | byte >> 4 & 3) << 52 | (byte & 15) << 48
}

/// The single-precision number of an immediate, by its bits.
pub(super) const fn immediate_single(byte: u64) -> u32 {
    let exponent = if byte & 0x40 == 0 { 0x80 } else { 0x7c };
    (byte >> 7 << 31 | (exponent | byte >> 4 & 3) << 23 | (byte & 15) << 19) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    fn doubles(operation: FloatOperation, a: f64, b: f64, c: u64) -> Option<f64> {
        eval(operation, FloatShape::Double, a.to_bits(), b.to_bits(), c).map(f64::from_bits)
    }

    #[test]
    fn nans_are_not_known() {
        assert_eq!(doubles(FloatOperation::Divide, 0.0, 0.0, 0), None);
        assert_eq!(doubles(FloatOperation::Add, f64::NAN, 1.0, 0), None);
        assert_eq!(
            doubles(FloatOperation::Divide, 1.0, 0.0, 0),
            Some(f64::INFINITY)
        );
    }

    #[test]
    fn another_rounding_or_flushing_makes_results_unknown() {
        assert_eq!(doubles(FloatOperation::Add, 1.0, 2.0, 0), Some(3.0));
        assert_eq!(
            doubles(FloatOperation::Add, 1.0, 2.0, 1 << 22),
            None,
            "rounding up"
        );
        let flush = 1 << 24;
        assert_eq!(doubles(FloatOperation::Add, 1.0, 2.0, flush), Some(3.0));
        assert_eq!(doubles(FloatOperation::Add, 1e-310, 2.0, flush), None);
        assert_eq!(
            doubles(FloatOperation::Multiply, 1e-200, 1e-120, flush),
            None
        );
        assert_eq!(doubles(FloatOperation::Checked, 1.0, 0.0, flush), None);
        assert_eq!(doubles(FloatOperation::Checked, 1.0, 0.0, 0), Some(1.0));
    }

    #[test]
    fn of_two_zeros_the_sign_decides() {
        let minimum = doubles(FloatOperation::Minimum, 0.0, -0.0, 0).unwrap();
        let maximum = doubles(FloatOperation::Maximum, -0.0, 0.0, 0).unwrap();
        assert!(minimum.is_sign_negative() && maximum.is_sign_positive());
    }

    #[test]
    fn conversions_to_integers_saturate() {
        let to = |operation, number: f64| {
            eval(operation, FloatShape::Double, number.to_bits(), 0, 0).unwrap()
        };
        let signed = FloatOperation::ToSigned(Rounding::Zero, Width::W32);
        let unsigned = FloatOperation::ToUnsigned(Rounding::Zero, Width::W64);
        assert_eq!(to(signed, -1e300), 0x8000_0000);
        assert_eq!(to(signed, f64::NAN), 0);
        assert_eq!(to(unsigned, -1.0), 0);
        assert_eq!(to(unsigned, 1e300), u64::MAX);
        let even = FloatOperation::ToSigned(Rounding::TiesToEven, Width::W64);
        let away = FloatOperation::ToSigned(Rounding::TiesAway, Width::W64);
        assert_eq!((to(even, 2.5), to(away, 2.5)), (2, 3));
    }

    #[test]
    fn immediates() {
        assert_eq!(f64::from_bits(immediate_double(0x70)), 1.0);
        assert_eq!(f64::from_bits(immediate_double(0x00)), 2.0);
        assert_eq!(f64::from_bits(immediate_double(0xff)), -1.9375);
        assert_eq!(f32::from_bits(immediate_single(0x70)), 1.0);
        assert_eq!(f32::from_bits(immediate_single(0x3f)), 31.0);
    }
}
