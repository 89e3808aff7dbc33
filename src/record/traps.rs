//! Places at which a Linux program must stop: instructions that trap are put there, as debuggers
//! do. The emulator's own breakpoints would make it crawl through the whole page.

use crate::quantity::Isa;

/// A number that no other debugger uses: `brk #0xa55a`, `bkpt #0xa55a` and `bkpt #0xa5`.
const A64: [u8; 4] = 0xd434_ab40_u32.to_le_bytes();
const A32: [u8; 4] = 0xe12a_557a_u32.to_le_bytes();
const T32: [u8; 2] = 0xbea5_u16.to_le_bytes();

/// The trap of an instruction set.
pub fn trap(isa: Isa) -> &'static [u8] {
    match isa {
        Isa::A64 => &A64,
        Isa::A32 | Isa::Jazelle => &A32,
        Isa::T32 | Isa::ThumbEe => &T32,
    }
}
