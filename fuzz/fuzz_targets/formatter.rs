#![no_main]

use armsnap::formatter::{Deformatter, Demux, FrameKind};
use armsnap::quantity::BufferOffset;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let Some((&first, bytes)) = bytes.split_first() else {
        return;
    };
    let kind = match first % 3 {
        0 => FrameKind::Memory,
        1 => FrameKind::Tpiu,
        _ => FrameKind::Dstream,
    };
    let mut demux = Demux::new();
    let mut deformatter = Deformatter::new(kind);
    let cut = usize::from(first) % (bytes.len() + 1);
    deformatter.feed(BufferOffset(0), &bytes[..cut], false, &mut demux);
    deformatter.feed(BufferOffset(cut as u64), &bytes[cut..], true, &mut demux);
    assert_eq!(deformatter.counts().sum(), bytes.len() as u64);
    for id in demux.ids().collect::<Vec<_>>() {
        let stream = demux.stream(id);
        let mut locator = stream.locator();
        let mut last = None;
        for index in 0..stream.payload().len() {
            let at = locator.locate(index);
            // Data after two adjacent IDs are counted from the first, as in other tools, and
            // may share its offset.
            assert!(at.0 < bytes.len() as u64 && Some(at) >= last);
            last = Some(at);
        }
    }
});
