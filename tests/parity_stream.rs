//! STM and ITM of the real captures against the expected readings, packet by packet.

mod stream_support;

use armsnap::formatter::FrameKind;
use armsnap::quantity::TraceId;
use armsnap::stm;
use stream_support::{assert_parity, deformat, list, shared};

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
