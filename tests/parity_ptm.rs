//! PTM and ETMv3 packets against the reference's listings: every offset and every byte must
//! agree.

use std::collections::BTreeMap;
use std::io::Read;

use armsnap::etmv3::registers::Registers;
use armsnap::formatter::{Deformatter, Demux, FrameKind};
use armsnap::protocol::{Describe, PacketDecoder};
use armsnap::quantity::{BufferOffset, TraceId};
use armsnap::{etmv3, ptm};

const SHARED: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../shared");

/// The offset and bytes of packets.
type Places = Vec<(u64, String)>;

fn expected(snapshot: &str) -> Option<BTreeMap<u8, Places>> {
    let path = format!("{SHARED}/parity/expected/{snapshot}.packets.gz");
    let Ok(file) = std::fs::File::open(path) else {
        println!("SKIPPED: ../shared is not there");
        return None;
    };
    let mut text = String::new();
    flate2::read::GzDecoder::new(file)
        .read_to_string(&mut text)
        .unwrap();
    let mut all: BTreeMap<u8, Places> = BTreeMap::new();
    for line in text.lines() {
        let words: Vec<&str> = line.split(' ').collect();
        let id = u8::from_str_radix(words[0], 16).unwrap();
        let place = (words[2].parse().unwrap(), words[3].to_owned());
        all.entry(id).or_default().push(place);
    }
    Some(all)
}

fn place(at: u64, name: &str, bytes: &[u8], out: &mut Places) {
    if name != "not_sync" {
        let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        out.push((at, hex));
    }
}

fn unformatted(mut decoder: impl PacketDecoder, bytes: &[u8]) -> Places {
    let mut out = Vec::new();
    let mut at = 0;
    while let Some((packet, length)) = decoder.next(&bytes[at..]) {
        place(at as u64, packet.name(), &bytes[at..at + length], &mut out);
        at += length;
    }
    if at < bytes.len() {
        let packet = decoder.finish(&bytes[at..]);
        place(at as u64, packet.name(), &bytes[at..], &mut out);
    }
    out
}

fn agree(want: &Places, have: &Places) {
    for (want, have) in want.iter().zip(have) {
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

fn cortex_a15(snapshot: &str) {
    let Some(want) = expected(snapshot) else {
        return;
    };
    let path = format!("{SHARED}/snapshots/{snapshot}/PTM_0_2.bin");
    let bytes = std::fs::read(path).unwrap();
    let decoder = ptm::Decoder::new(ptm::Config::new(CORTEX_A15));
    agree(&want[&0], &unformatted(decoder, &bytes));
}

#[test]
fn packets_of_a_cortex_a15_with_return_stack() {
    cortex_a15("tc2-ptm-rstk-t32");
}

#[test]
fn packets_of_a_cortex_a15() {
    cortex_a15("trace_cov_a15");
}

#[test]
fn packets_of_three_cortex_a7_and_two_cortex_a15_in_frames() {
    let Some(want) = expected("TC2") else {
        return;
    };
    let bytes = std::fs::read(format!("{SHARED}/snapshots/TC2/cstrace.bin")).unwrap();
    let mut demux = Demux::new();
    Deformatter::new(FrameKind::Memory).feed(BufferOffset(0), &bytes, true, &mut demux);
    for (&id, want) in &want {
        let mut have = Vec::new();
        let stream = demux.stream_mut(TraceId(id));
        let registers = Registers {
            etmtraceidr: id.into(),
            ..CORTEX_A15
        };
        if id < 0x13 {
            let config = etmv3::Config::new(
                Registers {
                    etmcr: 0x1000_1860,
                    etmccer: 0x3440_08f2,
                    etmidr: 0x410c_f250,
                    ..registers
                },
                etmv3::Profile::ApplicationOrRealTime,
            );
            let mut decoder = etmv3::Decoder::new(config);
            stream.packets(&mut decoder, true, |at, packet, bytes| {
                place(at.0, packet.name(), bytes, &mut have);
            });
        } else {
            let etmcr = 0x1000_1000;
            let config = ptm::Config::new(Registers { etmcr, ..registers });
            let mut decoder = ptm::Decoder::new(config);
            stream.packets(&mut decoder, true, |at, packet, bytes| {
                place(at.0, packet.name(), bytes, &mut have);
            });
        }
        println!("{id:#x}: {} packets", want.len());
        agree(want, &have);
    }
    assert_eq!(want.len(), 4, "IDs 0x10 to 0x13");
}
