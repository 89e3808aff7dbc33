//! STM and ITM of the real captures against the expected readings, packet by packet.

mod stream_support;

use armsnap::formatter::FrameKind;
use armsnap::quantity::TraceId;
use armsnap::{itm, stm};
use stream_support::{assert_parity, deformat, list, list_raw, shared};

const STM: TraceId = TraceId(0x20);

/// `tail` names the packets at the end that the reference does not reach.
fn stm_capture(snapshot: &str, file: &str, tail: &[&str]) {
    let Some(shared) = shared() else { return };
    let bytes = std::fs::read(shared.join("snapshots").join(snapshot).join(file)).expect("capture");
    for piece in [bytes.len(), 1000, 7] {
        let mut demux = deformat(FrameKind::Memory, &bytes, piece);
        let mut listed = list(&mut demux, STM, stm::Packets::new(), stm::Elements::new());
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

// The buffer is older data from byte 480 on, with a few bytes of the STM's ID at 896. The
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
    let config = itm::Config::new(0);
    let mut listed = list_raw(&bytes, itm::Packets::new(), itm::Elements::new(config));
    // The reference shows this packet's last byte, 0x77, without its flags; the file has them.
    let flagged = listed
        .iter_mut()
        .find(|packet| packet.bytes == "9482cffa77")
        .expect("a global timestamp with both flags");
    assert_eq!(flagged.offset, 201);
    flagged.bytes = "9482cffa17".to_owned();
    assert_parity(&listed, &shared, "itm_only_raw", 0);
}
