//! The parts that packets of ETMv3 and PTM share.

use crate::element::TraceOnReason;
use crate::protocol::Field;
use armsnap_arch::quantity::Isa;

/// An address and the number of its bits in the packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PartAddress {
    /// The complete address.
    pub value: u32,
    /// The number of low bits in the packet, 6 to 32.
    pub bits: u8,
    /// The instruction set at the address.
    pub isa: Isa,
}

/// The packets of a protocol that concern synchronisation.
pub(crate) trait SyncPacket {
    const NOT_SYNC: Self;
    const A_SYNC: Self;
    const RESERVED: Self;
    const BAD_SEQUENCE: Self;
    const INCOMPLETE: Self;
}

/// The name of an exception of ARMv7-A (ARM IHI 0014Q 7.3.5, ARM IHI 0035B 4.5.4, both on exception
/// information); number 5 differs between them.
pub(crate) const fn exception_name(number: u16, five: &'static str) -> &'static str {
    match number {
        0 => "None",
        1 => "Debug halt",
        2 => "SMC",
        3 => "Hyp",
        4 => "Asynchronous data abort",
        5 => five,
        8 => "Reset",
        9 => "Undefined",
        10 => "SVC",
        11 => "Prefetch abort",
        12 => "Synchronous data abort",
        13 => "Generic",
        14 => "IRQ",
        15 => "FIQ",
        _ => "Reserved",
    }
}

impl PartAddress {
    /// The fields for a listing.
    pub(crate) fn fields(&self, each: &mut dyn FnMut(&'static str, Field)) {
        each("address", Field::Hex(self.value.into()));
        each("address_bits", Field::Count(self.bits.into()));
        each("isa", Field::Name(self.isa.name()));
    }
}

/// The fields of an I-sync after its address.
pub(crate) fn i_sync_fields(
    reason: Option<TraceOnReason>,
    non_secure: bool,
    hyp: bool,
    context_id: Option<u32>,
    cycles: Option<u32>,
    each: &mut dyn FnMut(&'static str, Field),
) {
    let reason = reason.map_or("periodic", TraceOnReason::name);
    each("reason", Field::Name(reason));
    each("non_secure", Field::Flag(non_secure));
    each("hyp", Field::Flag(hyp));
    if let Some(id) = context_id {
        each("context_id", Field::Hex(id.into()));
    }
    cycles_field(cycles, each);
}

/// The field of a cycle count, if there is one.
pub(crate) fn cycles_field(cycles: Option<u32>, each: &mut dyn FnMut(&'static str, Field)) {
    if let Some(cycles) = cycles {
        each("cycles", Field::Count(cycles.into()));
    }
}
