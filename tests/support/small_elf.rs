//! A small program for unit tests.

/// A 64-bit ELF file made by hand: one code segment at 0x1000, one data segment at 0x2000.
pub fn small_elf(code: &[u8], data: &[u8]) -> Vec<u8> {
    let mut file = b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0".to_vec();
    let headers = 64 + 2 * 56;
    file.extend(2_u16.to_le_bytes()); // ET_EXEC
    file.extend(183_u16.to_le_bytes()); // EM_AARCH64
    file.extend(1_u32.to_le_bytes());
    for word in [0x1000_u64, 64, 0] {
        file.extend(word.to_le_bytes());
    }
    file.extend(0_u32.to_le_bytes());
    for half in [64_u16, 56, 2, 64, 0, 0] {
        file.extend(half.to_le_bytes());
    }
    for (flags, offset, address, size) in [
        (5_u32, headers, 0x1000_u64, code.len()),
        (6, headers + code.len(), 0x2000, data.len()),
    ] {
        file.extend(1_u32.to_le_bytes());
        file.extend(flags.to_le_bytes());
        for word in [
            offset as u64,
            address,
            address,
            size as u64,
            size as u64 + 16,
            1,
        ] {
            file.extend(word.to_le_bytes());
        }
    }
    file.extend(code);
    file.extend(data);
    file
}
