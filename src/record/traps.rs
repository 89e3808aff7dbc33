//! Trap instructions that stop a Linux program at an address, as debuggers insert them. The
//! emulator's own breakpoints would slow down all code on the same page.

use armsnap_arch::quantity::Isa;

/// Immediates that no other debugger uses: `brk #0xa55a`, `bkpt #0xa55a` and `bkpt #0xa5`.
const A64: [u8; 4] = 0xd434_ab40_u32.to_le_bytes();
const A32: [u8; 4] = 0xe12a_557a_u32.to_le_bytes();
const T32: [u8; 2] = 0xbea5_u16.to_le_bytes();

/// Returns the trap instruction of an instruction set.
pub fn trap(isa: Isa) -> &'static [u8] {
    match isa {
        Isa::A64 => &A64,
        Isa::A32 | Isa::Jazelle => &A32,
        Isa::T32 | Isa::ThumbEe => &T32,
    }
}
