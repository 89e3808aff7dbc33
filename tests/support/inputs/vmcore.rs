//! Core files of whole systems.

const PHYSICAL: u64 = 0x4000_0000;
const SIZE: usize = 4 << 20;

pub fn note(owner: &str, kind: u32, contents: &[u8]) -> Vec<u8> {
    let sizes = [owner.len() as u32 + 1, contents.len() as u32, kind];
    let mut out = sizes.map(u32::to_le_bytes).concat();
    for bytes in [owner.as_bytes(), contents] {
        out.extend(bytes);
        if bytes == owner.as_bytes() {
            out.push(0);
        }
        out.resize(out.len().next_multiple_of(4), 0);
    }
    out
}

/// An ELF core file with notes and one segment of memory.
pub fn file(wide: bool, notes: &[u8], address: u64, memory: &[u8]) -> Vec<u8> {
    let word = |value: u64| value.to_le_bytes()[..if wide { 8 } else { 4 }].to_vec();
    let (size, entry) = if wide { (64_u64, 56_u16) } else { (52, 32) };
    let mut out = b"\x7fELF".to_vec();
    out.extend([if wide { 2 } else { 1 }, 1, 1]);
    out.resize(16, 0);
    out.extend([4, 0, if wide { 183 } else { 40 }, 0, 1, 0, 0, 0]);
    for value in [0, size, 0] {
        out.extend(word(value));
    }
    out.extend([0; 4]);
    for half in [size as u16, entry, 2, 0, 0, 0] {
        out.extend(half.to_le_bytes());
    }
    let begin = size + 2 * u64::from(entry);
    let after = begin + notes.len() as u64;
    for (kind, at, address, physical, length) in [
        (4_u32, begin, 0, 0, notes.len()),
        (1, after, address, PHYSICAL, memory.len()),
    ] {
        out.extend(kind.to_le_bytes());
        if wide {
            out.extend(7_u32.to_le_bytes());
        }
        let length = length as u64;
        for value in [at, address, physical, length, length] {
            out.extend(word(value));
        }
        if !wide {
            out.extend(7_u32.to_le_bytes());
        }
        out.extend(word(0));
    }
    out.extend(notes);
    out.extend(memory);
    out
}

fn put(memory: &mut [u8], at: usize, value: u64, size: usize) {
    memory[at..at + size].copy_from_slice(&value.to_le_bytes()[..size]);
}

/// A 32-bit kernel at `base`: its image, and a page at 0xf0800000.
pub fn kernel32(base: u64, long: bool) -> (Vec<u8>, String) {
    let mut memory = vec![0; SIZE];
    memory[0x10_0000..0x10_000c].copy_from_slice(b"in the image");
    memory[0x38_0000..0x38_000a].copy_from_slice(b"in vmalloc");
    let vmalloc = 0xf080_0000_usize;
    let table = if long { 0x3000 } else { 0x4000 };
    if long {
        for index in 0..4 {
            let next = PHYSICAL + 0x4000 + 0x1000 * index;
            put(&mut memory, table + 8 * index as usize, next | 3, 8);
        }
        for index in 0..2 {
            let at = 0x4000 + 8 * ((base >> 21) as usize + index);
            put(
                &mut memory,
                at,
                (PHYSICAL + ((index as u64) << 21)) | 0x711,
                8,
            );
        }
        put(
            &mut memory,
            0x4000 + 8 * (vmalloc >> 21),
            (PHYSICAL + 0x20_0000) | 3,
            8,
        );
        let at = 0x20_0000 + 8 * (vmalloc >> 12 & 511);
        put(&mut memory, at, (PHYSICAL + 0x38_0000) | 0x713, 8);
    } else {
        for index in 0..4 {
            let at = table + 4 * ((base >> 20) as usize + index);
            put(
                &mut memory,
                at,
                (PHYSICAL + ((index as u64) << 20)) | 0x40e,
                4,
            );
        }
        put(
            &mut memory,
            table + 4 * (vmalloc >> 20),
            (PHYSICAL + 0x20_0000) | 1,
            4,
        );
        put(&mut memory, 0x20_0000, (PHYSICAL + 0x38_0000) | 0x45e, 4);
    }
    let info = format!(
        "OSRELEASE=6.12.0\nPAGESIZE=4096\nSYMBOL(swapper_pg_dir)={:x}\nSYMBOL(_stext)={:x}\n{}",
        base + table as u64,
        base + 0x10_0000,
        if long { "CONFIG_ARM_LPAE=y\n" } else { "" }
    );
    (memory, info)
}

/// A 64-bit kernel with a text at an address: the address, the memory, and VMCOREINFO.
pub fn kernel64() -> (u64, Vec<u8>, String) {
    // 39 bits: three levels.
    let address = 0xffff_ffc0_8000_0000_u64;
    let mut memory = vec![0; SIZE];
    for (table, shift, next) in [(0x1_0000, 30, 0x2_0000), (0x2_0000, 21, 0x3_0000)] {
        let at = table + 8 * (address >> shift & 511) as usize;
        put(&mut memory, at, (PHYSICAL + next) | 3, 8);
    }
    let at = 0x3_0000 + 8 * (address >> 12 & 511) as usize;
    put(&mut memory, at, (PHYSICAL + 0x20_0000) | 0x703, 8);
    memory[0x20_0000..0x20_0009].copy_from_slice(b"mapped ok");
    let offset = 0xffff_8000_8000_0000_u64.wrapping_sub(PHYSICAL);
    let info = format!(
        "OSRELEASE=6.12.0\nPAGESIZE=4096\nSYMBOL(swapper_pg_dir)={:x}\nNUMBER(VA_BITS)=39\n\
         NUMBER(TCR_EL1_T1SZ)=0x19\nNUMBER(kimage_voffset)=0x{offset:x}\n",
        (PHYSICAL + 0x1_0000).wrapping_add(offset)
    );
    (address, memory, info)
}

/// The notes of one CPU, with PC and SP in the kernel.
pub fn status(wide: bool, pc: u64) -> Vec<u8> {
    let mut out = vec![0; if wide { 392 } else { 148 }];
    if wide {
        put(&mut out, 112 + 8 * 31, pc, 8);
        put(&mut out, 112 + 8 * 32, pc, 8);
        put(&mut out, 112 + 8 * 33, 0x6000_03c5, 4);
    } else {
        put(&mut out, 72 + 4 * 13, pc, 4);
        put(&mut out, 72 + 4 * 15, pc, 4);
        put(&mut out, 72 + 4 * 16, 0x6000_0093, 4);
    }
    note("CORE", 1, &out)
}
