//! How handlers of signals return to Linux: by a system call, in code that the kernel or the C
//! library provides.

use armsnap_arch::quantity::Isa;

/// Whether code starts with the instruction that selects `rt_sigreturn` (for AArch32 also
/// `sigreturn`) and the system call.
pub(super) fn is_call(isa: Isa, code: &[u8]) -> bool {
    let starts_with = |selects: &[u8], calls: &[u8]| {
        code.strip_prefix(selects)
            .is_some_and(|rest| rest.starts_with(calls))
    };
    match isa {
        // mov x8, #139; svc #0
        Isa::A64 => starts_with(&[0x68, 0x11, 0x80, 0xd2], &[0x01, 0x00, 0x00, 0xd4]),
        // mov r7, #173 or #119; svc #0
        Isa::A32 => [0xad, 0x77]
            .iter()
            .any(|&call| starts_with(&[call, 0x70, 0xa0, 0xe3], &[0x00, 0x00, 0x00, 0xef])),
        // movs r7, #173 or #119; svc #0
        Isa::T32 => [0xad, 0x77]
            .iter()
            .any(|&call| starts_with(&[call, 0x27], &[0x00, 0xdf])),
        _ => false,
    }
}
