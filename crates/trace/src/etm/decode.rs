//! Bytes → the fields that packets of ETMv3 and PTM share.

mod address;
mod sync;
mod timestamp;

pub(crate) use address::{AddressBytes, Addresses};
pub(crate) use sync::Synchronisation;
pub(crate) use timestamp::Timestamps;

use crate::element::TraceOnReason;
use armsnap_arch::quantity::Isa;

/// A little-endian value of 0 to 4 bytes.
#[inline]
pub(crate) fn little_endian(bytes: &[u8]) -> u32 {
    bytes
        .iter()
        .rev()
        .fold(0, |value, &byte| value << 8 | u32::from(byte))
}

/// Returns the context ID of `size` bytes at `at`, or `None` if it is not traced, and its end.
#[inline]
pub(crate) fn context_id(bytes: &[u8], at: usize, size: u8) -> Option<(Option<u32>, usize)> {
    if size == 0 {
        return Some((None, at));
    }
    let end = at + usize::from(size);
    Some((Some(little_endian(bytes.get(at..end)?)), end))
}

/// The information byte of an I-sync packet (ARM IHI 0014Q 7.10.5, ARM IHI 0035B 4.5.2).
#[derive(Clone, Copy, Debug)]
pub(crate) struct SyncInformation(pub u8);

impl SyncInformation {
    const fn bit(self, bit: u32) -> bool {
        self.0 >> bit & 1 == 1
    }

    /// ETMv3: a load or store is in progress.
    pub(crate) const fn lsip(self) -> bool {
        self.bit(7)
    }

    /// Why tracing starts; `None`: periodic synchronisation.
    pub(crate) const fn reason(self) -> Option<TraceOnReason> {
        match self.0 >> 5 & 3 {
            0 => None,
            1 => Some(TraceOnReason::BeginOrFilter),
            2 => Some(TraceOnReason::Overflow),
            _ => Some(TraceOnReason::DebugRestart),
        }
    }

    /// ETMv3: Jazelle state.
    pub(crate) const fn jazelle(self) -> bool {
        self.bit(4)
    }

    /// Non-secure state.
    pub(crate) const fn non_secure(self) -> bool {
        self.bit(3)
    }

    /// AltISA: Thumb means ThumbEE.
    pub(crate) const fn alternative(self) -> bool {
        self.bit(2)
    }

    /// Hyp mode.
    pub(crate) const fn hyp(self) -> bool {
        self.bit(1)
    }
}

/// Splits a complete address into the address without T (bit 0) and the instruction set that T selects.
#[inline]
pub(crate) const fn thumb_address(address: u32, alternative: bool) -> (u32, Isa) {
    let isa = match (address & 1 != 0, alternative) {
        (false, _) => Isa::A32,
        (true, false) => Isa::T32,
        (true, true) => Isa::ThumbEe,
    };
    (address & !1, isa)
}
