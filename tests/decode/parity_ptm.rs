//! PTM and ETMv3 compared with the reference's listings: every packet's offset and bytes, and every
//! element after the flow.

use crate::support::flow::{
    CORTEX_A15, Canonical, SHARED, code, deformatted, expected, tc2, tc2_source,
};
use armsnap::formatter::Demux;
use armsnap::protocol::{Core, Describe, PacketDecoder};
use armsnap::quantity::{BufferOffset, TraceId};
use armsnap::{etmv3, ptm};

fn agree(want: &[String], have: &[String]) {
    for (i, (want, have)) in want.iter().zip(have).enumerate() {
        assert_eq!(have, want, "line {i}");
    }
    assert_eq!(have.len(), want.len());
    assert!(!want.is_empty());
}

fn line(at: u64, name: &str, bytes: &[u8], out: &mut Vec<String>) {
    if name != "not_sync" {
        let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        out.push(format!("packet {at} {hex}"));
    }
}

fn packets(mut decoder: impl PacketDecoder, demux: &mut Demux, id: u8) -> Vec<String> {
    let mut have = Vec::new();
    let stream = demux.stream_mut(TraceId(id));
    stream.packets(&mut decoder, true, |at, packet, bytes| {
        line(at.0, packet.name(), bytes, &mut have);
    });
    have
}

fn cortex_a15(snapshot: &str) {
    let Some(want) = expected(&format!("{snapshot}.packets")) else {
        return;
    };
    let path = format!("{SHARED}/snapshots/{snapshot}/PTM_0_2.bin");
    let bytes = std::fs::read(path).unwrap();
    let mut decoder = ptm::Decoder::new(&ptm::Config::read(&CORTEX_A15, Core::default()));
    let mut have = Vec::new();
    let mut at = 0;
    while let Some((packet, length)) = decoder.next(&bytes[at..]) {
        let place = BufferOffset(at as u64);
        line(place.0, packet.name(), &bytes[at..at + length], &mut have);
        at += length;
    }
    if at < bytes.len() {
        let packet = decoder.finish(&bytes[at..]);
        line(at as u64, packet.name(), &bytes[at..], &mut have);
    }
    agree(&want[&0], &have);

    let want = expected(&format!("{snapshot}.elements")).unwrap();
    let have = crate::support::flow::ptm(CORTEX_A15, &bytes, code(snapshot), Canonical::default());
    agree(&want[&2], &have.lines);
}

#[test]
fn a_cortex_a15_with_return_stack() {
    cortex_a15("tc2-ptm-rstk-t32");
}

#[test]
fn a_cortex_a15() {
    cortex_a15("trace_cov_a15");
}

#[test]
fn three_cortex_a7_and_two_cortex_a15_in_frames() {
    let Some(want) = expected("TC2.packets") else {
        return;
    };
    assert_eq!(want.len(), 4, "IDs 0x10 to 0x13");
    let demux = deformatted("TC2", "cstrace.bin");
    for (&id, want) in &want {
        let have = if id < 0x13 {
            let decoder = etmv3::Decoder::new(&etmv3::Config::read(&tc2(id), Core::default()));
            packets(decoder, &mut demux.clone(), id)
        } else {
            let decoder = ptm::Decoder::new(&ptm::Config::read(&tc2(id), Core::default()));
            packets(decoder, &mut demux.clone(), id)
        };
        println!("{id:#x}: {} packets", want.len());
        agree(want, &have);
    }
    for (&id, want) in &expected("TC2.elements").unwrap() {
        let have = tc2_source(&demux, id, code("TC2"), Canonical::default());
        println!("{id:#x}: {} elements", want.len());
        agree(want, &have.lines);
    }
}
