//! The encodings of instructions: bit patterns with named fields, one table for each group of an
//! instruction set.
//!
//! What a reader needs to know of an instruction is derived from its row: where it may continue
//! ([`arch::branch`](crate::arch::branch)), what it computes ([`semantics`](crate::semantics)), or
//! which registers it may change. A table is written with `encodings!`; names of fields are those
//! of the manual (Arm ARM DDI 0487).

/// Declares an enum with one variant for each row of a table, and its function `decode`.
///
/// A row lists the parts of an encoding from the highest bit down: text for fixed bits (`0`, `1`,
/// and `x` for any), and `name: width` for a field, which is a `bool` for one bit, a `u8` up to eight
/// bits, and else a `u32`. The first row that matches decides. `by` is the lowest of the eight bits that
/// most rows differ in; only rows that agree with them are compared.
macro_rules! encodings {
    (@type 1) => { bool };
    (@type 2) => { u8 };
    (@type 3) => { u8 };
    (@type 4) => { u8 };
    (@type 5) => { u8 };
    (@type 6) => { u8 };
    (@type 7) => { u8 };
    (@type 8) => { u8 };
    (@type $width:tt) => { u32 };
    (@field 1, $word:expr) => { $word & 1 == 1 };
    (@field $width:tt, $word:expr) => {
        ($word & (u32::MAX >> (32 - $width))) as encodings!(@type $width)
    };
    (
        $(#[$attribute:meta])*
        $visibility:vis enum $table:ident by $low:literal {
            $(
                $(#[$row_attribute:meta])*
                $row:ident {
                    $( $($field:ident : $width:tt)? $($bits:literal)? ),+ $(,)?
                }
            )+
        }
    ) => {
        $(#[$attribute])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[allow(missing_docs, reason = "fields are those of the manual")]
        $visibility enum $table {
            $( $(#[$row_attribute])* $row { $( $($field: encodings!(@type $width),)? )+ }, )+
        }

        impl $table {
            /// Returns the row that an encoding matches, with its fields.
            #[inline(always)]
            #[must_use]
            $visibility fn decode(word: u32) -> Option<Self> {
                use $crate::encoding::pattern::{Index, Part, Pattern};

                #[derive(Clone, Copy)]
                enum Row { $( $row, )+ }
                const ROWS: &[Pattern] = &[
                    $( Pattern::new(&[
                        $( $(Part::Field($width))? $(Part::Bits($bits))? ),+
                    ]), )+
                ];
                static INDEX: Index = Index::new(ROWS, $low);

                let row = INDEX.find(ROWS, word)?;
                $(
                    if row == Row::$row as usize {
                        let mut _rest = 0 $( $(+ $width)? $(+ $bits.len())? )+;
                        $(
                            $(
                                _rest -= $width;
                                let $field = encodings!(@field $width, word >> _rest);
                            )?
                            $( _rest -= $bits.len(); )?
                        )+
                        return Some(Self::$row { $( $($field,)? )+ });
                    }
                )+
                None
            }
        }
    };
}

pub mod a32;
pub mod a64;
mod pattern;
pub mod t32;

/// Returns a field of `bits` bits as a signed number.
#[must_use]
pub const fn signed(field: u32, bits: u32) -> i64 {
    let unused = 32 - bits;
    ((field << unused).cast_signed() >> unused) as i64
}
