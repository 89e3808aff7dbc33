//! Data processing of vectors and floating point (C4.1, "Data Processing -- Scalar Floating-Point
//! and Advanced SIMD").

use super::word::Word;
use crate::semantics::Location;
use crate::semantics::builder::Builder;

pub(super) fn decode(builder: &mut Builder, word: Word) -> Option<()> {
    if word.bit(31) {
        return None;
    }
    // Every instruction of this group that has no general register as destination writes one vector.
    builder.unknown(Location::vector(word.d(), 0));
    builder.unknown(Location::vector(word.d(), 1));
    if word.bit(28) {
        if word.d() < 31 {
            builder.unknown(Location::general(word.d()));
        }
        builder.unknown_flags();
    }
    Some(())
}
