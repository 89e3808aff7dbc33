//! PTM packets against the reference's listings: every offset and every byte must agree.

use std::io::Read;

use armsnap::etmv3::registers::Registers;
use armsnap::protocol::{Describe, PacketDecoder};
use armsnap::ptm::{Config, Decoder};

const SHARED: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../shared");

/// What the listing and the decoder say of a packet: its offset and bytes.
type Place = (u64, String);

fn expected(snapshot: &str) -> Option<Vec<Place>> {
    let path = format!("{SHARED}/parity/expected/{snapshot}.packets.gz");
    let Ok(file) = std::fs::File::open(path) else {
        println!("SKIPPED: ../shared is not there");
        return None;
    };
    let mut text = String::new();
    flate2::read::GzDecoder::new(file)
        .read_to_string(&mut text)
        .unwrap();
    let place = |line: &str| {
        let mut words = line.split(' ').skip(2);
        let offset = words.next().unwrap().parse().unwrap();
        (offset, words.next().unwrap().to_owned())
    };
    Some(text.lines().map(place).collect())
}

fn decoded(mut decoder: Decoder, bytes: &[u8]) -> Vec<Place> {
    let mut out = Vec::new();
    let mut at = 0;
    let mut place = |at: usize, name: &str, bytes: &[u8]| {
        if name != "not_sync" {
            let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
            out.push((at as u64, hex));
        }
    };
    while let Some((packet, length)) = decoder.next(&bytes[at..]) {
        place(at, packet.name(), &bytes[at..at + length]);
        at += length;
    }
    if at < bytes.len() {
        place(at, decoder.finish(&bytes[at..]).name(), &bytes[at..]);
    }
    out
}

fn compare(snapshot: &str, buffer: &str, registers: Registers) {
    let Some(want) = expected(snapshot) else {
        return;
    };
    let bytes = std::fs::read(format!("{SHARED}/snapshots/{snapshot}/{buffer}")).unwrap();
    let have = decoded(Decoder::new(Config::new(registers)), &bytes);
    for (want, have) in want.iter().zip(&have) {
        assert_eq!(have, want);
    }
    assert_eq!(have.len(), want.len());
    assert!(!want.is_empty());
}

const CORTEX_A15: Registers = Registers {
    etmcr: 0x2000_0400,
    etmccer: 0x34c0_1ac2,
    etmidr: 0x411c_f312,
    etmtraceidr: 2,
};

#[test]
fn packets_of_a_cortex_a15_with_return_stack() {
    compare("tc2-ptm-rstk-t32", "PTM_0_2.bin", CORTEX_A15);
}

#[test]
fn packets_of_a_cortex_a15() {
    compare("trace_cov_a15", "PTM_0_2.bin", CORTEX_A15);
}
