//! STM and ITM of real captures compared with the expected listings, packet by packet.

use crate::support::stream::{assert_parity, deformat, list, list_raw, shared};
use armsnap::formatter::FrameKind;
use armsnap::protocol::Core;
use armsnap::quantity::TraceId;
use armsnap::{itm, stm};

const STM: TraceId = TraceId(0x20);

/// `tail` names the packets at the end that the reference does not reach.
fn stm_capture(snapshot: &str, file: &str, tail: &[&str]) {
    let Some(shared) = shared() else { return };
    let bytes = std::fs::read(shared.join("snapshots").join(snapshot).join(file)).expect("capture");
    for piece in [bytes.len(), 1000, 7] {
        let mut demux = deformat(FrameKind::Memory, &bytes, piece);
        let config = stm::Config::read(&stm::Registers::default(), Core::default());
        let (packets, elements) = (stm::Decoder::new(&config), stm::Elements::new(&config));
        let mut listed = list(&mut demux, STM, packets, elements);
        let end = listed.split_off(listed.len() - tail.len());
        assert_eq!(
            end.iter().map(|packet| packet.name).collect::<Vec<_>>(),
            tail
        );
        assert_parity(&listed, &shared, snapshot, STM.0);
    }
}

#[test]
fn stm_only() {
    stm_capture("stm_only", "cstraceitm.bin", &[]);
}

// From byte 480 on, the buffer has older data, with a few bytes of the STM's ID at 896. The
// reference stops before them with an error of its own.
#[test]
fn juno_r1_1() {
    stm_capture("juno_r1_1", "cstraceitm.bin", &["incomplete"]);
}

#[test]
fn itm_only_raw() {
    let Some(shared) = shared() else { return };
    let path = shared.join("snapshots/itm_only_raw/itm_testdata.bin");
    let bytes = std::fs::read(path).expect("capture");
    let config = itm::Config::read(&itm::Registers::default(), Core::default());
    let mut listed = list_raw(
        &bytes,
        itm::Decoder::new(&config),
        itm::Elements::new(&config),
    );
    // The reference shows the last byte of these packets without the flags wrapped (0x40) and
    // clock changed (0x20), which the file contains.
    let mut flagged = 0;
    for packet in listed.iter_mut().filter(|packet| packet.name == "gts1") {
        let field = |name: &str| packet.fields.contains(&format!("{name}=true"));
        let flags = u8::from(field("wrapped")) << 6 | u8::from(field("clock_changed")) << 5;
        if flags != 0 {
            let shown = packet.bytes.split_off(8);
            let byte = u8::from_str_radix(&shown, 16).expect("hex");
            assert_eq!(byte & 0x60, flags);
            packet.bytes.push_str(&format!("{:02x}", byte & 0x1f));
            flagged += 1;
        }
    }
    assert_eq!(flagged, 3);
    assert_parity(&listed, &shared, "itm_only_raw", 0);
}
