//! Dumps of CrashCatcher.

use super::zephyr;
use crate::support::gdb::testdata;
use std::fmt::Write as _;
use std::fs;

/// The dump that CrashCatcher would have written of testdata/mps2-m4.
pub fn of_saved_system() -> Vec<u8> {
    // R0 to R3, R12, LR, PC, xPSR, SP, R4 to R11, after the headers.
    let zephyr = zephyr::of_saved_system();
    let words = zephyr[17..]
        .chunks_exact(4)
        .map(|word| word.try_into().unwrap());
    let words: Vec<[u8; 4]> = words.take(17).collect();
    let mut dump = b"\x63\x43\x03\x00\0\0\0\0".to_vec();
    let order = [0, 1, 2, 3, 9, 10, 11, 12, 13, 14, 15, 16, 4, 8, 5, 6, 7];
    dump.extend(order.iter().flat_map(|index: &usize| words[*index]));
    // MSP, PSP and xPSR of the handler.
    dump.extend([0xee; 12]);
    for (file, address, begin) in [
        ("ram.bin", 0x2000_0000_u32, 0),
        ("scs.bin", 0xE000_ED28, 0xd28),
    ] {
        let bytes = fs::read(testdata("mps2-m4").join(file)).unwrap();
        let bytes = match begin {
            0 => &bytes[..],
            _ => &bytes[begin..begin + 20],
        };
        dump.extend(address.to_le_bytes());
        dump.extend((address + bytes.len() as u32).to_le_bytes());
        dump.extend(bytes);
    }
    dump
}

/// The console of the system.
pub fn log(dump: &[u8]) -> String {
    let mut out = "booting\r\n\r\nCRASH ENCOUNTERED\r\n\r\n".to_owned();
    let (begin, rest) = dump.split_at(4);
    for line in [begin].into_iter().chain(rest.chunks(16)) {
        for byte in line {
            let _ = write!(out, "{byte:02X}");
        }
        out.push_str("\r\n");
    }
    out + "\r\nEnd of dump\r\n"
}
